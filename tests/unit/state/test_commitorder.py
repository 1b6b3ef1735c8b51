"""Which entry committed a segment (PROTOCOL.md, "Commit order"), and the ranges that it is found by."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktxn._engine.state.transactions.partitions import CommittedRanges, by_producer, last_offset_of
from sparktxn._foundation.values.structs import AbortedTransaction, CommittedTransaction, SegmentRef

NAME = "00000000000000000001-00000000000000000000.arrow"
RANGES = (
    CommittedTransaction(7, 10, 19, 4),
    CommittedTransaction(7, 30, 39, 6),
    CommittedTransaction(8, 12, 25, 5),
)


def segment(base_offset: int, producer_id: int = 7, committed_entry: int = 0) -> SegmentRef:
    return SegmentRef(NAME, base_offset, 1, 1, "00000000", 2, producer_id, 0, 0, 1, 0, 0, committed_entry)


@pytest.mark.parametrize(
    ("base_offset", "producer_id", "entry"),
    [
        (9, 7, 0),
        (10, 7, 4),
        (18, 7, 4),
        (19, 7, 0),
        (29, 7, 0),
        (30, 7, 6),
        (38, 7, 6),
        (39, 7, 0),
        (12, 8, 5),
        (24, 8, 5),
        (15, 9, 0),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_segment_is_committed_by_the_range_of_its_producer_that_holds_its_base_offset(
    base_offset: int, producer_id: int, entry: int, order: int
) -> None:
    """First offset ≤ base offset < last offset: the last one is that of the control record."""
    assert CommittedRanges(RANGES[::order]).entry_of(segment(base_offset, producer_id)) == entry


def test_the_entry_that_a_segment_names_itself_stands() -> None:
    assert CommittedRanges(RANGES).entry_of(segment(10, committed_entry=2)) == 2


def test_all_segments_are_noted_in_their_order_with_their_entries() -> None:
    segments = [segment(30), segment(2, committed_entry=2), segment(10), segment(28)]
    noted = CommittedRanges(RANGES).noted(segments)
    assert noted == [replace(segments[0], committed_entry=6), segments[1], replace(segments[2], committed_entry=4),
                     segments[3]]  # fmt: skip


def test_each_producer_has_its_ranges_in_the_order_of_their_control_records() -> None:
    assert by_producer(reversed(RANGES)) == {7: [RANGES[0], RANGES[1]], 8: [RANGES[2]]}
    aborted = [AbortedTransaction(7, 5, 9, 10), AbortedTransaction(7, 0, 3, 4)]
    assert by_producer(aborted) == {7: aborted[::-1]}
    assert last_offset_of(aborted[0]) == 9
