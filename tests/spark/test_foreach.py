"""`foreach_batch`: update mode, several outputs of a micro-batch in one transaction, and each micro-batch once."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pyspark_txnlog import foreach_batch
from pyspark_txnlog.options.spark_columns import quoted
from pyspark_txnlog.writing.foreach import with_row_hashes
from pyspark_txnlog.writing.lastrows import ROW_HASH
from sparktxn import BatchRefused, ConfigurationError, Store
from tests.seeds import share
from tests.spark.sessions import values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def written(spark: SparkSession, store: Store, topic: str) -> list[int]:
    return values(spark.read.format("txnlog").option("subscribe", topic).load(store.uri))


def even_and_odd(rows: DataFrame, batch_id: int) -> dict[str, DataFrame]:
    """Two outputs: the even and the odd numbers."""
    return {"even": rows.where("value % 2 = 0"), "odd": rows.where("value % 2 = 1")}


@pytest.mark.spark
def test_outputs_are_one_transaction_and_a_repeated_batch_changes_nothing(
    spark: SparkSession, store: Store, numbers: Callable[..., DataFrame]
) -> None:
    store.create_topic("even", 2)
    store.create_topic("odd", 1)
    write = foreach_batch(store.uri, even_and_odd, query_id="q")
    write(numbers(0, 10), 0)
    view = store.view()
    assert len(store.plan_commits(view, view.entry - 1)) > 1, "one entry committed both"
    write(numbers(0, 10), 0)
    assert store.view().entry == view.entry
    write(numbers(10, 14), 1)
    assert written(spark, store, "even") == [0, 2, 4, 6, 8, 10, 12]
    assert written(spark, store, "odd") == [1, 3, 5, 7, 9, 11, 13]


@pytest.mark.spark
def test_rows_that_change_their_topics_are_other_rows(
    spark: SparkSession, store: Store, numbers: Callable[..., DataFrame]
) -> None:
    store.create_topic("even", 1)
    store.create_topic("odd", 1)
    rows = numbers(0, 10)
    foreach_batch(store.uri, even_and_odd, query_id="q")(rows, 0)
    found = even_and_odd(rows, 0)
    swapped = {"even": found["odd"], "odd": found["even"]}
    with pytest.raises(BatchRefused, match="with other rows"):
        foreach_batch(store.uri, lambda *_: swapped, query_id="q", onReplayMismatch="fail")(rows, 0)


@pytest.mark.spark
def test_a_query_in_update_mode_goes_on_where_it_stopped(
    spark: SparkSession, store: Store, tmp_path: Path, numbers: Callable[..., DataFrame]
) -> None:
    store.create_topic("counts", 1)
    source = tmp_path / "source"
    numbers(0, 6).write.parquet(str(source))

    def run() -> None:
        counts = spark.readStream.schema("value string").parquet(str(source)).groupBy(F.expr("value % 2")).count()
        query = (
            counts.selectExpr("cast(count as string) value")
            .writeStream.outputMode("update")
            .foreachBatch(foreach_batch(store.uri, topic="counts"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    run()
    assert written(spark, store, "counts") == [3, 3]
    entry = store.view().entry
    run()
    assert store.view().entry == entry
    numbers(6, 7).write.mode("append").parquet(str(source))
    run()
    assert written(spark, store, "counts") == [3, 3, 4]


_ROWS = """
    select id, cast(id as int) i, cast(id as short) s, id / 2 d, cast(id as float) f, id > 1 b, concat('text ', id) t,
        cast(concat('bytes ', id) as binary) y, date_add(date'2024-01-01', cast(id as int)) day,
        cast(id as decimal(38, 2)) m, timestamp_seconds(id) at, timestamp_ntz'2024-01-01 00:00:00' at_local,
        if(id > 1, id, null) n, if(id = 1, '', null) e
    from range(4)"""

_OTHER_ROWS = {
    **{name: f"{name} + 1" for name in ("i", "s", "d", "f")},
    "id": "3 - id",
    "b": "not b",
    "t": "upper(t)",
    "y": "cast('bytes 1' as binary)",
    "day": "date_add(day, 1)",
    "m": "m + 0.01",
    "at": "at + interval 1 millisecond",
    "at_local": "at_local + interval 1 day",
    "n": "coalesce(n, 0)",
    "e": "coalesce(e, '')",
}


def test_a_query_that_is_stopped_within_a_micro_batch_says_so_in_one_line(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """Spark looks for words in the error by a pattern that overflows its stack on a trace of Java."""
    store.create_topic("t")
    begun, raised = Event(), []

    def sleep(rows: DataFrame, batch_id: int) -> dict[str, DataFrame]:
        jvm: Any = rows.sparkSession._jvm
        begun.set()
        jvm.java.lang.Thread.sleep(60_000)
        return {"t": rows}

    write = foreach_batch(store.uri, sleep)

    def noted(rows: DataFrame, batch_id: int) -> None:
        try:
            write(rows, batch_id)
        except Exception as error:
            raised.append(str(error))
            raise

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.foreachBatch(noted).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert begun.wait(60)
    query.stop()
    words = "py4j.protocol.Py4JJavaError: An error occurred while calling Spark: java.lang.InterruptedException"
    assert raised == [words]
    assert query.exception() is None


def test_an_error_in_a_row_is_shown_without_what_it_has_passed_on_its_way(
    spark: SparkSession, store: Store, numbers: Callable[..., DataFrame]
) -> None:
    store.create_topic("t")
    write = foreach_batch(store.uri, topic="t", query_id="q")
    rows = numbers(0, 3).selectExpr("if(value = '1', raise_error('this row is wrong'), value) value")
    with pytest.raises(PySparkException, match="this row is wrong") as raised:
        write(rows, 0)
    files = {Path(frame.filename).name for frame in traceback.extract_tb(raised.value.__traceback__)}
    assert files == {"test_foreach.py", "contextlib.py", "foreach.py", "errorlines.py"}


def _with_other(rows: DataFrame, name: str, other: str) -> DataFrame:
    return rows.withColumn(name, F.expr(other).cast(rows.schema[name].dataType))


@pytest.mark.spark
@pytest.mark.parametrize("nested", [False, True])
def test_a_repeated_batch_with_another_value_is_refused(spark: SparkSession, store: Store, nested: bool) -> None:
    """Spark hashes rows of simple columns in its plan, and Python all others."""
    columns = ["*", "array(id) items"] if nested else ["*"]
    write = foreach_batch(store.uri, topic="t", query_id="q", createTopic=True, onReplayMismatch="fail")
    rows = spark.sql(_ROWS).selectExpr(*columns)
    write(rows, 0)
    state = store.log.transaction("spark-q")
    assert state is not None
    assert state.sink is not None
    assert state.sink.batches[-1].fingerprint.split(":")[1] == ("rows1" if nested else "spark2")
    write(rows.repartition(3, "i").select(*reversed(rows.columns)), 0)
    for name in share(("id", "n", "e") if nested else _OTHER_ROWS, 0, 3):
        with pytest.raises(BatchRefused, match="with other rows"):
            write(_with_other(rows, name, _OTHER_ROWS[name]), 0)
    write(_with_other(rows, "d", "if(d = 0, -0.0D, d)"), 0)


@pytest.mark.spark
def test_a_decimal_is_hashed_with_the_scale_of_its_topic(spark: SparkSession, store: Store) -> None:
    """Spark hashes the digits alone: 1.5 and 0.15 have the same."""
    store.create_topic("t", schema=pa.schema([("v", pa.decimal128(10, 2))]))
    write = foreach_batch(store.uri, topic="t", query_id="q", onReplayMismatch="fail")
    write(spark.sql("select cast(1.5 as decimal(5, 1)) v"), 0)
    write(spark.sql("select cast(1.5 as decimal(5, 2)) v"), 0)
    with pytest.raises(BatchRefused, match="with other rows"):
        write(spark.sql("select cast(0.15 as decimal(5, 2)) v"), 0)


@pytest.mark.spark
def test_the_row_word_is_what_the_protocol_says(spark: SparkSession, store: Store) -> None:
    rows = spark.sql(_ROWS).withColumnRenamed("d", "a `column`.d")
    foreach_batch(store.uri, topic="t", query_id="q", createTopic=True)(rows, 0)
    found = with_row_hashes(rows, store.stage_plan(["t"]), "t").select(ROW_HASH)
    stored_as = {"i": "bigint", "s": "bigint", "f": "double", "t": "binary", "e": "binary"}
    columns = {name: F.col(quoted(name)) for name in sorted(rows.columns)}
    bits = [column.isNull().cast("bigint") * 2**bit for bit, column in enumerate(columns.values())]
    cast = [column.cast(stored_as[name]) if name in stored_as else column for name, column in columns.items()]
    assert found.collect() == rows.select(F.xxhash64(sum(bits, F.lit(0)), *cast)).collect()


@pytest.mark.spark
def test_each_column_that_is_null_gives_another_hash(spark: SparkSession, store: Store) -> None:
    """More columns than one number has bits: none, each one, and each two neighbours are null, or have a zero."""
    names = [f"c{number:03}" for number in range(130)]
    store.create_topic("t", schema=pa.schema([(name, pa.int64()) for name in names]))
    columns = [f"if(id in ({at}, {200 + at}, {201 + at}), null, 0L) {name}" for at, name in enumerate(names)]
    rows = spark.sql("select id from range(331)").selectExpr("id", *columns)
    hashed = with_row_hashes(rows.select(names), store.stage_plan(["t"]), "t").select(ROW_HASH).collect()
    assert len({*hashed}) == len({*rows.select(names).collect()}) == 1 + 130 + 129


@pytest.mark.spark
def test_text_is_hashed_as_its_bytes(spark: SparkSession, store: Store) -> None:
    store.create_topic("t", 1)
    write = foreach_batch(store.uri, topic="t", query_id="q", onReplayMismatch="fail")
    write(spark.sql("select 'grüße' value"), 0)
    write(spark.sql("select cast('grüße' as binary) value"), 0)
    with pytest.raises(BatchRefused, match="with other rows"):
        write(spark.sql("select 'grüße ' value"), 0)


@pytest.mark.spark
def test_kafkas_record_is_hashed_without_what_the_log_assigns(spark: SparkSession, store: Store) -> None:
    store.create_topic("t", 3)
    store.create_topic("u", 3)
    write = foreach_batch(store.uri, query_id="q", onReplayMismatch="fail")
    rows = spark.sql(
        "select if(id % 2 = 0, 't', 'u') topic, concat('k', id) key, string(id) value, id offset from range(8)"
    )
    write(rows, 0)
    write(rows.withColumn("offset", F.lit(7).cast("long")).coalesce(1), 0)
    with pytest.raises(BatchRefused):
        write(rows.withColumn("topic", F.expr("if(topic = 't', 'u', 't')")), 0)
    with pytest.raises(BatchRefused):
        write(rows.withColumn("partition", F.lit(0)), 0)


def test_wrong_options_are_refused_at_once(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'topic'"):
        foreach_batch(store.uri, topik="t")
    with pytest.raises(ConfigurationError, match=r"unknown option 'transactionalID_' .* 'transactionalId'"):
        foreach_batch(store.uri, topic="t", transactionalID_="t")
    with pytest.raises(ConfigurationError, match="'createTopicPartitions' is '0'"):
        foreach_batch(store.uri, topic="t", createTopic=True, createTopicPartitions=0)
    with pytest.raises(ConfigurationError, match="'path' is given twice"):
        foreach_batch(store.uri, topic="t", path="other")
    with pytest.raises(ConfigurationError, match="'topic' does not go with outputs"):
        foreach_batch(store.uri, even_and_odd, topic="t")


def test_options_may_be_numbers_and_truth_values(store: Store) -> None:
    store.create_topic("t")
    foreach_batch(store.uri, topic="t", createTopic=True, createTopicPartitions=2)
    with pytest.raises(ConfigurationError, match="'createTopicPartitions' is '0'"):
        foreach_batch(store.uri, topic="t", createTopicPartitions=0)
    with pytest.raises(TypeError, match="option 'topic' is of type NoneType: expected a str"):
        foreach_batch(store.uri, topic=None)
    given: Any = {"storage.token": b"hidden"}
    with pytest.raises(TypeError, match=r"option 'storage\.token' is of type bytes: expected a str"):
        foreach_batch(store.uri, topic="t", **given)


@pytest.mark.parametrize("outputs", [5, "x", {}, True], ids=repr)
def test_outputs_are_a_function(store: Store, outputs: Any) -> None:
    with pytest.raises(TypeError, match=r"^outputs is "):
        foreach_batch(store.uri, outputs)


@pytest.mark.parametrize("query_id", [5, True, b"q", "", "\ud800", "x" * 40_000], ids=lambda value: repr(value)[:9])
def test_a_query_id_is_text(store: Store, query_id: Any) -> None:
    with pytest.raises((TypeError, ConfigurationError), match=r"^query_id "):
        foreach_batch(store.uri, topic="t", query_id=query_id)


@pytest.mark.spark
@pytest.mark.parametrize("batch_id", [1.5, True, -1, "0", None, 2**63], ids=repr)
def test_a_wrong_batch_id_uploads_nothing(store: Store, numbers: Callable[..., DataFrame], batch_id: Any) -> None:
    store.create_topic("t", 1)
    objects = set(store.log.objects.list_names("topics/"))
    write = foreach_batch(store.uri, topic="t", query_id="q")
    with pytest.raises((TypeError, ConfigurationError), match=r"^batch_id is "):
        write(numbers(0, 1), batch_id)
    with pytest.raises(TypeError, match=r"^rows is "):
        write(5, 0)  # type: ignore[arg-type]
    assert set(store.log.objects.list_names("topics/")) == objects


@pytest.mark.spark
@pytest.mark.parametrize(
    ("given", "match"),
    [
        (lambda rows: rows, "what outputs\\(\\) returns is "),
        (lambda rows: None, "what outputs\\(\\) returns is None"),
        (lambda rows: {"t": rows, "u": 5}, "what outputs\\(\\) returns for 'u' is 5"),
        (lambda rows: {"t": rows, None: rows}, "returns"),
        (lambda rows: {"t": rows, "nowhere": rows}, "topic 'nowhere' does not exist"),
        (lambda rows: {"t": rows, "u": rows.selectExpr("1 as value")}, "column 'value' has type int32"),
    ],
)
def test_wrong_outputs_upload_nothing(
    store: Store, numbers: Callable[..., DataFrame], given: Callable[[Any], Any], match: str
) -> None:
    for topic in ("t", "u"):
        store.create_topic(topic, 1)
    objects, entry = set(store.log.objects.list_names("topics/")), store.view().entry
    with pytest.raises((TypeError, ConfigurationError), match=match):
        foreach_batch(store.uri, lambda rows, _: given(rows), query_id="q")(numbers(0, 2), 0)
    assert (set(store.log.objects.list_names("topics/")), store.view().entry) == (objects, entry)


@pytest.mark.spark
def test_outside_a_query_an_id_must_be_given(store: Store, numbers: Callable[..., DataFrame]) -> None:
    with pytest.raises(ConfigurationError, match="give foreach_batch\\(\\) a query_id"):
        foreach_batch(store.uri, topic="t")(numbers(0, 1), 0)
