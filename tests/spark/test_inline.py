"""Inline records and files of one topic, in both orders, in batches, in streams and by `scan()`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog import scan
from sparktxn import Producer, Store
from sparktxn._engine.format import names
from sparktxn.maintenance import vacuum
from tests.spark.readers import Query, batch_reader, numbers_of, stream_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

TRANSACTIONS = 8
FILE_ROWS = 40


@pytest.fixture
def mixed(store: Store) -> list[int]:
    """Transactions of one record and of many; the first are in entries that a vacuum has kept. The numbers in them."""
    store.create_topic("t", 2, settings={"append.inline.bytes": "100"})
    numbers = 0
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "writer"}) as producer:
        producer.init_transactions()
        for number in range(TRANSACTIONS):
            with producer.transaction():
                for _ in range(FILE_ROWS if number % 2 else 1):
                    producer.produce("t", str(numbers), partition=0)
                    numbers += 1
                producer.produce("t", str(numbers), partition=1)
                numbers += 1
            if number in (3, 4):
                store.log.checkpoint()
        vacuum(store, {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0})
    found = segments_of(store)
    assert {names.is_inline(segment) for segment in found} == {True, False}
    return list(range(numbers))


def segments_of(store: Store, topic: str = "t") -> list[str]:
    view = store.view([topic])
    tasks = store.plan(view, store.ranges(view))
    return [segment.name for task in tasks for segment in task.segments]


def run_to_end(writer: DataStreamWriter, store: Store, topic: str, folder: Path) -> None:
    checkpoint = str(folder / "checkpoint")
    query = writer.format("txnlog").option("topic", topic).option("checkpointLocation", checkpoint).start(store.uri)
    query.awaitTermination()


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_a_batch_reads_both_in_both_orders(store: Store, mixed: list[int], order: str) -> None:
    assert sorted(numbers_of(batch_reader(store, order=order))) == mixed


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_a_stream_reads_both_in_both_orders(store: Store, mixed: list[int], order: str) -> None:
    query = Query(stream_reader(store, startingOffsets="earliest", order=order))
    found: list[int] = []
    while not query.is_idle():
        found += query.run()
    assert sorted(found) == mixed


def test_a_scan_reads_files_by_spark_and_few_inline_records_in_the_driver(
    spark: SparkSession, store: Store, mixed: list[int]
) -> None:
    frame = scan(spark, store.uri, "t")
    plan = str(frame._jdf.queryExecution().executedPlan())
    assert "FileScan parquet" in plan
    assert "LocalTableScan" in plan
    assert "MapInArrow" not in plan
    assert sorted(int(bytes(row.value)) for row in frame.collect()) == mixed


def test_a_session_reads_and_streams_both(spark: SparkSession, store: Store, mixed: list[int], tmp_path: Path) -> None:
    read = spark.read.format("txnlog").option("subscribe", "t").load(store.uri)
    assert sorted(int(bytes(row.value)) for row in read.select("value").collect()) == mixed
    store.create_topic("copy")
    source = spark.readStream.format("txnlog").option("subscribe", "t").option("startingOffsets", "earliest")
    run_to_end(
        source.load(store.uri).select("key", "value").writeStream.trigger(availableNow=True), store, "copy", tmp_path
    )
    assert sorted(numbers_of(batch_reader(store, subscribe="copy"))) == mixed
    assert all(names.is_inline(segment) for segment in segments_of(store, "copy")), "few rows need no file"


def test_a_large_micro_batch_is_uploaded_by_its_tasks(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    store.create_topic("t", 2)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100_000).load()
    run_to_end(rows.selectExpr("cast(value AS string) AS value").writeStream.trigger(once=True), store, "t", tmp_path)
    found = segments_of(store)
    assert len(found) >= 2
    assert not any(names.is_inline(segment) for segment in found)
    assert sorted(numbers_of(batch_reader(store))) == list(range(100_000))
