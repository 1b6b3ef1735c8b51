"""What a user sees first of an error: the line that says what is wrong, for errors of sparktxn and for no other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException, StreamingQueryException

from pyspark_txnlog import write
from pyspark_txnlog.connecting.errorlines import one_line_errors
from pyspark_txnlog.source import DefaultSource
from sparktxn import ConfigurationError, Store, StoreNotFound

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

HIDE = "SPARK_HIDE_TRACEBACK"


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE, "")
    monkeypatch.delenv(HIDE)


def failing(error: Exception) -> Callable[[], None]:
    @one_line_errors
    def fail() -> None:
        raise error

    return fail


def test_the_traceback_of_an_own_error_is_hidden_and_of_no_other_later_on() -> None:
    with pytest.raises(StoreNotFound):
        failing(StoreNotFound("none"))()
    assert os.environ[HIDE]
    with pytest.raises(KeyError):
        failing(KeyError("unexpected"))()
    assert HIDE not in os.environ
    with pytest.raises(ConfigurationError):
        failing(ConfigurationError("wrong"))()
    one_line_errors(lambda: None)()
    assert HIDE not in os.environ


def test_a_traceback_that_the_user_has_hidden_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE, "yes")
    with pytest.raises(ConfigurationError):
        failing(ConfigurationError("wrong"))()
    one_line_errors(lambda: None)()
    assert os.environ[HIDE] == "yes"


def test_an_error_in_the_middle_of_the_rows_is_one_of_the_reader() -> None:
    closed = []

    @one_line_errors
    def read(error: Exception | None) -> Iterator[int]:
        try:
            yield 1
            if error is not None:
                raise error
        finally:
            closed.append(True)

    assert list(read(None)) == [1]
    with pytest.raises(StoreNotFound):
        list(read(StoreNotFound("none")))
    assert os.environ[HIDE]
    rows = read(None)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert len(closed) == 3


def test_every_method_that_spark_calls_is_guarded(store: Store) -> None:
    from pyspark_txnlog.reading import batch_reader, commit_stream_reader, offset_stream_reader, stream_reader, streams
    from pyspark_txnlog.writing import batch_writer, stream_writer

    classes = [
        DefaultSource,
        batch_reader.TxnLogReader,
        batch_reader.FilteringTxnLogReader,
        batch_writer.TxnLogWriter,
        stream_reader.TxnLogStreamReader,
        commit_stream_reader.CommitOrderStreamReader,
        offset_stream_reader.OffsetOrderStreamReader,
        streams.RefusedStreamReader,
        stream_writer.TxnLogStreamWriter,
    ]
    bare = [
        f"{class_.__name__}.{name}"
        for class_ in classes
        for name, member in vars(class_).items()
        if not name.startswith("_") and callable(member) and not hasattr(member, "__wrapped__")
    ]
    assert bare == []
    with pytest.raises(ConfigurationError, match="unknown option"):
        DefaultSource({"path": store.uri, "subscribe": "t", "startingofsets": "latest"}).schema()
    assert os.environ[HIDE]


Use = Callable[["SparkSession", Store], Any]


def _read(spark: SparkSession, store: Store, **options: Any) -> Any:
    return spark.read.format("txnlog").options(**options).load(store.uri)


def _write(frame: DataFrame, store: Store, **options: Any) -> None:
    frame.write.format("txnlog").mode("append").options(**options).save(store.uri)


def _stream(spark: SparkSession, store: Store, **options: Any) -> Any:
    return spark.readStream.format("txnlog").options(**options).load(store.uri)


def _typed(spark: SparkSession, store: Store) -> None:
    spark.read.format("txnlog").schema("value bigint").option("topic", "t").load(store.uri).collect()


OPTION = "did you mean 'startingOffsets'"
TOPIC = "topic 'tt' does not exist"

USES: dict[str, tuple[Use, str]] = {
    "read-option": (lambda spark, store: _read(spark, store, subscribe="t", startingofsets="x"), OPTION),
    "read-topic": (lambda spark, store: _read(spark, store, subscribe="tt"), TOPIC),
    "read-type": (_typed, "column 'value'"),
    "write-option": (
        lambda spark, store: _write(spark.sql("select 'v' value"), store, topik="t"),
        "did you mean 'topic'",
    ),
    "write-topic": (lambda spark, store: _write(spark.sql("select 'v' value"), store, topic="tt"), TOPIC),
    "write-type": (
        lambda spark, store: _write(spark.sql("select 1 value"), store, topic="t"),
        "expected binary or string",
    ),
    "stream-option": (lambda spark, store: _stream(spark, store, subscribe="t", startingofsets="x"), OPTION),
    "stream-topic": (lambda spark, store: _stream(spark, store, subscribe="tt"), TOPIC),
}


@pytest.mark.spark
@pytest.mark.parametrize(("use", "cause"), USES.values(), ids=USES)
def test_the_first_line_of_an_error_says_what_is_wrong(spark: SparkSession, store: Store, use: Use, cause: str) -> None:
    store.create_topic("t")
    with pytest.raises(PySparkException) as raised:
        use(spark, store)
    assert cause in str(raised.value).splitlines()[0]


def _check_cause_first(text: str) -> None:
    assert "column 'partition' has 7" in text
    assert "Traceback" not in text.split("column 'partition' has 7")[0]


@pytest.mark.spark
def test_a_task_and_a_stream_show_the_cause_within_their_first_lines(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    """Spark's own words come first: that a stage, a worker or a query has failed."""
    store.create_topic("t")
    with pytest.raises(PySparkException) as raised:
        _write(spark.sql("select 'v' value, 7 partition"), store, topic="t")
    _check_cause_first(str(raised.value))
    with pytest.raises(PySparkException) as raised:
        write(spark.sql("select 'v' value, 7 partition"), store.uri, "t")
    _check_cause_first(str(raised.value))
    frame = spark.readStream.format("rate").load().selectExpr("cast(value as string) value")
    query = frame.writeStream.format("txnlog").option("checkpointLocation", str(tmp_path)).option("topic", "tt")
    with pytest.raises(StreamingQueryException) as failed:
        query.trigger(availableNow=True).start(store.uri).awaitTermination(60)
    assert "topic 'tt' does not exist" in str(failed.value).splitlines()[0]
