"""Planning a rewrite: which segments of a view are merged, as tasks that any process can do.

A task replaces consecutive segments of one partition. Only records of transactions that have ended are planned, also
above the last stable offset. Segments of aborted ones are left out, and one of an open transaction ends a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.config.topic import table_formats, topic_setting
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.structs import SegmentRef
from sparktxn._rows.scan.aborted import AbortedRanges
from sparktxn._rows.scan.plan import ReadTask, aborted_between, segments_between, task_of
from sparktxn._rows.scan.transactioncolumns import committed_ranges

IsWanted = Callable[[TopicPartitionKey, SegmentRef], bool]
"""Says of a committed segment of a partition whether it is to be merged."""

_ARROW: Final = ".arrow"
_INPUT_PER_TARGET: Final = 4
_SEGMENTS_PER_TASK: Final = 20_000
_ROWS_FULL: Final = 1_000_000
_SEGMENTS_AT_ONCE: Final = 50_000
"""About so many segments of a partition are in memory at a time, but for those of tasks."""


class SegmentsTask(Struct, frozen=True):
    """Consecutive segments of a partition to write anew, by any process that can reach the store's objects.

    `read` names the segments whose records are copied. The range that they are replaced in begins at `base_offset`. It
    has `files` files with about `size_bytes` bytes now; `aborted_records` of its records are left out, and those below
    the start of `read`. The new files are `compression`, and about `target_bytes` large.
    """

    read: ReadTask
    base_offset: int
    planned_entry: int
    compression: str
    target_bytes: int
    files: int
    size_bytes: int
    aborted_records: int


class RewriteTask(SegmentsTask, frozen=True):
    """A task of a rewrite: the range ends before `end_offset`."""

    end_offset: int


def plan_tasks(
    objects: ObjectStore,
    view: ReadView,
    settings: RewriteSettings,
    starts: Mapping[TopicPartitionKey, int] | None = None,
    is_wanted: IsWanted | None = None,
    segments_per_task: int | None = None,
) -> Iterator[RewriteTask]:
    """Yield the tasks that rewrite what `settings` select of `view`, partition by partition, in offset order.

    With `starts`, only of the partitions that it has, each from the segment with that offset on. With `is_wanted` it
    says which committed segments are merged, and not their size. A task has at most `segments_per_task` of them.

    Raises:
        DamagedObject: a manifest or an index is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    for key, partition in view.partitions.items():
        start = partition.log_start_offset if starts is None else starts.get(key)
        if start is not None:
            wanted = None if is_wanted is None else partial(is_wanted, key)
            yield from _Planner(
                objects, view, partition, settings, start, wanted, segments_per_task or _SEGMENTS_PER_TASK
            ).tasks()


class _Piece:
    """Consecutive segments that become one task; `kept` are those whose records are."""

    def __init__(self) -> None:
        self.segments: list[SegmentRef] = []
        self.kept: list[SegmentRef] = []
        self.size_bytes = 0

    def add(self, segment: SegmentRef, *, is_kept: bool) -> None:
        self.segments.append(segment)
        self.size_bytes += segment.file_share_bytes
        if is_kept:
            self.kept.append(segment)


