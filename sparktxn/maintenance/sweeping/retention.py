"""Retention: moves each partition's log start past what `retention.ms` and `retention.bytes` no longer keep.

As in Kafka (`UnifiedLog.deleteOldSegments`), whole segments go, the oldest first, and none at or above the last stable
offset. A segment is as old as its newest record, by the record's own timestamp, and "now" is the object store's time.
What it takes away are names: views from before still read the records, until a vacuum deletes the objects.

It may die at any moment, and several may run at once: each partition is one list, and the log start never moves back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from sparktxn._engine.format.commands import DeleteRecords
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.log.write.storeclock import store_now_ms
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.config.topic import topic_setting
from sparktxn._foundation.process.clock import in_time
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import SegmentRef
from sparktxn._rows.scan.plan import segments_between
from sparktxn.maintenance.attempts import on_a_view
from sparktxn.maintenance.proposals import LostRace, Proposals
from sparktxn.store import Store


class ShortenedPartition(Struct, frozen=True, kw_only=True):
    """A partition whose oldest records retention has removed, or with `dry_run` would remove.

    `records` counts offsets, those of control records and of aborted records included. `reason` is the setting that
    reaches further: ``retention.ms`` or ``retention.bytes``.
    """

    topic: str
    partition: int
    log_start_offset: int
    new_log_start_offset: int
    reason: str

    @property
    def records(self) -> int:
        """How many offsets are removed."""
        return self.new_log_start_offset - self.log_start_offset


class RetentionReport(Struct, frozen=True, kw_only=True):
    """What retention has removed, or with `dry_run` would remove.

    `lost` are partitions that had gone in the meantime. `unresolved` had no known outcome at the deadline, or were not
    begun: the next call looks again.
    """

    dry_run: bool
    shortened: tuple[ShortenedPartition, ...] = ()
    lost: tuple[LostRace, ...] = ()
    unresolved: int = 0


@in_time("timeout_s", lambda store: store.log.clock)
def apply_retention(
    store: Store,
    topics: Sequence[str] | None = None,
    *,
    dry_run: bool = False,
    timeout_s: float | None = None,
) -> RetentionReport:
    """Remove the records that the topics' `retention.ms` and `retention.bytes` no longer keep.

    Topics whose settings are both -1, their defaults, keep everything. Safe alongside every other process, and to
    repeat after a crash.

    Args:
        store: an open store.
        topics: their names; None for all.
        dry_run: only return what would be removed; no entry is written.
        timeout_s: how long all of it may take.

    Raises:
        CommandRefused: a topic does not exist (UNKNOWN_TOPIC_OR_PARTITION); nothing was removed.
        StoreUnavailable, DamagedObject, OutcomeUnknown: the state, or the store's time, could not be read.
    """
    log = arguments.instance("store", store, Store).log
    names = None if topics is None else arguments.identifiers("topics", topics)
    dry_run = arguments.boolean("dry_run", dry_run)
    now_ms = partial(store_now_ms, log.objects, log.clock, log.ids)
    found = on_a_view(log, names, lambda view: _planned(log.objects, view, now_ms))
    if dry_run:
        return RetentionReport(dry_run=True, shortened=tuple(_shortened(partition, *end) for partition, end in found))
    return _remove(log, found)


_End = tuple[int, str]
"""The offset before which everything may go, and why."""


def _planned(objects: ObjectStore, view: ReadView, now_ms: Callable[[], int]) -> list[tuple[PartitionView, _End]]:
    """Return the partitions that become shorter. The store's time is asked for only if a topic has a limit."""
    partitions = [partition for _, partition in sorted(view.partitions.items()) if _limits(partition) != (-1, -1)]
    if not partitions:
        return []
    time_ms = now_ms()
    return [(partition, end) for partition in partitions if (end := _end_of_old(objects, partition, time_ms))]


