"""A vacuum keeps the segments of half transactions that may still be committed, and takes those of the others."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import DiscardHalf, EndHalf, PrepareHalf, ResumeHalf
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.log.keep.sealedruns import segments_of
from sparktxn._engine.state import touchedparts
from sparktxn._engine.state.rules import RULES
from sparktxn._foundation.values.structs import HalfSegment, SegmentRef
from sparktxn.maintenance import reachable
from tests.maintenance.vacuumworld import LEFT, TOPIC, World


@pytest.fixture
def world() -> World:
    return World()


def prepare(world: World, name: str, *, is_inline: bool = False) -> str:
    """Prepare a half transaction of one segment; return the name of the object that holds it."""
    token = f"{name:a>20}"
    if is_inline:
        file, data = names.inline_segment(token), b"\xff\xff\xff\xff"
        segment = HalfSegment(TOPIC, *LEFT, file, 1, len(data), checksum(data), 1, 2)
        world.writer.submit(PrepareHalf("shop", name, (segment,), 6_000, {file: data}))
        return names.entry(world.writer.log.entry)
    file = names.segment_file(world.writer.log.entry, token, "arrow")
    stored = names.segment(TOPIC, *LEFT, file)
    world.objects.put_if_absent(stored, b"s" * 100)
    world.writer.submit(PrepareHalf("shop", name, (HalfSegment(TOPIC, *LEFT, file, 1, 100, "00000000", 1, 2),), 6_000))
    return stored


def end(world: World, name: str, *, committed: bool = True) -> None:
    world.writer.submit(EndHalf("shop", name, committed))


def scenario_kept_across_vacuums(world: World, *, is_inline: bool = False) -> None:
    pending, discarded = (prepare(world, name, is_inline=is_inline) for name in ("pending", "discarded"))
    world.writer.submit(DiscardHalf("shop", "discarded", 0))
    for _ in range(3):
        world.grow(checkpoints=3)
        assert world.process().vacuum().segment_floor > 5
        assert is_inline or world.entries()[0] > 5
    for name in (pending, discarded):
        assert world.objects.get(name) is not None
    end(world, "pending")
    world.writer.submit(ResumeHalf("shop", "discarded", 1))
    end(world, "discarded")
    world.grow(checkpoints=3)
    world.process().vacuum()
    for name in (pending, discarded):
        assert world.objects.get(name) is not None
    folder = names.partition_folder(TOPIC, *LEFT)
    assert {pending, discarded} <= {names.segment_object(folder, one.name, one.entry) for one in located(world)}


def located(world: World) -> list[SegmentRef]:
    found = world.process().log.partition(*LEFT)
    assert found is not None
    runs = segments_of(world.objects, names.partition_folder(TOPIC, *LEFT), found[1].sealed)
    return [*itertools.chain(*runs), *found[1].segments]


@pytest.mark.parametrize("is_inline", [False, True])
def test_segments_of_pending_and_discarded_halves_are_kept(world: World, is_inline: bool) -> None:
    scenario_kept_across_vacuums(world, is_inline=is_inline)


@pytest.mark.parametrize("is_inline", [False, True])
def test_a_build_that_does_not_mark_them_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch, is_inline: bool
) -> None:
    monkeypatch.setattr(reachable._Marking, "_mark_halves", lambda *_: None)
    with pytest.raises(AssertionError):
        scenario_kept_across_vacuums(world, is_inline=is_inline)


def test_a_build_that_takes_the_placing_entry_for_the_carrying_one_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "carrier", lambda file_name, entry: entry)
    with pytest.raises(AssertionError):
        scenario_kept_across_vacuums(world, is_inline=True)


def test_the_entry_of_a_half_that_was_rolled_back_is_garbage(world: World) -> None:
    name = prepare(world, "back", is_inline=True)
    end(world, "back", committed=False)
    for _ in range(2):
        world.grow(checkpoints=3)
        world.process().vacuum()
    assert world.objects.get(name) is None


def scenario_prepared_from_the_horizon_on(world: World) -> None:
    """It is prepared after the horizon's checkpoint, and the floor passes it at once."""
    world.grow(checkpoints=4)
    name = prepare(world, "late")
    world.clock.sleep(400)
    assert world.writer.log.checkpoint() is not None
    world.clock.sleep(400)
    report = world.process().vacuum()
    assert report.horizon < report.segment_floor
    assert world.objects.get(name) is not None
    end(world, "late")
    world.check()


def test_segments_that_entries_from_the_horizon_on_have_prepared_are_kept(world: World) -> None:
    scenario_prepared_from_the_horizon_on(world)


def test_a_build_that_marks_appends_alone_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        cast(dict[type, Any], RULES), PrepareHalf, RULES[PrepareHalf]._replace(files=touchedparts.no_files)
    )
    with pytest.raises(AssertionError):
        scenario_prepared_from_the_horizon_on(world)


def test_segments_of_halves_that_were_rolled_back_are_garbage(world: World) -> None:
    name = prepare(world, "back")
    end(world, "back", committed=False)
    for _ in range(2):
        world.grow(checkpoints=3)
        world.process().vacuum()
    assert world.objects.get(name) is None
    world.check()


def test_a_committed_half_is_as_any_record(world: World) -> None:
    prepare(world, "one")
    world.commit()
    end(world, "one")
    world.grow(checkpoints=3)
    world.process().vacuum()
    world.check()


def test_what_is_due_leaves_no_empty_parts_behind(world: World) -> None:
    """Parts that go by time are neither named by heads nor held in memory once they are empty."""
    for number in range(3):
        prepare(world, f"half{number}")
        world.clock.sleep(70)
        end(world, f"half{number}")
        head = world.writer.log._checkpointer.checkpoint()
        assert head is not None
        assert not [part for part in head.parts if part.startswith(("halves_due/", "halves/"))]
        assert not world.writer.log._follower.tail.parts.names("halves_due/")
    prepare(world, "open")
    head = world.writer.log._checkpointer.checkpoint()
    assert head is not None
    assert len([part for part in head.parts if part.startswith("halves_due/")]) == 1
