"""Typed topics in Spark: types that come back, columns that a topic gains, the partition key, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sparktxn import Store

pytestmark = pytest.mark.spark


def write(frame: DataFrame, store: Store, **options: Any) -> None:
    frame.write.format("txnlog").mode("append").options(topic="t", **options).save(store.uri)


def read(spark: SparkSession, store: Store, **options: Any) -> DataFrame:
    return spark.read.format("txnlog").options(topic="t", **options).load(store.uri)


def test_nested_types_maps_and_local_times_come_back(spark: SparkSession, store: Store) -> None:
    frame = spark.sql(
        "select id n, map('a', named_struct('x', id)) places, timestamp_ntz'2026-01-02 03:04:05.678901' local, "
        "array(map(id, array('b', null))) deep from range(3)"
    )
    write(frame, store, createTopic=True)
    found = read(spark, store)
    assert found.schema.simpleString() == (
        "struct<n:bigint,places:map<string,struct<x:bigint>>,local:timestamp_ntz,deep:array<map<bigint,array<string>>>>"
    )
    assert sorted(found.collect()) == sorted(frame.collect())
    narrow = spark.read.format("txnlog").schema("places map<string,struct<x:bigint>>").option("topic", "t")
    assert sorted(row.places["a"].x for row in narrow.load(store.uri).collect()) == [0, 1, 2]
    assert read(spark, store, columns="local").columns == ["local"]
    write(found, store)
    assert read(spark, store).count() == 6


def test_merge_schema_adds_nullable_columns(spark: SparkSession, store: Store) -> None:
    store.create_topic("t", schema=pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    write(spark.sql("select id n from range(2)"), store)
    wider = spark.sql("select id n, concat('x', id) name, map('a', id) tags from range(2, 4)")
    with pytest.raises(PySparkException, match="column 'name' is not declared by topic 't': expected n"):
        write(wider, store)
    write(wider, store, mergeSchema=True)
    assert store.view(["t"]).topics["t"].schema == (
        ("n", "int64", False),
        ("name", "string", True),
        ("tags", "map<string, int64>", True),
    )
    found = {row.n: (row.name, row.tags) for row in read(spark, store).collect()}
    assert found == {0: (None, None), 1: (None, None), 2: ("x2", {"a": 2}), 3: ("x3", {"a": 3})}
    entry = store.view().entry
    write(wider, store, mergeSchema=True)
    assert store.view().entry == entry + 1, "columns that exist cost no entry"


def test_a_stream_merges_its_schema(spark: SparkSession, store: Store, tmp_path: Any) -> None:
    store.create_topic("t", schema=pa.schema([("n", pa.int64())]))
    folder = tmp_path / "files"
    spark.sql("select id n, 'x' name from range(4)").write.json(str(folder))
    rows = spark.readStream.schema("n bigint, name string").json(str(folder))
    writer = rows.writeStream.format("txnlog").options(topic="t", mergeSchema=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(
        store.uri
    ).awaitTermination()
    assert {row.name for row in read(spark, store).collect()} == {"x"}


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("'x' n", {}, "column 'n' of topic 't' has type string: expected int64"),
        ("cast(1 as double) n", {"mergeSchema": True}, "column 'n' of topic 't' has type double: expected int64"),
        ("1L n, 2 N2", {"partitionKey": "m"}, "'partition.key' of topic 't' is 'm': expected one of its columns, n"),
        ("1L n", {"createTopic": True, "partitionKey": "m"}, "'m': expected one of its columns, n"),
    ],
)
def test_wrong_columns_are_refused_with_both_types(
    spark: SparkSession, store: Store, columns: str, options: dict[str, Any], reason: str
) -> None:
    store.create_topic("t", schema=pa.schema([("n", pa.int64()), ("N2", pa.int32())]))
    entry = store.view().entry
    with pytest.raises(PySparkException, match=reason):
        write(spark.sql(f"select {columns}"), store, **options)
    assert store.view().entry == entry


def test_the_partition_key_of_a_new_topic_is_its_setting(spark: SparkSession, store: Store) -> None:
    frame = spark.sql("select id n, cast(id % 5 as string) k from range(40)")
    with pytest.raises(PySparkException, match=r"'partitionKey' is 'kk'.*did you mean 'k'"):
        write(frame, store, createTopic=True, createTopicPartitions=4, partitionKey="kk")
    write(frame, store, createTopic=True, createTopicPartitions=4, partitionKey="k")
    write(frame, store)
    assert store.view(["t"]).topics["t"].settings == {"partition.key": "k"}
    places = read(spark, store, columns="k,_partition").distinct().collect()
    assert len(places) == 5, "each key is in one partition"
    assert len({row._partition for row in places}) > 1


def test_the_partition_key_of_a_write_divides_rows(spark: SparkSession, store: Store) -> None:
    store.create_topic("t", 4, schema=pa.schema([("n", pa.int64()), ("k", pa.string())]))
    frame = spark.sql("select id n, cast(id % 5 as string) k from range(40)")
    write(frame, store, partitionKey="k")
    assert read(spark, store, columns="k,_partition").distinct().count() == 5


@pytest.mark.parametrize("option", ["mergeSchema", "partitionKey"])
def test_options_of_one_topic_need_its_name(spark: SparkSession, store: Store, option: str) -> None:
    frame = spark.sql("select 'x' value, 't' topic")
    with pytest.raises(PySparkException, match=f"option '{option}' needs the option 'topic'"):
        frame.write.format("txnlog").mode("append").option(option, "true").save(store.uri)


def test_kafkas_record_gains_no_columns(spark: SparkSession, store: Store) -> None:
    store.create_topic("t")
    with pytest.raises(PySparkException, match="'mergeSchema' is true, and topic 't' has Kafka's record"):
        write(spark.sql("select 'x' value, 1 extra"), store, mergeSchema=True)
