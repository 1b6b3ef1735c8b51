"""Conditions on keys and declared columns: the option `filters`, and what Spark pushes down."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.datasource import EqualTo, In, IsNotNull, StringEndsWith

from pyspark_txnlog import count, scan
from pyspark_txnlog.options.filters import pushed_condition
from sparktxn import ConfigurationError, Producer, Store
from sparktxn._engine.format.segment import decode_row_groups
from sparktxn._rows.scan import reader
from tests.spark.readers import batch_reader, stream_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        pa.field("country", pa.string()),
        pa.field("amount", pa.int64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(10, 2)),
    ]
)


def produce(store: Store, *keys: str) -> None:
    """One segment."""
    with Producer({"bootstrap.servers": store.uri, "store.append.inline.bytes": 0}) as producer:
        for key in keys:
            producer.produce("t", f"value of {key}", key=key, partition=0)


def read(store: Store, **options: str) -> list[dict[str, Any]]:
    found = batch_reader(store, **options)
    return [row for part in found.partitions() for batch in found.read(part) for row in batch.to_pylist()]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The columns of every row group that is decoded; each segment here has one."""
    found: list[tuple[str, ...]] = []

    def decode(*arguments: Any, **named: Any) -> Any:
        for group in decode_row_groups(*arguments, **named):
            found.append(tuple(named["columns"]))
            yield group

    monkeypatch.setattr(reader, "decode_row_groups", decode)
    return found


@pytest.mark.parametrize("order", ["commit", "offset"])
@pytest.mark.parametrize("segment_format", ["parquet", "arrow"])
def test_segments_without_the_key_are_not_decoded(
    store: Store, decoded: list[tuple[str, ...]], segment_format: str, order: str
) -> None:
    store.create_topic("t", settings={"segment.format": segment_format})
    for keys in (("a", "c"), ("b", "b"), ("x", "z")):
        produce(store, *keys)
    rows = read(store, filters='[["key", "=", "b"]]', order=order, columns="value,offset")
    assert rows == [{"value": b"value of b", "offset": 2}, {"value": b"value of b", "offset": 3}]
    # The first has the key between its least and its greatest: its keys are looked at, and nothing else of it.
    whole = [columns for columns in decoded if len(columns) > 1]
    assert len(whole) == 1
    assert len(decoded) == (3 if segment_format == "parquet" else 4)


