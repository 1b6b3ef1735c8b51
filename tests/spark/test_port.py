"""Programs of Spark's guide to Kafka, with format and address changed; and what the catalog says where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException, StreamingQueryException

from sparktxn import Store
from tests.spark.readers import commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

pytestmark = pytest.mark.spark


@pytest.fixture
def topics(store: Store) -> Store:
    """Topics ``topic1`` and ``topic2`` with 60 records each, and ``other``."""
    for name in ("topic1", "topic2", "other"):
        store.create_topic(name, 2)
        commit(store, range(60), name)
    return store


def given(reader: DataFrameReader | DataStreamReader, store: Store, **options: Any) -> Any:
    return reader.format("txnlog").option("kafka.bootstrap.servers", store.uri).options(**options).load()


def test_a_batch_subscribes_to_a_pattern_from_the_earliest_to_the_latest_offsets(
    spark: SparkSession, topics: Store
) -> None:
    frame = given(
        spark.read,
        topics,
        subscribePattern="topic.*",
        startingOffsets="earliest",
        endingOffsets="latest",
        **{"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": "secret"},
    )
    pairs = frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "topic")
    counts = {row.topic: row["count"] for row in pairs.groupBy("topic").count().collect()}
    assert counts == {"topic1": 60, "topic2": 60}


def test_a_stream_subscribes_to_a_pattern_and_finds_topics_that_come_later(
    spark: SparkSession, topics: Store, tmp_path: Path
) -> None:
    def run() -> list[int]:
        options = {"subscribePattern": "topic.*", "startingTimestamp": "1000", "maxBytesPerTrigger": "1000000000"}
        frame = given(spark.readStream, topics, minOffsetsPerTrigger=1000, **options)
        query = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        started = query.trigger(availableNow=True).start(str(tmp_path / "rows"))
        started.awaitTermination(90)
        return [progress.numInputRows for progress in started.recentProgress if progress.numInputRows]

    assert run() == [120]
    topics.create_topic("topic3")
    commit(topics, range(7), "topic3")
    assert run() == [7]


def test_a_stream_with_a_wrong_option_ends_with_the_reason(spark: SparkSession, topics: Store, tmp_path: Path) -> None:
    frame = given(spark.readStream, topics, subscribe="topic1", endingOffsets="latest")
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination(60)
    errors = [line for line in str(failed.value).splitlines() if "Error: " in line]
    assert errors[-1].endswith("option 'endingOffsets' belongs to read, not to readStream")


TABLE = "options (path '{uri}', topic 'topic1')"


@pytest.mark.parametrize(
    "statements",
    [
        ["create table {table} using txnlog " + TABLE + " as select 'x' value"],
        ["create table {table} (value binary) using txnlog " + TABLE, "select * from {table}"],
        ["create table {table} (value binary) using txnlog " + TABLE, "insert into {table} values (null)"],
    ],
)
def test_a_table_that_loses_its_options_says_how_to_make_one_that_keeps_them(
    spark: SparkSession, topics: Store, statements: list[str]
) -> None:
    def run() -> None:
        for statement in statements:
            spark.sql(statement.format(table="lost", uri=topics.uri)).collect()

    spark.sql("drop table if exists lost")
    with pytest.raises(PySparkException, match=r"(?s)no options were given.*Create the table without columns"):
        run()
    spark.sql("drop table if exists lost")


def test_a_table_of_save_as_table_is_written_and_says_why_it_cannot_be_read(spark: SparkSession, topics: Store) -> None:
    spark.sql("drop table if exists saved")
    options = {"path": topics.uri, "topic": "topic1"}
    spark.sql("select 'x' value").write.format("txnlog").mode("append").options(**options).saveAsTable("saved")
    assert given(spark.read, topics, subscribe="topic1").count() == 61
    with pytest.raises(PySparkException, match=r"(?s)no options were given.*saveAsTable\(\).*Create the table"):
        spark.table("saved").count()
    spark.sql("drop table saved")
