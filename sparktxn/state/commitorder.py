"""The entry that committed a segment, which commit order goes by (PROTOCOL.md, "Commit order").

A segment holds records of one transaction, or of none. One outside a transaction is committed by the entry that names
it. One inside a transaction is committed by the entry that ends the transaction, if that commits it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from msgspec.structs import replace

from sparktxn.structs import CommittedTransaction, SegmentRef

__all__ = ["CommittedRanges"]


class CommittedRanges:
    """Which entry committed a partition's segments, by the ranges of its committed transactions."""

    def __init__(self, committed: Iterable[CommittedTransaction]) -> None:
        self._by_producer: dict[int, list[CommittedTransaction]] = {}
        for transaction in committed:
            self._by_producer.setdefault(transaction.producer_id, []).append(transaction)
        # A producer's transactions in a partition follow one another, so both ends of their ranges grow together.
        for ranges in self._by_producer.values():
            ranges.sort(key=_last_offset)

    def entry_of(self, segment: SegmentRef) -> int:
        """Return the entry that committed `segment`; 0 if its transaction is open, or was aborted."""
        if segment.committed_entry:
            return segment.committed_entry
        ranges = self._by_producer.get(segment.producer_id, [])
        index = bisect_right(ranges, segment.base_offset, key=_last_offset)
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


def _last_offset(transaction: CommittedTransaction) -> int:
    return transaction.last_offset
