"""Assigned partitions: turns, positions, and what there is to commit."""

from __future__ import annotations

from sparktxn._engine.log.views.readview import PartitionView
from sparktxn._foundation.values.structs import TopicState
from sparktxn._kafka.message import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED
from sparktxn.consumer.assignment import Assignment, Progress, Stored, logical_position
from tests.each import each


def view(start: int = 10, end: int = 20) -> PartitionView:
    return PartitionView(TopicState("t", 1, 1, {}, None, 1), 0, 1, start, end, end, (), (), ())


@each(
    [
        (OFFSET_BEGINNING, 10),
        (OFFSET_END, 20),
        (OFFSET_STORED, None),
        (OFFSET_INVALID, None),
        (15, None),
        (-2_000, 20),
        (-2_003, 17),
        (-2_999, 10),
    ]
)
def test_logical_positions(position: int, expected: int | None) -> None:
    assert logical_position(position, view(), 20) == expected


def test_who_was_served_comes_last() -> None:
    assignment = Assignment()
    for number in range(3):
        assignment.add(Progress(("t", number), 0))
    assignment.served(("t", 0))
    assert [progress.key[1] for progress in assignment.in_turn()] == [1, 2, 0]
    assignment.remove(("t", 2))
    assert [progress.key[1] for progress in assignment.in_turn()] == [1, 0]
    assignment.served(("t", 2))
    assert len(assignment) == 2


def test_only_what_changed_is_committed() -> None:
    progress = Progress(("t", 0), 0)
    assert progress.uncommitted() is None
    progress.stored = Stored(5)
    found = progress.uncommitted()
    assert found is not None
    assert found.offset == 5
    progress.stored = Stored(6)
    assert found.offset == 5, "what is being committed does not change with what is stored"
    progress.committed = 6
    assert progress.uncommitted() is None


def test_a_seek_ends_what_stopped_the_partition() -> None:
    progress = Progress(("t", 0), 5)
    progress.halted, progress.retry_at_s = True, 9.0
    assert not progress.readable(0)
    progress.seek(3)
    assert progress.readable(0)
    progress.paused = True
    assert not progress.readable(0)
