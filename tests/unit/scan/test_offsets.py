from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.log.follow.confirm import write_horizon
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._foundation.values.structs import AbortedTransaction
from sparktxn._rows.scan.offsets import offset_for_time
from sparktxn.errors import DamagedObject, ViewExpired
from tests.each import each
from tests.unit.scan.log_builder import CountingStore, PartitionLog, compacted, memory_store


def three_segments(**options: Any) -> PartitionLog:
    """Offsets 0 to 2, 4 to 6, 8 to 10, with timestamps out of order in the middle."""
    log = PartitionLog(memory_store(), **options)
    log.append(3, timestamps=[10, 20, 30])
    log.control()
    log.append(3, timestamps=[60, 40, 70])
    log.control()
    log.append(3, timestamps=[50, 80, 90])
    return log


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("schema", [None, (("id", "int64", False),)], ids=["record", "typed"])
@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(-5, 0), (10, 0), (11, 1), (30, 2), (31, 4), (60, 4), (61, 6), (70, 6), (71, 9), (90, 10), (91, None)],
)
def test_the_first_offset_with_that_time_or_later(
    timestamp: int, offset: int | None, schema: Any, sealed: bool
) -> None:
    log = three_segments(schema=schema)
    if sealed:
        log.seal()
    assert offset_for_time(log.objects, log.view(), timestamp) == offset


@pytest.mark.kafka("K83")
@each([(61, 6, None, 6), (61, 7, 6, 6), (80, 8, None, 9), (35, 4, None, 4)])
def test_read_committed_never_answers_at_or_above_the_last_stable_offset(
    timestamp: int, last_stable_offset: int, committed: int | None, uncommitted: int
) -> None:
    log = three_segments()
    view = log.view(last_stable_offset=last_stable_offset)
    assert offset_for_time(log.objects, view, timestamp) == committed
    assert offset_for_time(log.objects, view, timestamp, "read_uncommitted") == uncommitted


def test_nothing_below_the_log_start_is_answered() -> None:
    log = three_segments()
    log.log_start = 2
    assert offset_for_time(log.objects, log.view(), 0) == 2


def test_aborted_records_are_passed_over() -> None:
    log = PartitionLog(memory_store())
    log.append(3, 5, transaction=1, timestamps=[10, 20, 30])
    log.abort(5, 0)
    log.seal()
    log.append(2, 6, timestamps=[5, 25])
    assert offset_for_time(log.objects, log.view(), 15) == 5
    assert offset_for_time(log.objects, log.view(), 15, "read_uncommitted") == 1


def test_a_partly_aborted_segment_is_searched_where_it_is_not() -> None:
    log = PartitionLog(memory_store())
    log.append(6, 5, timestamps=[10, 30, 10, 10, 30, 40])
    log.aborted = [AbortedTransaction(5, 1, 2, 3)]
    assert offset_for_time(log.objects, log.view(), 20) == 4


@each(
    [
        *[(5, 0, 10, 0), (11, 0, 10, 2), (25, 0, 10, 2), (31, 0, 10, 6), (41, 0, 10, 8), (61, 0, 10, None)],
        *[(11, 3, 10, 5), (5, 2, 10, 2), (15, 3, 5, None), (41, 0, 8, None), (31, 7, 10, 8)],
    ]
)
def test_only_records_that_a_compaction_has_left_are_answered(
    timestamp: int, log_start: int, last_stable_offset: int, offset: int | None
) -> None:
    log = compacted()
    log.log_start = log_start
    assert offset_for_time(log.objects, log.view(last_stable_offset=last_stable_offset), timestamp) == offset


def test_the_time_of_a_record_that_a_compaction_has_left_is_the_entrys_too() -> None:
    log = compacted(settings={"message.timestamp.type": "LogAppendTime"})
    log.segments = [replace(segment, timestamp_max_ms=100) for segment in log.segments]
    assert offset_for_time(log.objects, log.view(), 50) == 0


@each([("commit", "read_committed", 6), ("offset", "read_committed", None), ("offset", "read_uncommitted", 3)])
def test_an_open_transaction_is_passed_over_in_commit_order(order: Any, isolation: Any, offset: int | None) -> None:
    log = PartitionLog(memory_store())
    first, _, third = (log.append(3, number, timestamps=[time] * 3) for number, time in enumerate((10, 20, 30), 1))
    log.segments[0], log.segments[2] = (replace(one, committed_entry=one.entry) for one in (first, third))
    view = log.view(last_stable_offset=3)
    assert offset_for_time(log.objects, view, 15, isolation, order) == offset


def test_log_append_time_is_the_entrys() -> None:
    log = PartitionLog(memory_store(), settings={"message.timestamp.type": "LogAppendTime"})
    log.append(3, timestamps=[1, 2, 3], timestamp_max_ms=100)
    assert offset_for_time(log.objects, log.view(), 50) == 0
    assert offset_for_time(log.objects, log.view(), 101) is None


def test_at_most_one_segment_is_read_where_times_are_in_order() -> None:
    log = PartitionLog(CountingStore())
    for _ in range(10):
        log.append(5)
    assert offset_for_time(log.objects, log.view(), 1000 + 32) == 32
    assert isinstance(log.objects, CountingStore)
    assert log.objects.asked == [log.name(log.segments[6])]
    log.objects.asked.clear()
    assert offset_for_time(log.objects, log.view(), 1000 + 30) == 30
    assert log.objects.asked == []


def test_only_manifests_of_runs_that_are_new_enough_are_read() -> None:
    log = PartitionLog(CountingStore())
    for _ in range(3):
        log.append(5)
        log.seal()
    assert offset_for_time(log.objects, log.view(), 1000 + 12) == 12
    assert isinstance(log.objects, CountingStore)
    assert names.manifest(log.folder, log.sealed[2].folder) in log.objects.asked
    assert not {names.manifest(log.folder, run.folder) for run in log.sealed[:2]} & {*log.objects.asked}


def test_a_segment_that_a_vacuum_has_deleted_is_of_an_expired_view() -> None:
    log = three_segments()
    log.objects.delete([log.name(log.segments[1])])
    write_horizon(log.objects, SystemClock(), log.entry + 1, [])
    with pytest.raises(ViewExpired, match=f"the read view at entry {log.entry} is older"):
        offset_for_time(log.objects, log.view(), 65)


def test_a_missing_segment_is_named() -> None:
    log = three_segments()
    name = log.name(log.segments[1])
    log.objects.delete([name])
    with pytest.raises(DamagedObject) as caught:
        offset_for_time(log.objects, log.view(), 65)
    assert caught.value.object_name == name


def test_a_segment_with_another_number_of_records_is_damage() -> None:
    log = three_segments()
    log.segments[1] = replace(log.segments[1], record_count=2)
    with pytest.raises(DamagedObject) as caught:
        offset_for_time(log.objects, log.view(), 41)
    assert caught.value.object_name == log.name(log.segments[1])
