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

from pyspark_txnlog.skipping import is_on_timestamp, without_skipped
from sparktxn import Producer, ReadTask, Store
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


@pytest.fixture
def push_down(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.spark
@pytest.mark.usefixtures("push_down")
@pytest.mark.parametrize("order", ["commit", "offset"])
def test_spark_does_not_open_the_segments_that_it_need_not_read(spark: SparkSession, store: Store, order: str) -> None:
    store.create_topic("t", settings={"append.inline.bytes": "0"})
    for first in (1_000, 2_000, 3_000):
        produce(store, first, first + 500)
    (oldest, *_) = (segment for task in tasks(store) for segment in task.segments)
    rows = spark.read.format("txnlog").options(subscribe="t", order=order).load(store.uri)
    late = rows.where("timestamp >= timestamp_millis(2500) and timestamp < timestamp_millis(3500)")
    expected = values(late)
    assert expected == [2500, 3000]
    (file,) = Path(store.uri).rglob(oldest.name)
    file.unlink()
    assert values(late) == expected
