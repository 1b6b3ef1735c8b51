"""Conditions that Spark pushes down: the rows are those of a read that leaves all of them to Spark, for every type."""

from __future__ import annotations

import logging
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.datasource import EqualTo, GreaterThan, IsNotNull

from pyspark_txnlog.connecting.sessions import RECOMMENDED
from pyspark_txnlog.options.options import READ, ReadOptions
from pyspark_txnlog.reading import batch_reader
from pyspark_txnlog.reading.batch_reader import NoticingTxnLogReader, read_schema
from pyspark_txnlog.source import DefaultSource
from sparktxn import Producer, Store
from tests.seeds import examples
from tests.spark.readers import commit, numbers_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("small", pa.int8()),
        pa.field("x", pa.float64()),
        pa.field("y", pa.float32()),
        pa.field("price", pa.decimal128(12, 3)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("text", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("flag", pa.bool_()),
        pa.field("place", pa.struct([pa.field("city", pa.string()), pa.field("level", pa.int32())])),
        pa.field("many", pa.list_(pa.int32())),
    ]
)
TEXTS = ["", "a", "ab", "Ä", "é", "e\u0301", "z", "日本", "😀", "a'b", "%_"]
OPERANDS: dict[str, list[str]] = {
    "id": ["0", "17", "59", "-1", "9223372036854775807", "2.5"],
    "small": ["0", "-128", "127", "300"],
    "x": ["0.0", "-0.0", "double('NaN')", "double('Infinity')", "1.5", "3"],
    "y": ["0.0", "float('NaN')", "0.1", "float('0.1')", "-1"],
    "price": ["0", "1.500", "1.5001", "-999999999.999", "12345678901234.5"],
    "at": ["timestamp '2024-01-01T00:00:00Z'", "timestamp '2024-06-01T12:00:00.000001Z'", "timestamp '1999-01-01Z'"],
    "local": ["timestamp_ntz '2024-01-01 00:00:00'", "timestamp_ntz '2024-06-01 12:00:00.000001'"],
    "day": ["date '2024-01-01'", "date '2024-02-29'", "date '1900-01-01'"],
    "text": [f"'{text}'" for text in ("", "a", "Ä", "é", "日本", "😀", "~")] + ['"a\'b"'],
    "raw": ["X''", "X'00'", "X'FF'", "X'6162'"],
    "flag": ["true", "false"],
    "place.city": ["'a'", "'Ä'", "'zz'"],
    "place.level": ["0", "3", "99"],
    "_offset": ["0", "10", "25", "99"],
    "_partition": ["0", "1", "7"],
    "_topic": ["'t'", "'u'"],
    "_timestamp": ["timestamp '2024-01-01T00:00:00Z'", "timestamp '2024-01-01T00:00:00.030Z'"],
}


def pushed_source() -> type[DefaultSource]:
    """A source whose reader takes conditions, as one has where each scan keeps its own plan.

    A class of a function travels to Spark's processes by value: they do not have the tests.
    """

    class PushedSource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "pushed"

        def reader(self, schema: StructType) -> DataSourceReader:
            from pyspark_txnlog.options.options import READ, ReadOptions
            from pyspark_txnlog.reading.batch_reader import FilteringTxnLogReader
            from pyspark_txnlog.sparkinternals import takes_filters

            if not takes_filters():
                return DefaultSource.reader(self, schema)
            assert self._pinned is not None
            return FilteringTxnLogReader(ReadOptions.parse(self.options, READ), schema, self._pinned)

    return PushedSource


def rows_of(random: Random, first: int, count: int) -> pa.Table:
    """Rows of which a part of each column is null, and a part at the edges of its type."""

    def some(values: list[Any]) -> list[Any]:
        return [None if random.random() < 0.2 else random.choice(values) for _ in range(count)]

    near = first // 10
    columns: dict[str, list[Any]] = {
        "id": list(range(first, first + count)),
        "small": some([-128, 127, 0, near % 100]),
        "x": some([math.nan, math.inf, -math.inf, -0.0, 0.0, near / 2]),
        "y": some([math.nan, 0.1, -0.0, float(near)]),
        "price": some([Decimal("1.500"), Decimal("-999999999.999"), Decimal(near)]),
        "at": some([datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 6, 1, 12, 0, 0, 1, tzinfo=UTC)]),
        "local": some([datetime(2024, 1, 1), datetime(2024, 6, 1, 12, 0, 0, 1)]),
        "day": some([date(2024, 1, 1), date(2024, 2, 29), date(1900, 1, 1)]),
        "text": some(TEXTS),
        "raw": some([b"", b"\0", b"\xff", b"ab"]),
        "flag": some([True, False]),
        "place": some([{"city": random.choice([*TEXTS, None]), "level": near}, {"city": None, "level": None}]),
        "many": some([[], [1, None], [near]]),
    }
    return pa.table(columns, schema=SCHEMA)


