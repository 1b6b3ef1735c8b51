"""Offsets by time (kafka ListOffsets, Consumer.offsets_for_times)."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.format.schema import offset_column, with_offsets
from sparktxn.format.segment import RECORD_SCHEMA, decode_segment, stored_schema
from sparktxn.log.views.historyview import HistoryView
from sparktxn.log.views.readview import PartitionView
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.scan.aborted import AbortedRanges
from sparktxn.scan.columns import TIMESTAMP, reserved_name
from sparktxn.scan.fetching import NamedSegment, fetch_segment
from sparktxn.scan.internalrows import offset_for_time_in_history
from sparktxn.scan.plan import (
    LOG_APPEND_TIME,
    Isolation,
    Order,
    aborted_between,
    end_of,
    object_of,
    segments_between,
    timestamp_type,
)
from sparktxn.scan.transactioncolumns import committed_ranges
from sparktxn.values.structs import ManifestRef, SegmentRef

__all__ = ["offset_for_time"]

_TIMESTAMP_TYPE: Final = RECORD_SCHEMA.field(TIMESTAMP).type


def offset_for_time(
    objects: ObjectStore,
    view: PartitionView,
    timestamp_ms: int,
    isolation: Isolation = "read_committed",
    order: Order = "offset",
) -> int | None:
    """Return the first offset whose record a read of `view` returns, and whose timestamp is `timestamp_ms` or later.

    None if there is none. Under read_committed it is never that of an aborted record. In offset order it is then below
    the last stable offset, in commit order it may be above that of an open transaction.

    Raises:
        DamagedObject: a manifest, an index or a segment is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    if isinstance(view, HistoryView):
        return offset_for_time_in_history(objects, view, timestamp_ms)
    start, end = view.log_start_offset, end_of(view, isolation, order)
    committed = committed_ranges(view) if order == "commit" else None
    aborted: AbortedRanges | None = None
    for segment in _candidates(objects, view, timestamp_ms, start, end):
        if committed is not None and not committed.entry_of(segment):
            continue
        if aborted is None:
            below = max(start, segment.base_offset)
            is_filtered = isolation == "read_committed" and committed is None
            aborted = AbortedRanges(aborted_between(objects, view, below, end) if is_filtered else ())
        offset = _first_in(objects, view, segment, timestamp_ms, aborted.kept(segment, start, end))
        if offset is not None:
            return offset
    return None


def _candidates(
    objects: ObjectStore, view: PartitionView, timestamp_ms: int, start: int, end: int
) -> Iterator[SegmentRef]:
    """Yield the segments in offset order whose newest record is new enough; only such runs' manifests are loaded."""
    parts: list[ManifestRef | SegmentRef] = [*view.sealed, *view.segments, *(each.run for each in view.rewritten)]
    read_end = start
    for part in sorted(parts, key=attrgetter("base_offset")):
        low, high = max(read_end, part.base_offset), min(end, part.end_offset)
        if part.timestamp_max_ms >= timestamp_ms and low < high:
            segments = segments_between(objects, view, low, high)
            yield from (segment for segment in segments if segment.timestamp_max_ms >= timestamp_ms)
            read_end = max([high, *(segment.end_offset for segment in segments)])


def _first_in(
    objects: ObjectStore, view: PartitionView, segment: SegmentRef, timestamp_ms: int, kept: list[tuple[int, int]]
) -> int | None:
    if not kept:
        return None
    is_new_enough = segment.timestamp_min_ms >= timestamp_ms or timestamp_type(view) == LOG_APPEND_TIME
    if segment.has_gaps:
        return _first_left(objects, view, segment, None if is_new_enough else timestamp_ms, kept)
    if is_new_enough:
        return kept[0][0]
    timestamps = _stored(objects, view, segment).column(0)
    new_enough = pc.greater_equal(timestamps, pa.scalar(timestamp_ms, _TIMESTAMP_TYPE))
    for start, end in kept:
        first = segment.first_row + start - segment.base_offset
        row = pc.index(new_enough.slice(first, end - start), value=True).as_py()
        if row >= 0:
            return int(start + row)
    return None


def _first_left(
    objects: ObjectStore,
    view: PartitionView,
    segment: SegmentRef,
    timestamp_ms: int | None,
    kept: list[tuple[int, int]],
) -> int | None:
    """Return the first offset that has a record, of `timestamp_ms` or later, of a segment with gaps."""
    rows = _stored(objects, view, segment).slice(segment.first_row, segment.row_count)
    if timestamp_ms is not None:
        rows = rows.filter(pc.greater_equal(rows.column(0), pa.scalar(timestamp_ms, _TIMESTAMP_TYPE)))
    offsets = rows.column(rows.num_columns - 1).to_pylist()
    return next((offset for offset in offsets if any(start <= offset < end for start, end in kept)), None)


def _stored(objects: ObjectStore, view: PartitionView, segment: SegmentRef) -> pa.Table:
    """Return the timestamps of a segment's file, with the offsets if the segment has gaps."""
    topic = view.topic
    name = object_of(view, segment)
    data = fetch_segment(objects, NamedSegment(name, segment), view.entry)
    columns = [reserved_name(TIMESTAMP, topic.schema)]
    schema = stored_schema(topic.schema)
    if segment.has_gaps:
        schema, columns = with_offsets(schema), [*columns, offset_column(schema)]
    return decode_segment(data, name, schema=schema, columns=columns, record_count=segment.file_records, verified=True)
