"""Planning a rewrite: which segments of a view are merged, as tasks that any process can do.

A task replaces consecutive segments of one partition. Only records below the last stable offset are planned: the fate
of their transactions is known. Segments of aborted transactions are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from sparktxn.config.maintenance import RewriteSettings
from sparktxn.config.topic import topic_setting
from sparktxn.errors import ConfigurationError, ErrorCode
from sparktxn.log.look.views import PartitionView, ReadView
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.scan.aborted import AbortedRanges
from sparktxn.scan.metadata import committed_ranges
from sparktxn.scan.plan import ReadTask, aborted_between, segments_between, task_of
from sparktxn.state.internal import is_internal
from sparktxn.structs import SegmentRef

__all__ = ["PartitionKey", "RewriteTask", "plan_tasks"]

PartitionKey = tuple[str, int]
"""A topic's name and a partition's number."""

_ARROW: Final = ".arrow"
_INPUT_PER_TARGET: Final = 4
_SEGMENTS_PER_TASK: Final = 20_000
_ROWS_FULL: Final = 1_000_000


class RewriteTask(Struct, frozen=True):
    """Consecutive segments of a partition to write anew, by any process that can reach the store's objects.

    `read` names the segments whose records are kept. The range from `base_offset` to `end_offset` has `files` files
    with about `size_bytes` bytes; `aborted_records` of its records are left out. The new files are `compression`, and
    about `target_bytes` large.
    """

    read: ReadTask
    base_offset: int
    end_offset: int
    planned_entry: int
    compression: str
    target_bytes: int
    files: int
    size_bytes: int
    aborted_records: int


def plan_tasks(
    objects: ObjectStore, view: ReadView, settings: RewriteSettings, starts: Mapping[PartitionKey, int] | None = None
) -> Iterator[RewriteTask]:
    """Yield the tasks that rewrite what `settings` select of `view`, partition by partition, in offset order.

    With `starts`, only of the partitions that it has, each from the segment with that offset on.

    Raises:
        ConfigurationError: a topic has no partition that the settings name.
        DamagedObject: a manifest or an index is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    _check_partitions(view, settings.partitions)
    for key, partition in view.partitions.items():
        start = partition.log_start_offset if starts is None else starts.get(key)
        is_named = not settings.partitions or partition.partition in settings.partitions
        if start is not None and is_named and not is_internal(partition.topic):
            yield from _Planner(objects, view, partition, settings, start).tasks()


def _check_partitions(view: ReadView, partitions: Sequence[int]) -> None:
    for topic in view.topics.values():
        for number in partitions:
            if number >= topic.partition_count:
                raise ConfigurationError(
                    f"setting 'rewrite.partitions' has {number}: topic {topic.name!r} has partitions 0 to "
                    f"{topic.partition_count - 1}",
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )


class _Planner:
    """Plans one partition."""

    def __init__(
        self, objects: ObjectStore, view: ReadView, partition: PartitionView, settings: RewriteSettings, start: int
    ) -> None:
        self._uri = objects.uri
        self._partition = partition
        self._settings = settings
        # Times of records are the application's: without an age they say nothing.
        self._newest_ms = view.timestamp_ms - settings.min_age_ms if settings.min_age_ms else math.inf
        self._small_bytes = settings.target_bytes // 2
        stable = partition.last_stable_offset
        found = segments_between(objects, partition, start, stable)
        first = found[0].base_offset if found else start
        aborted = aborted_between(objects, partition, first, stable) if found else ()
        self._aborted = AbortedRanges(aborted) if aborted else None
        self._segments = committed_ranges(partition).noted(found)

    def tasks(self) -> Iterator[RewriteTask]:
        """Yield the partition's tasks: runs of segments that each should be merged, in pieces of a bounded size."""
        run: list[SegmentRef] = []
        for segment in self._segments:
            if self._is_selected(segment):
                run.append(segment)
            else:
                yield from self._tasks_of(run)
                run = []
        yield from self._tasks_of(run)

    def _is_kept(self, segment: SegmentRef) -> bool:
        aborted = self._aborted
        return aborted is None or bool(aborted.kept(segment, segment.base_offset, segment.end_offset))

    def _is_selected(self, segment: SegmentRef) -> bool:
        if segment.end_offset > self._partition.last_stable_offset or segment.timestamp_max_ms > self._newest_ms:
            return False
        if not self._is_kept(segment):
            return True
        is_small = segment.size_bytes < self._small_bytes and not self._is_full(segment)
        return segment.committed_entry > 0 and (is_small or segment.name.endswith(_ARROW))

    def _is_full(self, segment: SegmentRef) -> bool:
        """Return whether a rewrite has left its file small because it holds as much as memory should, decoded."""
        return segment.file_records > max(segment.row_count, _ROWS_FULL)

    def _tasks_of(self, run: Sequence[SegmentRef]) -> Iterator[RewriteTask]:
        pieces: list[list[SegmentRef]] = []
        left = 0
        for segment in run:
            share = segment.file_share_bytes
            if not pieces or share > left or len(pieces[-1]) >= _SEGMENTS_PER_TASK:
                pieces.append([])
                left = _INPUT_PER_TARGET * self._settings.target_bytes
            pieces[-1].append(segment)
            left -= share
        # A piece ends where the next one begins, so that a rewrite may take several of them together.
        ends = [*(piece[0].base_offset for piece in pieces[1:]), *(segment.end_offset for segment in run[-1:])]
        for piece, end in zip(pieces, ends, strict=True):
            task = self._task(piece, end)
            if task is not None:
                yield task

    def _task(self, piece: Sequence[SegmentRef], end: int) -> RewriteTask | None:
        """Return a task; None if it would not make the partition's files fewer."""
        kept = [segment for segment in piece if self._is_kept(segment)]
        files = {segment.name: segment.size_bytes for segment in piece}
        is_large_arrow = any(name.endswith(_ARROW) and size >= self._small_bytes for name, size in files.items())
        if not kept or (len(files) < self._settings.min_segments and not is_large_arrow):
            return None
        view = self._partition
        return RewriteTask(
            read=task_of(self._uri, view, piece[0].base_offset, end, kept, (), None),
            base_offset=piece[0].base_offset,
            end_offset=end,
            planned_entry=view.entry,
            compression=topic_setting(view.topic.settings, "compression.type"),
            target_bytes=self._settings.target_bytes,
            files=len(files),
            size_bytes=sum(segment.file_share_bytes for segment in piece),
            aborted_records=sum(segment.record_count for segment in piece) - sum(each.record_count for each in kept),
        )
