"""What rewrites and compactions share: tasks elsewhere, attempts, the command that replaces segments, its outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from sparktxn.errors import CommandRefused, OutcomeUnknown, StoreUnavailable, ViewExpired
from sparktxn.format import names
from sparktxn.format.commands import Rewrite
from sparktxn.format.manifest import encode_manifest
from sparktxn.format.segment import checksum
from sparktxn.log.log import Log
from sparktxn.maintenance.overtaken import in_attempts
from sparktxn.maintenance.proposals import LostRace
from sparktxn.maintenance.rewriting.compactplan import CompactTask
from sparktxn.maintenance.rewriting.rewritefiles import NewFiles
from sparktxn.maintenance.rewriting.rewriteplan import RewriteTask
from sparktxn.objectstore.putting import put_until_stored
from sparktxn.process.clock import is_time_up
from sparktxn.values.fieldtypes import Result, TopicIdPartition
from sparktxn.values.structs import Compaction, ManifestRef, SegmentRef

__all__ = ["carried_out", "foreseen", "put_into_effect", "replacement", "until_nothing_is_lost", "until_time_is_up"]

Report = TypeVar("Report", bound=Any)
"""A `RewriteReport` or a `CompactReport`."""


def replacement(
    log: Log,
    folder: str,
    where: TopicIdPartition,
    offsets: tuple[int, int],
    segments: Sequence[SegmentRef],
    planned_entry: int,
    compaction: Compaction | None = None,
) -> Rewrite:
    """Write the manifest of a range, and return the command that names it.

    Args:
        log: the store.
        folder: the partition's.
        where: the partition.
        offsets: where the range begins, and the offset after its last one.
        segments: what the range has from then on, at least one, in offset order.
        planned_entry: the view that they were made from.
        compaction: what was compacted, if that is what was done.

    Raises:
        StoreUnavailable: the store did not take the manifest.
    """
    # A folder's name bears a known entry, not the newest: the log's lock is not held for a request.
    entry = log.born()
    run = names.sealed_folder(segments[0].base_offset, entry, log.ids.token())
    data = encode_manifest(segments)
    put_until_stored(log.objects, names.manifest(folder, run), data, log.clock)
    return Rewrite(
        request_id=log.ids.token(),
        topic_id=where[0],
        partition=where[1],
        base_offset=offsets[0],
        end_offset=offsets[1],
        planned_entry=planned_entry,
        segments=tuple(dict.fromkeys(segment.name for segment in segments)),
        run=ManifestRef(
            folder=run,
            base_offset=segments[0].base_offset,
            end_offset=segments[-1].end_offset,
            segment_count=len(segments),
            level=0,
            entry_min=min(segment.entry for segment in segments),
            entry_max=max(segment.entry for segment in segments),
            timestamp_min_ms=min(segment.timestamp_min_ms for segment in segments),
            timestamp_max_ms=max(segment.timestamp_max_ms for segment in segments),
            size_bytes=sum(segment.file_share_bytes for segment in segments),
            checksum=checksum(data),
            committed_entry_max=max(segment.committed_entry for segment in segments),
        ),
        compaction=compaction,
    )


def put_into_effect(
    log: Log,
    make: Callable[[], Sequence[Rewrite]],
    files: Sequence[NewFiles],
    about: str,
    report: Report,
    **counted: int,
) -> Report:
    """Make commands, submit them as one list, and return the report with what came of it.

    Args:
        log: the store.
        make: makes the commands that name `files`.
        files: what takes effect.
        about: names what is lost, if the state refuses the commands.
        report: what was done before. What has no known outcome at the deadline is unresolved.
        counted: what the report counts more, apart from files and aborted records.

    Raises:
        StoreUnavailable: the store did not take them, or a manifest, before the deadline.
    """
    try:
        log.submit(make())
    except CommandRefused as refused:
        return _added(report, lost=(LostRace(about, refused.error.str()),))
    except OutcomeUnknown:
        return _added(report, unresolved=1)
    except StoreUnavailable:
        if not is_time_up():
            raise
        return _added(report, unresolved=1)
    sizes = {segment.name: segment.size_bytes for each in files for segment in each.segments}
    return _added(
        report,
        segment_files=sum(each.replaced_files for each in files),
        size_bytes=sum(each.replaced_bytes for each in files),
        new_files=len(sizes),
        new_size_bytes=sum(sizes.values()),
        aborted_records=sum(each.aborted_records for each in files),
        **counted,
    )


def until_nothing_is_lost(report: Report, work: Callable[[Report], Report]) -> Report:
    """Let `work` plan and do what there is, up to three times while others come first; return the report of all.

    What is left of a plan whose view a vacuum passes is lost too: it is planned again.
    """
    done = report

    def once() -> Report:
        nonlocal done
        done = work(replace(done, lost=(), unresolved=0))
        return done

    in_attempts(once, again=lambda found: found.lost and not found.unresolved)
    return done


def carried_out(results: Iterable[Result | None], put: Callable[[Result, Report], Report], report: Report) -> Report:
    """Put what tasks have made into effect, one result after the other, and return the report of all.

    Args:
        results: None for what was not begun. A ViewExpired says that a vacuum has passed the view of the plan.
        put: puts a result into effect, and returns the report with what came of it.
        report: what was done before.
    """
    try:
        for result in results:
            report = _added(report, unresolved=1) if result is None else put(result, report)
    except ViewExpired as expired:
        # Tasks are planned one after the other: what is left of this plan is planned again.
        report = _added(report, lost=(LostRace("what is left of the plan", str(expired)),))
    return report


def until_time_is_up(results: Iterable[Result]) -> Iterator[Result | None]:
    """Yield results up to the caller's deadline, and None for each of the others."""
    return (None if is_time_up() else result for result in results)


def foreseen(report: Report, tasks: Iterable[RewriteTask | CompactTask], count: str) -> Report:
    """Return the report of a dry run, in which each task is one more of what `count` names."""
    for task in tasks:
        files = {"segment_files": task.files, "size_bytes": task.size_bytes, "aborted_records": task.aborted_records}
        report = _added(report, **files, **{count: 1})
    return report


def _added(report: Report, **more: Any) -> Report:
    """Return the report with more of what it counts, or lists."""
    return replace(report, **{name: getattr(report, name) + each for name, each in more.items()})
