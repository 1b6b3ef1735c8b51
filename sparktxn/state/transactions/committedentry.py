"""The entry that committed a segment, which commit order goes by (PROTOCOL.md, "Commit order").

A segment holds records of one transaction, or of none. One outside a transaction is committed by the entry that names
it. One inside a transaction is committed by the entry that ends the transaction, if that commits it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from msgspec.structs import replace

from sparktxn.state.transactions.endedranges import by_producer, last_offset_of
from sparktxn.values.structs import CommittedTransaction, SegmentRef

__all__ = ["CommittedRanges"]


class CommittedRanges:
    """Which entry committed a partition's segments, by the ranges of its committed transactions."""

    def __init__(self, committed: Iterable[CommittedTransaction]) -> None:
        self._by_producer = by_producer(committed)

    def entry_of(self, segment: SegmentRef) -> int:
        """Return the entry that committed `segment`; 0 if its transaction is open, or was aborted."""
        if segment.committed_entry:
            return segment.committed_entry
        ranges = self._by_producer.get(segment.producer_id, [])
        index = bisect_right(ranges, segment.base_offset, key=last_offset_of)
        if index < len(ranges) and ranges[index].first_offset <= segment.base_offset:
            return ranges[index].entry
        return 0

    def noted(self, segments: Iterable[SegmentRef]) -> list[SegmentRef]:
        """Return `segments`, each with the entry that committed it."""
        noted = []
        for segment in segments:
            entry = self.entry_of(segment)
            noted.append(segment if entry == segment.committed_entry else replace(segment, committed_entry=entry))
        return noted
