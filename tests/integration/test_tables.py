"""Topics as Arrow tables: what is read, as of when, and what is refused."""

from __future__ import annotations

import math
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparktxn import ConfigurationError, Producer, SinkCommit, Store, ViewExpired, read_arrow, to_duckdb, to_pandas
from sparktxn.errors import CommandRefused, StoreNotFound
from sparktxn.maintenance import rewrite, vacuum
from sparktxn.tables import to_polars

RIDES = pa.schema([("id", pa.int64()), ("zone", pa.string())])


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A store with the typed topic ``rides``, and ``orders``, ``empty`` and ``other`` of Kafka's record."""
    address = str(tmp_path / "store")
    with Store.open(address, create=True) as store:
        store.create_topic("rides", 2, schema=RIDES, settings={"append.inline.bytes": "0"})
        for name in ("orders", "empty", "other"):
            store.create_topic(name, 2)
    return address


def write(producer: Producer, *ids: int, commit: bool = True) -> None:
    """A transaction with a ride and an order for each id, in the partition of its parity."""
    producer.begin_transaction()
    for number in ids:
        producer.produce_arrow("rides", pa.table({"id": [number], "zone": [f"z{number % 3}"]}), partition=number % 2)
        producer.produce("orders", key=f"k{number}", value=f"v{number}", partition=number % 2)
    if commit:
        producer.commit_transaction()
    else:
        producer.flush()
        producer.abort_transaction()


def ids(uri: str | Store, **selection: Any) -> list[int]:
    return sorted(read_arrow(uri, "rides", **selection).read_all().column("id").to_pylist())


def test_only_committed_records_of_all_partitions_are_read_in_offset_order(uri: str, producer: Producer) -> None:
    write(producer, 1, 2, 3)
    write(producer, 4, 5, commit=False)
    write(producer, 6)
    producer.begin_transaction()
    producer.produce("orders", "open", partition=0)
    producer.flush()
    table = read_arrow(uri, "rides").read_all()
    assert table.column_names == ["id", "zone", "_topic", "_partition", "_offset", "_timestamp"]
    assert table.column("id").to_pylist() == [2, 6, 1, 3]
    orders = read_arrow(uri, "orders", columns=["partition", "offset", "value"]).read_all()
    assert orders.column("value").to_pylist() == [b"v2", b"v6", b"v1", b"v3"]
    assert ids(uri, isolation="read_uncommitted") == [1, 2, 3, 4, 5, 6]


def test_an_empty_topic_gives_an_empty_table_with_its_columns(uri: str) -> None:
    assert (
        read_arrow(uri, "rides", columns=["zone", "id"])
        .read_all()
        .equals(pa.schema([RIDES.field("zone"), RIDES.field("id")]).empty_table())
    )
    assert to_pandas(uri, "empty").shape == (0, 8)
    assert to_polars(uri, "empty").shape == (0, 8)
    assert to_duckdb(uri, "empty").fetchall() == []


def test_several_topics_follow_each_other_as_they_are_named(uri: str, producer: Producer) -> None:
    write(producer, 1)
    producer.begin_transaction()
    producer.produce("other", "o", partition=0)
    producer.commit_transaction()
    found = read_arrow(uri, ["other", "empty", "orders", "other"], columns=["topic", "value"]).read_all()
    assert found.to_pydict() == {"topic": ["other", "orders"], "value": [b"o", b"v1"]}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([("id", ">", 3)], [4, 5, 6]),
        ([("id", "==", 3)], [3]),
        ([("id", "in", {1, 5})], [1, 5]),
        ([("zone", "starts with", "z"), ("id", "<=", 2)], [1, 2]),
        ([("zone", "IS NOT  NULL")], [1, 2, 3, 4, 5, 6]),
        ([("_partition", "=", 1)], [1, 3, 5]),
        ([("_offset", "=", 0)], [1, 2]),
        ((pc.field("id") < 3) | (pc.field("zone") == "z2"), [1, 2, 5]),
        (pc.field("_partition") == 0, [2, 4, 6]),
        ([], [1, 2, 3, 4, 5, 6]),
    ],
    ids=str,
)
def test_conditions_choose_records_though_their_columns_are_not_returned(
    uri: str, producer: Producer, where: Any, expected: list[int]
) -> None:
    write(producer, 1, 2, 3, 4, 5, 6)
    assert ids(uri, columns=["id"], where=where) == expected


