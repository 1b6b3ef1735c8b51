"""Columns that a topic gains while a stream runs: no value is left out unless the query says so."""

from __future__ import annotations

import json
import logging
import pickle
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from pyspark_txnlog import read_stream, scan, scan_stream
from pyspark_txnlog.source import DefaultSource
from sparktxn import ConfigurationError, Store
from sparktxn.admin import AdminClient
from tests.columnhistory import OPTIONS, ColumnHistory
from tests.seeds import examples, seed_of
from tests.world import next_number

ALL = ReadAllAvailable()
Row = dict[str, Any]


class Stream:
    """A stream's DataFrame as Spark makes and reads it: its schema is fixed when it is made."""

    def __init__(self, store: Store, schema: StructType | None = None, /, **options: str) -> None:
        given = {"path": store.uri, "startingoffsets": "earliest"}
        source = DefaultSource({**given, **{name.lower(): value for name, value in options.items()}})
        self.schema = source.schema() if schema is None else schema
        # As Spark does it: the source travels to the process that plans.
        self.reader: Any = pickle.loads(pickle.dumps(source)).streamReader(self.schema)

    def end(self, start: Row, limit: ReadLimit = ALL) -> Row:
        found: Row = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        return found

    def rows(self, start: Row, end: Row) -> list[Row]:
        parts = self.reader.partitions(start, end)
        return [row for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]


def columns(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in names])


def put(store: Store, rows: list[Row], topic: str = "t", names: Iterable[str] | None = None) -> None:
    stager = store.stage_plan([topic]).open(seed=0, default_topic=topic)
    stager.write(pa.Table.from_pylist(rows, columns(*(rows[0] if names is None else names))))
    store.commit(stager.finish(), transactional_id="tests")


def valued(rows: Iterable[Row]) -> Counter[frozenset[tuple[str, str]]]:
    """The values of rows that are not null: a column that a row does not have is null in it."""
    return Counter(frozenset((name, repr(value)) for name, value in row.items() if value is not None) for row in rows)


def within(stream: Stream, start: Row, end: Row) -> list[Row] | None:
    """The rows of a micro-batch; None if it is refused for a column that the stream does not have."""
    try:
        return stream.rows(start, end)
    except ConfigurationError as error:
        if "columns that this stream does not have: " not in str(error):
            raise
        return None


@pytest.mark.parametrize("order", ["commit", "offset"])
@pytest.mark.parametrize("number", range(examples(4, 60)))
def test_streams_of_random_histories_lose_no_value(number: int, order: str) -> None:
    """A query runs, ends at a new column, dies and starts again, in any order: it gives each row once, and whole."""
    random = Random(seed := seed_of(f"stream {number}", number))
    with Store.open(f"memory://streams-{next_number()}", options=OPTIONS, create=True) as store:
        history = ColumnHistory(store, random, deletes=False)
        reads = random.choice([{"subscribe": "t,u"}, {"subscribe": "t"}, {"subscribePattern": "[tu]"}])
        topics = ("t",) if reads == {"subscribe": "t"} else ("t", "u")

        def made() -> Stream:
            return Stream(store, order=order, **reads)

        stream = made()
        offset = stream.reader.initialOffset()
        given: list[Row] = []
        refused = 0
        for _ in range(40):
            if random.random() < 0.6:
                history.step()
            if random.random() < 0.2:
                stream = made()
            end = stream.end(offset, random.choice([ALL, ReadMaxRows(2)]))
            if end == offset:
                continue
            while True:
                if random.random() < 0.3:
                    # The driver dies inside the micro-batch, and the topics go on meanwhile.
                    history.step()
                    stream = made()
                rows = within(stream, offset, end)
                if rows is not None:
                    break
                refused += 1
                stream = made()
            given += rows
            offset = end
        stream = made()
        given += stream.rows(offset, stream.end(offset))
        assert valued(given) == valued(row for topic in topics for row in history.newest.rows[topic]), seed
        print(f"{refused} micro-batches were refused")


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_a_stream_ends_before_the_first_row_with_a_value(store: Store, order: str) -> None:
    store.create_topic("t", schema=columns("id"))
    put(store, [{"id": 1}])
    stream = Stream(store, subscribe="t", order=order)
    first = stream.end(start := stream.reader.initialOffset())
    assert stream.rows(start, first) == [{"id": 1}]
    store.add_columns("t", columns("tip"))
    assert stream.end(first) == first, "a column without a row is nothing to read"
    put(store, [{"id": 2}])
    put(store, [{"id": 3, "tip": None}])
    second = stream.end(first)
    assert stream.rows(first, second) == [{"id": 2}, {"id": 3}], "rows without a value lose nothing"
    put(store, [{"id": 4}])
    put(store, [{"id": 5, "tip": 7}])
    third = stream.end(second)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"topic 't' has columns that this stream .*: 'tip'\. .*anew"):
            stream.rows(second, third)
    again = Stream(store, subscribe="t", order=order)
    assert again.rows(second, third) == [{"id": 4, "tip": None}, {"id": 5, "tip": 7}]
    assert again.rows(start, first) == [{"id": 1, "tip": None}], "a view without the column has null"
    put(store, [{"id": 6, "tip": 8}])
    assert again.rows(third, again.end(third)) == [{"id": 6, "tip": 8}]


