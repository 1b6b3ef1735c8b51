"""Planning a compaction by key: which partitions of a view are compacted, and up to where, as tasks.

As in Kafka (`LogCleanerManager.cleanableOffsets`, `grabFilthiestCompactedLog`) nothing at or above the last stable
offset is compacted. Nor is anything at or above the first segment that is too young. A partition is compacted as a
whole, from its log start on, once enough of it is new. What is compacted of a keyed topic is the base of its latest
rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.keyed import key_columns
from sparktxn._foundation.config.maintenance import CompactSettings
from sparktxn._foundation.config.topic import is_compacted, topic_setting
from sparktxn._foundation.values.structs import NO_PRODUCER_ID, NO_TRANSACTION, CompactedPrefix, Compaction, SegmentRef
from sparktxn._rows.scan.aborted import AbortedRanges
from sparktxn._rows.scan.plan import aborted_between, segments_between, task_of
from sparktxn._rows.scan.transactioncolumns import committed_ranges
from sparktxn.maintenance.rewriting.rewriteplan import SegmentsTask

_NOT_COMPACTED = CompactedPrefix(1, 0)


class CompactTask(SegmentsTask, frozen=True):
    """A partition to compact by key, from the log start to `compaction`'s end.

    The keys may take about `buffer_bytes` of memory. `key` has the columns of a keyed topic's key: below `clean_end`
    no key is there twice.
    """

    compaction: Compaction
    buffer_bytes: int
    key: tuple[str, ...] = ()
    clean_end: int = 0


def plan_compaction(
    objects: ObjectStore, view: ReadView, settings: CompactSettings, now_ms: int
) -> Iterator[CompactTask]:
    """Yield the tasks that compact the partitions of `view` that need it.

    Args:
        objects: the store.
        view: the topics; those whose ``cleanup.policy`` has no ``compact`` are left out.
        settings: how files are written.
        now_ms: the store's time.

    Raises:
        DamagedObject: a manifest or an index is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    for partition in view.partitions.values():
        if is_compacted(partition.topic.settings):
            task = _planned(objects, partition, settings, now_ms)
            if task is not None:
                yield task


class _Limits(NamedTuple):
    """A topic's settings for compaction."""

    delete_retention_ms: int
    lag_ms_min: int
    lag_ms_max: int
    dirty_ratio_min: float


def _planned(objects: ObjectStore, view: PartitionView, settings: CompactSettings, now_ms: int) -> CompactTask | None:
    names = ("delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms", "min.cleanable.dirty.ratio")
    limits = _Limits(*(topic_setting(view.topic.settings, name) for name in names))
    known = view.compacted or _NOT_COMPACTED
    clean_end = max(known.end_offset if view.compacted else 0, view.log_start_offset)
    if clean_end >= view.last_stable_offset:
        return None
    found = segments_between(objects, view, view.log_start_offset, view.last_stable_offset, cache=None)
    if not found:
        return None
    aborted = AbortedRanges(aborted_between(objects, view, found[0].base_offset, view.last_stable_offset))
    segments = committed_ranges(view).noted(found)
    youngest_ms = now_ms - limits.lag_ms_min if limits.lag_ms_min else math.inf
    taken: list[SegmentRef] = []
    kept: list[SegmentRef] = []
    for segment in segments:
        is_young = segment.base_offset >= clean_end and segment.timestamp_max_ms > youngest_ms
        is_kept = bool(aborted.kept(segment, segment.base_offset, segment.end_offset))
        if segment.end_offset > view.last_stable_offset or is_young or (is_kept and not segment.committed_entry):
            break
        taken.append(segment)
        if is_kept:
            kept.append(segment)
    dirty = [segment for segment in kept if segment.base_offset >= clean_end]
    if not _is_due(kept, dirty, limits, now_ms):
        return None
    end, key = taken[-1].end_offset, key_columns(view.topic.settings)
    compaction = Compaction(
        end_offset=end,
        committed_entry=_committed_entry(kept, known, is_keyed=bool(key)),
        tombstones_end=_tombstones_end(known, now_ms - limits.delete_retention_ms),
    )
    return CompactTask(
        read=task_of(objects.uri, view, view.log_start_offset, end, kept, (), None),
        base_offset=taken[0].base_offset,
        compaction=compaction,
        planned_entry=view.entry,
        compression=topic_setting(view.topic.settings, "compression.type"),
        target_bytes=settings.target_bytes,
        buffer_bytes=settings.buffer_bytes,
        key=key,
        clean_end=clean_end,
        files=len({segment.name for segment in taken}),
        size_bytes=sum(segment.file_share_bytes for segment in taken),
        aborted_records=sum(segment.row_count for segment in taken) - sum(segment.row_count for segment in kept),
    )


def _committed_entry(kept: list[SegmentRef], known: CompactedPrefix, *, is_keyed: bool) -> int:
    """Return up to which entry a reader takes together what the compaction covers; 0 if no transaction is there.

    A record outside transactions counts too: it may have replaced one of a transaction, now or in an earlier one. Those
    of a keyed topic do not say that they are of one.
    """
    has_transactions = (
        is_keyed
        or known.committed_entry > 0
        or any(segment.transaction != NO_TRANSACTION or segment.producer_id == NO_PRODUCER_ID for segment in kept)
    )
    return max(segment.committed_entry for segment in kept) if has_transactions else 0


def _is_due(kept: list[SegmentRef], dirty: list[SegmentRef], limits: _Limits, now_ms: int) -> bool:
    """Return whether enough is new, or something has been new for long enough."""
    if not dirty:
        return False
    share = sum(segment.file_share_bytes for segment in dirty) / sum(segment.file_share_bytes for segment in kept)
    return share > limits.dirty_ratio_min or min(each.timestamp_min_ms for each in dirty) < now_ms - limits.lag_ms_max


def _tombstones_end(known: CompactedPrefix, before_ms: int) -> int:
    """Return the offset below which all tombstones were first compacted before `before_ms`."""
    end = 0
    for each in known.passes:
        if each.timestamp_ms > before_ms:
            break
        end = each.end_offset
    return end
