"""The vacuum: what it deletes, what it keeps, and what it refuses to believe."""

from __future__ import annotations

import pytest

from sparktxn.format import names
from sparktxn.format.commands import CreateTopic, DeleteRecords, DeleteTopic, Vacuum
from sparktxn.log.horizon import read_horizon
from tests.maintenance.vacuumworld import DAY_S, LEFT, RIGHT, TOPIC, World


def test_entries_checkpoints_and_parts_below_the_horizon_go() -> None:
    world = World()
    world.grow(checkpoints=4)
    before = world.names("_log/")
    heads = world.heads()
    report = world.process().vacuum()
    assert report.horizon == heads[-2]
    assert world.heads() == heads[-2:]
    assert world.entries()[0] == heads[-2]
    assert (report.entries, report.checkpoints) == (heads[-2] - 1, 2)
    assert report.checkpoint_parts > 0
    assert report.size_bytes > 0
    assert len(world.names("_log/")) < len(before)
    world.check()
    world.grow(checkpoints=2)
    world.check()


def test_nothing_goes_that_is_younger_than_the_retention() -> None:
    world = World()
    world.grow(checkpoints=3)
    world.clock.sleep(DAY_S)
    world.grow(checkpoints=3)
    heads = world.heads()
    kept = world.process().vacuum(vacuum_retention_ms=2 * DAY_S * 1000)
    assert (kept.horizon, kept.entries) == (1, 0)
    report = world.process().vacuum(vacuum_retention_ms=DAY_S * 500)
    assert report.horizon == heads[2]
    world.check()
