"""The columns of a record's transaction: its producer, and the entry whose commit made it visible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog.options.options import READ_STREAM, ReadOptions
from pyspark_txnlog.reading.stream_reader import TxnLogStreamReader
from pyspark_txnlog.reading.streams import stream_reader_of
from sparktxn import ConfigurationError, Producer, Store
from sparktxn._engine.format.commands import ExpireTransactionalId
from sparktxn.maintenance import vacuum
from tests.spark.readers import batch_reader, read_schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = ("producer_id", "producer_epoch", "transactional_id", "entry")
Rows = dict[int, tuple[Any, ...]]
"""What each record, named by its value, has in the columns of its transaction."""


class Writers:
    """Producers that write numbers to partition 0 of topic ``t``, and what a reader must see of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.producers: dict[str, Producer] = {}
        self.expected: Rows = {}
        self._open: dict[str, list[int]] = {}

    def publish(self, name: str, *numbers: int) -> None:
        """Publish numbers in the open transaction of transactional id `name`, which this begins if there is none."""
        if name not in self.producers:
            self.producers[name] = Producer({"bootstrap.servers": self.store.uri, "transactional.id": name})
            self.producers[name].init_transactions()
        producer = self.producers[name]
        if name not in self._open:
            producer.begin_transaction()
        for number in numbers:
            producer.produce("t", str(number), partition=0)
        producer.flush()
        self._open.setdefault(name, []).extend(numbers)
        self._expect(name, numbers, None)

    def end(self, name: str, *, committed: bool = True) -> None:
        """End the open transaction of `name`."""
        producer = self.producers[name]
        if committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        entry = self.store.view(["t"]).entry
        self._expect(name, self._open.pop(name), entry if committed else None)

    def _expect(self, name: str, numbers: Any, entry: int | None) -> None:
        producer = self.producers[name]
        self.expected |= dict.fromkeys(numbers, (producer.producer_id, producer.producer_epoch, name, entry))

    def plain(self, number: int) -> None:
        """Write a number outside transactions."""
        with Producer({"bootstrap.servers": self.store.uri}) as producer:
            producer.produce("t", str(number), partition=0)
            producer.flush()
            entry = self.store.view(["t"]).entry
            self.expected[number] = (producer.producer_id, producer.producer_epoch, None, entry)

    def visible(self) -> Rows:
        """What a read_committed reader sees."""
        return {number: row for number, row in self.expected.items() if row[-1] is not None}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr("sparktxn._foundation.config.store.MERGE_RUNS", 2)
    options = {"store.fsync": False, "checkpoint.entries": 1_000, "checkpoint.seal.segments": 2}
    with Store.open(str(tmp_path / "store"), create=True, options=options) as opened:
        opened.create_topic("t", 2)
        yield opened


@pytest.fixture
def writers(store: Store) -> Iterator[Writers]:
    made = Writers(store)
    yield made
    for producer in made.producers.values():
        producer.close()


def rows_of(store: Store, **options: str) -> Rows:
    reader = batch_reader(store, includeTxnMetadata="true", **options)
    return in_rows(pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)]))


def in_rows(table: pa.Table) -> Rows:
    return {int(row["value"]): tuple(row[name] for name in METADATA) for row in table.to_pylist()}


def overlapping(writers: Writers, first: int = 0) -> None:
    """Transactions that overlap, one that is aborted, one that stays open, and a record outside transactions."""
    for number in range(6):
        base = first + 10 * number
        writers.publish("a", base)
        writers.publish("b", base + 1)
        writers.publish("a", base + 2)
        writers.end("a", committed=number != 3)
        writers.publish("c", base + 3)
        writers.end("b")
        writers.plain(base + 4)
        if number < 5:
            writers.end("c")


def test_every_row_names_its_producer_and_the_entry_that_committed_it(store: Store, writers: Writers) -> None:
    overlapping(writers)
    assert rows_of(store) == writers.visible()
    assert rows_of(store, isolationLevel="read_uncommitted") == writers.expected
    in_offset_order = rows_of(store, order="offset")
    assert in_offset_order == {number: writers.expected[number] for number in in_offset_order}
    assert len(in_offset_order) > 20


def test_rows_keep_them_after_sealing_merging_and_a_vacuum(store: Store, writers: Writers) -> None:
    for turn in range(3):
        overlapping(writers, 100 * turn)
        writers.end("c")
        store.log.checkpoint()
    assert store.view(["t"]).partitions["t", 0].sealed
    assert rows_of(store) == writers.visible()
    vacuum(store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0})
    with Store.open(store.uri) as opened:
        assert rows_of(opened) == writers.visible()
        assert rows_of(opened, isolationLevel="read_uncommitted").items() >= writers.visible().items()


