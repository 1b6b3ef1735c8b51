"""Maintenance, callable from anywhere and safe alongside every other process."""

from sparktxn.maintenance.sweep import LostRace, Sweeper, SweepReport, TimedOutTransaction, sweep
from sparktxn.maintenance.vacuum import VacuumReport, vacuum

__all__ = ["LostRace", "SweepReport", "Sweeper", "TimedOutTransaction", "VacuumReport", "sweep", "vacuum"]
