"""System tables and the history of entries: each row against what was done, now and at older entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog.options.options import READ
from pyspark_txnlog.reading.system_tables import SystemTableReader, TableOptions, table_schema
from sparktxn import ConfigurationError, Consumer, Producer, SinkCommit, Store, TopicPartition, ViewExpired
from sparktxn._engine.format import names
from sparktxn.maintenance import vacuum
from sparktxn.store import SYSTEM_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    options = {"store.fsync": False, "checkpoint.seal.segments": 2}
    with Store.open(str(tmp_path / "store"), create=True, options=options) as opened:
        opened.create_topic("t", 2)
        opened.create_topic("u", 1)
        yield opened


@pytest.fixture
def producer(store: Store) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "orders-1"}) as made:
        made.init_transactions()
        yield made


def rows_of(store: Store, table: str, **options: Any) -> Rows:
    given = {"path": store.uri, "table": table, **{name.lower(): str(value) for name, value in options.items()}}
    parsed = TableOptions.parse(given, READ)
    reader = SystemTableReader(parsed, *table_schema(parsed))
    parts = reader.partitions()
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def newest(store: Store) -> int:
    return store.view([]).entry


def publish(producer: Producer, *numbers: int, topic: str = "t") -> None:
    """Begin a transaction and publish numbers in partition 0."""
    producer.begin_transaction()
    for number in numbers:
        producer.produce(topic, str(number), partition=0)
    producer.flush()


def commit_batch(store: Store, batch_id: int, count: int = 3, writer_id: str = "query") -> int:
    stager = store.stage_plan(["t", "u"]).open(seed=0)
    topics = [("t", "u")[number % 2] for number in range(count)]
    stager.write(pa.table({"value": [str(number) for number in range(count)], "topic": topics}))
    sink = SinkCommit(writer_id=writer_id, run_id="run", batch_id=batch_id)
    return store.commit(stager.finish(), transactional_id=f"spark-{writer_id}", sink=sink).entry


def test_transactions_shows_the_open_one_with_its_age_and_what_it_holds(store: Store, producer: Producer) -> None:
    publish(producer, 1)
    producer.send_offsets_to_transaction([TopicPartition("u", 0, 0)], _metadata(store))
    producer.flush()
    entry = commit_batch(store, 7)
    by_id = {row["transactional_id"]: row for row in rows_of(store, "transactions")}
    opened, sink = by_id["orders-1"], by_id["spark-query"]
    assert (opened["state"], opened["partitions"]) == ("Ongoing", [{"topic": "t", "partition": 0}])
    assert 0 <= opened["age_ms"] < 600_000
    assert (opened["timeout_ms"], opened["groups"], opened["prepared"]) == (60_000, ["readers"], False)
    assert (opened["producer_id"], opened["query_id"]) == (producer.producer_id, None)
    assert (sink["state"], sink["age_ms"], sink["partitions"]) == ("CompleteCommit", None, [])
    assert (sink["query_id"], sink["run_id"], sink["batch_id"], sink["batch_entry"]) == ("query", "run", 7, entry)


def _metadata(store: Store) -> Any:
    with Consumer({"bootstrap.servers": store.uri, "group.id": "readers"}) as consumer:
        return consumer.consumer_group_metadata()


def test_producers_are_those_of_every_partition(store: Store, producer: Producer) -> None:
    publish(producer, 1, 2)
    (row,) = rows_of(store, "producers")
    assert (row["topic"], row["partition"], row["transactional_id"]) == ("t", 0, "orders-1")
    assert (row["producer_id"], row["producer_epoch"]) == (producer.producer_id, producer.producer_epoch)
    assert (row["last_sequence"], row["current_transaction_start_offset"]) == (1, 0)
    producer.commit_transaction()
    (row,) = rows_of(store, "producers")
    assert row["current_transaction_start_offset"] is None


def test_groups_have_their_lag_and_who_holds_it(store: Store, producer: Producer) -> None:
    publish(producer, *range(5))
    producer.commit_transaction()
    with Consumer({"bootstrap.servers": store.uri, "group.id": "readers"}) as consumer:
        consumer.commit(offsets=[TopicPartition("t", 0, 2, metadata="here")], asynchronous=False)
    publish(producer, 9, topic="u")
    producer.send_offsets_to_transaction([TopicPartition("t", 1, 0)], _metadata(store))
    producer.flush()
    first, second = rows_of(store, "groups")
    # Five records and the marker that ends their transaction.
    assert (first["topic"], first["partition"], first["offset"], first["log_end_offset"]) == ("t", 0, 2, 6)
    assert (first["group_id"], first["lag"], first["metadata"]) == ("readers", 4, "here")
    assert first["pending_transactional_ids"] == []
    assert (second["partition"], second["offset"], second["lag"]) == (1, None, None)
    assert second["pending_transactional_ids"] == ["orders-1"]


def test_entries_say_what_each_entry_did(store: Store, producer: Producer) -> None:
    before = newest(store)
    publish(producer, 1, 2)
    producer.commit_transaction()
    publish(producer, 3)
    producer.abort_transaction()
    with Producer({"bootstrap.servers": store.uri}) as plain:
        plain.produce("u", "x")
        plain.flush()
    batch = commit_batch(store, 4, count=5)
    rows = {row["entry"]: row for row in rows_of(store, "entries")}
    assert list(rows) == list(range(1, newest(store) + 1))
    assert rows[1]["operations"] == ["create_topic"]
    (ended,) = rows[batch]["transactions"]
    assert (ended["committed"], ended["query_id"], ended["run_id"], ended["batch_id"]) == (True, "query", "run", 4)
    assert rows[batch]["records"] == [{"topic": "t", "record_count": 3}, {"topic": "u", "record_count": 2}]
    assert (rows[batch]["topics"], rows[batch]["record_count"]) == (["t", "u"], 5)
    ended_here = [ended for row in rows.values() for ended in row["transactions"]]
    assert [one["committed"] for one in ended_here if one["transactional_id"] == "orders-1"] == [True, False]
    assert {one["producer_id"] for one in ended_here if one["transactional_id"] == "orders-1"} == {producer.producer_id}
    assert [row["record_count"] for row in rows.values() if row["entry"] > before and row["record_count"]] == [
        2,
        1,
        1,
        5,
    ]
    assert all(rows[entry]["timestamp"] <= rows[entry + 1]["timestamp"] for entry in range(1, batch))


def test_entries_can_be_limited(store: Store) -> None:
    for number in range(6):
        commit_batch(store, number)
    last = newest(store)
    assert [row["entry"] for row in rows_of(store, "entries", limit=2)] == [last - 1, last]
    assert [row["entry"] for row in rows_of(store, "entries", startingEntry=3, endingEntry=4)] == [3, 4]
    assert [row["entry"] for row in rows_of(store, "entries", asOfEntry=4, limit=1)] == [4]
    with pytest.raises(ConfigurationError, match=f"is {last + 1}: the log ends at entry {last}"):
        rows_of(store, "entries", endingEntry=last + 1)


def test_entries_begin_where_a_vacuum_has_left_them(store: Store) -> None:
    for number in range(4):
        commit_batch(store, number)
        store.log.checkpoint()
    commit_batch(store, 4)
    vacuum(store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0})
    rows = rows_of(store, "entries")
    assert rows
    assert rows[0]["entry"] > 1
    assert rows[-1]["entry"] == newest(store)
    with pytest.raises(ViewExpired, match="the history of entry 1 can no longer be computed"):
        rows_of(store, "entries", startingEntry=1)


def test_segments_with_files_of_their_own_name_them(store: Store) -> None:
    store.create_topic("files", 1, settings={"append.inline.bytes": "0"})
    with Producer({"bootstrap.servers": store.uri}) as producer:
        producer.produce("files", "1")
    (row,) = rows_of(store, "segments", topic="files")
    assert (Path(store.uri) / row["file"]).stat().st_size == row["size_bytes"]


def test_segments_say_who_wrote_them_and_what_became_of_them(store: Store, producer: Producer) -> None:
    publish(producer, 1, 2)
    producer.commit_transaction()
    committed = newest(store)
    publish(producer, 3)
    producer.abort_transaction()
    publish(producer, 4)
    for checkpoint in (False, True):
        if checkpoint:
            store.log.checkpoint()
        rows = rows_of(store, "segments", topic="t")
        assert [(row["state"], row["record_count"], row["base_offset"]) for row in rows] == [
            ("committed", 2, 0),
            ("aborted", 1, 3),
            ("open", 1, 5),
        ]
        assert [row["committed_entry"] for row in rows] == [committed, None, None]
        assert {row["producer_id"] for row in rows} == {producer.producer_id}
        assert [row["file"] for row in rows] == [names.entry(row["entry"]) for row in rows], "they are inline"
    assert rows_of(store, "segments", topic="u") == []
    assert len(rows_of(store, "segments", asOfEntry=committed)) == 1


def test_tables_travel_in_time(store: Store) -> None:
    first = commit_batch(store, 1)
    commit_batch(store, 2)
    assert [row["batch_id"] for row in rows_of(store, "transactions")] == [2]
    assert [row["batch_id"] for row in rows_of(store, "transactions", asOfEntry=first)] == [1]
    assert rows_of(store, "transactions", asOfEntry=1) == []


def test_a_reader_stays_at_its_entry(store: Store) -> None:
    commit_batch(store, 1)
    parsed = TableOptions.parse({"path": store.uri, "table": "transactions"}, READ)
    reader = SystemTableReader(parsed, *table_schema(parsed))
    commit_batch(store, 2)
    (part,) = reader.partitions()
    (batch,) = reader.read(part)
    assert batch.column("batch_id").to_pylist() == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "transaction"}, r"option 'table' is 'transaction': expected one of .*did you mean 'transactions'"),
        ({"table": "groups", "subscribe": "t"}, r"option 'subscribe' does not go with the system table 'groups'"),
        ({"table": "segments", "limit": "3"}, r"option 'limit' does not go with the system table 'segments'"),
        ({"table": "entries", "limit": "0"}, r"'limit' is '0': expected a whole number from 1"),
        ({"table": "groups", "asofentry": "1", "asoftimestamp": "1"}, r"'asOfEntry' and 'asOfTimestamp' exclude"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TableOptions.parse({"path": "/nowhere", **options}, READ)


def test_spark_reads_every_table(spark: SparkSession, store: Store, producer: Producer) -> None:
    commit_batch(store, 1)
    publish(producer, 1)
    for table, schema in SYSTEM_TABLES.items():
        rows = spark.read.format("txnlog").option("table", table).load(store.uri).collect()
        expected = rows_of(store, table)
        assert len(rows) == len(expected)
        assert all(row.__fields__ == schema.names for row in rows)
        keys = [name for name in ("transactional_id", "entry", "base_offset", "topic") if name in schema.names]
        found = sorted(tuple(row[key] for key in keys) for row in rows)
        assert found == sorted(tuple(row[key] for key in keys) for row in expected)
    entries = spark.read.format("txnlog").option("table", "entries").load(store.uri)
    flat = entries.selectExpr("entry", "inline(transactions)").where("query_id = 'query'").collect()
    assert [(row.batch_id, row.committed) for row in flat] == [(1, True)]
    narrow = spark.read.format("txnlog").option("table", "segments").schema("record_count long, topic string")
    rows = narrow.load(store.uri).collect()
    assert sum(row.record_count for row in rows if row.topic == "t") == 3
    assert {row.__fields__[0] for row in rows} == {"record_count"}