def fill(store: Store) -> None:
    """Segments of ten rows, some of them in one file, in two partitions."""
    random = Random(11)
    store.create_topic("t", 2, schema=SCHEMA, settings={"append.inline.bytes": 0})
    with Producer({"bootstrap.servers": store.uri}) as producer:
        for first in range(0, 60, 10):
            table = rows_of(random, first, 10)
            times = pa.array(range(1_704_067_200_000 + first, 1_704_067_200_010 + first), pa.int64())
            table = table.append_column("_timestamp", times.cast(pa.timestamp("ms", tz="UTC")))
            producer.produce_arrow("t", table, partition=first // 10 % 2)
            producer.flush()


def condition(random: Random, depth: int = 0) -> str:
    """A condition in SQL, as users combine them."""
    if depth < 2 and random.random() < 0.45:
        first, second = condition(random, depth + 1), condition(random, depth + 1)
        return random.choice([f"({first}) and ({second})", f"({first}) or ({second})", f"not ({first})"])
    column = random.choice(list(OPERANDS))
    value = random.choice(OPERANDS[column])
    forms = [f"{column} {operator} {value}" for operator in ("=", "<", "<=", ">", ">=", "<>", "<=>")]
    forms += [f"{column} is null", f"{column} is not null", f"{column} = null", f"{value} < {column}"]
    forms += [f"{column} in ({', '.join(OPERANDS[column])})", f"{column} not in ({value}, null)"]
    if column in ("text", "place.city"):
        forms += [f"{column} like 'a%'", f"{column} like '%b'", f"startswith({column}, 'é')", f"upper({column}) = 'A'"]
    return random.choice(forms)


@pytest.mark.spark
def test_rows_are_the_same_with_and_without_push_down(spark: SparkSession, store: Store) -> None:
    fill(store)
    random = Random(20)
    # Each type once by itself, and then what users combine.
    asked = [f"{column} {operator} {values[1]}" for column, values in OPERANDS.items() for operator in ("=", ">=")]
    asked += [condition(random) for _ in range(examples(20, 120))]
    plain = spark.read.format("txnlog").option("topic", "t").option("columns", ",".join(COLUMNS)).load(store.uri)
    # Without a source: Spark's own cache finds no NaN of a float.
    whole = spark.createDataFrame(plain.toArrow(), plain.schema)
    # One query for all: it says of each row which conditions are true of it.
    held = whole.selectExpr("id", *(f"({text}) as c{number}" for number, text in enumerate(asked))).collect()
    expected = {text: sorted(row.id for row in held if row[f"c{number}"]) for number, text in enumerate(asked)}
    spark.dataSource.register(pushed_source())
    spark.conf.set(PUSH_DOWN, "true")
    try:
        for text in asked:
            pushed = spark.read.format("pushed").option("topic", "t").option("columns", ",".join(COLUMNS))
            assert numbers(pushed.load(store.uri), text) == expected[text], text
    finally:
        spark.conf.unset(PUSH_DOWN)
    assert len({tuple(found) for found in expected.values()}) > 20


COLUMNS = (*SCHEMA.names, "_topic", "_partition", "_offset", "_timestamp")


def numbers(frame: Any, text: str) -> list[int]:
    return sorted(row.id for row in frame.where(text).select("id").collect())


def noticing(store: Store) -> NoticingTxnLogReader:
    parsed = ReadOptions.parse({"path": store.uri, "topic": "t"}, READ)
    return NoticingTxnLogReader(parsed, *read_schema(parsed))


def test_a_read_that_could_leave_out_segments_says_so_once(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_reader, "_noticed", set())
    store.create_topic("t")
    for first in (0, 10, 20):
        commit(store, range(first, first + 10))
    conditions = [IsNotNull(("offset",)), GreaterThan(("offset",), 15), EqualTo(("value",), b"7")]
    with caplog.at_level(logging.WARNING, "sparktxn.spark"):
        for _ in range(2):
            reader = noticing(store)
            assert list(reader.pushFilters(conditions)) == conditions, "Spark compares all of them"
            assert numbers_of(reader) == list(range(30))
    (message,) = [record.getMessage() for record in caplog.records]
    assert "topics t takes all of its 3 segments" in message
    assert "a condition on offset, value could leave some out" in message
    assert "scan(), or the option filters" in message


@pytest.mark.parametrize("filters", [[], [IsNotNull(("value",))], [EqualTo(("nothing",), 1)]])
def test_nothing_is_said_where_no_segment_could_be_left_out(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, filters: list[Any]
) -> None:
    monkeypatch.setattr(batch_reader, "_noticed", set())
    store.create_topic("t")
    for first in (0, 10):
        commit(store, range(first, first + 10))
    reader = noticing(store)
    assert list(reader.pushFilters(filters)) == filters
    assert numbers_of(reader) == list(range(20))
    assert not caplog.records


def test_a_session_turns_push_down_on() -> None:
    assert RECOMMENDED[PUSH_DOWN] == "true"


@pytest.mark.spark
def test_a_source_in_python_is_not_told_which_columns_a_query_uses(spark: SparkSession) -> None:
    """So a count by ``format("txnlog")`` reads all columns: once this fails, it can be answered by the log."""
    package = "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"
    jvm: Any = spark._jvm
    interfaces = {each.getSimpleName() for each in jvm.java.lang.Class.forName(package).getInterfaces()}
    assert interfaces == {"SupportsPushDownFilters"}