class _Planner:
    """Plans one partition, with the segments of some sealed runs in memory at a time."""

    def __init__(
        self,
        objects: ObjectStore,
        view: ReadView,
        partition: PartitionView,
        settings: RewriteSettings,
        start: int,
        is_wanted: Callable[[SegmentRef], bool] | None,
        segments_per_task: int,
    ) -> None:
        self._is_wanted = is_wanted
        self._segments_per_task = segments_per_task
        # Publishing merges what is new: what a table shows is merged alone, and so changes no data of it.
        self._is_table = bool(table_formats(partition.topic.settings))
        self._objects = objects
        self._partition = partition
        self._settings = settings
        self._start = start
        # Times of records are the application's: without an age they say nothing.
        self._newest_ms = view.timestamp_ms - settings.min_age_ms if settings.min_age_ms else math.inf
        self._small_bytes = settings.target_bytes // 2
        self._committed = committed_ranges(partition)

    def tasks(self) -> Iterator[RewriteTask]:
        """Yield the partition's tasks: runs of segments that each should be merged, in pieces of a bounded size."""
        size_bytes_max = _INPUT_PER_TARGET * self._settings.target_bytes
        piece = _Piece()
        for segment, is_kept in self._segments():
            if not self._is_selected(segment, is_kept=is_kept):
                yield from self._task(piece)
                piece = _Piece()
                continue
            is_full = piece.size_bytes + segment.file_share_bytes > size_bytes_max
            if piece.segments and (is_full or len(piece.segments) >= self._segments_per_task):
                # It ends where the next one begins, so that a rewrite may take several of them together.
                yield from self._task(piece, segment.base_offset)
                piece = _Piece()
            piece.add(segment, is_kept=is_kept)
        yield from self._task(piece)

    def _segments(self) -> Iterator[tuple[SegmentRef, bool]]:
        """Yield the segments in offset order, each with whether an aborted transaction leaves something of it."""
        after = -1
        for start, end in self._parts():
            found = segments_between(self._objects, self._partition, start, end, cache=None)
            if not found:
                continue
            first = found[0].base_offset
            aborted = aborted_between(self._objects, self._partition, first, max(end, found[-1].end_offset))
            ranges = AbortedRanges(aborted) if aborted else None
            for segment in self._committed.noted(found):
                if segment.base_offset <= after:
                    continue  # it reaches into the part before
                after = segment.base_offset
                yield segment, ranges is None or bool(ranges.kept(segment, segment.base_offset, segment.end_offset))
            # Before the next ones are read: a merged range may have as many as all of a part.
            del found, segment

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of offsets, each with a bounded number of sealed segments."""
        start, end, segments = self._start, self._partition.log_end_offset, 0
        for run in self._partition.sealed:
            if run.end_offset <= start:
                continue
            if segments and segments + run.segment_count > _SEGMENTS_AT_ONCE and run.base_offset > start:
                yield start, run.base_offset
                start, segments = run.base_offset, 0
            segments += run.segment_count
        if start < end:
            yield start, end

    def _is_selected(self, segment: SegmentRef, *, is_kept: bool) -> bool:
        if segment.timestamp_max_ms > self._newest_ms:
            return False
        if not is_kept:
            return True
        if self._is_wanted is not None:
            return segment.committed_entry > 0 and self._is_wanted(segment)
        if self._is_table and not segment.has_offset_column:
            return False
        is_small = segment.size_bytes < self._small_bytes and not self._is_full(segment)
        return segment.committed_entry > 0 and (is_small or segment.name.endswith(_ARROW))

    def _is_full(self, segment: SegmentRef) -> bool:
        """Return whether a rewrite has left its file small because it holds as much as memory should, decoded."""
        return segment.file_records > max(segment.row_count, _ROWS_FULL)

    def _task(self, piece: _Piece, end: int | None = None) -> Iterator[RewriteTask]:
        """Yield a task for a piece, up to offset `end`; none if it would not make the partition's files fewer."""
        files = {segment.name: segment.size_bytes for segment in piece.segments}
        is_large_arrow = any(name.endswith(_ARROW) and size >= self._small_bytes for name, size in files.items())
        if not piece.kept or (len(files) < self._settings.min_segments and not is_large_arrow):
            return
        view = self._partition
        base_offset, end = piece.segments[0].base_offset, end or piece.segments[-1].end_offset
        records = sum(segment.record_count for segment in piece.segments)
        yield RewriteTask(
            read=task_of(self._objects.uri, view, max(base_offset, view.log_start_offset), end, piece.kept, (), None),
            base_offset=base_offset,
            end_offset=end,
            planned_entry=view.entry,
            compression=topic_setting(view.topic.settings, "compression.type"),
            target_bytes=self._settings.target_bytes,
            files=len(files),
            size_bytes=piece.size_bytes,
            aborted_records=records - sum(each.record_count for each in piece.kept),
        )
