"""`read_stream()` and `write_stream()`: streams of topics in one line each, with the options of source and sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from pyspark_txnlog import read_stream, write_stream
from pyspark_txnlog.writing import foreach as written
from sparktxn import ConfigurationError, Store
from tests.spark.sessions import values

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark


def run(writer: DataStreamWriter) -> None:
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert query.exception() is None


def read(spark: SparkSession, store: Store, topic: str) -> list[int]:
    return values(spark.read.format("txnlog").option("subscribe", topic).load(store.uri))


def test_a_topic_is_copied_and_continued_with_its_offsets(
    spark: SparkSession, store: Store, numbers: Callable[..., DataFrame], tmp_path: Path
) -> None:
    store.create_topic("in", 2)
    given = {"checkpointLocation": str(tmp_path / "checkpoint"), "commitGroup": "copies"}

    def copy() -> None:
        stream = read_stream(spark, store.uri, ["in"], {"startingOffsets": "earliest"}, maxOffsetsPerTrigger=4)
        run(write_stream(stream.select("value"), store.uri, "out", given, createTopic=True, createTopicPartitions=2))

    for first in (0, 10):
        numbers(first, first + 10).write.format("txnlog").mode("append").option("topic", "in").save(store.uri)
        copy()
        assert read(spark, store, "out") == list(range(first + 10))
    assert sum(offset.offset for offset in store.committed_offsets("copies").topic_partitions or ()) >= 20


def test_update_mode_and_a_column_of_topics(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    for topic in ("0", "1"):
        store.create_topic(topic, 1)
    spark.range(6).write.parquet(str(tmp_path / "rows"))
    counts = spark.readStream.schema("id long").parquet(str(tmp_path / "rows")).groupBy(F.expr("id % 2 n")).count()
    rows = counts.selectExpr("string(n) topic", "string(count) value")
    writer = write_stream(rows, store.uri, transactionalId="counts").outputMode("update")
    run(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    assert [read(spark, store, topic) for topic in ("0", "1")] == [[3], [3]]
    assert store.log.transaction("counts") is not None


def test_a_frame_of_spark_connect_is_written_by_the_sink(
    spark: SparkSession, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "is_classic", lambda frame: False)
    store.create_topic("t", 1)
    spark.range(3).write.parquet(str(tmp_path / "rows"))
    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "rows")).selectExpr("string(id) value")
    run(write_stream(rows, store.uri, "t", checkpointLocation=str(tmp_path / "checkpoint")))
    assert read(spark, store, "t") == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"df": 5}, TypeError, r"df is 5 \(int\): expected a DataFrame"),
        ({"topic": 5}, TypeError, r"topic is 5 \(int\): expected a str"),
        ({"options": 5}, TypeError, "options is 5"),
        ({"topik": "t"}, ConfigurationError, "did you mean 'topic'"),
        ({"createTopic": 1.5}, TypeError, "option 'createTopic' is of type float"),
        ({"commitGroup": "g"}, ConfigurationError, "'commitGroup' needs the option 'checkpointLocation'"),
        ({"path": "other"}, ConfigurationError, "option 'path' is given twice, with different values"),
        ({"TOPIC": "other"}, ConfigurationError, "option 'TOPIC' is given twice"),
        ({"options": {"createTopic": True}, "createtopic": False}, ConfigurationError, "'createtopic' is given twice"),
        ({"options": {"storage.Key": "a", "storage.key": "b"}}, ConfigurationError, "'storage.key' is given twice"),
        ({"query_id": "q"}, ConfigurationError, "unknown option 'query_id'"),
        ({"outputs": "q"}, ConfigurationError, "unknown option 'outputs'"),
    ],
)
def test_wrong_arguments_of_a_write(
    store: Store, numbers: Callable[..., DataFrame], given: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        write_stream(**{"df": numbers(0, 1), "uri": store.uri, "topic": "t", **given})


def test_a_topic_and_its_columns_are_checked_before_the_query_starts(spark: SparkSession, store: Store) -> None:
    store.create_topic("out", 1)
    ticks = spark.readStream.format("rate").load()
    text = ticks.selectExpr("string(value) value")
    with pytest.raises(ConfigurationError, match="topic 'ou' does not exist; did you mean 'out'"):
        write_stream(text, store.uri, "ou")
    with pytest.raises(ConfigurationError, match="column 'value' has type map<string, int64>"):
        write_stream(ticks.selectExpr("map('a', value) value"), store.uri, "out")
    write_stream(text, store.uri, "new", createTopic=True)
    assert [topic.name for topic in store.topics()] == ["out"]


def test_a_checkpoint_of_other_topics_is_refused(
    spark: SparkSession, store: Store, numbers: Callable[..., DataFrame], tmp_path: Path
) -> None:
    for first, topic in enumerate(("in", "other", "out")):
        store.create_topic(topic, 1)
        numbers(first, first + 1).write.format("txnlog").mode("append").option("topic", topic).save(store.uri)

    def copy(topics: list[str], **given: Any) -> None:
        stream = read_stream(spark, store.uri, topics, startingOffsets="earliest", **given)
        run(write_stream(stream.select("value"), store.uri, "out", checkpointLocation=str(tmp_path / "checkpoint")))

    copy(["in"])
    with pytest.raises(StreamingQueryException, match=r"a query that reads \['in'\], and this one reads none of them"):
        copy(["other"])
    copy(["other", "in"])
    assert read(spark, store, "out") == [0, 1, 2]
    copy(["other"])
    copy(["in"], failOnDataLoss=False)
    assert read(spark, store, "out") == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"spark": 5}, TypeError, r"spark is 5 \(int\): expected a SparkSession"),
        ({"topics": 5}, TypeError, "topics is 5"),
        ({"topics": None}, ConfigurationError, "says what to read: none is given"),
        ({"startingOfsets": "earliest"}, ConfigurationError, "did you mean 'startingOffsets'"),
        ({"subscribe": "other"}, ConfigurationError, "option 'subscribe' is given twice"),
    ],
)
def test_wrong_arguments_of_a_read(
    spark: SparkSession, store: Store, given: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        read_stream(**{"spark": spark, "uri": store.uri, "topics": "t", **given})
