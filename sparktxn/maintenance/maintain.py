"""All maintenance of a store in one call, by the settings of its topics.

The jobs are sweep, retention, compact, rewrite, tables and vacuum, in the order in which each makes work for the next.
A sweep ends transactions that hold up the last stable offset, and retention names less. A compaction leaves the newest
record of each key, and a rewrite merges what is left. Tables are published with these files, and with new records.

The vacuum deletes what nothing names any more. Its horizon moves from checkpoint to checkpoint, so one is written
first. Otherwise what the other jobs have replaced would stay until others have written enough entries. A process that
maintains a store again and again runs no vacuum while nothing can have come of age since its last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from sparktxn._engine.log.log import Log
from sparktxn._foundation.config.maintenance import COMPACT_SETTINGS, REWRITE_SETTINGS, SWEEP_SETTINGS, VACUUM_SETTINGS
from sparktxn._foundation.config.settings import Setting, parse_settings
from sparktxn._foundation.process.clock import in_time
from sparktxn._foundation.values import arguments
from sparktxn.errors import KafkaException
from sparktxn.maintenance.publishing.publish import PublishReport, publish_tables
from sparktxn.maintenance.publishing.tablelist import has_tables
from sparktxn.maintenance.rewriting.compact import CompactReport, compact
from sparktxn.maintenance.rewriting.rewrite import RewriteReport, rewrite
from sparktxn.maintenance.sweeping.retention import RetentionReport, apply_retention
from sparktxn.maintenance.sweeping.sweep import SweepReport, sweep
from sparktxn.maintenance.taskrunning import RunTasks
from sparktxn.maintenance.vacuuming.vacuum import VacuumReport, changes_nothing, still_complete, vacuum
from sparktxn.store import Store

_SETTINGS = (*SWEEP_SETTINGS, *COMPACT_SETTINGS, *REWRITE_SETTINGS, *VACUUM_SETTINGS)


class FailedJob(Struct, frozen=True):
    """A job that has failed, and why. What it did before is complete, and the other jobs were run."""

    job: str
    error: str


class MaintenanceReport(Struct, frozen=True, kw_only=True):
    """What each job has done, or with `dry_run` would do; None for one that has failed, which is in `failed`.

    `tables` is None too if the store has no table.
    """

    dry_run: bool
    sweep: SweepReport | None = None
    retention: RetentionReport | None = None
    compact: CompactReport | None = None
    rewrite: RewriteReport | None = None
    tables: PublishReport | None = None
    vacuum: VacuumReport | None = None
    failed: tuple[FailedJob, ...] = ()


@in_time("timeout_s", lambda store: store.log.clock)
def maintain(
    store: Store,
    settings: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
    run: RunTasks[Any, Any] | None = None,
    timeout_s: float | None = None,
) -> MaintenanceReport:
    """Run all jobs once: sweep, retention, compact, rewrite, tables, vacuum. One that fails stops no other.

    Safe alongside every other process, and to repeat after a crash. Call it from cron, or in a loop.

    Args:
        store: an open store.
        settings: settings of any job, such as ``vacuum.retention.ms``.
        dry_run: only return what each job would do. What one would do is not seen by the next.
        run: how the tasks of the jobs that read and write records, compact and rewrite, are run, if not here.
        timeout_s: how long all of it may take; what is left is done by the next call.

    Raises:
        ConfigurationError: a setting is unknown or wrong; no job was run.
    """
    arguments.instance("store", store, Store)
    given = arguments.mapping("settings", settings)
    dry_run = arguments.boolean("dry_run", dry_run)
    arguments.function("run", run)
    parse_settings(_SETTINGS, given, "maintenance")
    jobs: dict[str, Callable[..., Any]] = {
        "sweep": partial(sweep, store, _of(SWEEP_SETTINGS, given)),
        "retention": partial(apply_retention, store),
        "compact": partial(compact, store, _of(COMPACT_SETTINGS, given), run=run),
        "rewrite": partial(rewrite, store, _of(REWRITE_SETTINGS, given), run=run),
        "tables": partial(_publish, store),
        "vacuum": partial(_vacuum, store, _of(VACUUM_SETTINGS, given)),
    }
    reports: dict[str, Any] = {}
    failed = []
    for job, work in jobs.items():
        try:
            reports[job] = work(dry_run=dry_run)
        except KafkaException as error:
            failed.append(FailedJob(job, error.error.str()))
    return MaintenanceReport(dry_run=dry_run, **reports, failed=tuple(failed))


def _publish(store: Store, *, dry_run: bool) -> PublishReport | None:
    """Publish all tables of the store; None if it has none in the state that the jobs before have read."""
    return publish_tables(store, dry_run=dry_run) if has_tables(store.log) else None


def _vacuum(store: Store, settings: Mapping[str, Any], *, dry_run: bool) -> VacuumReport:
    if not dry_run:
        if (nothing := still_complete(store.log, settings)) is not None:
            return nothing
        _checkpoint_new_entries(store.log)
    return vacuum(store, settings, dry_run=dry_run)


def _checkpoint_new_entries(log: Log) -> None:
    """Write a checkpoint if that lets a vacuum go further, now or once the checkpoint is old enough.

    A store in which nothing happens gets none: a vacuum's own entries are not a reason for another.
    """
    entry, horizon = log.refresh(), log.store_state().horizon
    if entry > log.checkpoint_entry and not changes_nothing(log, horizon + 1, entry):
        log.checkpoint()


def _of(known: tuple[Setting, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    names = {setting.name for setting in known}
    return {name: value for name, value in given.items() if name in names}
