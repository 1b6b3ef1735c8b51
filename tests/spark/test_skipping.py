"""Conditions on the timestamp, where Spark pushes them down: segments that cannot meet them are not read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from pyspark_txnlog.reading.batch_reader import is_on_timestamp, without_skipped
from sparktxn import Producer, ReadTask, Store
from tests.spark.readers import commit, filtering_reader, numbers_of
from tests.spark.sessions import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPARISONS = {EqualTo: eq, GreaterThan: gt, GreaterThanOrEqual: ge, LessThan: lt, LessThanOrEqual: le}


def moment(milliseconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def produce(store: Store, *milliseconds: int) -> None:
    """One segment."""
    with Producer({"bootstrap.servers": store.uri}) as producer:
        for number in milliseconds:
            producer.produce("t", str(number), partition=0, timestamp=number)


def tasks(store: Store) -> list[ReadTask]:
    view = store.view(["t"])
    return store.plan(view, store.ranges(view))


def test_a_segment_is_left_out_only_if_no_record_of_it_can_meet_the_conditions(store: Store) -> None:
    store.create_topic("t")
    random = Random(7)
    written = [[random.randint(1, 40) for _ in range(random.randint(1, 4))] for _ in range(20)]
    for numbers in written:
        produce(store, *numbers)
    skipped = 0
    for _ in range(300):
        chosen = [(random.choice(list(COMPARISONS)), random.randint(0, 41)) for _ in range(random.randint(1, 2))]
        # Between two milliseconds, too: Spark compares microseconds.
        conditions = [
            kind(("timestamp",), moment(at) + timedelta(microseconds=shift)) for kind, at in chosen for shift in (0,)
        ]
        kept = {segment.base_offset for task in without_skipped(tasks(store), conditions) for segment in task.segments}
        offset = 0
        for numbers in written:
            needed = any(all(COMPARISONS[kind](number, at) for kind, at in chosen) for number in numbers)
            possible = all(
                any(COMPARISONS[kind](at_, at) for at_ in range(min(numbers), max(numbers) + 1)) for kind, at in chosen
            )
            assert (offset in kept) >= needed
            assert (offset in kept) == possible
            skipped += offset not in kept
            offset += len(numbers)
    assert skipped > 1_000


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        (GreaterThan(("timestamp",), moment(1)), True),
        (GreaterThan(("_timestamp",), moment(1)), False),
        (GreaterThan(("timestamp", "field"), moment(1)), False),
        (GreaterThan(("timestamp",), datetime(2024, 1, 1)), False),
        (GreaterThan(("timestamp",), 5), False),
        (In(("timestamp",), (moment(1),)), False),
    ],
)
def test_other_conditions_are_left_to_spark(condition: Any, taken: bool) -> None:
    assert is_on_timestamp(condition, "timestamp") is taken


@pytest.mark.parametrize("order", ["commit", "offset"])
def test_a_reader_does_not_open_the_segments_that_it_need_not_read(store: Store, order: str) -> None:
    store.create_topic("t", settings={"append.inline.bytes": "0"})
    for first in (1_000, 2_000, 3_000):
        produce(store, first, first + 500)
    (oldest, *_) = (segment for task in tasks(store) for segment in task.segments)
    (file,) = Path(store.uri).rglob(oldest.name)
    file.unlink()
    reader = filtering_reader(store, order=order)
    conditions = [GreaterThanOrEqual(("timestamp",), moment(2_500)), LessThan(("timestamp",), moment(3_500))]
    assert list(reader.pushFilters(conditions)) == conditions, "Spark compares what is left"
    assert numbers_of(reader) == [2000, 2500, 3000, 3500]


@pytest.fixture
def push_down(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.spark
@pytest.mark.usefixtures("push_down")
def test_the_conditions_of_one_scan_take_no_rows_from_another(spark: SparkSession, store: Store) -> None:
    """Spark 4.3 gives all scans of a DataFrame the plan that it has made last."""
    store.create_topic("t", 2)
    for partition in (0, 1):
        commit(store, range(10 * partition, 10 * partition + 10), partition=partition)
    rows = spark.read.format("txnlog").option("subscribe", "t").load(store.uri)
    assert values(rows.where("partition = 0")) == list(range(10))
    assert values(rows) == list(range(20))
    assert values(rows.where("partition = 0 or offset >= 5")) == [*range(10), *range(15, 20)]
    first, second = rows.where("partition = 0"), rows.where("partition = 1")
    assert values(first.union(second)) == list(range(20))
    assert values(first.union(rows)) == sorted([*range(20), *range(10)])
    assert first.join(second, "partition").count() == 0
    rows.createOrReplaceTempView("rows")
    counts = "select (select count(*) from rows where timestamp > now()), (select count(*) from rows)"
    assert tuple(spark.sql(counts).first() or ()) == (0, 20)
