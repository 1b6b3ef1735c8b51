"""The rewrite: merges small segments into large Parquet files, and leaves out aborted records.

It has three steps. A plan says which segments to merge, as tasks. Any processes do the tasks: they upload files that
nothing names. Then an entry for each range puts them in the place of the old segments. In each view before that entry
readers read the old ones. A vacuum deletes them once no view that is kept names them.

It may die between any two steps. Files that no entry names are left, and a vacuum deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from sparktxn.config.maintenance import RewriteSettings
from sparktxn.config.topic import table_formats
from sparktxn.errors import ViewExpired
from sparktxn.format import names
from sparktxn.format.commands import Rewrite
from sparktxn.log.log import Log
from sparktxn.maintenance.overtaken import on_a_view
from sparktxn.maintenance.proposals import LostRace
from sparktxn.maintenance.rewriting.rewritecommand import (
    carried_out,
    foreseen,
    put_into_effect,
    replacement,
    until_nothing_is_lost,
    until_time_is_up,
)
from sparktxn.maintenance.rewriting.rewritefiles import RewrittenFiles, copy_records, run_rewrite_task
from sparktxn.maintenance.rewriting.rewriteplan import RewriteTask, plan_tasks
from sparktxn.maintenance.taskrunning import RunTasks, in_other_processes
from sparktxn.process.background import Background
from sparktxn.process.clock import in_time, is_time_up
from sparktxn.scan.tablefiles import keep_manifest
from sparktxn.store import Store
from sparktxn.values import arguments

__all__ = [
    "RewriteReport",
    "RewriteTask",
    "RewrittenFiles",
    "apply_rewrite",
    "do_tasks",
    "plan_rewrite",
    "rewrite",
    "run_rewrite_task",
]

_Run = RunTasks[RewriteTask, RewrittenFiles]
"""Runs a function for each of some tasks, anywhere, and returns what it returns."""

_Results = Iterator[tuple[RewrittenFiles | None, bool]]
"""What came of each task (None: it was not begun), and whether what is done takes effect before the next begins."""

_Work = Callable[[Iterable[RewriteTask]], _Results]

_FILES_PER_ENTRY: Final = 500
_SEGMENTS_PER_ENTRY: Final = 100_000


class RewriteReport(Struct, frozen=True, kw_only=True):
    """What a rewrite has done, or with `dry_run` would do.

    `ranges` ranges of offsets are rewritten: `segment_files` files with about `size_bytes` bytes were replaced by
    `new_files` with `new_size_bytes`, which a dry run does not know (0). `aborted_records` were left out. `lost` are
    ranges that another rewrite, or a deletion, has taken meanwhile. `unresolved` ranges had no known outcome at the
    deadline, or were not begun: call again.
    """

    dry_run: bool
    ranges: int = 0
    segment_files: int = 0
    size_bytes: int = 0
    new_files: int = 0
    new_size_bytes: int = 0
    aborted_records: int = 0
    lost: tuple[LostRace, ...] = ()
    unresolved: int = 0


@in_time("timeout_s", lambda store: store.log.clock)
def rewrite(
    store: Store,
    settings: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
    run: _Run | None = None,
    on_bytes: Callable[[int], object] | None = None,
    timeout_s: float | None = None,
) -> RewriteReport:
    """Merge the segments that `settings` select; see REWRITE_SETTINGS.

    No record and no offset changes. Safe alongside every other process, other rewrites too; appends never conflict with
    it. A range that another rewrite takes first is planned again, up to three times.

    Args:
        store: an open store.
        settings: ``rewrite.*`` settings.
        dry_run: only return what would be done: nothing is written.
        run: how tasks are run, if not one after the other here. It is called with a function and some of the tasks,
            both picklable, and returns the results. With Spark: ``pyspark_txnlog.run_on(spark)``.
        on_bytes: called after each task that was run here with how many bytes of segments have been merged.
        timeout_s: how long all of it may take; ranges that are not begun by then are counted in the report.

    Raises:
        ConfigurationError: a setting is unknown or wrong.
        CommandRefused: a topic that the settings name does not exist (UNKNOWN_TOPIC_OR_PARTITION), or records do not
            fit into one file (MESSAGE_TOO_LARGE). What was rewritten before is complete.
        StoreUnavailable: the store did not answer; what was rewritten before is complete.
        DamagedObject: the log, or a segment, cannot be read; what was rewritten before is complete.
    """
    log = arguments.instance("store", store, Store).log
    parsed = RewriteSettings.parse(arguments.mapping("settings", settings))
    dry_run = arguments.boolean("dry_run", dry_run)
    arguments.function("run", run)
    arguments.function("on_bytes", on_bytes)
    if dry_run:
        none = RewriteReport(dry_run=True)
        return on_a_view(
            log, parsed.topics or None, lambda view: foreseen(none, plan_tasks(log.objects, view, parsed), "ranges")
        )
    background = log.background.sibling("sparktxn-rewrite", 1)
    here = partial(_one_by_one, log, background, on_bytes=on_bytes)
    work = here if run is None else partial(_elsewhere, run, store.options)
    try:
        return until_nothing_is_lost(RewriteReport(dry_run=False), lambda report: _round(log, parsed, report, work))
    finally:
        background.close(0)


def _round(log: Log, settings: RewriteSettings, report: RewriteReport, work: _Work) -> RewriteReport:
    view = log.view(settings.topics or None)
    return _carried_out(log, work(plan_tasks(log.objects, view, settings)), report)


def do_tasks(
    log: Log,
    tasks: Iterable[RewriteTask],
    rest: Callable[[], None] | None = None,
    segments_per_entry: int = _SEGMENTS_PER_ENTRY,
) -> RewriteReport:
    """Do tasks here, one after the other, and put their files into effect; see `rewrite` for the report and the errors.

    Tasks of an expired plan are in the report's `lost`, as ranges are that another rewrite has taken. `rest` is called
    again and again while records are copied, as `copy_records` does. What is done takes effect once it has so many
    segments as `segments_per_entry`, or more.
    """
    results = _one_by_one(log, None, tasks, rest, segments_per_entry)
    return _carried_out(log, results, RewriteReport(dry_run=False))


def _carried_out(log: Log, results: _Results, report: RewriteReport) -> RewriteReport:
    return carried_out(_joined(results), partial(_applied, log), report)


def _joined(results: _Results) -> Iterator[list[RewrittenFiles] | None]:
    """Yield the results that follow each other without a gap together: one entry names them all."""
    waiting: list[RewrittenFiles] = []
    try:
        for done, ends_here in results:
            if done is None:
                yield None
                continue
            if waiting and not _may_join(waiting, done):
                yield waiting
                waiting = []
            waiting.append(done)
            if ends_here:
                yield waiting
                waiting = []
    except ViewExpired:
        if waiting:
            yield waiting
        raise
    if waiting:
        yield waiting


def _one_by_one(
    log: Log,
    background: Background | None,
    tasks: Iterable[RewriteTask],
    rest: Callable[[], None] | None = None,
    segments_per_entry: int = _SEGMENTS_PER_ENTRY,
    on_bytes: Callable[[int], object] | None = None,
) -> _Results:
    """Do tasks here, in their order; `background` encodes while records are read.

    Raises:
        ViewExpired: a vacuum has passed the view of this plan.
    """
    segments = done_bytes = 0
    for task in tasks:
        done = None if is_time_up() else copy_records(log.objects, log.ids, log.clock, task, background, rest)
        segments += 0 if done is None else len(done.segments)
        done_bytes += task.size_bytes
        if on_bytes is not None:
            on_bytes(done_bytes)
        yield done, done is not None and segments >= segments_per_entry
        segments %= segments_per_entry


def _elsewhere(run: _Run, options: Mapping[str, Any], tasks: Iterable[RewriteTask]) -> _Results:
    """Let `run` do tasks; each group of them ends with what takes effect before the next group begins."""
    for some in in_other_processes(run, partial(run_rewrite_task, options=options), tasks, RewrittenFiles):
        for number, done in enumerate(some, 1):
            yield done, number == len(some)


def _place(files: RewrittenFiles) -> tuple[int, int, int]:
    return files.topic_id, files.partition, files.base_offset


@in_time("timeout_s", lambda store: store.log.clock)
def plan_rewrite(
    store: Store, settings: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
) -> list[RewriteTask]:
    """Return the tasks of a rewrite, which processes with the store's options do by `run_rewrite_task`.

    Raises:
        ConfigurationError: a setting is unknown or wrong.
        CommandRefused: a topic that the settings name does not exist (UNKNOWN_TOPIC_OR_PARTITION).
        StoreUnavailable, DamagedObject, OutcomeUnknown: the log cannot be read.
    """
    log = arguments.instance("store", store, Store).log
    parsed = RewriteSettings.parse(arguments.mapping("settings", settings))
    return _planned(log, parsed)


def _planned(log: Log, settings: RewriteSettings) -> list[RewriteTask]:
    return on_a_view(log, settings.topics or None, lambda view: list(plan_tasks(log.objects, view, settings)))


@in_time("timeout_s", lambda store: store.log.clock)
def apply_rewrite(
    store: Store, rewritten: Iterable[RewrittenFiles], *, timeout_s: float | None = None
) -> RewriteReport:
    """Put the files of `run_rewrite_task` in the place of the segments that they hold, in any order.

    Each range takes effect in one entry, or is lost to a rewrite or a deletion that came first. Lost ones are values in
    the report; the next plan has them again.

    Raises:
        TypeError: an item is not a RewrittenFiles.
        StoreUnavailable: the store did not take a manifest; ranges before it have taken effect.
    """
    log = arguments.instance("store", store, Store).log
    items = arguments.items("rewritten", rewritten, RewrittenFiles)
    results = ((item, False) for item in sorted(items, key=_place))
    return carried_out(until_time_is_up(_joined(results)), partial(_applied, log), RewriteReport(dry_run=False))


def _may_join(waiting: Sequence[RewrittenFiles], item: RewrittenFiles) -> bool:
    """Return whether one entry may name `waiting` and what follows."""
    last = waiting[-1]
    follows = (last.topic_id, last.partition, last.end_offset) == _place(item)
    segments = sum(len(each.segments) for each in (*waiting, item))
    files = sum(len(each.files()) for each in waiting)
    same_plan = last.planned_entry == item.planned_entry
    return follows and same_plan and segments <= _SEGMENTS_PER_ENTRY and files < _FILES_PER_ENTRY


def _applied(log: Log, files: Sequence[RewrittenFiles], report: RewriteReport) -> RewriteReport:
    """Replace the range of `files`, and return the report with what came of it."""
    first = files[0]
    about = f"partition {first.partition} of topic {first.topic!r} from offset {first.base_offset}"
    return put_into_effect(log, lambda: [_command(log, files)], files, about, report, ranges=1)


def _command(log: Log, files: Sequence[RewrittenFiles]) -> Rewrite:
    first, segments = files[0], [segment for each in files for segment in each.segments]
    where, offsets = (first.topic_id, first.partition), (first.base_offset, files[-1].end_offset)
    folder = names.partition_folder(first.topic, *where)
    command = replacement(log, folder, where, offsets, segments, first.planned_entry)
    topic = log.topic(first.topic)
    if topic is not None and table_formats(topic.settings):
        # The next version of the table asks for them.
        keep_manifest(log.objects, folder, command.run, segments)
    return command