def test_filters_of_declared_columns(store: Store) -> None:
    store.create_topic("t", schema=SCHEMA)
    table = pa.table(
        {
            "country": ["DE", "FR", None],
            "amount": [10, 20, 30],
            "at": [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC), None],
            "day": [date(2024, 1, 1), date(2024, 1, 2), None],
            "price": [Decimal("1.50"), Decimal("2.50"), None],
        },
        schema=SCHEMA,
    )
    with Producer({"bootstrap.servers": store.uri}) as producer:
        producer.produce_arrow("t", table, partition=0)

    def amounts(filters: str) -> list[int]:
        return [row["amount"] for row in read(store, filters=filters, columns="amount")]

    assert amounts('[["country", "in", ["DE", "ES"]]]') == [10]
    assert amounts('[["country", "is null"]]') == [30]
    assert amounts('[["country", "starts with", "F"], ["amount", "<=", 20]]') == [20]
    assert amounts('[["at", ">", "2024-01-01T12:00:00Z"]]') == [20]
    assert amounts('[["at", "=", 1704067200000]]') == [10]
    assert amounts('[["at", "<", "2024-01-01T00:00:00.000001Z"]]') == [10]
    assert amounts('[["at", ">", "-10 minutes"]]') == []
    assert amounts('[["day", "<", "2024-01-02"]]') == [10]
    assert amounts('[["price", ">=", 1.5]]') == [10, 20]
    assert amounts('[["_offset", ">=", 1], ["amount", ">", 5]]') == [20, 30]
    assert amounts('[["amount", ">", 1000]]') == []
    # The same conditions as the command takes them.
    assert amounts("at > '2024-01-01T12:00:00Z' and amount <> 30") == [20]
    assert amounts('[["amount", "<>", 10], ["amount", "not in", [30]]]') == [20]
    assert amounts("price between 1.5 and 9 and day < '2024-01-02'") == [10]
    # Digits of JSON's fractions that a float has not.
    assert amounts('[["amount", "=", 20.0]]') == [20]
    assert amounts('[["amount", "<", 9007199254740993.0], ["amount", ">", 20]]') == [30]


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ("key = 'a", "a quote is not closed"),
        ("key =< 'a'", "'<=' is one"),
        ('[["key", "=', "is not JSON"),
        ("[]", "expected JSON such as"),
        ('[["key"]]', "expected JSON such as"),
        ('["key", "=", "a"]', "expected JSON such as"),
        ('[["key", "~", "a"]]', "expected one of ="),
        ('[["key", "="]]', "expected a value after"),
        ('[["key", "is null", 1]]', "expected no value after"),
        ('[["key", "in", "a"]]', "expected a list after"),
        ('[["key", "=", ["a"]]]', "expected one value after"),
        ('[["kex", "=", "a"]]', "did you mean 'key'"),
        ('[["key", "=", 1]]', "expected binary"),
        ('[["offset", "=", "first"]]', "expected int64"),
        ('[["offset", "=", true]]', "has True: expected int64"),
        ('[["offset", "=", 1.00000000000000000001]]', "has 1.00000000000000000001: expected int64"),
        ("key = a*", "a word with signs"),
        ('[["timestamp", ">", "yesterday"]]', "timestamp"),
    ],
)
def test_wrong_filters_are_refused_with_what_was_expected(store: Store, filters: str, text: str) -> None:
    store.create_topic("t")
    with pytest.raises(ConfigurationError, match=text):
        read(store, filters=filters)


def test_other_conditions_are_left_to_spark() -> None:
    assert pushed_condition(EqualTo(("amount",), 5), SCHEMA) is not None
    assert pushed_condition(In(("country",), ("DE",)), SCHEMA) is not None
    assert pushed_condition(IsNotNull(("country",)), SCHEMA) is not None
    assert pushed_condition(EqualTo(("amount",), "5"), SCHEMA) is None
    assert pushed_condition(EqualTo(("other",), 5), SCHEMA) is None
    assert pushed_condition(EqualTo(("amount", "field"), 5), SCHEMA) is None
    assert pushed_condition(StringEndsWith(("country",), "E"), SCHEMA) is None


@pytest.fixture
def push_down(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.spark
@pytest.mark.usefixtures("push_down")
def test_spark_pushes_conditions_on_keys_down(spark: SparkSession, store: Store) -> None:
    store.create_topic("t")
    for keys in (("a", "b"), ("c", "d"), ("e", "f")):
        produce(store, *keys)
    rows = spark.read.format("txnlog").option("subscribe", "t").load(store.uri)
    found = rows.where("key = cast('d' as binary)").select("value").collect()
    assert [bytes(row.value) for row in found] == [b"value of d"]
    assert rows.where("key >= cast('d' as binary) and offset < 5").count() == 2


@pytest.mark.spark
def test_filters_through_spark_and_where_they_do_not_go(spark: SparkSession, store: Store) -> None:
    store.create_topic("t")
    produce(store, "a", "b")
    filters = '[["key", "=", "b"]]'
    rows = spark.read.format("txnlog").options(subscribe="t", filters=filters).load(store.uri)
    assert rows.count() == 1
    assert [row.offset for row in rows.where("offset >= 0").collect()] == [1]
    with pytest.raises(ConfigurationError, match="where"):
        scan(spark, store.uri, "t", filters=filters)
    with pytest.raises(ConfigurationError, match="count"):
        count(store.uri, "t", filters=filters)
    with pytest.raises(ConfigurationError, match="belongs to read, not to readStream"):
        stream_reader(store, filters=filters)
