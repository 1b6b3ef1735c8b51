"""Segments of merged files as a reader plans them: those that follow each other in a file are one part of it.

The file says the offset of each row. So a reader that asks for nothing else of its segments needs none of them. What it
costs to plan, to hand out and to read a file then does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from sparktxn.values.structs import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TRANSACTION,
    FilePart,
    SegmentRef,
)

__all__ = ["committed_from", "joined"]


def joined(segments: Iterable[SegmentRef]) -> list[SegmentRef]:
    """Return `segments` in their order, and as one those that follow each other in a file that a rewrite has made."""
    found: list[SegmentRef] = []
    for _, group in groupby(segments, attrgetter("name")):
        file = list(group)
        if len(file) == 1 or not file[0].has_offset_column:
            found += file
            continue
        first, end_row = 0, file[0].first_row
        for place, segment in enumerate(file):
            if segment.first_row != end_row:
                found.append(_part(file[first:place]))
                first = place
            end_row = segment.first_row + segment.row_count
        found.append(_part(file[first:]))
    return found


def committed_from(segment: SegmentRef) -> int:
    """Return the least entry that committed records of a segment, or of a part of a file; 0 if some are not known."""
    return segment.committed_entry_min if isinstance(segment, FilePart) else segment.committed_entry


def _part(segments: Sequence[SegmentRef]) -> SegmentRef:
    first, last = segments[0], segments[-1]
    if len(segments) == 1:
        return first
    return FilePart(
        first.name,
        first.base_offset,
        last.end_offset - first.base_offset,
        first.size_bytes,
        first.checksum,
        min(segment.entry for segment in segments),
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        NO_TRANSACTION,
        min(segment.timestamp_min_ms for segment in segments),
        max(segment.timestamp_max_ms for segment in segments),
        max(segment.committed_entry for segment in segments),
        first_row=first.first_row,
        file_records=first.file_records,
        row_count=sum(segment.row_count for segment in segments),
        committed_entry_min=min(committed_from(segment) for segment in segments),
    )
