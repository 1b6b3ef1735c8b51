"""A vacuum whose horizon stays reads only the entries that may name what has come of age."""

from __future__ import annotations

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import CreateTopic
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn.maintenance.vacuuming import incrementallisting
from tests.maintenance.vacuumworld import DAY_S, LEFT, TOPIC, Process, World

WEEK_MS = 7 * DAY_S * 1_000


def read_by(process: Process, opened: int) -> list[int]:
    """The entries that a process has asked for since an operation, each once; probes behind the log's end count."""
    asked = {names.parse_entry(each.name) for each in process.objects.operations[opened:] if each.verb == "get"}
    return sorted(entry for entry in asked if entry is not None)


def vacuumed(world: World) -> tuple[int, list[int]]:
    """Vacuums with a retention of a week: how many segments it has deleted, and which entries it has read."""
    process = world.process()
    process.log.refresh()
    opened = len(process.objects.operations)
    report = process.vacuum(vacuum_retention_ms=WEEK_MS, vacuum_segment_age_ms=DAY_S * 1_000)
    newest = process.log.entry
    return report.segments, [entry for entry in read_by(process, opened) if entry < newest]


def orphan(world: World, token: str) -> str:
    """Uploads a segment that no entry will name."""
    file = names.segment_file(world.writer.log.entry, f"{token:0>20}", "parquet")
    name = names.segment(TOPIC, *LEFT, file)
    world.objects.put_if_absent(name, b"s")
    return name


@pytest.fixture(params=[False, True], ids=["lists all", "lists what is new"])
def bounded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(incrementallisting, "_NAMES_PER_REQUEST", -1)
    return bool(request.param)


def test_it_deletes_what_has_come_of_age_and_reads_no_entry_twice(bounded: bool) -> None:
    world = World()
    world.grow()
    first = orphan(world, "1")
    world.grow()
    world.clock.sleep(DAY_S)
    deleted, read = vacuumed(world)
    assert deleted == 1
    assert read[0] <= 4, "the first vacuum reads what may name the first segment"
    assert world.objects.get(first) is None
    born = world.writer.log.refresh()
    assert vacuumed(world) == (0, []), "nothing has come of age"
    world.grow()
    second, young = orphan(world, "2"), orphan(world, "3")
    world.grow(checkpoints=2)
    young = orphan(world, "4")
    world.clock.sleep(DAY_S - 300)
    deleted, read = vacuumed(world)
    assert deleted == 2
    assert read[0] > born - 3, "an earlier vacuum has judged what older entries name"
    assert world.objects.get(second) is None
    assert world.objects.get(young) is not None
    assert read_horizon(world.objects) == 1
    world.check()


def test_a_file_that_a_late_entry_names_stays() -> None:
    world = World()
    world.grow()
    commands = world.fused()
    for number in range(5):
        world.writer.submit(CreateTopic(f"create {number}", f"other-{number}", 1))
        assert world.writer.log.checkpoint() is not None
    world.writer.submit(*commands)
    world.clock.sleep(DAY_S)
    world.grow(checkpoints=1)
    kept = world.segments()
    assert vacuumed(world)[0] == 0
    assert world.segments() >= kept
    world.check()


def test_the_horizon_moves_once_a_checkpoint_is_old_enough() -> None:
    world = World()
    world.grow()
    world.clock.sleep(DAY_S)
    vacuumed(world)
    world.clock.sleep(7 * DAY_S)
    world.grow()
    vacuumed(world)
    assert read_horizon(world.objects) > 1
    world.check()