def test_a_batch_has_at_most_so_many_rows(uri: str, producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce_arrow("rides", pa.table({"id": range(10), "zone": ["z"] * 10}), partition=0)
    producer.commit_transaction()
    assert [batch.num_rows for batch in read_arrow(uri, "rides", batch_rows=4)] == [4, 4, 2]


def test_an_older_state_is_read_by_entry_time_and_transaction(uri: str, producer: Producer) -> None:
    write(producer, 1)
    with Store.open(uri) as store:
        entry, moment = store.view().entry, datetime.fromtimestamp(store.view().timestamp_ms / 1000, UTC)
        stager = store.stage_plan(["rides"]).open(seed=0, default_topic="rides")
        stager.write(pa.table({"id": [7], "zone": ["z"]}))
        store.commit(stager.finish(), transactional_id="sink", sink=SinkCommit("query", "run", 3))
        write(producer, 9)
        assert ids(store) == [1, 7, 9]
        assert ids(store, as_of=entry) == [1]
        assert ids(store, as_of="query:3") == [1, 7]
        assert ids(store, as_of=moment + timedelta(days=1)) == [1, 7, 9]
        with pytest.raises(CommandRefused):
            ids(store, as_of=moment - timedelta(days=400))


def test_a_reader_that_is_read_late_says_that_a_vacuum_has_passed_it(tmp_path: Path) -> None:
    options = {"checkpoint.entries": "4", "checkpoint.seal.segments": "2"}
    with Store.open(str(tmp_path), options=options, create=True) as store:
        store.create_topic("t")
        with Producer({"bootstrap.servers": store.uri, **options}) as producer:
            for number in range(12):
                producer.produce("t", str(number))
                producer.flush()
            reader = read_arrow(store, "t", columns=["offset", "value"])
            assert rewrite(store, {"rewrite.min.segments": 2}).ranges
            for number in range(12, 24):
                producer.produce("t", str(number))
                producer.flush()
        store.log.refresh()
        store.log.checkpoint()
        vacuum(store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0})
        with pytest.raises(ViewExpired):
            reader.read_all()
        assert read_arrow(store, "t").read_all().num_rows == 24


def test_files_are_those_of_the_view_with_what_another_engine_needs(uri: str, producer: Producer) -> None:
    write(producer, 1, 2)
    write(producer, 3, commit=False)
    write(producer, 5)
    with Store.open(uri) as store:
        files = store.files(store.view(["rides", "empty"]))
        assert store.files("rides") == files
        assert store.files("empty") == []
        with pytest.raises(CommandRefused, match="missing"):
            store.files("missing")
    assert [(file.topic, file.partition, file.base_offset, file.record_count, file.is_whole) for file in files] == [
        ("rides", 0, 0, 1, True),
        ("rides", 1, 0, 1, True),
        ("rides", 1, 4, 1, True),
    ]
    assert [pq.read_metadata(file.path).num_rows for file in files] == [1, 1, 1]
    assert [file.size_bytes for file in files] == [Path(file.path).stat().st_size for file in files]
    found = duckdb.read_parquet([file.path for file in files]).project("id").fetchall()
    assert sorted(found) == [(1,), (2,), (5,)]