def test_a_forgotten_transactional_id_is_null(store: Store, writers: Writers) -> None:
    writers.publish("a", 1)
    writers.end("a")
    record = store.log.transaction("a")
    assert record is not None
    command = ExpireTransactionalId("a", record.producer_id, record.producer_epoch, record.transaction)
    store.log.submit([command])
    producer_id, epoch, _, entry = writers.expected[1]
    assert rows_of(store) == {1: (producer_id, epoch, None, entry)}


def test_columns_and_schemas_choose_among_them(store: Store, writers: Writers) -> None:
    writers.publish("a", 1)
    writers.end("a")
    names = read_schema_of(store, includeTxnMetadata="true", includeHeaders="true").fieldNames()
    assert names[-5:] == ["headers", *METADATA]
    assert set(METADATA).isdisjoint(read_schema_of(store).fieldNames())
    reader = batch_reader(store, columns="entry,offset")
    (batch,) = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert batch.to_pylist() == [{"entry": writers.expected[1][-1], "offset": 0}]
    with pytest.raises(ConfigurationError, match=r"column 'producer' is unknown.*did you mean 'producer_id'"):
        read_schema_of(store, columns="producer")


def test_a_typed_topic_has_them_with_an_underscore(store: Store) -> None:
    schema = pa.schema([pa.field("entry", pa.string()), pa.field("n", pa.int64())])
    store.create_topic("typed", schema=schema)
    stager = store.stage_plan(["typed"]).open(seed=0, default_topic="typed")
    stager.write(pa.table({"entry": ["own"], "n": [7]}))
    entry = store.commit(stager.finish(), transactional_id="job").entry
    options = {"topic": "typed", "includeTxnMetadata": "true"}
    assert read_schema_of(store, **options).fieldNames() == ["entry", "n", *(f"_{name}" for name in METADATA)]
    reader = batch_reader(store, **options)
    (batch,) = [batch for part in reader.partitions() for batch in reader.read(part)]
    (row,) = batch.to_pylist()
    assert (row["entry"], row["n"], row["_transactional_id"], row["_entry"]) == ("own", 7, "job", entry)


def test_internal_topics_have_the_entry_alone(store: Store, writers: Writers) -> None:
    writers.publish("a", 1)
    reader = batch_reader(store, topic="__transaction_state", includeTxnMetadata="true")
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows
    for row in rows:
        assert row["_entry"] == row["entry"]
        assert row["_producer_id"] is row["_transactional_id"] is None


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_a_stream_has_them_in_both_orders(store: Store, writers: Writers, order: str) -> None:
    given = {"path": store.uri, "subscribe": "t", "order": order, "startingoffsets": "earliest"}
    given["includetxnmetadata"] = "true"
    reader: TxnLogStreamReader = stream_reader_of(
        ReadOptions.parse(given, READ_STREAM), read_schema_of(store, includeTxnMetadata="true")
    )
    start = reader.initialOffset()
    found: Rows = {}
    for number in range(3):
        writers.publish("a", 2 * number)
        writers.end("a")
        writers.plain(2 * number + 1)
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        for part in reader.partitions(start, end):
            found |= in_rows(pa.Table.from_batches(list(reader.read(part))))
        start = end
    assert found == writers.visible()
    assert len(found) == 6


def test_spark_reads_and_filters_them(spark: SparkSession, store: Store, writers: Writers) -> None:
    overlapping(writers)
    frame = spark.read.format("txnlog").options(subscribe="t", includeTxnMetadata="true").load(store.uri)
    rows = frame.selectExpr("cast(cast(value as string) as int) number", *METADATA).collect()
    assert {row.number: tuple(row[1:]) for row in rows} == writers.visible()
    entries = {row[-1] for row in writers.visible().values()}
    assert frame.groupBy("entry").count().count() == len(entries)
    assert frame.where("transactional_id = 'b'").count() == sum(row[2] == "b" for row in writers.visible().values())
    narrow = spark.read.format("txnlog").option("subscribe", "t").schema("entry long, value binary").load(store.uri)
    assert {int(row.value): row.entry for row in narrow.collect()} == {
        number: row[-1] for number, row in writers.visible().items()
    }
