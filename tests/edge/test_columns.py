"""Columns that no segment can hold are refused when they are given, not when their transaction commits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from sparktxn import KafkaException, Producer, Store, read_arrow
from sparktxn.admin import AdminClient, NewTopic

OPTIONS: Final = {"store.fsync": False}
COLUMNS: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("tags", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("struct", pa.struct([pa.field("a", pa.int32(), nullable=False)])),
        ("price", pa.decimal128(5, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BAD_TEXT: Final = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
)
WIDE_DECIMAL: Final = pa.Array.from_buffers(
    pa.decimal128(5, 2), 1, [None, pa.py_buffer((10**9).to_bytes(16, "little"))]
)
RECORDS: Final = {
    "null header key": pa.table({"value": [b"x"], "headers": pa.array([[{"key": None, "value": b"x"}]], HEADERS)}),
    "null header": pa.table({"value": [b"x"], "headers": pa.array([[None]], HEADERS)}),
    "bad utf8 key": pa.table({"key": pa.chunked_array([BAD_TEXT])}),
    "bad utf8 header": pa.table(
        {
            "value": [b"x"],
            "headers": pa.ListArray.from_arrays(
                pa.array([0, 1], pa.int32()),
                pa.StructArray.from_arrays([BAD_TEXT, pa.array([b"v"])], names=["key", "value"]),
            ),
        }
    ),
    "map headers": pa.table({"value": [b"x"], "headers": pa.array([[("a", b"b")]], pa.map_(pa.string(), pa.binary()))}),
    "large binary": pa.table({"value": pa.array([b"x"], pa.large_binary())}),
    "binary view": pa.table({"value": pa.array([b"x"], pa.binary_view())}),
    "dict": pa.table({"value": pa.array(["x", "x"]).dictionary_encode()}),
    "ree": pa.table({"value": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["x"]))}),
    "fixed": pa.table({"value": pa.array([b"xx"], pa.binary(2))}),
    "int value": pa.table({"value": [5]}),
    "float ts": pa.table({"value": [b"x"], "timestamp": [5.0]}),
    "int ts": pa.table({"value": [b"x"], "timestamp": [5]}),
    "neg ts": pa.table({"value": [b"x"], "timestamp": pa.array([-5], pa.timestamp("ms", tz="UTC"))}),
    "far ts": pa.table({"value": [b"x"], "timestamp": pa.array([2**62], pa.timestamp("ms", tz="UTC"))}),
    "us ts": pa.table({"value": [b"x"], "timestamp": pa.array([5001], pa.timestamp("us"))}),
    "s ts": pa.table({"value": [b"x"], "timestamp": pa.array([2**60], pa.timestamp("s"))}),
    "uint64 part": pa.table({"value": [b"x"], "partition": pa.array([2**63], pa.uint64())}),
    "neg part": pa.table({"value": [b"x"], "partition": [-1]}),
    "null part": pa.table({"value": [b"x"], "partition": pa.array([None], pa.int32())}),
    "float part": pa.table({"value": [b"x"], "partition": [0.5]}),
    "bool part": pa.table({"value": [b"x"], "partition": [True]}),
    "no cols": pa.table({}),
    "null col": pa.table({"value": pa.nulls(2)}),
    "only part": pa.table({"partition": [0, 1]}),
    "dup": pa.Table.from_arrays([pa.array([b"x"]), pa.array([b"y"])], names=["value", "value"]),
    "empty name": pa.table({"": [b"x"]}),
    "chunks": pa.table({"value": pa.chunked_array([[b"x"], [], [b"y"]])}),
    "chunk misalign": pa.table({"value": pa.chunked_array([[b"x"], [b"y"]]), "key": pa.chunked_array([[b"x", b"y"]])}),
    "empty chunks": pa.table({"value": pa.chunked_array([], pa.binary())}),
}
TYPED: Final = {
    "null id": pa.table({"id": pa.array([None], pa.int64())}),
    "no id": pa.table({"name": ["x"]}),
    "float id": pa.table({"id": [1.0]}),
    "half id": pa.table({"id": [1.5]}),
    "uint id": pa.table({"id": pa.array([2**63], pa.uint64())}),
    "bool id": pa.table({"id": [True]}),
    "text id": pa.table({"id": ["7"]}),
    "wrong text": pa.table({"id": ["x"]}),
    "null in tags": pa.table({"id": [1], "tags": pa.array([[None]], pa.list_(pa.int32()))}),
    "null in struct": pa.table({"id": [1], "struct": pa.array([{"a": None}], pa.struct([("a", pa.int32())]))}),
    "far decimal": pa.table({"id": [1], "price": pa.array([Decimal("99999.99")])}),
    "nan price": pa.table({"id": [1], "price": [float("nan")]}),
    "bad name": pa.table({"id": [1], "name": pa.chunked_array([BAD_TEXT])}),
    "bad price": pa.table({"id": [1], "price": pa.chunked_array([WIDE_DECIMAL])}),
    "far at": pa.table({"id": [1], "at": pa.array([2**62], pa.timestamp("s"))}),
    "date64": pa.table({"id": [1], "day": pa.array([5], pa.date64())}),
    "_offset": pa.table({"id": [1], "_offset": [5]}),
    "_timestamp text": pa.table({"id": [1], "_timestamp": ["x"]}),
    "ID": pa.table({"ID": [1]}),
}
TABLES: Final = {
    **{("t", name): table for name, table in RECORDS.items()},
    **{("typed", name): t for name, t in TYPED.items()},
}


def produced(uri: str, topic: str, table: pa.Table) -> Callable[[], object]:
    """Gives the table to a producer; the commit of its transaction."""
    producer = Producer({"bootstrap.servers": uri, "transactional.id": "x", **OPTIONS})
    producer.init_transactions()
    producer.begin_transaction()
    try:
        producer.produce_arrow(topic, table)
    except BaseException:
        producer.close(5)
        raise

    def commit() -> None:
        producer.commit_transaction(5)
        producer.close(5)

    return commit


def staged(uri: str, topic: str, table: pa.Table) -> Callable[[], object]:
    """Gives the table to a stager; the commit of its segments."""
    with Store.open(uri, options=OPTIONS) as store:
        stager = store.stage_plan([topic]).open(seed=0, default_topic=topic)
        stager.write(table)

    def commit() -> None:
        with Store.open(uri, options=OPTIONS) as store:
            store.commit(stager.finish(), transactional_id="y", timeout_s=5)

    return commit


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    address = str(Path(tmp_path_factory.mktemp("edge")) / "store")
    with AdminClient({"bootstrap.servers": address, **OPTIONS}) as admin:
        for future in admin.create_topics([NewTopic("t", 1), NewTopic("typed", 1, schema=COLUMNS)]).values():
            future.result()
    return address


@pytest.mark.parametrize("give", [produced, staged])
@pytest.mark.parametrize("place", TABLES, ids=" ".join)
def test_a_table_is_refused_at_once_or_stored_and_read(
    uri: str, place: tuple[str, str], give: Callable[[str, str, pa.Table], Callable[[], object]]
) -> None:
    try:
        commit = give(uri, place[0], TABLES[place])
    except (TypeError, ValueError, KafkaException) as error:
        assert not isinstance(error, pa.ArrowException | UnicodeError)  # noqa: PT017
        return
    commit()
    table = read_arrow(uri, place[0], options=OPTIONS).read_all()
    table.validate(full=True)
    assert len(table.to_pylist()) >= TABLES[place].num_rows
