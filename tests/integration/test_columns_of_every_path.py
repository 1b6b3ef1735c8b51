"""One conversion of columns: a table is accepted or refused alike by every way into the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from sparktxn import ConfigurationError, Consumer, KafkaException, Producer, Store, TopicPartition
from sparktxn.admin import AdminClient, NewTopic

OPTIONS: Final = {"store.fsync": False}
TYPED: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("ratio", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.int32())),
    ]
)
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LARGE_HEADERS: Final = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
HEADER: Final = [[{"key": "h", "value": b"1"}]]
TWICE: Final = pa.Table.from_arrays([pa.array([b"x"]), pa.array([b"y"])], names=["value", "value"])


class Stream:
    """Another library's rows: all that is known of them is their Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def produced(uri: str, topic: str, table: Any) -> None:
    """Write as a producer does that has columns."""
    with Producer({"bootstrap.servers": uri, "transactional.id": "x", **OPTIONS}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.produce_arrow(topic, table)


def staged(uri: str, topic: str, table: Any) -> None:
    """Write as an engine does that stages and commits."""
    with Store.open(uri, options=OPTIONS) as store:
        stager = store.stage_plan([topic]).open(seed=0, default_topic=topic)
        stager.write(table)
        store.commit(stager.finish(), transactional_id="y")


def written_by_spark(uri: str, topic: str, table: Any) -> None:
    """Write as Spark's batch writer does, with the checks of its driver, without a session."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    from pyspark_txnlog.options.options import WriteOptions
    from pyspark_txnlog.writing.batch_writer import TxnLogWriter

    given = table if isinstance(table, pa.Table) else pa.table(table)
    try:
        schema = from_arrow_schema(given.schema)
    except PySparkException as error:
        pytest.skip(f"Spark has no such column: {error}")
    options = WriteOptions.parse({"path": uri, "topic": topic, "store.fsync": "false"}, "write")
    writer = TxnLogWriter(options, schema, overwrite=False)
    writer.commit([writer.write(iter(given.to_batches()))])


PATHS: Final[list[Callable[[str, str, Any], None]]] = [produced, staged, written_by_spark]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    address = str(tmp_path / "store")
    with AdminClient({"bootstrap.servers": address, **OPTIONS}) as admin:
        topics = [NewTopic("t", 1), NewTopic("typed", 1, schema=TYPED)]
        for future in admin.create_topics(topics).values():
            future.result()
    return address


def read(uri: str, topic: str) -> pa.Table | None:
    """Everything in the topic as consume_arrow returns it; None if there is nothing."""
    with Store.open(uri, options=OPTIONS) as store:
        end = store.view([topic]).partitions[topic, 0].log_end_offset
    if not end:
        return None
    with Consumer({"bootstrap.servers": uri, "group.id": "g", **OPTIONS}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return consumer.consume_arrow(timeout=30.0)


def text(*values: str | None) -> pa.Array:
    return pa.array(values)


ACCEPTED: Final[dict[str, tuple[str, Any, dict[str, Any]]]] = {
    "text": ("t", pa.table({"value": text("x")}), {"value": b"x", "key": None, "headers": None}),
    "large text": ("t", pa.table({"value": pa.array(["x"], pa.large_string())}), {"value": b"x"}),
    "views": ("t", pa.table({"value": pa.array([b"x"], pa.binary_view())}), {"value": b"x"}),
    "categories": ("t", pa.table({"value": text("x").dictionary_encode()}), {"value": b"x"}),
    "a null value": ("t", pa.table({"key": text("k"), "value": pa.nulls(1)}), {"key": b"k", "value": None}),
    "headers": ("t", pa.table({"value": [b"x"], "headers": pa.array(HEADER, HEADERS)}), {"headers": HEADER[0]}),
    "large headers": (
        "t",
        pa.table({"value": [b"x"], "headers": pa.array(HEADER, LARGE_HEADERS)}),
        {"headers": HEADER[0]},
    ),
    "microseconds": (
        "t",
        pa.table({"value": [b"x"], "timestamp": pa.array([1_500_999], pa.timestamp("us", "UTC"))}),
        {},
    ),
    "nanoseconds": (
        "t",
        pa.table({"value": [b"x"], "timestamp": pa.array([1_500_999_999], pa.timestamp("ns", "UTC"))}),
        {},
    ),
    "a partition": ("t", pa.table({"value": [b"x"], "partition": pa.array([0], pa.int64())}), {"partition": 0}),
    "a null partition": ("t", pa.table({"value": [b"x"], "partition": pa.array([None], pa.int32())}), {"value": b"x"}),
    "narrow integers": ("typed", pa.table({"id": pa.array([1], pa.int32())}), {"id": 1, "name": None}),
    "unsigned integers": ("typed", pa.table({"id": pa.array([1], pa.uint32())}), {"id": 1}),
    "narrow floats": ("typed", pa.table({"id": [1], "ratio": pa.array([0.5], pa.float32())}), {"ratio": 0.5}),
    "narrow decimals": (
        "typed",
        pa.table({"id": [1], "price": pa.array([Decimal("7.5")], pa.decimal128(5, 1))}),
        {"price": Decimal("7.50")},
    ),
    "narrow items": ("typed", pa.table({"id": [1], "tags": pa.array([[1]], pa.large_list(pa.int16()))}), {"tags": [1]}),
    "chunks": ("typed", pa.table({"id": pa.chunked_array([[1], [], [2]])}), {"id": 1}),
    "another library's": ("typed", Stream(pa.table({"id": [1], "name": ["x"]})), {"id": 1, "name": "x"}),
}

REFUSED: Final[dict[str, tuple[str, Any]]] = {
    "no value": ("t", pa.table({"key": [b"k"]})),
    "a number as value": ("t", pa.table({"value": [5]})),
    "another name": ("t", pa.table({"value": [b"x"], "vlaue": [b"x"]})),
    "a column twice": ("t", TWICE),
    "a time before 1970": ("t", pa.table({"value": [b"x"], "timestamp": pa.array([-5], pa.timestamp("ms", "UTC"))})),
    "a partition that is not": ("t", pa.table({"value": [b"x"], "partition": [1]})),
    "no id": ("typed", pa.table({"name": ["x"]})),
    "a null id": ("typed", pa.table({"id": pa.array([None], pa.int64())})),
    "text as a number": ("typed", pa.table({"id": ["1"]})),
    "a number as text": ("typed", pa.table({"id": [1], "name": [7]})),
    "wide integers": ("typed", pa.table({"id": pa.array([1], pa.uint64())})),
    "a float as integer": ("typed", pa.table({"id": [1.0]})),
    "wide decimals": ("typed", pa.table({"id": [1], "price": pa.array([Decimal("1.005")])})),
    "a time without zone": ("typed", pa.table({"id": [1], "at": pa.array([5], pa.timestamp("us"))})),
    "an unknown column": ("typed", pa.table({"id": [1], "nmae": ["x"]})),
    "another library's": ("typed", Stream(pa.table({"id": ["1"]}))),
}


@pytest.mark.parametrize("write", PATHS)
@pytest.mark.parametrize("name", ACCEPTED)
def test_every_path_accepts_what_loses_nothing(uri: str, name: str, write: Callable[[str, str, Any], None]) -> None:
    topic, table, expected = ACCEPTED[name]
    write(uri, topic, table)
    found = read(uri, topic)
    assert found is not None
    row = found.to_pylist()[0]
    assert {column: row[column] for column in expected} == expected


@pytest.mark.parametrize("write", PATHS)
@pytest.mark.parametrize("name", REFUSED)
def test_every_path_refuses_the_same_tables_and_stores_nothing(
    uri: str, name: str, write: Callable[[str, str, Any], None]
) -> None:
    topic, table = REFUSED[name]
    with pytest.raises(ConfigurationError):
        write(uri, topic, table)
    assert read(uri, topic) is None


@pytest.mark.parametrize("write", PATHS)
@pytest.mark.parametrize("topic", ["t", "typed"])
def test_what_consume_arrow_returned_can_be_written_as_it_is(
    uri: str, topic: str, write: Callable[[str, str, Any], None]
) -> None:
    rows = {"t": {"key": [b"k", None], "value": [b"x", b"y"]}, "typed": {"id": [1, 2], "name": ["a", None]}}[topic]
    produced(uri, topic, pa.table(rows))
    first = read(uri, topic)
    assert first is not None
    write(uri, topic, first)
    both = read(uri, topic)
    assert both is not None
    assigned = {"offset", "_offset"}
    copied = [{name: value for name, value in row.items() if name not in assigned} for row in both.to_pylist()]
    assert len(copied) == 4
    assert copied[:2] == copied[2:]


def test_a_data_frame_is_written_as_it_is(uri: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2], "name": ["a", None]})
    for write in (produced, staged):
        write(uri, "typed", frame)
    found = read(uri, "typed")
    assert found is not None
    assert found.select(["id", "name"]).to_pylist() == 2 * [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


@pytest.mark.parametrize("write", [produced, staged])
@pytest.mark.parametrize("given", [[], {"value": [b"x"]}, "x", None, pa.array([1]), pa.chunked_array([[1]]), Stream])
def test_what_has_no_rows_is_a_type_error(uri: str, given: object, write: Callable[[str, str, Any], None]) -> None:
    with pytest.raises(TypeError, match="batch is "):
        write(uri, "t", given)


def test_a_table_is_queued_whole_or_not_at_all(uri: str) -> None:
    """A row far behind the first slice is wrong: no row before it may be stored."""
    values = pa.table({"id": pa.array([1] * 70_000 + [None], pa.int64())})
    with Producer({"bootstrap.servers": uri, **OPTIONS}) as producer:
        with pytest.raises(KafkaException):
            producer.produce_arrow("typed", values)
        assert len(producer) == 0


def wrong_later() -> pa.RecordBatchReader:
    """A stream whose first batch is right, and whose second one fails while it is read."""
    schema = pa.schema([("value", pa.binary())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([b"first"])], schema=schema)
        raise RuntimeError("the source has failed")

    return pa.RecordBatchReader.from_batches(schema, batches())


def test_a_stream_that_fails_later_is_not_queued_in_part(uri: str) -> None:
    with Producer({"bootstrap.servers": uri, **OPTIONS}) as producer:
        with pytest.raises(pa.ArrowException, match="the source has failed"):
            producer.produce_arrow("t", wrong_later())
        assert producer.flush(10) == 0
    assert read(uri, "t") is None


@pytest.mark.parametrize("kind", ["stream", "table"])
def test_a_stager_never_commits_a_part_of_a_failed_write(uri: str, kind: str) -> None:
    times = pa.array([1] * 100_000 + [-1], pa.int64())
    table = pa.table({"value": pa.array([b"x"] * len(times)), "timestamp": times})
    with Store.open(uri, options=OPTIONS) as store:
        stager = store.stage_plan(["t"]).open(seed=0, default_topic="t")
        with pytest.raises((pa.ArrowException, ConfigurationError)) as failed:
            stager.write(wrong_later() if kind == "stream" else table)
        for call in (stager.finish, stager.finish):
            with pytest.raises(type(failed.value)) as again:
                call()
            assert again.value is failed.value
        other = store.stage_plan(["t"]).open(seed=0, default_topic="t")
        with pytest.raises(TypeError):
            other.write(5)
        other.write(pa.table({"value": [b"right"]}))
        store.commit(other.finish(), transactional_id="y")
    found = read(uri, "t")
    assert found is not None
    assert found.column("value").to_pylist() == [b"right"]
