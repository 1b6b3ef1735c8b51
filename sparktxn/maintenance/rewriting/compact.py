"""Compaction by key (Kafka's ``cleanup.policy=compact``): leaves the newest committed record of each key.

It has three steps, as a rewrite. A plan says which partitions are compacted, and up to which offset, as tasks. Any
processes do the tasks: they upload files that nothing names. Then one entry for each partition puts them in the place
of the old segments. In each view before that entry readers read the old ones. A vacuum deletes them once no view that
is kept names them.

It may die between any two steps. Files that no entry names are left, and a vacuum deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from sparktxn.config.maintenance import CompactSettings
from sparktxn.config.topic import is_compacted
from sparktxn.errors import ConfigurationError, ErrorCode
from sparktxn.format import names
from sparktxn.format.commands import Rewrite
from sparktxn.log.log import Log
from sparktxn.log.views.readview import ReadView
from sparktxn.log.write.storeclock import store_now_ms
from sparktxn.maintenance.overtaken import on_a_view
from sparktxn.maintenance.proposals import LostRace
from sparktxn.maintenance.rewriting.compactfiles import CompactedFiles, copy_newest, run_compact_task
from sparktxn.maintenance.rewriting.compactplan import CompactTask, plan_compaction
from sparktxn.maintenance.rewriting.rewritecommand import (
    carried_out,
    foreseen,
    put_into_effect,
    replacement,
    until_nothing_is_lost,
    until_time_is_up,
)
from sparktxn.maintenance.taskrunning import RunTasks, in_other_processes
from sparktxn.process.clock import in_time, is_time_up
from sparktxn.store import Store
from sparktxn.values import arguments

__all__ = [
    "CompactReport",
    "CompactTask",
    "CompactedFiles",
    "apply_compact",
    "compact",
    "plan_compact",
    "run_compact_task",
]

_Run = RunTasks[CompactTask, CompactedFiles]
"""Runs a function for each of some tasks, anywhere, and returns what it returns."""

_SEGMENTS_PER_RUN: Final = 100_000


class CompactReport(Struct, frozen=True, kw_only=True):
    """What a compaction has done, or with `dry_run` would do.

    `partitions` partitions are compacted: `segment_files` files with about `size_bytes` bytes were replaced by
    `new_files` with `new_size_bytes`. `removed_records` had newer records of their keys, or were old tombstones, and
    `left_records` are left. A dry run does not know these four (0). `aborted_records` were left out too. `lost` are
    partitions that another rewrite or compaction, or a deletion, has changed meanwhile. `unresolved` ones had no known
    outcome at the deadline, or were not begun: call again.
    """

    dry_run: bool
    partitions: int = 0
    segment_files: int = 0
    size_bytes: int = 0
    new_files: int = 0
    new_size_bytes: int = 0
    removed_records: int = 0
    left_records: int = 0
    aborted_records: int = 0
    lost: tuple[LostRace, ...] = ()
    unresolved: int = 0


@in_time("timeout_s", lambda store: store.log.clock)
def compact(
    store: Store,
    settings: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
    run: _Run | None = None,
    timeout_s: float | None = None,
) -> CompactReport:
    """Compact the topics whose ``cleanup.policy`` has ``compact``, as their settings say; see COMPACT_SETTINGS.

    No offset changes, and what views from before show does not change. Safe alongside every other process, other
    compactions and rewrites too; appends never conflict with it. A partition that another rewrite takes first is
    planned again, up to three times.

    Args:
        store: an open store.
        settings: ``compact.*`` settings.
        dry_run: only return what would be done: nothing is written.
        run: how tasks are run, if not one after the other here. It is called with a function and some of the tasks,
            both picklable, and returns the results. With Spark: ``pyspark_txnlog.run_on(spark)``.
        timeout_s: how long all of it may take; partitions that are not begun by then are counted in the report.

    Raises:
        ConfigurationError: a setting is unknown or wrong, or a topic that the settings name is not compacted.
        CommandRefused: a topic that the settings name does not exist (UNKNOWN_TOPIC_OR_PARTITION), or records do not
            fit into one file (MESSAGE_TOO_LARGE). What was compacted before is complete.
        StoreUnavailable: the store did not answer; what was compacted before is complete.
        DamagedObject: the log, or a segment, cannot be read; what was compacted before is complete.
    """
    log = arguments.instance("store", store, Store).log
    parsed = CompactSettings.parse(arguments.mapping("settings", settings))
    dry_run = arguments.boolean("dry_run", dry_run)
    arguments.function("run", run)
    report = CompactReport(dry_run=dry_run)
    if dry_run:
        return foreseen(report, _planned(log, parsed), "partitions")

    def once(report: CompactReport) -> CompactReport:
        results = _done(log, _planned(log, parsed), run, store.options)
        return carried_out(results, partial(_applied, log), report)

    return until_nothing_is_lost(report, once)


def _done(
    log: Log, tasks: Sequence[CompactTask], run: _Run | None, options: Mapping[str, Any]
) -> Iterator[CompactedFiles | None]:
    """Do tasks, here or by `run`; None is yielded for one that is not begun.

    Raises:
        ViewExpired: a vacuum has passed the view of this plan.
    """
    if run is not None:
        for some in in_other_processes(run, partial(run_compact_task, options=options), tasks, CompactedFiles):
            yield from some
        return
    for task in tasks:
        yield None if is_time_up() else copy_newest(log.objects, log.ids, log.clock, task)


@in_time("timeout_s", lambda store: store.log.clock)
def plan_compact(
    store: Store, settings: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
) -> list[CompactTask]:
    """Return the tasks of a compaction, which processes with the store's options do by `run_compact_task`.

    Raises:
        ConfigurationError: a setting is unknown or wrong, or a topic that the settings name is not compacted.
        CommandRefused: a topic that the settings name does not exist (UNKNOWN_TOPIC_OR_PARTITION).
        StoreUnavailable, DamagedObject, OutcomeUnknown: the log, or the store's time, cannot be read.
    """
    log = arguments.instance("store", store, Store).log
    parsed = CompactSettings.parse(arguments.mapping("settings", settings))
    return _planned(log, parsed)


def _planned(log: Log, settings: CompactSettings) -> list[CompactTask]:
    def planned(view: ReadView) -> list[CompactTask]:
        _check_topics(view, settings)
        if not any(is_compacted(topic.settings) for topic in view.topics.values()):
            return []
        return list(plan_compaction(log.objects, view, settings, store_now_ms(log.objects, log.clock, log.ids)))

    return on_a_view(log, settings.topics or None, planned)


def _check_topics(view: ReadView, settings: CompactSettings) -> None:
    for name in settings.topics:
        policy = view.topics[name].settings.get("cleanup.policy", "delete")
        if not is_compacted(view.topics[name].settings):
            raise ConfigurationError(
                f"setting 'compact.topics' has {name!r}, whose cleanup.policy is {policy}: set that to compact, or "
                "leave the topic out",
                ErrorCode.INVALID_CONFIG,
            )


@in_time("timeout_s", lambda store: store.log.clock)
def apply_compact(
    store: Store, compacted: Iterable[CompactedFiles], *, timeout_s: float | None = None
) -> CompactReport:
    """Put the files of `run_compact_task` in the place of what they were made from, in any order.

    Each partition takes effect in one entry, or is lost to a rewrite, a compaction or a deletion that came first. Lost
    ones are values in the report; the next plan has them again.

    Raises:
        TypeError: an item is not a CompactedFiles.
        StoreUnavailable: the store did not take a manifest; partitions before it have taken effect.
    """
    log = arguments.instance("store", store, Store).log
    items = arguments.items("compacted", compacted, CompactedFiles)
    return carried_out(until_time_is_up(items), partial(_applied, log), CompactReport(dry_run=False))


def _applied(log: Log, done: CompactedFiles, report: CompactReport) -> CompactReport:
    """Replace the records of a partition, and return the report with what came of it."""
    left = sum(segment.row_count for segment in done.segments)
    records = {"removed_records": done.replaced_records - left, "left_records": left}
    about = f"partition {done.partition} of topic {done.topic!r}"
    return put_into_effect(log, lambda: _commands(log, done), [done], about, report, partitions=1, **records)


def _commands(log: Log, done: CompactedFiles) -> list[Rewrite]:
    """Write the manifests, and return the commands that name them: one list, which takes effect whole or not at all.

    A tombstone must not be removed without the older records of its key. So all ranges are replaced together.
    """
    where = (done.topic_id, done.partition)
    folder = names.partition_folder(done.topic, *where)
    runs = [done.segments[at : at + _SEGMENTS_PER_RUN] for at in range(0, len(done.segments), _SEGMENTS_PER_RUN)]
    starts = [done.base_offset, *(run[0].base_offset for run in runs[1:]), done.compaction.end_offset]
    return [
        replacement(log, folder, where, (start, end), run, done.planned_entry, done.compaction)
        for run, start, end in zip(runs, starts, starts[1:], strict=False)
    ]