def test_a_relation_of_duckdb_can_be_asked_twice_in_the_callers_database(uri: str, producer: Producer) -> None:
    write(producer, 1, 2, 3)
    with duckdb.connect() as database:
        rides = to_duckdb(uri, "rides", connection=database, columns=["id"])
        assert rides.aggregate("sum(id)").fetchall() == rides.aggregate("sum(id)").fetchall() == [(6,)]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"columns": ["zon"]}, "did you mean 'zone'"),
        ({"columns": ["id", "id"]}, "named twice"),
        ({"where": [("zon", "=", "z")]}, "did you mean 'zone'"),
        ({"where": [("id", "~", 1)]}, "expected one of"),
        ({"where": [("id", "=", "one")]}, "expected int64"),
        ({"where": [("id",)]}, "expected tuples"),
        ({"where": [("id", "between", {9, 1})]}, "expected two values"),
        ({"where": [("id", "in", bytearray(b"\x01"))]}, "expected a list"),
        ({"where": [("id", "not in", {1: "one"})]}, "expected a list"),
        ({"where": [("key", "like", "\udc80")]}, "half of a surrogate pair"),
        ({"where": ("id", "=", 1)}, "expected a list"),
        ({"where": pc.field("zon") == "z"}, "the columns are id, zone"),
        ({"where": pc.field("id") == "one"}, "where cannot be evaluated"),
        ({"as_of": datetime(2026, 1, 1)}, "without a zone"),
        ({"as_of": datetime(1960, 1, 1, tzinfo=UTC)}, "from 1970 on"),
        ({"as_of": "nothing"}, "as_of: transaction 'nothing' is not the name of one"),
        ({"isolation": "serializable"}, "read_committed"),
        ({"batch_rows": 0}, "batch_rows"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_named(uri: str, selection: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_arrow(uri, "rides", **selection)


@pytest.mark.parametrize("selection", [{"as_of": True}, {"as_of": 1.5}, {"where": "id = 1"}, {"where": 1}], ids=str)
def test_an_argument_of_a_wrong_type_is_named(uri: str, selection: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(selection))):
        read_arrow(uri, "rides", **selection)


def test_what_does_not_exist_is_named(uri: str, tmp_path: Path) -> None:
    with pytest.raises(CommandRefused, match="ride"):
        read_arrow(uri, "ride")
    with pytest.raises(StoreNotFound):
        read_arrow(str(tmp_path / "nowhere"), "rides")
    with pytest.raises(ConfigurationError, match="topics is empty"):
        read_arrow(uri, [])
    with pytest.raises(ConfigurationError, match="'rides' and 'orders' do not have the same columns"):
        read_arrow(uri, ["rides", "orders"])
    with Store.open(uri) as store, pytest.raises(ConfigurationError, match=r"Store\.open"):
        read_arrow(store, "rides", options={"storage.key": "k"})


def test_a_package_that_is_missing_is_named(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ModuleNotFoundError, match=r"^polars is not installed: .*pip install '\.\[polars\]'"):
        to_polars(uri, "rides")


@pytest.mark.parametrize("large", [2**53 + 1, -(2**63), 2**53])
def test_whole_numbers_with_nulls_are_not_rounded_in_pandas(large: int) -> None:
    uri = f"memory://rounded-{large}"
    with Store.open(uri, create=True) as store:
        schema = pa.schema([("v", pa.int64()), ("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64()))])
        store.create_topic("t", 1, schema=schema)
        with Producer({"bootstrap.servers": uri}) as producer:
            lists, maps = [[large, None], None], [[("a", large), ("b", None)], []]
            producer.produce_arrow("t", pa.table({"v": [large, None], "l": lists, "m": maps}, schema=schema))
        frame = to_pandas(store, "t", columns=["v", "l", "m"])
    assert int(frame["v"][0]) == int(frame["l"][0][0]) == int(frame["m"][0][0][1]) == large
    assert (frame["v"].dtype == float) is (large == 2**53)


def test_nan_of_pandas_is_null_and_that_of_arrow_stays() -> None:
    """pandas itself gives Arrow null for a NaN of numpy's, its sign of a missing value."""
    with Store.open("memory://nan", create=True) as store:
        schema = pa.schema([("v", pa.float64()), pa.field("id", pa.float64(), nullable=False)])
        store.create_topic("t", 1, schema=schema)
        with Producer({"bootstrap.servers": store.uri}) as producer:
            given = pd.DataFrame({"v": [1.0, math.nan], "id": [1.0, 2.0]})
            producer.produce_arrow("t", given)
            producer.produce_arrow("t", pa.table({name: given[name].to_numpy() for name in given}))
            producer.produce_arrow("t", pl.DataFrame({"v": [math.nan, None], "id": [1.0, 2.0]}))
            with pytest.raises(ConfigurationError, match="'id' of topic 't' may not be null"):
                producer.produce_arrow("t", given.rename(columns={"v": "id", "id": "v"}))
        found = read_arrow(store, "t", columns=["v"]).read_all()["v"].to_pylist()
    assert list(map(repr, found)) == ["1.0", "None", "1.0", "nan", "nan", "None"]
