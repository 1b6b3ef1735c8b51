"""Read tasks → the records of segments as they are stored, for the reader and for jobs that copy them.

Files are fetched some at a time. Neighbours are decoded together: what many small segments cost hardly grows with
their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.schema import offset_column, with_offsets
from sparktxn._engine.format.segment import InlineSegment, decode_inline, decode_segment, stored_schema, stream_bytes
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.arrowvalues import integers, repeated
from sparktxn._foundation.values.segmentstructs import CompactedSegment, FilePart
from sparktxn._foundation.values.structs import SegmentRef
from sparktxn._rows.scan.plan import LocatedSegment, ReadTask, by_file
from sparktxn._rows.scan.segmentbytes import check_bytes, fetch_segments
from sparktxn.errors import DamagedObject, ViewExpired

_WINDOW_SEGMENTS_MAX: Final = 64
_WINDOW_BYTES_MAX: Final = 64 * 1024 * 1024
_WINDOW_GROWTH: Final = 4
_BLOCK_BYTES: Final = 8 * 1024 * 1024
_MAY_HAVE_GAPS: Final = frozenset((CompactedSegment, FilePart))


class Rows(Protocol):
    """Rows of a file: so many from the first one on."""

    @property
    def first_row(self) -> int:
        """The first row."""

    @property
    def row_count(self) -> int:
        """How many rows."""


def stored_blocks(
    objects: ObjectStore, task: ReadTask, columns: Sequence[str] | None = None, *, offsets: bool = False
) -> Iterator[tuple[Sequence[SegmentRef], pa.Table]]:
    """Yield the task's segments, some together, with all their records as they are stored, one after the other.

    A block has the records of one file, or of inline segments. It takes about 8 MiB or has one segment. What a block
    costs hardly grows with the number of its segments.

    Args:
        objects: the store.
        task: the segments; its range, its aborted ranges and its conditions are not asked.
        columns: some of the topic's `stored_schema`, at least one; None for all.
        offsets: whether the tables have the records' offsets as their last column. They always have if a segment of
            the task has gaps.

    Raises:
        DamagedObject: a segment is missing or altered.
        ViewExpired: a segment is missing because the vacuum has passed the task's view.
    """
    schema = stored_schema(task.schema)
    wanted = list(schema.names if columns is None else columns)
    offsets = offsets or have_gaps(task.segments)
    offsets_field = with_offsets(schema).field(offset_column(schema))
    for segments, located, data in fetched_files(objects, task, joins=True):
        if isinstance(data, list):
            for carried, records in _in_blocks(located, data):
                rows, some = decoded_inline(carried, records, schema, wanted), [each.segment for each in carried]
                yield from _blocks(some, rows.append_column(offsets_field, _offsets_of(some)) if offsets else rows)
            continue
        has_gaps = have_gaps(segments)
        check_bytes(located[0], data)
        rows = decode_segment(
            data,
            located[0].object_name,
            schema=with_offsets(schema) if has_gaps else schema,
            columns=[*wanted, offsets_field.name] if has_gaps else wanted,
            record_count=segments[0].file_records,
            verified=True,
        )
        rows = pa.concat_tables([rows.slice(first, end - first) for first, end in adjoining(segments)])
        if offsets and not has_gaps:
            rows = rows.append_column(offsets_field, _offsets_of(segments))
        yield from _blocks(segments, rows)


def stored_records(
    objects: ObjectStore, task: ReadTask, columns: Sequence[str] | None = None, *, offsets: bool = False
) -> Iterator[tuple[SegmentRef, pa.Table]]:
    """Yield the task's segments, each with all its records; the arguments and errors are those of `stored_blocks`."""
    for segments, rows in stored_blocks(objects, task, columns, offsets=offsets):
        first = 0
        for segment in segments:
            yield segment, rows.slice(first, segment.row_count)
            first += segment.row_count


def _in_blocks(
    segments: Sequence[LocatedSegment], data: Sequence[bytes]
) -> Iterator[tuple[Sequence[LocatedSegment], Sequence[bytes]]]:
    """Yield inline segments with their bytes, as many together as take about a block when they are decoded."""
    first = size_bytes = 0
    for place, records in enumerate(data):
        more_bytes = stream_bytes(records)
        if place > first and size_bytes + more_bytes > _BLOCK_BYTES:
            yield segments[first:place], data[first:place]
            first, size_bytes = place, 0
        size_bytes += more_bytes
    yield segments[first:], data[first:]


