"""A query of Spark that is stopped within a micro-batch, and started again after jobs have removed its records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

import pyspark_txnlog
from sparktxn import Producer, Store, TopicPartition
from sparktxn.admin import AdminClient
from sparktxn.maintenance import apply_retention, compact, rewrite, vacuum

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

COMPACTED = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0", "retention.bytes": "1"}
AT_ONCE = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}

Function = Callable[["DataFrame", int], None]
Start = Callable[["SparkSession", Store, Function, Path, dict[str, str]], None]


class _Stopped(Exception):
    """Ends a query in the middle of a micro-batch."""


def _source(spark: SparkSession, store: Store, function: Function, checkpoint: Path, options: dict[str, str]) -> None:
    frame = spark.readStream.format("txnlog").options(topic="t", **options).load(store.uri)
    _run(frame.writeStream.foreachBatch(function), checkpoint)


def _scan(spark: SparkSession, store: Store, function: Function, checkpoint: Path, options: dict[str, str]) -> None:
    _run(pyspark_txnlog.scan_stream(spark, store.uri, "t", function, options), checkpoint)


def _run(writer: DataStreamWriter, checkpoint: Path) -> None:
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination(120)


def _write(store: Store, first: int, count: int) -> None:
    """Write so many transactions, each of one record of three keys: a compaction removes most of them."""
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "w"}) as producer:
        producer.init_transactions()
        for number in range(first, first + count):
            producer.begin_transaction()
            producer.produce("t", b"%d" % number, b"k%d" % (number % 3), partition=0)
            producer.commit_transaction()


def _compact(store: Store) -> None:
    assert compact(store).removed_records


def _delete_records(store: Store) -> None:
    with AdminClient({"bootstrap.servers": store.uri}) as admin:
        admin.delete_records([TopicPartition("t", 0, -1)])[TopicPartition("t", 0)].result()


def _all_jobs(store: Store) -> None:
    _compact(store)
    rewrite(store)
    _write(store, 100, 3)
    apply_retention(store)
    _delete_records(store)
    store.log.checkpoint()
    vacuum(store)


class Query:
    """A query that notes what its micro-batches have read, and stops within the one of the number `stops_at`."""

    def __init__(self, store: Store, start: Start, order: str, folder: Path) -> None:
        store.create_topic("t", 1, settings=COMPACTED)
        _write(store, 0, 8)
        self.store = store
        self.read: list[tuple[int, list[int]]] = []
        self.stops_at = -1
        self.checkpoint = folder / "checkpoint"
        self.options = {"order": order, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
        self._start = start

    def run(self, spark: SparkSession) -> None:
        """Run until nothing is left, or until it stops."""
        self._start(spark, self.store, self._collect, self.checkpoint, self.options)

    def run_until(self, spark: SparkSession, stops_at: int) -> None:
        """Run up to this micro-batch, whose rows are read, and whose function fails."""
        self.stops_at = stops_at
        with pytest.raises(StreamingQueryException, match="_Stopped"):
            self.run(spark)
        self.stops_at = -1

    def forget_last(self) -> None:
        """Remove what says that the last micro-batch is done, as if the driver had died before it wrote that."""
        last = self.read[-1][0]
        for name in (f"{last}", f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def _collect(self, rows: DataFrame, batch_id: int) -> None:
        self.read.append((batch_id, sorted(int(bytes(row.value)) for row in rows.select("value").collect())))
        if batch_id == self.stops_at:
            raise _Stopped


@pytest.mark.parametrize(
    ("start", "order"),
    [
        (_source, "commit"),
        pytest.param(_source, "offset", marks=pytest.mark.nightly),
        pytest.param(_scan, "commit", marks=pytest.mark.nightly),
        pytest.param(_scan, "offset", marks=pytest.mark.nightly),
    ],
)
def test_a_micro_batch_that_a_restart_repeats_has_the_same_rows(
    spark: SparkSession, store: Store, tmp_path: Path, start: Start, order: str
) -> None:
    query = Query(store, start, order, tmp_path)
    query.options["failOnDataLoss"] = "false"
    query.run_until(spark, 1)
    (_, first), (_, second) = query.read
    assert first
    assert second
    assert not set(first) & set(second)
    _all_jobs(store)
    query.run(spark)
    assert query.read[2] == query.read[1]


@pytest.mark.nightly
@pytest.mark.parametrize("order", ["commit", "offset"])
@pytest.mark.parametrize("start", [_source, _scan])
def test_a_micro_batch_whose_end_was_lost_has_the_same_rows(
    spark: SparkSession, store: Store, tmp_path: Path, start: Start, order: str
) -> None:
    query = Query(store, start, order, tmp_path)
    query.options["failOnDataLoss"] = "false"
    query.run(spark)
    count, last = len(query.read), query.read[-1]
    assert last[1]
    query.forget_last()
    _write(store, 200, 4)
    _all_jobs(store)
    query.run(spark)
    assert query.read[count] == last


@pytest.mark.nightly
@pytest.mark.parametrize("order", ["commit", "offset"])
@pytest.mark.parametrize("start", [_source, _scan])
def test_a_restart_after_the_view_has_expired_says_what_was_removed(
    spark: SparkSession, store: Store, tmp_path: Path, start: Start, order: str
) -> None:
    query = Query(store, start, order, tmp_path)
    query.run_until(spark, 0)
    _delete_records(store)
    for number in range(3):
        _write(store, 100 + number, 1)
        store.log.checkpoint()
        vacuum(store, AT_ONCE)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        query.run(spark)
