"""Compaction by key (Kafka's ``cleanup.policy=compact``): leaves the newest committed record of each key.

Of a keyed topic the record is a row, and a tombstone is a delete; all else is the same.

A task is a whole partition, up to an offset. It takes effect in one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct

from sparktxn._engine.format.commands import Rewrite
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.log.write.storeclock import store_now_ms
from sparktxn._foundation.config.maintenance import CompactSettings
from sparktxn._foundation.config.topic import is_compacted
from sparktxn._foundation.process.clock import in_time
from sparktxn._foundation.values import arguments
from sparktxn.errors import ConfigurationError, ErrorCode
from sparktxn.maintenance.proposals import LostRace
from sparktxn.maintenance.rewriting.compactfiles import CompactedFiles, copy_newest, run_compact_task
from sparktxn.maintenance.rewriting.compactplan import CompactTask, plan_compaction
from sparktxn.maintenance.rewriting.rewritecommand import ReplacingJob
from sparktxn.maintenance.taskrunning import RunTasks
from sparktxn.store import Store

__all__ = [
    "CompactReport",
    "CompactTask",
    "CompactedFiles",
    "apply_compact",
    "compact",
    "plan_compact",
    "run_compact_task",
]

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
    run: RunTasks[CompactTask, CompactedFiles] | None = None,
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
    return _Compacting(log, parsed).run(run_compact_task, run, store.options, dry_run=dry_run)


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
    return _Compacting(log, CompactSettings.parse(arguments.mapping("settings", settings))).planned()


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
    return _Compacting(arguments.instance("store", store, Store).log).apply("compacted", compacted)


class _Compacting(ReplacingJob[CompactTask, CompactedFiles, CompactReport]):
    """A run of a compaction."""

    made = CompactedFiles
    report = CompactReport
    counts = "partitions"

    def __init__(self, log: Log, settings: CompactSettings | None = None) -> None:
        self._settings = settings or CompactSettings()
        super().__init__(log, self._settings.topics)

    def plan(self, view: ReadView) -> Iterable[CompactTask]:
        _check_topics(view, self._settings)
        if not any(is_compacted(topic.settings) for topic in view.topics.values()):
            return []
        log = self._log
        return list(plan_compaction(log.objects, view, self._settings, store_now_ms(log.objects, log.clock, log.ids)))

    def do(self, task: CompactTask) -> CompactedFiles:
        return copy_newest(self._log.objects, self._log.ids, self._log.clock, task)

    def counted(self, made: Sequence[CompactedFiles]) -> Mapping[str, int]:
        left = sum(segment.row_count for each in made for segment in each.segments)
        return {"removed_records": sum(each.replaced_records for each in made) - left, "left_records": left}

    def commands(self, made: Sequence[CompactedFiles]) -> Sequence[Rewrite]:
        # A tombstone must not be removed without the older records of its key: all runs are replaced together.
        (done,) = made
        runs = [done.segments[at : at + _SEGMENTS_PER_RUN] for at in range(0, len(done.segments), _SEGMENTS_PER_RUN)]
        starts = [done.base_offset, *(run[0].base_offset for run in runs[1:]), done.compaction.end_offset]
        return [
            self._replacement(done, offsets, run, done.compaction)
            for run, offsets in zip(runs, pairwise(starts), strict=True)
        ]
