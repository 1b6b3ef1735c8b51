"""Maintenance, callable from anywhere and safe beside everything."""

from sparktxn.maintenance.sweep import LostRace, Sweeper, SweepReport, TimedOutTransaction, sweep

__all__ = ["LostRace", "SweepReport", "Sweeper", "TimedOutTransaction", "sweep"]
