"""Fetches of Kafka's FetcherTest, record by record: what read_committed hands out, however the log is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from sparktxn._foundation.values.structs import AbortedTransaction
from sparktxn._rows.scan.plan import Isolation, ReadTask, plan_ranges
from sparktxn._rows.scan.reader import read
from tests.unit.scan.log_builder import PartitionLog, memory_store, read_view

pytestmark = pytest.mark.kafka("K86")


class Fetch(NamedTuple):
    """A log, and the offsets that each isolation level hands out."""

    build: Callable[[PartitionLog], None]
    committed: list[int]
    uncommitted: list[int]


def gap(log: PartitionLog, end: int) -> None:
    """Offsets that hold nothing any more."""
    log.end = end


def returning_committed(log: PartitionLog) -> None:
    log.append(2, 1, transaction=1)
    log.control()


def skipping_aborted(log: PartitionLog) -> None:
    log.append(2, 1, transaction=1)
    log.abort(1, 0)


def committed_and_aborted(log: PartitionLog) -> None:
    """Two producers lie across each other; then they change places."""
    log.append(2, 1, transaction=1)
    log.append(1, 2, transaction=1)
    log.control()
    log.append(1, 2, transaction=1)
    log.abort(2, 2)
    log.append(1, 1, transaction=2)
    log.append(1, 2, transaction=2)
    log.append(1, 1, transaction=2)
    log.abort(1, 6, last_stable_offset=7)
    log.control()


def two_abort_markers(log: PartitionLog) -> None:
    """The second one, which no transaction of this store leaves, ends nothing."""
    log.append(2, 1, transaction=1)
    log.abort(1, 0)
    log.control()
    log.append(2, 1, transaction=2)
    log.control()


def marker_without_data(log: PartitionLog) -> None:
    """What was aborted is gone; its marker and its index entry are there."""
    gap(log, 5)
    log.abort(1, 0)
    log.append(3, 1, transaction=2)
    log.control()


def after_compaction(log: PartitionLog) -> None:
    """Aborted transactions begin where nothing is left, and the last one ends after what is fetched."""
    gap(log, 3)
    log.append(2, 3, transaction=1)
    gap(log, 15)
    log.append(3, 2, transaction=1)
    gap(log, 22)
    log.append(2, 1, transaction=1)
    gap(log, 28)
    log.abort(2, 6, last_stable_offset=0)
    gap(log, 30)
    log.append(3, 3, transaction=2)
    gap(log, 35)
    log.control()
    gap(log, 39)
    log.append(2, 1, transaction=1)
    gap(log, 45)
    log.abort(1, 0)


def plain_records_inside(log: PartitionLog) -> None:
    """Of the aborting producer, before and after; of another one, and of none, inside."""
    log.append(2, 1)
    log.append(2, 1, transaction=1)
    log.append(1, 2)
    log.append(1, 3, transaction=1)
    log.append(1, 1, transaction=1)
    log.abort(1, 2, last_stable_offset=5)
    log.append(2, 1)
    log.control()


FETCHES = {
    "committed": Fetch(returning_committed, [0, 1], [0, 1]),
    "aborted": Fetch(skipping_aborted, [], [0, 1]),
    "committed and aborted": Fetch(committed_and_aborted, [0, 1, 7], [0, 1, 2, 4, 6, 7, 8]),
    "two abort markers": Fetch(two_abort_markers, [4, 5], [0, 1, 4, 5]),
    "marker without data": Fetch(marker_without_data, [6, 7, 8], [6, 7, 8]),
    "after compaction": Fetch(after_compaction, [3, 4, 30, 31, 32], [3, 4, 15, 16, 17, 22, 23, 30, 31, 32, 39, 40]),
    "plain records inside": Fetch(plain_records_inside, [0, 1, 4, 5, 8, 9], [0, 1, 2, 3, 4, 5, 6, 8, 9]),
}


class SealingLog(PartitionLog):
    """Seals after every so many segments, an end with the segment before it."""

    every = 0

    def append(self, *arguments, **settings):
        if self.every and len(self.segments) >= self.every:
            self.seal()
        return super().append(*arguments, **settings)


@pytest.fixture(params=[0, 1, 2, 99], ids=["single", "runs of one", "runs of two", "one run"])
def build(request: pytest.FixtureRequest) -> Callable[[Fetch], PartitionLog]:
    def built(fetch: Fetch) -> PartitionLog:
        log = SealingLog(memory_store())
        log.every = request.param
        fetch.build(log)
        if request.param and log.segments:
            log.seal()
        return log

    return built


def plan(log: PartitionLog, start: int, end: int, isolation: Isolation, **options: Any) -> list[ReadTask]:
    view, ranges = read_view(log.view()), {("orders", 0): (start, end)}
    return plan_ranges(log.objects, log.objects.uri, view, ranges, isolation=isolation, **options)


def offsets(log: PartitionLog, isolation: Isolation) -> list[int]:
    tasks = plan(log, 0, log.end, isolation)
    rows = [row for task in tasks for batch in read(log.objects, task) for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [b"v%d" % row["offset"] for row in rows]
    return [row["offset"] for row in rows]


@pytest.mark.parametrize("name", FETCHES)
def test_what_a_fetch_hands_out(build: Callable[[Fetch], PartitionLog], name: str) -> None:
    fetch = FETCHES[name]
    log = build(fetch)
    assert offsets(log, "read_committed") == fetch.committed
    assert offsets(log, "read_uncommitted") == fetch.uncommitted


@pytest.mark.kafka("K77", "K78", "K79")
@pytest.mark.parametrize("name", FETCHES)
def test_a_fetch_may_begin_and_end_anywhere(build: Callable[[Fetch], PartitionLog], name: str) -> None:
    """Inside an aborted transaction, on a control record, or in a gap; what was aborted elsewhere is not asked for."""
    fetch = FETCHES[name]
    log = build(fetch)
    for start in range(log.end + 1):
        for end in {start, start + 1, start + 3, log.end}:
            tasks = plan(log, start, end, "read_committed", columns=("offset",))
            found = [offset for task in tasks for batch in read(log.objects, task) for offset in batch[0].to_pylist()]
            assert found == [offset for offset in fetch.committed if start <= offset < end]


@pytest.mark.kafka("K72", "K73")
def test_at_every_offset_below_the_last_stable_one_something_is_read_and_from_it_on_nothing() -> None:
    """Kafka's testFetchUpToLastStableOffset: committed, then two open transactions across each other."""
    log = PartitionLog(memory_store())
    log.append(5, 9)
    log.append(3, 1, transaction=1)
    log.append(4, 9)
    log.append(2, 2, transaction=1)

    def readable(last_stable_offset: int) -> list[bool]:
        view = read_view(log.view(last_stable_offset=last_stable_offset))
        found = []
        for start in range(log.end):
            tasks = plan_ranges(log.objects, log.objects.uri, view, {("orders", 0): (start, log.end)})
            read_offsets = [
                offset for task in tasks for batch in read(log.objects, task) for offset in batch["offset"].to_pylist()
            ]
            assert all(start <= offset < last_stable_offset for offset in read_offsets)
            found.append(bool(read_offsets))
        return found

    assert readable(5) == [True] * 5 + [False] * 9
    log.aborted = [AbortedTransaction(1, 5, 14, 12)]
    assert readable(12) == [True] * 12 + [False] * 2
    assert readable(14) == [True] * 14
