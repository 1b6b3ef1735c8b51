"""Maintenance, callable from anywhere and safe alongside every other process."""

from sparktxn.maintenance.retention import RetentionReport, ShortenedPartition, apply_retention
from sparktxn.maintenance.sweep import LostRace, Sweeper, SweepReport, TimedOutTransaction, sweep
from sparktxn.maintenance.vacuum import VacuumReport, vacuum
from sparktxn.maintenance.verify import Problem, VerifyReport, verify

__all__ = [
    "LostRace",
    "Problem",
    "RetentionReport",
    "ShortenedPartition",
    "SweepReport",
    "Sweeper",
    "TimedOutTransaction",
    "VacuumReport",
    "VerifyReport",
    "apply_retention",
    "sweep",
    "vacuum",
    "verify",
]
