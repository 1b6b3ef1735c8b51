"""Maintenance, callable from anywhere and safe alongside every other process."""

from sparktxn.maintenance.checking.repair import RepairedObject, RepairReport, repair
from sparktxn.maintenance.checking.verify import Problem, VerifyReport, verify
from sparktxn.maintenance.copying.storecopy import CopyReport, copy_store
from sparktxn.maintenance.copyobjects import CopiedObjects, CopyTask, run_copy_task
from sparktxn.maintenance.maintain import FailedJob, MaintenanceReport, maintain
from sparktxn.maintenance.proposals import LostRace
from sparktxn.maintenance.publishing.publish import PublishedTable, PublishReport, RefusedTable, publish_tables
from sparktxn.maintenance.publishing.tablelist import TableInfo, list_tables
from sparktxn.maintenance.rewriting.compact import (
    CompactedFiles,
    CompactReport,
    CompactTask,
    apply_compact,
    compact,
    plan_compact,
    run_compact_task,
)
from sparktxn.maintenance.rewriting.rewrite import (
    RewriteReport,
    RewriteTask,
    RewrittenFiles,
    apply_rewrite,
    plan_rewrite,
    rewrite,
    run_rewrite_task,
)
from sparktxn.maintenance.sweeping.retention import RetentionReport, ShortenedPartition, apply_retention
from sparktxn.maintenance.sweeping.sweep import ExpiredMember, Sweeper, SweepReport, TimedOutTransaction, sweep
from sparktxn.maintenance.vacuuming.vacuum import VacuumLimit, VacuumReport, vacuum

__all__ = [
    "CompactReport",
    "CompactTask",
    "CompactedFiles",
    "CopiedObjects",
    "CopyReport",
    "CopyTask",
    "ExpiredMember",
    "FailedJob",
    "LostRace",
    "MaintenanceReport",
    "Problem",
    "PublishReport",
    "PublishedTable",
    "RefusedTable",
    "RepairReport",
    "RepairedObject",
    "RetentionReport",
    "RewriteReport",
    "RewriteTask",
    "RewrittenFiles",
    "ShortenedPartition",
    "SweepReport",
    "Sweeper",
    "TableInfo",
    "TimedOutTransaction",
    "VacuumLimit",
    "VacuumReport",
    "VerifyReport",
    "apply_compact",
    "apply_retention",
    "apply_rewrite",
    "compact",
    "copy_store",
    "list_tables",
    "maintain",
    "plan_compact",
    "plan_rewrite",
    "publish_tables",
    "repair",
    "rewrite",
    "run_compact_task",
    "run_copy_task",
    "run_rewrite_task",
    "sweep",
    "vacuum",
    "verify",
]


def __dir__() -> list[str]:
    return sorted(__all__)