def _blocks(segments: Sequence[SegmentRef], rows: pa.Table) -> Iterator[tuple[Sequence[SegmentRef], pa.Table]]:
    """Yield segments and their rows in pieces of a bounded size: half by half, since sizes may differ widely."""
    if len(segments) == 1 or rows.nbytes <= _BLOCK_BYTES:
        yield segments, rows
        return
    middle = len(segments) // 2
    count = sum(segment.row_count for segment in segments[:middle])
    yield from _blocks(segments[:middle], rows.slice(0, count))
    yield from _blocks(segments[middle:], rows.slice(count))


def _offsets_of(segments: Sequence[SegmentRef]) -> pa.Array:
    """Return the offsets of all records of segments without gaps."""
    counts = [segment.row_count for segment in segments]
    return growing([segment.base_offset for segment in segments], counts, integers(accumulate(counts)))


class FetchedFile(NamedTuple):
    """Segments and the bytes of their file: of inline ones that follow each other a list, with the bytes of each.

    `located` is where the bytes lie: of a file by its first segment.
    """

    segments: Sequence[SegmentRef]
    located: Sequence[LocatedSegment]
    data: bytes | list[bytes]


def fetched_files(objects: ObjectStore, task: ReadTask, *, joins: bool = False) -> Iterator[FetchedFile]:
    """Yield the task's segments, file by file, with their bytes; with `joins` inline ones come together.

    Raises:
        DamagedObject: a segment is missing, or its entry does not carry its records.
        ViewExpired: it is so because the vacuum has passed the task's view.
    """
    for window in _windows(by_file(task.segments)):
        located = task.located(segments[0] for segments in window)
        fetched = fetch_segments(objects, located, task.view_entry)
        files = zip(window, located, fetched, strict=True)
        yield from _joined_inline(files) if joins else (FetchedFile(file, [each], data) for file, each, data in files)


def _joined_inline(files: Iterable[tuple[Sequence[SegmentRef], LocatedSegment, bytes]]) -> Iterator[FetchedFile]:
    located: list[LocatedSegment] = []
    records: list[bytes] = []
    try:
        for segments, each, data in files:
            if each.carrier is not None:
                # No right log names inline records twice. If one does, none of the rows it counts is left out here.
                located += [each._replace(segment=segment) for segment in segments] if segments[1:] else [each]
                records += [data] * len(segments)
                continue
            if records:
                yield _carried(located, records)
                located, records = [], []
            yield FetchedFile(segments, [each], data)
    except (DamagedObject, ViewExpired):
        # What lies before a segment that cannot be read is given before the error.
        if records:
            yield _carried(located, records)
        raise
    if records:
        yield _carried(located, records)


def _carried(located: list[LocatedSegment], records: list[bytes]) -> FetchedFile:
    return FetchedFile([each.segment for each in located], located, records)


def _windows(files: Sequence[Sequence[SegmentRef]]) -> Iterator[Sequence[Sequence[SegmentRef]]]:
    """Yield runs of files to fetch together: the first alone, for early first rows, then ever more."""
    position, count_max = 0, 1
    while position < len(files):
        end, size_bytes = position, 0
        while end < len(files) and end - position < count_max:
            size_bytes += files[end][0].size_bytes
            if end > position and size_bytes > _WINDOW_BYTES_MAX:
                break
            end += 1
        yield files[position:end]
        position, count_max = end, min(count_max * _WINDOW_GROWTH, _WINDOW_SEGMENTS_MAX)


def decoded_inline(
    segments: Sequence[LocatedSegment], data: Sequence[bytes], schema: pa.Schema, columns: list[str]
) -> pa.Table:
    """Return the rows of inline segments one after the other: what follows costs little more than for one of them."""
    parts = [
        InlineSegment(name, records, segment.record_count)
        for (segment, name, _), records in zip(segments, data, strict=True)
    ]
    return decode_inline(parts, schema=schema, columns=columns)


def have_gaps(segments: Iterable[SegmentRef]) -> bool:
    """Return whether some of the segments have gaps; quickly where none is of a type that may."""
    segments = list(segments)
    return not _MAY_HAVE_GAPS.isdisjoint(map(type, segments)) and any(segment.has_gaps for segment in segments)


def growing(starts: list[int], counts: list[int], ends: pa.Array) -> pa.Array:
    """Return runs of numbers that grow by one: each has a start and a count, and ends at a row of the result."""
    first_rows = pc.subtract(ends, integers(counts))
    shift = repeated(pc.subtract(integers(starts), first_rows), ends)
    return pc.add(shift, pa.arange(0, len(shift)))


def adjoining(kept: Iterable[Rows]) -> list[tuple[int, int]]:
    """Return the file's rows that hold `kept`, as few ranges."""
    ranges: list[tuple[int, int]] = []
    for each in kept:
        first, end = each.first_row, each.first_row + each.row_count
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((first, end))
    return ranges
