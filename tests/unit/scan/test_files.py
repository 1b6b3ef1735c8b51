"""Which segments of a read are whole Parquet files, and what is left."""

from __future__ import annotations

from sparktxn._foundation.values.structs import NO_TRANSACTION
from sparktxn._rows.scan.plan import ReadTask, plan_ranges
from sparktxn._rows.scan.reader import segment_values
from sparktxn._rows.scan.storedfiles import whole_files
from tests.each import each
from tests.unit.scan.log_builder import PartitionLog, memory_store, read_view

KEY = ("orders", 0)


def bases(tasks: list[ReadTask]) -> list[int]:
    return [segment.base_offset for task in tasks for segment in task.segments]


def split(log: PartitionLog, start: int, end: int, offset_max: int = 1_000) -> tuple[list[int], list[int]]:
    """The base offsets of segments that are read whole, and of the others, in small tasks."""
    view = read_view(log.view())
    tasks = plan_ranges(log.objects, log.objects.uri, view, {KEY: (start, end)}, rows_per_task=20)
    whole, rest = whole_files(tasks, offset_max=offset_max)
    return bases(whole), bases(rest)


@each(
    [
        (0, 40, [0, 10, 20, 30], []),
        (1, 40, [10, 20, 30], [0]),
        (0, 39, [0, 10, 20], [30]),
        (12, 18, [], [10]),
        (10, 20, [10], []),
    ]
)
def test_a_segment_that_a_bound_cuts_is_not_whole(start: int, end: int, whole: list[int], rest: list[int]) -> None:
    log = PartitionLog(memory_store())
    for _ in range(4):
        log.append(10)
    assert split(log, start, end) == (whole, rest)


def test_arrow_segments_and_offsets_that_are_too_great_are_not_whole() -> None:
    log = PartitionLog(memory_store())
    log.append(10)
    log.segment_format = "arrow"
    log.append(10)
    log.segment_format = "parquet"
    log.append(10)
    assert split(log, 0, 30) == ([0, 20], [10])
    assert split(log, 0, 30, offset_max=19) == ([0], [10, 20])


def test_files_of_aborted_transactions_are_in_neither_part() -> None:
    log = PartitionLog(memory_store())
    log.append(10, 1, transaction=1)
    log.append(10, 2, transaction=1)
    log.append(10, 1, transaction=1)
    log.abort(1, 0)
    log.append(10, 2, transaction=1)
    assert split(log, 0, 99) == ([10, 31], [])


def test_values_of_segments_are_those_of_their_rows() -> None:
    log = PartitionLog(memory_store(), settings={"message.timestamp.type": "LogAppendTime"})
    log.append(10, 1, transaction=5, timestamp_max_ms=77)
    log.append(10, 2, transaction=NO_TRANSACTION, timestamp_max_ms=88)
    (task,) = plan_ranges(log.objects, log.objects.uri, read_view(log.view()), {KEY: (0, 20)})
    found = segment_values(task, ["producer_id", "timestamp"])
    assert found.column("producer_id").to_pylist() == [1, 2]
    assert [value.value for value in found.column("timestamp")] == [77, 88]
