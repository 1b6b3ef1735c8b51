"""What a vacuum lists: everything now and then, and in between what is new."""

from __future__ import annotations

from typing import Any

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, DeleteRecords
from sparktxn._engine.format.vacuumhint import VacuumHint, decode_vacuum_hint, encode_vacuum_hint
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn._rows.scan.plan import segments_between
from sparktxn.errors import DamagedObject
from sparktxn.maintenance.vacuuming import incrementallisting
from sparktxn.testing.faultystore import Died, Fault, Operation
from tests.maintenance.vacuumworld import DAY_S, LEFT, TOPIC, Process, World

FOLDER = names.partition_folder(TOPIC, *LEFT)


@pytest.fixture
def world() -> World:
    """A store that a vacuum has cleaned, with new garbage."""
    made = World()
    made.grow()
    made.process().vacuum()
    made.grow()
    return made


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few objects count as many."""
    monkeypatch.setattr(incrementallisting, "_NAMES_PER_REQUEST", -1)


def listed(process: Process) -> list[str]:
    """The folders of topics that a process has listed."""
    return [
        each.name for each in process.objects.operations if each.verb == "list" and each.name.startswith(names.TOPICS)
    ]


def vacuumed(world: World, **settings: Any) -> list[str]:
    process = world.process()
    process.vacuum(**settings)
    world.check()
    return listed(process)


def hint(world: World) -> VacuumHint:
    found = decode_vacuum_hint(world.objects.get(names.LAST_VACUUM) or b"")
    assert found is not None
    return found


def lost_upload(world: World, born: int) -> str:
    name = FOLDER + names.segment_file(born, f"{born:a>20}", "parquet")
    world.objects.put_if_absent(name, b"s")
    return name


@pytest.mark.usefixtures("always")
def test_the_second_vacuum_lists_each_partition_from_the_floor_on(world: World) -> None:
    floor = hint(world).segment_floor
    assert floor > 1
    known, late = lost_upload(world, floor), lost_upload(world, floor - 1)
    assert len(vacuumed(world)) == 2
    assert world.objects.get(known) is None
    assert world.objects.get(late) is not None, "it came later than any upload may"
    assert vacuumed(world, vacuum_list_all_ms=0) == [names.TOPICS]
    assert world.objects.get(late) is None


@pytest.mark.usefixtures("always")
def test_records_that_an_entry_appends_and_deletes_leave_no_file(world: World) -> None:
    """The entry is the horizon: its checkpoint does not name the file, and no entry after it does."""
    commands = world.fused()
    (file,) = (each.segment for each in commands if isinstance(each, Append) and each.partition == 0)
    end = world.writer.view().partitions[TOPIC, 0].log_end_offset
    world.writer.submit(*commands, DeleteRecords("delete", *LEFT, end + 1))
    entry = world.writer.log.entry
    world.writer.log.checkpoint()
    world.grow(checkpoints=1)
    assert world.process().vacuum().horizon == entry
    assert world.objects.get(FOLDER + file) is not None, "entries from the horizon on keep what they name"
    world.grow()
    assert len(vacuumed(world)) == 2
    assert world.objects.get(FOLDER + file) is None


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("beyond", [0, 1])
def test_records_are_deleted_to_the_end_of_a_segment_or_beyond(world: World, beyond: int) -> None:
    """The checkpoint at the earlier horizon names the segments."""
    found = world.writer.view().partitions[TOPIC, 0]
    passed, kept = segments_between(world.objects, found, 0, found.log_end_offset)[:2]
    world.writer.submit(DeleteRecords("delete", *LEFT, passed.end_offset + beyond))
    world.grow()
    assert len(vacuumed(world)) == 2
    assert world.objects.get(FOLDER + passed.name) is None
    assert world.objects.get(FOLDER + kept.name) is not None


@pytest.mark.usefixtures("always")
def test_everything_is_listed_after_a_vacuum_that_has_died(world: World) -> None:
    before = hint(world)
    process = world.process()

    def fate(operation: Operation) -> Fault:
        return Fault.DIE_BEFORE if operation.verb == "delete" and "/kafka_" in operation.name else Fault.NONE

    process.fate = fate
    world.writer.submit(DeleteRecords("delete", *LEFT, 3))
    world.grow()
    with pytest.raises(Died):
        process.vacuum()
    assert read_horizon(world.objects) > before.horizon
    assert hint(world) == before
    copy = world.copy()
    assert vacuumed(world) == [names.TOPICS]
    copy.process().vacuum(vacuum_list_all_ms=0)
    assert world.names(names.TOPICS) == copy.names(names.TOPICS)
    assert hint(world).horizon == read_horizon(world.objects)


def test_a_hint_that_the_store_refuses_is_left_to_the_next_vacuum(world: World) -> None:
    before = hint(world)
    process = world.process()
    process.fate = lambda operation: (
        Fault.UNAVAILABLE if (operation.verb, operation.name) == ("put", names.LAST_VACUUM) else Fault.NONE
    )
    process.vacuum()
    assert hint(world) == before
    assert [each.verb for each in process.objects.operations if each.name == names.LAST_VACUUM] == ["get", "put"]
    vacuumed(world)
    assert hint(world).horizon == read_horizon(world.objects) > before.horizon


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "data", [b"{", b"[]", b"\xff", encode_vacuum_hint(VacuumHint(horizon=1, segment_floor=1, listed_ms=0, objects=1))]
)
def test_a_hint_that_says_nothing_of_this_horizon_is_not_followed(world: World, data: bytes) -> None:
    world.objects.put(names.LAST_VACUUM, data)
    assert vacuumed(world) == [names.TOPICS]
    assert len(vacuumed(world)) == 2


@pytest.mark.parametrize(
    "folder", ["", "_log/", "topics/t-1/", "topics/t-1/kafka_partition=0", "../topics/t-1/kafka_partition=0/", "/"]
)
def test_a_hint_that_leads_elsewhere_is_no_hint(folder: str) -> None:
    made = VacuumHint(horizon=1, segment_floor=1, listed_ms=0, objects=1, folders=(FOLDER, folder))
    assert decode_vacuum_hint(encode_vacuum_hint(made)) is None


@pytest.mark.usefixtures("always")
def test_everything_is_listed_once_the_last_such_listing_is_old(world: World) -> None:
    assert len(vacuumed(world, vacuum_list_all_ms=DAY_S * 1_000)) == 2
    world.clock.sleep(DAY_S)
    assert vacuumed(world, vacuum_list_all_ms=DAY_S * 1_000) == [names.TOPICS]
    # A clock that has gone back says nothing.
    world.objects.put(names.LAST_VACUUM, encode_vacuum_hint(later(hint(world))))
    assert vacuumed(world) == [names.TOPICS]


def later(known: VacuumHint) -> VacuumHint:
    return VacuumHint(
        horizon=known.horizon,
        segment_floor=known.segment_floor,
        listed_ms=known.listed_ms + DAY_S * 1_000,
        objects=known.objects,
    )


@pytest.mark.usefixtures("always")
def test_what_another_vacuum_has_deleted_is_no_damage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went to the same horizon, so the checkpoint at the old one is gone."""

    def gone(*_: Any) -> None:
        raise DamagedObject("part", "the checkpoint's head names it and it does not exist")

    monkeypatch.setattr(incrementallisting._New, "_passed", gone)
    world.clock.sleep(1)
    before = hint(world).listed_ms
    assert vacuumed(world) == [names.TOPICS]
    assert hint(world).listed_ms > before


def test_few_objects_are_listed_whole(world: World) -> None:
    """A listing of everything takes one request, and one of each partition two."""
    assert vacuumed(world) == [names.TOPICS]


@pytest.mark.usefixtures("always")
def test_a_dry_run_leaves_no_hint(world: World) -> None:
    before = hint(world)
    planned = world.process().vacuum(dry_run=True)
    assert hint(world) == before
    done = world.process().vacuum()
    assert (done.segments, done.sealed_files) == (planned.segments, planned.sealed_files)
    assert hint(world).horizon == done.horizon > before.horizon
