"""The filter of read_committed: which offsets of a segment lie outside of aborted transactions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from sparktxn._engine.state.transactions.partitions import by_producer, last_offset_of
from sparktxn._foundation.values.structs import AbortedTransaction, SegmentRef


class AbortedRanges:
    """Which rows of a segment a read_committed reader returns: those outside its producer's aborted ranges."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer = by_producer(aborted)

    def overlapping(self, segment: SegmentRef, start: int, end: int) -> Sequence[AbortedTransaction]:
        """Return the aborted ranges of the segment's producer that touch offsets `start` to `end` (exclusive)."""
        ranges = self._by_producer.get(segment.producer_id)
        if not ranges:
            return ()
        first = bisect_left(ranges, start, key=last_offset_of)
        last = bisect_left(ranges, end, key=_first_offset)
        return ranges[first:last]

    def kept(self, segment: SegmentRef, start: int, end: int) -> list[tuple[int, int]]:
        """Return the segment's visible offsets from `start` to `end`, as (start, end) ranges in order."""
        position = max(start, segment.base_offset)
        end = min(end, segment.end_offset)
        if not self._by_producer:
            # So it is with most tasks, and they have many segments.
            return [(position, end)] if position < end else []
        kept = []
        for transaction in self.overlapping(segment, position, end):
            if position < transaction.first_offset:
                kept.append((position, transaction.first_offset))
            position = max(position, transaction.last_offset + 1)
        if position < end:
            kept.append((position, end))
        return kept


def _first_offset(transaction: AbortedTransaction) -> int:
    return transaction.first_offset
