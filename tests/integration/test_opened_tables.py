"""Published tables, opened by each engine: what a version has, which one is opened, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparktxn import ConfigurationError, Producer, Store, Table, open_table, read_arrow
from sparktxn._engine.format.schema import stored_schema
from sparktxn._engine.state import tables
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from sparktxn.errors import CommandRefused, StoreNotFound
from sparktxn.maintenance import publish_tables, rewrite, vacuum
from tests.everytype import EVERY_TYPE, FULL_ROW
from tests.world import next_number

RIDES = pa.schema([("id", pa.int64()), ("zone", pa.string())])

ENGINES: dict[str, Callable[[Table], list[dict[str, Any]]]] = {
    "arrow": lambda table: table.arrow().to_table().to_pylist(),
    "pandas": lambda table: pa.Table.from_pandas(table.pandas(), table.schema).to_pylist(),
    "polars": lambda table: table.polars().collect().to_arrow().to_pylist(),
    "duckdb": lambda table: table.duckdb().to_arrow_table().to_pylist(),
}

BY_EACH = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A store with the tables ``rides`` and ``orders``, and a topic that is none. Its folder has an odd name."""
    address = str(tmp_path / "a [b]*%20 'c")
    with Store.open(address, create=True) as store:
        store.create_topic("rides", 12, schema=RIDES, settings={"table.formats": "delta"})
        store.create_topic("orders", 1, settings={"table.formats": "iceberg"})
        store.create_topic("plain", 1)
    return address


def write(producer: Producer, *ids: int, commit: bool = True) -> None:
    """A transaction with a ride and an order for each id."""
    producer.begin_transaction()
    for number in ids:
        ride = pa.table({"id": [number], "zone": [f"z{number}"]})
        producer.produce_arrow("rides", ride, partition=number % 12)
        producer.produce("orders", key=f"k{number}", value=f"v{number}", headers=[("h", None)], partition=0)
    if commit:
        producer.commit_transaction()
    else:
        producer.flush()
        producer.abort_transaction()


def publish(uri: str, *topics: str) -> int:
    with Store.open(uri) as store:
        return publish_tables(store, topics or None).entry


def place(row: dict[str, Any]) -> tuple[int, int]:
    return row["kafka_partition"], row["_offset" if "_offset" in row else "offset"]


def rows(table: Table, engine: str = "arrow") -> list[dict[str, Any]]:
    return sorted(ENGINES[engine](table), key=place)


def ids(table: Table) -> list[int]:
    return sorted(row["id"] for row in rows(table))


def logged(uri: str, topic: str, **selection: Any) -> list[dict[str, Any]]:
    """The records that the log has, as rows of the topic's table."""
    found = read_arrow(uri, topic, **selection).read_all()
    renamed = {"_partition": "kafka_partition", "partition": "kafka_partition"}
    found = found.rename_columns([renamed.get(name, name) for name in found.column_names])
    own = [name for name in found.column_names if name not in ("_topic", "topic", "timestampType")]
    return sorted(found.select(own).to_pylist(), key=place)


@BY_EACH
@pytest.mark.parametrize("topic", ["rides", "orders"])
def test_each_engine_reads_what_the_log_has_committed(engine: str, topic: str, uri: str, producer: Producer) -> None:
    write(producer, 1, 2, 3, 14)
    write(producer, 4, commit=False)
    entry = publish(uri)
    write(producer, 5)
    table = open_table(uri, topic)
    assert (table.topic, table.version, table.entry, table.record_count) == (topic, 0, entry, 4)
    expected = logged(uri, topic, as_of=entry)
    assert len(expected) == 4
    assert rows(table, engine) == expected
    publish(uri)
    assert rows(table, engine) == expected, "it is the same version"
    assert rows(open_table(uri, topic), engine) == logged(uri, topic)


@BY_EACH
def test_each_engine_has_the_table_s_columns_in_their_order(engine: str, tmp_path: Path) -> None:
    address = str(tmp_path / "store")
    with Store.open(address, create=True) as store:
        declared = tuple(("a`'\"é" if name == "text" else name, kind, null) for name, kind, null in EVERY_TYPE)
        store.create_topic("t", 1, schema=declared, settings={"table.formats": "delta"})
        publish_tables(store)
        empty = open_table(store, "t")
        assert (empty.version, empty.record_count, empty.paths, rows(empty, engine)) == (0, 0, (), [])
        values = {"a`'\"é" if name == "text" else name: value for name, value in FULL_ROW.items()}
        _append(address, declared, values)
        publish_tables(store)
        added: Columns = (("later", "string", True), ("last", "list<int64>", True))
        store.add_columns("t", added)
        publish_tables(store)
        assert rows(open_table(store, "t", version=1), engine)[0].items() >= values.items()
        (only,) = rows(open_table(store, "t"), engine)
        assert only.items() >= {**values, "later": None, "last": None}.items(), "no file has these columns"
        more = values | {"later": "x", "last": [1]}
        _append(address, declared + added, more)
        publish_tables(store)
        table = open_table(store, "t")
        first, second = rows(table, engine)
        assert first == only
        assert second.items() >= more.items()
        assert list(second) == table.schema.names
        assert table.schema.names[-5:] == ["later", "last", "_timestamp", "_offset", "kafka_partition"]


