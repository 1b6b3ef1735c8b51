"""Spark on the log's own history: `__transaction_state` and `__consumer_offsets`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from pyspark_txnlog.options.options import READ, ReadOptions
from pyspark_txnlog.options.spark_columns import schema_of
from pyspark_txnlog.reading.batch_reader import TxnLogReader
from sparktxn import Consumer, Producer, Store, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TRANSACTIONS = "__transaction_state"
OFFSETS = "__consumer_offsets"


@pytest.fixture
def history(store: Store) -> Store:
    """A store with twenty transactions, each with a group's offset, every fifth of them aborted."""
    store.create_topic("in", 2)
    store.create_topic("out", 2)
    transact(store, 20)
    return store


def transact(store: Store, count: int) -> None:
    with (
        Producer({"bootstrap.servers": store.uri, "transactional.id": "tx"}) as producer,
        Consumer({"bootstrap.servers": store.uri, "group.id": "g"}) as consumer,
    ):
        producer.init_transactions()
        for number in range(count):
            producer.begin_transaction()
            producer.produce("out", b"x")
            producer.send_offsets_to_transaction(
                [TopicPartition("in", number % 2, number)], consumer.consumer_group_metadata()
            )
            if number % 5 == 4:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def read(spark: SparkSession, store: Store, topic: str, **options: Any) -> DataFrame:
    return spark.read.format("txnlog").option("subscribe", topic).options(**options).load(store.uri)


def test_history_is_a_table_of_typed_columns(spark: SparkSession, history: Store) -> None:
    frame = read(spark, history, TRANSACTIONS)
    counts = {row.state: row["count"] for row in frame.groupBy("state").count().collect()}
    assert counts["PrepareCommit"] == counts["CompleteCommit"] == 16
    assert counts["PrepareAbort"] == counts["CompleteAbort"] == 4
    assert counts["Empty"] == 1
    offsets = read(
        spark, history, OFFSETS, columns="group_id,topic,partition,offset,transactional_id,_offset,_timestamp"
    )
    rows = offsets.orderBy("_offset").collect()
    assert [row.offset for row in rows] == [number for number in range(20) if number % 5 != 4]
    assert {(row.group_id, row.topic, row.transactional_id) for row in rows} == {("g", "in", "tx")}
    assert read(spark, history, OFFSETS).count() == 16


def test_tasks_are_split_by_entries_and_need_no_log(spark: SparkSession, history: Store) -> None:
    whole = read(spark, history, TRANSACTIONS).orderBy("entry", "transaction", "state").collect()
    frame = read(spark, history, TRANSACTIONS, minPartitions=4)
    assert frame.rdd.getNumPartitions() >= 4
    assert frame.orderBy("entry", "transaction", "state").collect() == whole
    options = ReadOptions.parse({"path": history.uri, "subscribe": OFFSETS, "rowsPerTask": "5"}, READ)
    schema = schema_of(history.view([OFFSETS]).topics.values(), options)
    reader = TxnLogReader(options, schema, None)
    parts = reader.partitions()
    assert len(parts) > 4
    away = pickle.loads(pickle.dumps(reader))
    assert sum(batch.num_rows for part in pickle.loads(pickle.dumps(parts)) for batch in away.read(part)) == 16


def test_offsets_bound_a_read_and_a_view_can_be_old(spark: SparkSession, history: Store) -> None:
    rows = read(spark, history, OFFSETS, columns="offset,_offset,entry").orderBy("_offset").collect()
    starting = f'{{"{OFFSETS}":{{"0":{rows[3]._offset}}}}}'
    ending = f'{{"{OFFSETS}":{{"0":{rows[6]._offset}}}}}'
    some = read(spark, history, OFFSETS, startingOffsets=starting, endingOffsets=ending).collect()
    assert [row.offset for row in some] == [row.offset for row in rows[3:6]]
    old = read(spark, history, OFFSETS, asOfEntry=rows[4].entry).collect()
    assert [row.offset for row in old] == [row.offset for row in rows[:5]]


def test_a_filter_on_a_column_called_offset_is_no_range_of_the_log(spark: SparkSession, history: Store) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, history, OFFSETS, columns="offset,partition,_offset")
        assert [row.offset for row in frame.where("offset = 7").collect()] == [7]
        assert frame.where("partition = 1").count() == 8
        last = frame.orderBy("_offset").collect()[-1]
        assert [row.offset for row in frame.where(f"_offset >= {last._offset}").collect()] == [last.offset]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def stream(spark: SparkSession, store: Store, topic: str, folder: Path, table: str, **options: Any) -> list[int]:
    """Runs a stream into a Parquet folder until nothing is left; the rows of each micro-batch."""
    frame = spark.readStream.format("txnlog").option("subscribe", topic).option("startingOffsets", "earliest")
    query = (
        frame.options(**options)
        .load(store.uri)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / f"{table}-checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / table))
    )
    query.awaitTermination(90)
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_a_stream_follows_the_history_in_limited_batches(spark: SparkSession, history: Store, tmp_path: Path) -> None:
    batches = stream(spark, history, OFFSETS, tmp_path, "offsets", maxOffsetsPerTrigger=10)
    assert sum(batches) == 16
    assert max(batches) <= 10
    transact(history, 4)
    assert sum(stream(spark, history, OFFSETS, tmp_path, "offsets")) == 4
    assert stream(spark, history, OFFSETS, tmp_path, "offsets") == []
    assert spark.read.parquet(str(tmp_path / "offsets")).count() == 20


def test_history_cannot_be_written_to(spark: SparkSession, history: Store) -> None:
    for creating in ("false", "true"):
        with pytest.raises(PySparkException, match="internal"):
            spark.range(1).selectExpr("cast(id as string) value").write.format("txnlog").mode("append").option(
                "topic", TRANSACTIONS
            ).option("createTopic", creating).save(history.uri)
