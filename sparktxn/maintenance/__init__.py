"""Maintenance, callable from anywhere and safe alongside every other process."""

from sparktxn.maintenance.retention import RetentionReport, ShortenedPartition, apply_retention
from sparktxn.maintenance.sweep import LostRace, Sweeper, SweepReport, TimedOutTransaction, sweep
from sparktxn.maintenance.vacuum import VacuumReport, vacuum

__all__ = [
    "LostRace",
    "RetentionReport",
    "ShortenedPartition",
    "SweepReport",
    "Sweeper",
    "TimedOutTransaction",
    "VacuumReport",
    "apply_retention",
    "sweep",
    "vacuum",
]