def _append(address: str, columns: Columns, values: dict[str, Any]) -> None:
    with Producer({"bootstrap.servers": address}) as producer:
        producer.produce_arrow("t", pa.Table.from_pylist([values], _schema(columns)))


def _schema(columns: Columns) -> pa.Schema:
    return pa.schema(list(stored_schema(columns))[:-1])


def test_an_engine_reads_no_file_of_other_partitions(uri: str, producer: Producer) -> None:
    write(producer, 1, 2, 13)
    publish(uri)
    table = open_table(uri, "rides")
    for path in table.paths:
        if "kafka_partition=1/" not in path:
            Path(path).write_bytes(b"no Parquet file")
    where = pc.field("kafka_partition") == 1
    assert sorted(table.pandas(["id"], where)["id"]) == [1, 13]
    assert table.arrow().count_rows(filter=where) == 2
    assert table.polars().filter(pl.col("kafka_partition") == 1).select("id").collect()["id"].to_list() == [1, 13]
    assert table.duckdb().filter("kafka_partition = 1").aggregate("sum(id)").fetchall() == [(14,)]


def test_duckdb_reads_within_the_connection_that_is_given(uri: str, producer: Producer) -> None:
    write(producer, 1, 2)
    publish(uri)
    with duckdb.connect() as connection:
        relation = open_table(uri, "rides").duckdb(connection)
        relation.create("copied")
        assert connection.sql("SELECT count(*) FROM copied").fetchall() == [(2,)]
        with pytest.raises(TypeError, match="connection is 'c'"):
            open_table(uri, "rides").duckdb("c")  # type: ignore[arg-type]


def test_whole_numbers_are_exact_in_pandas(uri: str, producer: Producer) -> None:
    write(producer, 2**53 + 1)
    with producer.transaction():
        producer.produce_arrow("rides", pa.table({"id": pa.array([None], pa.int64()), "zone": ["x"]}))
    publish(uri)
    assert set(open_table(uri, "rides").pandas()["id"]) == {2**53 + 1, None}


@pytest.mark.parametrize("kept", [2, 128])
def test_each_version_that_is_kept_is_opened(kept: int, uri: str, producer: Producer, monkeypatch: Any) -> None:
    monkeypatch.setattr(tables, "_KEPT_MAX", kept)
    entries = []
    for number in range(7):
        write(producer, number)
        entries.append(publish(uri))
        if number == 4:
            with Store.open(uri) as store:
                rewrite(store, {"rewrite.min.segments": 2})
    for number, entry in enumerate(entries):
        table = open_table(uri, "rides", version=number)
        assert (table.version, table.entry, ids(table)) == (number, entry, list(range(number + 1)))
    assert open_table(uri, "rides").version == 6


def test_versions_without_a_change_are_opened_after_a_vacuum_has_passed_them(uri: str, producer: Producer) -> None:
    """The log is kept for those with other files than the newest one has."""
    with AdminClient({"bootstrap.servers": uri}) as admin:
        entry = ConfigEntry("table.history.ms", "0", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "rides", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()
    for number in range(3):
        write(producer, number)
        publish(uri, "rides")
    publish(uri, "rides")
    with Store.open(uri) as store:
        for _ in range(3):
            store.log.checkpoint()
            write(producer, 10)
            vacuum(store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0})
        with store.log.known() as state:
            (table,) = (each for each in state.tables() if each.name == "rides")
        first = table.kept[0]
        assert first.version < table.version
        assert first.published_entry < store.log.store_state().horizon
    for version in range(first.version, table.version + 1):
        opened = open_table(uri, "rides", version=version)
        assert (opened.version, ids(opened)) == (version, [0, 1, 2])
    assert open_table(uri, "rides", version=first.version).published_timestamp_ms == first.timestamp_ms


