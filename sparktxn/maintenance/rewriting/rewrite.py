"""The rewrite: merges small segments into large Parquet files, and leaves out aborted records.

A task is a range of a partition. Ranges that follow each other without a gap take effect in one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from sparktxn._engine.format.commands import Rewrite
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.config.topic import table_formats
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import in_time
from sparktxn._foundation.values import arguments
from sparktxn._rows.scan.tablefiles import keep_manifest
from sparktxn.maintenance.proposals import LostRace
from sparktxn.maintenance.rewriting.rewritecommand import ReplacingJob
from sparktxn.maintenance.rewriting.rewritefiles import RewrittenFiles, copy_records, run_rewrite_task
from sparktxn.maintenance.rewriting.rewriteplan import RewriteTask, plan_tasks
from sparktxn.maintenance.taskrunning import RunTasks
from sparktxn.store import Store

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

_FILES_PER_ENTRY: Final = 500
_SEGMENTS_PER_ENTRY: Final = 50_000


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
    run: RunTasks[RewriteTask, RewrittenFiles] | None = None,
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
    background = log.background.sibling("sparktxn-rewrite", 1)
    try:
        job = _Rewriting(log, parsed, background=background, on_bytes=on_bytes)
        return job.run(run_rewrite_task, run, store.options, dry_run=dry_run)
    finally:
        background.close(0)


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
    return _Rewriting(log, rest=rest, segments_per_entry=segments_per_entry).do_here(tasks)


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
    return _Rewriting(log, RewriteSettings.parse(arguments.mapping("settings", settings))).planned()


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
    return _Rewriting(arguments.instance("store", store, Store).log).apply("rewritten", rewritten)


class _Rewriting(ReplacingJob[RewriteTask, RewrittenFiles, RewriteReport]):
    """A run of a rewrite. `background` encodes while records are read; see `rewrite` and `do_tasks` for the others."""

    made = RewrittenFiles
    report = RewriteReport
    counts = "ranges"

    def __init__(
        self,
        log: Log,
        settings: RewriteSettings | None = None,
        *,
        background: Background | None = None,
        rest: Callable[[], None] | None = None,
        on_bytes: Callable[[int], object] | None = None,
        segments_per_entry: int = _SEGMENTS_PER_ENTRY,
    ) -> None:
        self._settings = settings or RewriteSettings()
        super().__init__(log, self._settings.topics)
        self._background = background
        self._rest = rest
        self._on_bytes = on_bytes
        self._done_bytes = 0
        self.segments_per_entry = segments_per_entry

    def plan(self, view: ReadView) -> Iterable[RewriteTask]:
        return plan_tasks(self._log.objects, view, self._settings)

    def do(self, task: RewriteTask) -> RewrittenFiles:
        log = self._log
        made = copy_records(log.objects, log.ids, log.clock, task, self._background, self._rest)
        self._done_bytes += task.size_bytes
        if self._on_bytes is not None:
            self._on_bytes(self._done_bytes)
        return made

    def may_join(self, made: Sequence[RewrittenFiles], following: RewrittenFiles) -> bool:
        last = made[-1]
        ends = (last.topic_id, last.partition, last.end_offset, last.planned_entry)
        follows = ends == (following.topic_id, following.partition, following.base_offset, following.planned_entry)
        segments = sum(len(each.segments) for each in (*made, following))
        files = sum(len(each.files()) for each in made)
        return follows and segments <= _SEGMENTS_PER_ENTRY and files < _FILES_PER_ENTRY

    def commands(self, made: Sequence[RewrittenFiles]) -> Sequence[Rewrite]:
        first, segments = made[0], [segment for each in made for segment in each.segments]
        command = self._replacement(first, (first.base_offset, made[-1].end_offset), segments)
        topic = self._log.topic(first.topic)
        if topic is not None and table_formats(topic.settings):
            # The next version of the table asks for them.
            keep_manifest(self._log.objects, self._folder(first), command.run, segments)
        return [command]
