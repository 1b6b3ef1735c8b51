"""Names of columns that belong to the store: Spark's writes are refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType, StructField, StructType

import pyspark_txnlog
from pyspark_txnlog.options.options import WRITE, WriteOptions
from pyspark_txnlog.writing.batch_writer import prepare_write
from pyspark_txnlog.writing.lastrows import ROW_HASH
from sparktxn import CommandRefused, ConfigurationError, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESERVED = ("_entry", "_x", "_", "kafka_partition", "KAFKA_PARTITION", ROW_HASH)
LATER = ("_producer_id", "_transactional_id", "_timestampType")
"""Names that a read gives on request, and no write takes."""


def columns(*names: str) -> StructType:
    """Return columns of texts, after the topic's own."""
    return StructType([StructField("n", LongType()), *(StructField(name, StringType()) for name in names)])


def content(store: Store) -> tuple[int, list[str]]:
    """Return the newest entry, and all files of the store but signs of life."""
    files = sorted(str(path) for path in Path(store.uri).rglob("*") if path.is_file())
    return store.view().entry, files


def options_of(store: Store, topic: str, **named: str) -> WriteOptions:
    """Return a write's options."""
    return WriteOptions.parse({"path": store.uri, "topic": topic, **named}, WRITE)


@pytest.mark.parametrize("name", [*RESERVED, *LATER])
def test_a_new_topic_or_a_merged_one_gets_no_such_column(store: Store, name: str) -> None:
    store.create_topic("t", schema=pa.schema([("n", pa.int64())]))
    store.create_topic("record")
    before = content(store)
    with pytest.raises(ConfigurationError, match=f"column name '{name}' is reserved"):
        prepare_write(options_of(store, "new", createtopic="true"), columns(name))
    with pytest.raises(ConfigurationError, match=f"'{name}' is (reserved|not declared by topic 't')"):
        prepare_write(options_of(store, "t", mergeschema="true"), columns("fresh", name))
    with pytest.raises(ConfigurationError, match=f"'{name}' is not declared by topic 't': expected n"):
        prepare_write(options_of(store, "t"), columns(name))
    with pytest.raises(ConfigurationError, match="column 'n' is not part of Kafka's record"):
        prepare_write(options_of(store, "record"), columns(name))
    value = StructType([StructField("value", StringType()), StructField(name, StringType())])
    with pytest.raises(ConfigurationError, match=f"column '{name}' is not part of Kafka's record"):
        prepare_write(options_of(store, "record"), value)
    assert content(store) == before


@pytest.mark.parametrize(
    ("schema", "named", "reason"),
    [
        (StructType([StructField("n", StringType()), StructField("fresh", StringType())]), {}, "expected int64"),
        (columns("fresh"), {"partitionkey": "none"}, "'none': expected one of its columns"),
        (columns("fresh", "N"), {}, "'N' is not unique|differs|taken"),
        (columns("fresh", "Fresh"), {}, "'Fresh' is not unique"),
    ],
)
def test_a_write_that_fails_adds_no_column(
    store: Store, schema: StructType, named: dict[str, str], reason: str
) -> None:
    store.create_topic("t", schema=pa.schema([("n", pa.int64())]))
    before = content(store)
    with pytest.raises((ConfigurationError, CommandRefused), match=reason):
        prepare_write(options_of(store, "t", mergeschema="true", **named), schema)
    assert content(store) == before


@pytest.mark.spark
def test_every_way_of_writing_refuses_them(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    store.create_topic("t", schema=pa.schema([("n", pa.int64())]))
    frame = spark.createDataFrame([(1, "x")], columns("_entry"))
    frame.write.parquet(str(tmp_path / "files"))
    rows = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "files"))

    def sink(merge: bool) -> None:
        writer = rows.writeStream.format("txnlog").options(topic="t", mergeSchema=merge, path=store.uri)
        writer = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / f"sink-{merge}"))
        writer.start().awaitTermination(60)

    def outputs(merge: bool) -> None:
        write = pyspark_txnlog.foreach_batch(store.uri, topic="t", mergeSchema=merge, query_id="q")
        write(frame, 0)

    def saved(merge: bool) -> None:
        frame.write.format("txnlog").mode("append").options(topic="t", mergeSchema=merge).save(store.uri)

    ways: list[Callable[[bool], None]] = [
        lambda merge: pyspark_txnlog.write(frame, store.uri, "t", mergeSchema=merge),
        saved,
        sink,
        outputs,
    ]
    before, reason = content(store), "column '_entry' is not declared by topic"
    for way in ways:
        for merge in (False, True):
            with pytest.raises((ConfigurationError, PySparkException), match=reason):
                way(merge)
            assert content(store) == before