def test_a_version_is_opened_by_the_moment_at_which_it_was_the_newest(uri: str, producer: Producer) -> None:
    write(producer, 1)
    publish(uri, "rides")
    write(producer, 2)
    with Store.open(uri) as store:
        between = store.view().entry
        publish_tables(store)
        assert open_table(store, "rides", as_of=between).version == 0
        with pytest.raises(ConfigurationError, match=f"'orders' has no published version up to entry {between}: publ"):
            open_table(store, "orders", as_of=between)
        now = store.view()
        both = [open_table(store, topic, as_of=now.entry) for topic in ("rides", "orders")]
        assert [(table.version, table.entry) for table in both] == [(1, both[1].entry), (0, both[0].entry)]
        first = open_table(store, "rides", version=0)
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=first.published_timestamp_ms)
        assert open_table(store, "rides", as_of=when).version in (0, 1), "both may be of one millisecond"


def test_versions_that_do_not_exist_are_refused_with_those_that_do(uri: str, producer: Producer) -> None:
    for number in range(2):
        write(producer, number)
        publish(uri)
    with pytest.raises(ConfigurationError, match="'rides' has no version 2 yet; there are versions 0 to 1"):
        open_table(uri, "rides", version=2)
    with Store.open(uri) as store:
        store.create_topic("short", 1, settings={"table.formats": "delta", "table.history.ms": "0"})
        for number in range(3):
            with producer.transaction():
                producer.produce("short", f"{number}")
            publish_tables(store)
        kept = open_table(store, "short", as_of=store.view().entry).version
        with pytest.raises(ConfigurationError, match=r"no version 0 any more: table.history.ms .* versions [12] to 2"):
            open_table(store, "short", version=0)
        assert kept == 2


def test_what_is_no_table_or_was_never_published_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"topic 'plain' is not a table: set its table.formats"):
        open_table(uri, "plain")
    with pytest.raises(ConfigurationError, match=r"'rides' has no published version: publish_tables\(\), or txnlog"):
        open_table(uri, "rides")
    with pytest.raises(CommandRefused, match=r"topic 'ride' does not exist .*did you mean 'rides'"):
        open_table(uri, "ride")
    with pytest.raises(StoreNotFound):
        open_table(uri + "2", "rides")
    with pytest.raises(ConfigurationError, match="version and as_of both say"):
        open_table(uri, "rides", version=0, as_of=1)
    with Store.open(uri) as store, pytest.raises(ConfigurationError, match="options are given with an open store"):
        open_table(store, "rides", options={})


def test_the_last_version_of_a_topic_is_opened_after_it(uri: str, producer: Producer) -> None:
    write(producer, 1)
    publish(uri)
    with AdminClient({"bootstrap.servers": uri}) as admin:
        admin.delete_topics(["rides"])["rides"].result()
    assert ids(open_table(uri, "rides")) == [1], "nothing was published since"
    publish(uri)
    gone = open_table(uri, "rides")
    assert (gone.version, gone.record_count, rows(gone)) == (1, 0, [])
    assert ids(open_table(uri, "rides", version=0)) == [1]
    with Store.open(uri) as store:
        store.create_topic("rides", 1)
    with pytest.raises(ConfigurationError, match="'rides' is not a table"):
        open_table(uri, "rides")


def test_the_files_are_read_where_this_process_reaches_the_store(uri: str, producer: Producer, tmp_path: Path) -> None:
    write(producer, 1)
    with Store.open(uri) as store:
        publish_tables(store, location="s3a://bucket/shop")
    moved = tmp_path / "moved"
    shutil.move(uri, moved)
    table = open_table(moved, "rides")
    assert table.location.startswith("s3a://bucket/shop/topics/rides-")
    assert ids(table) == [1]


def test_a_folder_of_the_address_is_no_column(tmp_path: Path) -> None:
    address = str(tmp_path / "zone=7" / "store")
    with Store.open(address, create=True) as store, Producer({"bootstrap.servers": address}) as producer:
        store.create_topic("rides", 1, schema=RIDES, settings={"table.formats": "delta"})
        producer.produce_arrow("rides", pa.table({"id": [1], "zone": ["south"]}))
        producer.flush()
        publish_tables(store)
        table = open_table(store, "rides")
    for engine in ("arrow", "pandas", "duckdb"):
        assert [row["zone"] for row in rows(table, engine)] == ["south"]
    with pytest.raises(ConfigurationError, match="Polars takes the folder 'zone=7' of the store's address"):
        table.polars()


def test_a_store_in_memory_has_no_files() -> None:
    address = f"memory://opened-{next_number()}"
    with Store.open(address, create=True) as store, Producer({"bootstrap.servers": address}) as producer:
        store.create_topic("t", 1, settings={"table.formats": "delta"})
        producer.produce("t", "x")
        producer.flush()
        publish_tables(store)
        table = open_table(store, "t")
        assert table.record_count == 1
        for engine in ENGINES:
            with pytest.raises(ConfigurationError, match="topic 't' is in memory, and has no files that an engine can"):
                rows(table, engine)