def _limits(partition: PartitionView) -> tuple[int, int]:
    settings: Mapping[str, Any] = partition.topic.settings
    if "delete" not in topic_setting(settings, "cleanup.policy").split(","):
        return -1, -1
    return topic_setting(settings, "retention.ms"), topic_setting(settings, "retention.bytes")


def _end_of_old(objects: ObjectStore, partition: PartitionView, now_ms: int) -> _End | None:
    """Return where the records that retention keeps begin, if it is not the log start."""
    retention_ms, retention_bytes = _limits(partition)
    ends: list[_End] = []
    if retention_ms >= 0:
        ends.append((_end_by_time(objects, partition, now_ms - retention_ms), "retention.ms"))
    if retention_bytes >= 0:
        ends.append((_end_by_size(objects, partition, retention_bytes), "retention.bytes"))
    end, reason = max(ends)
    return (end, reason) if end > partition.log_start_offset else None


def _end_by_time(objects: ObjectStore, partition: PartitionView, before_ms: int) -> int:
    """Return the end of the last of the oldest segments that hold nothing at or after `before_ms`."""
    end = partition.log_start_offset
    for run in partition.sealed:
        if run.timestamp_max_ms >= before_ms or run.end_offset > partition.last_stable_offset:
            segments = segments_between(objects, partition, run.base_offset, run.end_offset)
            return _end_of_prefix(segments, partition, before_ms, end)
        end = run.end_offset
    return _end_of_prefix(_single(objects, partition), partition, before_ms, end)


def _single(objects: ObjectStore, partition: PartitionView) -> list[SegmentRef]:
    """Return the segments after the sealed runs."""
    sealed_end = partition.sealed[-1].end_offset if partition.sealed else 0
    return segments_between(objects, partition, sealed_end, partition.log_end_offset)


def _end_of_prefix(segments: Iterable[SegmentRef], partition: PartitionView, before_ms: int, end: int) -> int:
    for segment in segments:
        if segment.timestamp_max_ms >= before_ms or segment.end_offset > partition.last_stable_offset:
            return end
        end = segment.end_offset
    # Behind the last one that is stable there may be control records only.
    return end


def _end_by_size(objects: ObjectStore, partition: PartitionView, kept_bytes: int) -> int:
    """Return where the newest segments begin that hold `kept_bytes` together; the runs before them are not read."""
    size_bytes = 0
    for segment in _newest_first(objects, partition):
        if size_bytes >= kept_bytes and segment.end_offset <= partition.last_stable_offset:
            return max(segment.end_offset, partition.log_start_offset)
        size_bytes += segment.file_share_bytes
    return partition.log_start_offset


def _newest_first(objects: ObjectStore, partition: PartitionView) -> Iterator[SegmentRef]:
    yield from reversed(_single(objects, partition))
    for run in reversed(partition.sealed):
        yield from reversed(segments_between(objects, partition, run.base_offset, run.end_offset))


def _shortened(partition: PartitionView, end: int, reason: str) -> ShortenedPartition:
    return ShortenedPartition(
        topic=partition.topic.name,
        partition=partition.partition,
        log_start_offset=partition.log_start_offset,
        new_log_start_offset=end,
        reason=reason,
    )


def _remove(log: Log, found: Iterable[tuple[PartitionView, _End]]) -> RetentionReport:
    """Propose the new log starts."""
    shortened = {_command(log, partition, end): _shortened(partition, *end) for partition, end in found}
    proposals = Proposals(log)
    accepted = proposals.accepted(shortened, lambda command: _about(shortened[command]))
    return RetentionReport(
        dry_run=False,
        shortened=tuple(shortened[command] for command, _ in accepted),
        lost=tuple(proposals.lost),
        unresolved=proposals.unresolved,
    )


def _command(log: Log, partition: PartitionView, end: _End) -> DeleteRecords:
    return DeleteRecords(log.ids.token(), partition.topic.topic_id, partition.partition, end[0])


def _about(shortened: ShortenedPartition) -> str:
    return f"partition {shortened.partition} of topic {shortened.topic!r}"
