"""Segments of merged files as a reader plans them: those that follow each other in a file are one part of it.

The file says the offset of each row. So a reader that asks for nothing else of its segments needs none of them. What it
costs to plan, to hand out and to read a file then does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparktxn.format import names
from sparktxn.format.manifest import segments_of_rows
from sparktxn.values.structs import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TRANSACTION,
    FilePart,
    SegmentRef,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["committed_from", "joined", "joined_rows"]


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


def joined_rows(rows: pa.Table) -> tuple[SegmentRef, ...]:
    """Return `joined` of the segments that rows of a manifest describe, without making each of them."""
    places = _places(rows)
    if len(places) == rows.num_rows:
        return segments_of_rows(rows)
    firsts = segments_of_rows(_rows_at(rows, places))
    lasts = segments_of_rows(_rows_at(rows, np.append(places[1:], rows.num_rows) - 1))
    committed = _numbers(rows["committed_entry"])
    parts = zip(
        firsts,
        lasts,
        np.minimum.reduceat(_numbers(rows["entry"]), places).tolist(),
        np.minimum.reduceat(_numbers(rows["timestamp_min_ms"]), places).tolist(),
        np.maximum.reduceat(_numbers(rows["timestamp_max_ms"]), places).tolist(),
        np.minimum.reduceat(committed, places).tolist(),
        np.maximum.reduceat(committed, places).tolist(),
        strict=True,
    )
    return tuple(first if first == last else _file_part(first, last, *found) for first, last, *found in parts)


def _places(rows: pa.Table) -> NDArray[np.intp]:
    """Return which rows of a manifest do not follow the one before them in a file that says their offsets."""
    if "first_row" not in rows.column_names:
        return np.arange(rows.num_rows)
    files = rows["name"].combine_chunks().dictionary_encode()
    file, first_row = np.from_dlpack(files.indices), _numbers(rows["first_row"])
    end_row = first_row + _numbers(rows["row_count" if "row_count" in rows.column_names else "record_count"])
    is_merged = np.fromiter(map(names.has_offsets, files.dictionary.to_pylist()), np.bool_)[file]
    follows = (file[1:] == file[:-1]) & (first_row[1:] == end_row[:-1]) & is_merged[1:]
    return np.append(0, np.flatnonzero(~follows) + 1)


def _numbers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    # to_numpy() would import pandas, which takes each process 0.2 s.
    found: NDArray[np.int64] = np.asarray(np.from_dlpack(column.combine_chunks()), np.int64)
    return found


def _rows_at(rows: pa.Table, places: NDArray[np.intp]) -> pa.Table:
    return pa.concat_tables([rows.slice(place, 1) for place in places.tolist()])


def committed_from(segment: SegmentRef) -> int:
    """Return the least entry that committed records of a segment, or of a part of a file; 0 if some are not known."""
    return segment.committed_entry_min if isinstance(segment, FilePart) else segment.committed_entry


def _part(segments: Sequence[SegmentRef]) -> SegmentRef:
    if len(segments) == 1:
        return segments[0]
    return _file_part(
        segments[0],
        segments[-1],
        min(segment.entry for segment in segments),
        min(segment.timestamp_min_ms for segment in segments),
        max(segment.timestamp_max_ms for segment in segments),
        min(committed_from(segment) for segment in segments),
        max(segment.committed_entry for segment in segments),
    )


def _file_part(
    first: SegmentRef,
    last: SegmentRef,
    entry: int,
    timestamp_min_ms: int,
    timestamp_max_ms: int,
    committed_entry_min: int,
    committed_entry_max: int,
) -> FilePart:
    return FilePart(
        first.name,
        first.base_offset,
        last.end_offset - first.base_offset,
        first.size_bytes,
        first.checksum,
        entry,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        NO_TRANSACTION,
        timestamp_min_ms,
        timestamp_max_ms,
        committed_entry_max,
        first_row=first.first_row,
        file_records=first.file_records,
        row_count=last.first_row + last.row_count - first.first_row,
        committed_entry_min=committed_entry_min,
    )
