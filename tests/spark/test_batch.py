"""Batch reads and writes: one write is one transaction, one read is one view."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from examples.flights.independent_reader import committed
from pyspark_txnlog.options.options import WRITE, WriteOptions
from pyspark_txnlog.writing.batch_writer import prepare_write
from sparktxn import Store
from sparktxn.halfmessage import (
    LocalTransactionState,
    Message,
    MessageExt,
    TransactionListener,
    TransactionMQProducer,
)
from tests.spark.sessions import values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Numbers = Callable[..., "DataFrame"]


def write(frame: DataFrame, store: Store, mode: str = "append", **options: Any) -> None:
    frame.write.format("txnlog").mode(mode).options(**options).save(store.uri)


def read(spark: SparkSession, store: Store, topics: str, **options: Any) -> DataFrame:
    return spark.read.format("txnlog").option("subscribe", topics).options(**options).load(store.uri)


def test_records_come_back_with_all_that_kafka_gives_them(spark: SparkSession, store: Store) -> None:
    store.create_topic("t", 3)
    frame = spark.sql(
        """select 'k' key, cast('v' as binary) value, 2 partition, timestamp'2024-02-29 12:00:00.123456' timestamp,
                  array(named_struct('key', 'h', 'value', cast('x' as binary)),
                        named_struct('key', 'h', 'value', cast(null as binary))) headers"""
    )
    write(frame, store, topic="t", includeHeaders=True)
    (row,) = read(spark, store, "t", includeHeaders=True).collect()
    assert row.asDict(recursive=True) == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 2,
        "offset": 0,
        "timestamp": dt.datetime(2024, 2, 29, 12, 0, 0, 123000),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}, {"key": "h", "value": None}],
    }


class ByArgument(TransactionListener):
    """Settles a message as its sender says."""

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        state: LocalTransactionState = arg
        return state

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN


@pytest.mark.rocketmq("R1", "R9", "R11")
def test_half_messages_that_were_committed_are_records_with_headers(spark: SparkSession, store: Store) -> None:
    store.create_topic("t")
    states = {
        "committed": LocalTransactionState.COMMIT_MESSAGE,
        "rolled back": LocalTransactionState.ROLLBACK_MESSAGE,
        "pending": LocalTransactionState.UNKNOWN,
    }
    with TransactionMQProducer("shop", store.uri) as producer:
        producer.set_transaction_listener(ByArgument())
        for body, state in states.items():
            given = Message("t", body, tags="fruit", keys=["o-17", "c-4"], properties={"region": "eu"})
            sent = producer.send_message_in_transaction(given, state)
            if body == "committed":
                message_id = sent.message_id
    (row,) = read(spark, store, "t", includeHeaders=True).collect()
    assert (row["key"], row["value"], row["offset"]) == (b"o-17", b"committed", 0)
    headers = {header["key"]: header["value"].decode() for header in row["headers"]}
    assert headers == {"UNIQ_KEY": message_id, "TAGS": "fruit", "KEYS": "o-17 c-4", "region": "eu"}


def test_one_write_to_several_topics_is_one_transaction(numbers: Numbers, store: Store) -> None:
    store.create_topic("even", 2)
    store.create_topic("odd", 1)
    write(numbers(0, 1000, topic="if(id % 2 = 0, 'even', 'odd')"), store)
    segments = list(committed(Path(store.uri)))
    assert len({segment.entry for segment in segments}) == 1
    assert {topic: sum(s.record_count for s in segments if s.topic == topic) for topic in ("even", "odd")} == {
        "even": 500,
        "odd": 500,
    }


def test_what_was_read_can_be_written_as_it_is(spark: SparkSession, numbers: Numbers, store: Store) -> None:
    store.create_topic("a")
    store.create_topic("b")
    write(numbers(0, 10), store, topic="a")
    write(read(spark, store, "a"), store, topic="b")
    assert values(read(spark, store, "b")) == list(range(10))


def test_a_dataframe_keeps_the_view_it_was_made_in(spark: SparkSession, numbers: Numbers, store: Store) -> None:
    store.create_topic("t")
    write(numbers(0, 10), store, topic="t")
    before = read(spark, store, "t")
    write(numbers(10, 20), store, topic="t")
    assert before.count() == before.where("offset >= 0").count() == 10
    assert read(spark, store, "t").count() == 20


def test_time_travel_by_entry_and_by_time(spark: SparkSession, numbers: Numbers, store: Store) -> None:
    store.create_topic("t")
    write(numbers(0, 10), store, topic="t")
    view = store.view(["t"])
    write(numbers(10, 20), store, topic="t")
    assert values(read(spark, store, "t", asOfEntry=view.entry)) == list(range(10))
    assert values(read(spark, store, "t", asOfTimestamp=view.timestamp_ms)) == list(range(10))


def test_offsets_bound_a_read(spark: SparkSession, numbers: Numbers, store: Store) -> None:
    store.create_topic("t", 2)
    write(numbers(0, 20, partition="cast(id % 2 as int)"), store, topic="t")
    starting, ending = json.dumps({"t": {"0": 3, "1": -2}}), json.dumps({"t": {"0": -1, "1": 4}})
    found = read(spark, store, "t", startingOffsets=starting, endingOffsets=ending)
    by_partition = {row.partition: row["count"] for row in found.groupBy("partition").count().collect()}
    assert by_partition == {0: 7, 1: 4}


def test_assigned_partitions_only(spark: SparkSession, numbers: Numbers, store: Store) -> None:
    store.create_topic("t", 3)
    write(numbers(0, 30, partition="cast(id % 3 as int)"), store, topic="t")
    found = spark.read.format("txnlog").option("assign", '{"t":[2]}').load(store.uri)
    assert values(found) == list(range(2, 30, 3))


def test_a_typed_topic_keeps_its_columns_and_prunes_them(spark: SparkSession, store: Store) -> None:
    columns = pa.schema(
        [pa.field("n", pa.int64(), nullable=False), ("name", pa.string()), ("price", pa.decimal128(9, 2))]
    )
    store.create_topic("typed", 2, schema=columns, settings={"partition.key": "n"})
    write(
        spark.sql("select id n, concat('x', id) name, cast(id as decimal(9,2)) price from range(100)"),
        store,
        topic="typed",
    )
    found = read(spark, store, "typed")
    assert found.schema.simpleString() == "struct<n:bigint,name:string,price:decimal(9,2)>"
    assert found.agg({"n": "sum", "price": "sum"}).collect()[0][0] == 4950
    narrow = read(spark, store, "typed", columns="_offset,n")
    assert narrow.columns == ["_offset", "n"]
    by_schema = spark.read.format("txnlog").schema("name string").option("topic", "typed").load(store.uri)
    assert by_schema.count() == 100
    assert by_schema.columns == ["name"]


def test_create_topic_declares_the_columns_of_the_dataframe(spark: SparkSession, store: Store) -> None:
    frame = spark.sql("select id n, array(id) tags, named_struct('a', 1) part from range(5)")
    write(frame, store, topic="new", createTopic=True, createTopicPartitions=2)
    assert read(spark, store, "new").schema.simpleString() == "struct<n:bigint,tags:array<bigint>,part:struct<a:int>>"
    assert store.view(["new"]).topics["new"].partition_count == 2
    assert {row.part.a for row in read(spark, store, "new").collect()} == {1}


def test_a_topic_that_another_driver_creates_first_is_taken_as_it_is(
    numbers: Numbers, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = WriteOptions.parse({"path": store.uri, "topic": "new", "createtopic": "true"}, WRITE)
    create_topic = Store.create_topic

    def overtaken(self: Store, name: str, *arguments: Any, **settings: Any) -> Any:
        create_topic(store, name, 7)
        return create_topic(self, name, *arguments, **settings)

    monkeypatch.setattr(Store, "create_topic", overtaken)
    plan = prepare_write(options, numbers(0, 1).schema)
    assert plan.topics["new"].partition_count == 7


def test_a_version_of_an_application_is_written_once(spark: SparkSession, numbers: Numbers, store: Store) -> None:
    store.create_topic("t")
    for version, end in ((0, 10), (0, 10), (1, 5), (1, 5)):
        write(numbers(0, end), store, topic="t", txnAppId="app", txnVersion=version)
    assert read(spark, store, "t").count() == 15
    with pytest.raises(PySparkException, match=r"committed 5 rows in entry .*, and has 6 rows now"):
        write(numbers(0, 6), store, topic="t", txnAppId="app", txnVersion=1)
    write(numbers(0, 6), store, topic="t", txnAppId="app", txnVersion=1, onReplayMismatch="skip")
    write(numbers(0, 6), store, topic="t", txnAppId="app", txnVersion=0, onReplayMismatch="skip")
    assert read(spark, store, "t").count() == 15
    with pytest.raises(PySparkException, match="BatchRefused"):
        write(numbers(0, 6), store, topic="t", txnAppId="app", txnVersion=1, onReplayMismatch="fail")
    with pytest.raises(PySparkException, match="BatchRefused"):
        write(numbers(5, 10), store, topic="t", txnAppId="app", txnVersion=1, onReplayMismatch="fail")
    assert read(spark, store, "t").count() == 15


def test_pushed_down_filters_are_applied_exactly(spark: SparkSession, numbers: Numbers, store: Store) -> None:
    store.create_topic("t", 2)
    write(numbers(0, 40, partition="cast(id % 2 as int)"), store, topic="t")
    condition = "topic = 't' and partition = 1 and offset > 3 and offset <= 9 and cast(value as string) <> '13'"
    expected = values(read(spark, store, "t").where(condition))
    assert len(expected) == 5
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert values(read(spark, store, "t").where(condition)) == expected
        assert read(spark, store, "t").count() == 40
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    ("sql", "options", "message"),
    [
        ("select 'v' value", {"topic": "missing"}, "topic 'missing' does not exist.*create_topic.*createTopic"),
        ("select 'v' value", {}, "no topic to write to"),
        ("select 'v' val", {"topic": "t"}, "column 'val' is not part of Kafka's record.*did you mean 'value'"),
        ("select 1 value", {"topic": "t"}, "column 'value' has type int32: expected binary or string"),
        ("select 'k' key", {"topic": "t"}, "column 'value' is missing"),
        ("select 'v' value, 'nope' topic", {}, "topic 'nope' is unknown"),
        ("select 'v' value, if(id = 0, 't', 'typed') topic from range(2)", {}, "topic 'typed' .*written alone"),
        (
            "select 1 value",
            {"topic": "new", "createTopic": True},
            "column 'value' has type int32: expected binary or string",
        ),
        ("select 'v' value, 7 partition", {"topic": "t"}, "'partition' has 7: topic 't' has partitions 0 to 0"),
        ("select 1 m", {"topic": "typed"}, "column 'm' is not declared by topic 'typed': expected n"),
        ("select 'x' n", {"topic": "typed"}, "column 'n' of topic 'typed' has type string: expected int64"),
        ("select 'v' value", {"topic": "t", "mod": "x"}, "unknown option 'mod'"),
    ],
)
def test_a_wrong_write_is_told_and_writes_nothing(
    spark: SparkSession, store: Store, sql: str, options: dict[str, str], message: str
) -> None:
    store.create_topic("t")
    store.create_topic("typed", schema=pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    entry = store.view().entry
    with pytest.raises(PySparkException, match=f"(?s){message}"):
        write(spark.sql(sql), store, **options)
    assert store.view().entry == entry


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "tt"}, "topic 'tt'|UNKNOWN_TOPIC"),
        ({"subscribe": "t,typed"}, "topics 't' and 'typed' do not have the same columns"),
        ({"assign": '{"t":[4]}'}, "partition 4 of topic 't', which has partitions 0 to 0"),
        ({"subscribe": "t", "startingOffsets": '{"t":{"3":0}}'}, "'startingOffsets' names partition 3 of topic 't'"),
        ({"subscribe": "t", "endingOffsets": '{"t":{"0":9}}'}, "offset 9 for partition 0 of topic 't'"),
        ({"subscribe": "t", "columns": "key,valeu"}, "did you mean 'value'"),
        ({"subscribe": "t", "asOfEntry": "999"}, "999"),
    ],
)
def test_a_wrong_read_is_told(spark: SparkSession, store: Store, options: dict[str, str], message: str) -> None:
    store.create_topic("t")
    store.create_topic("typed", schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(PySparkException, match=f"(?s){message}"):
        spark.read.format("txnlog").options(**options).load(store.uri).collect()


def test_overwriting_a_log_is_refused(numbers: Numbers, store: Store) -> None:
    store.create_topic("t")
    with pytest.raises(PySparkException, match="a log takes records at its end only"):
        write(numbers(0, 1), store, mode="overwrite", topic="t")
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        numbers(0, 1).write.format("txnlog").option("topic", "t").save(store.uri)


def test_a_table_of_the_catalog_keeps_its_options(spark: SparkSession, numbers: Numbers, store: Store) -> None:
    store.create_topic("t")
    write(numbers(0, 3), store, topic="t")
    spark.sql("drop table if exists kept")
    spark.sql(f"create table kept using txnlog options (path '{store.uri}', topic 't')")
    try:
        spark.sql("insert into kept select null, cast('3' as binary), 't', 0, 0L, timestamp'2024-01-01', 0")
        assert values(spark.table("kept")) == [0, 1, 2, 3]
    finally:
        spark.sql("drop table kept")


def test_sparks_own_parquet_source_discovers_the_partition_column(spark: SparkSession, store: Store) -> None:
    topic = store.create_topic("t", 2)
    for number in range(3):
        write(spark.sql(f"select '{number}' value, {number % 2} partition"), store, topic="t")
    folder = Path(store.uri.removeprefix("file://")) / "topics" / f"t-{topic.topic_id}"
    hidden = folder / "kafka_partition=0" / "_sealed" / "run"
    hidden.mkdir(parents=True)
    (hidden / "manifest").write_bytes(b"no records")
    found = spark.read.parquet(str(folder)).selectExpr("kafka_partition", "cast(value as string) value").collect()
    assert sorted(map(tuple, found)) == [(0, "0"), (0, "2"), (1, "1")]