@pytest.mark.parametrize("chosen", ["schema", "columns"])
def test_a_stream_whose_columns_are_chosen_continues_and_logs_once(
    store: Store, caplog: pytest.LogCaptureFixture, chosen: str
) -> None:
    store.create_topic("t", schema=columns("id", "left"))
    put(store, [{"id": 1, "left": 1}])

    def made() -> Stream:
        if chosen == "columns":
            return Stream(store, subscribe="t", columns="id")
        return Stream(store, StructType().add("id", "long"), subscribe="t")

    stream = made()
    first = stream.end(start := stream.reader.initialOffset())
    with caplog.at_level(logging.WARNING):
        assert stream.rows(start, first) == [{"id": 1}]
        assert not caplog.records, "what the query leaves out from the start is its choice"
        store.add_columns("t", columns(added := f"tip_{chosen}"))
        for _ in range(2):
            put(store, [{"id": 2, added: 7}])
            second = stream.end(first)
            assert stream.rows(first, second) == [{"id": 2}]
            start, first, stream = first, second, made()
    assert [record.getMessage() for record in caplog.records] == [
        f"topics t have gained columns that the read leaves out: {added}"
    ]


def test_the_option_says_the_other_behaviour(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.create_topic("t", schema=columns("id"))
    skips = Stream(store, subscribe="t", onNewColumns="skip")
    fails = Stream(store, subscribe="t", columns="id", onNewColumns="fail")
    own = Stream(store, StructType().add("id", "long"), subscribe="t", onNewColumns="fail")
    start = skips.reader.initialOffset()
    put(store, [{"id": 1}])
    first = skips.end(start)
    for stream in (skips, fails, own):
        assert stream.rows(start, first) == [{"id": 1}]
    store.add_columns("t", columns("other_tip"))
    put(store, [{"id": 2, "other_tip": 7}])
    second = skips.end(first)
    with caplog.at_level(logging.WARNING):
        assert skips.rows(first, second) == [{"id": 2}]
    assert "gained columns that the read leaves out: other_tip" in caplog.text
    for stream in (fails, own):
        with pytest.raises(ConfigurationError, match="'other_tip'"):
            stream.rows(first, second)
    with pytest.raises(ConfigurationError, match="option 'onNewColumns' is 'Stop': expected"):
        Stream(store, subscribe="t", onNewColumns="Stop").reader.initialOffset()


def test_topics_of_one_stream_gain_different_columns(store: Store) -> None:
    for topic in ("t1", "t2"):
        store.create_topic(topic, schema=columns("id"))
    stream = Stream(store, subscribePattern="t.")
    start = stream.reader.initialOffset()
    store.add_columns("t1", columns("x"))
    store.add_columns("t2", columns("y"))
    store.create_topic("t3", schema=columns("id", "z"))
    put(store, [{"id": 1}], "t1")
    put(store, [{"id": 2}], "t2")
    first = stream.end(start)
    assert stream.rows(start, first) == [{"id": 1}, {"id": 2}]
    put(store, [{"id": 3, "z": 3}], "t3")
    second = stream.end(first)
    with pytest.raises(ConfigurationError, match=r"topics 't1', 't2', 't3' have columns .*: 'x', 'y', 'z'"):
        stream.rows(first, second)
    again = Stream(store, subscribePattern="t.")
    assert again.schema.names == ["id", "x", "y", "z"]
    assert again.rows(first, second) == [{"id": 3, "x": None, "y": None, "z": 3}]
    put(store, [{"id": 4, "y": 4}], "t2")
    assert again.rows(second, again.end(second)) == [{"id": 4, "x": None, "y": 4, "z": None}]


def test_a_topic_that_is_created_again_with_other_columns(store: Store) -> None:
    store.create_topic("t", schema=columns("id", "old"))
    put(store, [{"id": 1, "old": 1}])
    stream = Stream(store, subscribe="t", failOnDataLoss="false")
    first = stream.end(start := stream.reader.initialOffset())
    AdminClient({"bootstrap.servers": store.uri}).delete_topics(["t"])["t"].result()
    store.create_topic("t", schema=columns("id", "new"))
    put(store, [{"id": 2, "new": 2}])
    second = stream.end(first)
    with pytest.raises(ConfigurationError, match="column 'old' of the given schema is unknown"):
        stream.rows(first, second)
    again = Stream(store, subscribe="t", failOnDataLoss="false")
    assert again.rows(first, second) == [{"id": 2, "new": 2}]
    with pytest.raises(ConfigurationError, match="'old'"):
        again.rows(start, first)
    skips = Stream(store, subscribe="t", failOnDataLoss="false", onNewColumns="skip")
    assert skips.rows(start, first) == [{"id": 1, "new": None}]


class TestWithSpark:
    pytestmark = pytest.mark.spark

    def test_a_query_ends_at_a_new_column_and_continues_with_it(
        self, spark: SparkSession, store: Store, tmp_path: Path
    ) -> None:
        store.create_topic("t", schema=columns("id"))
        put(store, [{"id": 1}])
        given: list[tuple[int, list[Row]]] = []

        def run(stream: DataFrame) -> None:
            writer = stream.writeStream.foreachBatch(lambda rows, batch: given.append((batch, _rows(rows))))
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
            query.awaitTermination(60)

        stream = read_stream(spark, store.uri, "t", startingOffsets="earliest")
        run(stream)
        store.add_columns("t", columns("tip"))
        put(store, [{"id": 2, "tip": 7}])
        for _ in range(2):
            with pytest.raises(Exception, match="columns that this stream does not have: 'tip'"):
                run(stream)
        run(read_stream(spark, store.uri, "t", startingOffsets="earliest"))
        assert given == [(0, [{"id": 1}]), (1, [{"id": 2, "tip": 7}])]

    def test_a_stream_of_a_table_takes_the_columns_that_the_table_gets(
        self, spark: SparkSession, store: Store, tmp_path: Path
    ) -> None:
        store.create_topic("t", schema=columns("id"))
        put(store, [{"id": 1}])
        spark.sql(f"CREATE TABLE followed USING txnlog OPTIONS (path '{store.uri}', topic 't')")
        given: list[Row] = []

        def run() -> None:
            stream = spark.readStream.option("startingOffsets", "earliest").table("followed")
            writer = stream.writeStream.foreachBatch(lambda rows, _: given.extend(_rows(rows)))
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
            query.awaitTermination(60)

        run()
        store.add_columns("t", columns("tip"))
        put(store, [{"id": 2, "tip": 7}])
        with pytest.raises(Exception, match=r"'tip'.*ALTER TABLE"):
            run()
        spark.sql("ALTER TABLE followed ADD COLUMNS (tip bigint)")
        run()
        assert given == [{"id": 1}, {"id": 2, "tip": 7}]
        spark.sql("DROP TABLE followed")

    def test_scan_stream_ends_too_and_repeats_an_old_micro_batch(
        self, spark: SparkSession, store: Store, tmp_path: Path
    ) -> None:
        store.create_topic("t", schema=columns("id"))
        put(store, [{"id": 1}])
        given: list[tuple[int, list[Row]]] = []
        fails = [True]

        def take(rows: DataFrame, batch: int) -> None:
            if fails and fails.pop():
                raise RuntimeError("the driver dies")
            given.append((batch, _rows(rows)))

        def run(query: Any) -> None:
            query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            query.start().awaitTermination(60)

        def made() -> Any:
            return scan_stream(spark, store.uri, "t", take, startingOffsets="earliest")

        with pytest.raises(Exception, match="the driver dies"):
            run(made())
        store.add_columns("t", columns("tip"))
        old = made()
        run(old)
        store.add_columns("t", columns("top"))
        put(store, [{"id": 2, "top": 7}])
        with pytest.raises(Exception, match="columns that this stream does not have: 'top'"):
            run(old)
        run(made())
        assert given == [(0, [{"id": 1, "tip": None}]), (1, [{"id": 2, "tip": None, "top": 7}])]

    def test_views_of_the_past_have_null_in_columns_that_came_later(self, spark: SparkSession, store: Store) -> None:
        store.create_topic("t", schema=columns("id"))
        put(store, [{"id": 1}])
        entry = store.view().entry
        spark.sql(f"CREATE TABLE narrow USING txnlog OPTIONS (path '{store.uri}', topic 't')")
        store.add_columns("t", columns("tip"))
        put(store, [{"id": 2, "tip": 7}])
        spark.sql(f"CREATE TABLE wide USING txnlog OPTIONS (path '{store.uri}', topic 't')")
        past = f"WITH (asOfEntry = {entry})"
        assert _rows(spark.sql(f"SELECT * FROM wide {past}")) == [{"id": 1, "tip": None}]
        assert _rows(spark.sql(f"SELECT * FROM wide {past} WHERE tip IS NULL")) == [{"id": 1, "tip": None}]
        assert _rows(spark.sql("SELECT * FROM narrow")) == [{"id": 1}, {"id": 2}], "a table has the columns of its time"
        assert _rows(spark.sql("SELECT * FROM wide")) == [{"id": 1, "tip": None}, {"id": 2, "tip": 7}]
        for read in (
            scan,
            lambda spark, uri, topic, **options: spark.read.format("txnlog").options(**options, topic=topic).load(uri),
        ):
            assert _rows(read(spark, store.uri, "t", asOfEntry=str(entry))) == [{"id": 1}]
            named = read(spark, store.uri, "t", asOfEntry=str(entry), columns="tip,id")
            assert _rows(named) == [{"tip": None, "id": 1}]
        filtered = spark.read.format("txnlog").options(topic="t", asOfEntry=entry, filters="tip is null", columns="id")
        assert _rows(filtered.load(store.uri)) == [{"id": 1}]
        for table in ("narrow", "wide"):
            spark.sql(f"DROP TABLE {table}")


def _rows(frame: DataFrame) -> list[Row]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: row["id"])
