"""Processes and vacuums that others overtake: what they hold, and what they may still delete or publish."""

from __future__ import annotations

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import part_of
from sparktxn._engine.log.follow.checkpointheads import newest_head
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn._engine.log.follow.stateparts import StateParts
from sparktxn.errors import DamagedObject
from sparktxn.testing.faultystore import Died, Fault, Operation
from tests.maintenance.vacuumworld import LEFT, TOPIC, Process, World
from tests.simulation.truth import digest_of, replay


@pytest.fixture
def world() -> World:
    return World()


# Processes that are older than the first checkpoint.


def test_a_process_older_than_all_checkpoints_publishes_nothing_that_is_gone(world: World) -> None:
    """It adopts another's checkpoint, idles while those runs are merged and vacuumed, and then makes one of its own."""
    old = world.process()
    world.grow(checkpoints=3, transactions=2)
    old.log.refresh()
    assert old.log._checkpointer._adopt(newest_head(world.objects))
    assert old.log._follower.tail.parts.base == world.heads()[-1]
    world.grow(checkpoints=16, transactions=2)
    world.commit()
    old.log.refresh()
    assert world.process().vacuum().sealed_files > 0, "the runs that it has adopted are merged, and gone"
    old.log.checkpoint()
    assert world.heads()[-1] == world.writer.log.entry + 1, "it has made a checkpoint"
    world.check()
    world.grow(checkpoints=2)
    world.process().vacuum()
    world.check()


def deferring_process_that_a_vacuum_has_passed(world: World) -> Process:
    """It has all parts of its checkpoint but the partitions', and defers entries that a newer checkpoint holds."""
    world.grow(checkpoints=1)
    idle = world.process()
    tail = idle.log._follower.tail
    tail.load([part for part in tail.parts.refs if not part.startswith("partitions/")])
    world.grow(checkpoints=2)
    idle.log.refresh()
    assert tail is idle.log._follower.tail
    assert tail.parts.is_behind(part_of(("partition", *LEFT)))
    assert tail.checkpoint_entry < world.heads()[-1]
    assert world.process().vacuum().horizon > tail.checkpoint_entry
    return idle


def test_deferred_entries_are_applied_once_though_a_vacuum_has_passed_their_checkpoint(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    idle = deferring_process_that_a_vacuum_has_passed(world)
    with pytest.raises(DamagedObject, match="names it and it does not exist"):
        idle.log._follower.tail.parts.get(("partition", *LEFT))
    assert not [record for record in caplog.records if record.levelname == "ERROR"], "it is not damage"
    assert digest_of(idle.log) == replay(world.objects)[-1].digest, "its owner opens another state"
    world.check()


def test_a_build_that_takes_any_part_from_a_newer_checkpoint_applies_entries_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = deferring_process_that_a_vacuum_has_passed(world)
    tail = idle.log._follower.tail
    true = replay(world.objects)[tail.entry].partitions[TOPIC, 0]
    monkeypatch.setattr(StateParts, "is_behind", lambda *_: False)
    assert tail.parts.get(("partition", *LEFT)).log_end_offset > true.log_end_offset


def test_a_checkpoint_whose_runs_are_vacuumed_while_it_merges_them_is_not_written(world: World) -> None:
    """They are not damage: a vacuum has passed the checkpoint that names them."""
    slow = world.process(checkpoint_merge_runs=2)
    for _ in range(2):
        world.commit(2)
        slow.log.refresh()
        if not world.heads():
            assert slow.log.checkpoint() is not None
    ran: list[object] = []

    def fate(operation: Operation) -> Fault:
        if operation.verb == "get" and operation.name.endswith("/manifest") and not ran:
            ran.append(True)
            world.writer.log.checkpoint()
            world.grow(checkpoints=16, transactions=2)
            assert world.process().vacuum().sealed_files > 0
        return Fault.NONE

    slow.fate = fate
    assert slow.log.checkpoint() is None
    assert ran
    slow.log.refresh()
    assert slow.log.checkpoint() is not None
    world.check()


# Vacuums that another one overtakes.


def sealed_by_two_processes() -> World:
    """Two processes have sealed the same segments differently; the newest checkpoint names runs of one alone."""
    world = World()
    other = world.process()
    world.grow(checkpoints=1, transactions=2)
    for process in (other, world.writer, other):
        world.commit(2)
        process.log.refresh()
        assert process.log.checkpoint() is not None
        world.clock.sleep(200)
    return world


@pytest.fixture(scope="module")
def sealed_twice() -> World:
    return sealed_by_two_processes()


def pauses_of_a_vacuum(world: World) -> list[Operation]:
    """Every read of a checkpoint's part after the listing that is marked from, and some of the other operations."""
    cleaner = world.copy().process()
    opened = len(cleaner.objects.operations)
    assert cleaner.vacuum().horizon > 1
    operations = cleaner.objects.operations[opened:]
    listing = max(i for i, operation in enumerate(operations) if operation.name == names.CHECKPOINTS)
    marking = {
        i
        for i, operation in enumerate(operations)
        if i > listing and operation.verb == "get" and names.parse_checkpoint_part(operation.name) is not None
    }
    return [operation for i, operation in enumerate(operations) if i in marking or i % 10 == 0]


def test_a_vacuum_that_pauses_anywhere_while_another_goes_further(sealed_twice: World) -> None:
    """It deletes nothing that is named, and takes nothing that the other has deleted for damage."""
    for chosen in pauses_of_a_vacuum(sealed_twice):
        world = sealed_twice.copy()
        cleaner = world.process()
        overtaking = Overtaking(world, cleaner, chosen)
        cleaner.vacuum()
        assert overtaking.ran, chosen
        world.check()


class Overtaking:
    """Lets the log grow and another vacuum run, from beginning to end, before an operation of `cleaner`."""

    def __init__(self, world: World, cleaner: Process, chosen: Operation) -> None:
        self.ran = False
        self._world = world
        self._number = chosen.number
        cleaner.fate = self._fate

    def _fate(self, operation: Operation) -> Fault:
        if operation.number == self._number and not self.ran:
            self.ran = True
            self._world.grow(checkpoints=2)
            self._world.process().vacuum()
        return Fault.NONE


def test_a_marker_that_arrives_late_leaves_a_checkpoint_at_every_horizon(world: World) -> None:
    """It does not know the checkpoints that the next vacuum has verified: that one must not make its horizon theirs."""
    world.grow(checkpoints=1)
    old = [world.process(), world.process()]
    world.grow(checkpoints=2)
    late = world.process()
    late.fate = first_marker_late
    with pytest.raises(Died):
        late.vacuum()
    for process in old:
        world.commit()
        process.log.refresh()
        assert process.log.checkpoint() is not None
        world.clock.sleep(200)
    overtaken = world.process()

    def fate(operation: Operation) -> Fault:
        if operation.verb == "put_if_absent" and names.parse_entry(operation.name) is not None:
            while late.late:
                late.late.pop()()
        return Fault.NONE

    overtaken.fate = fate
    raised = world.heads()[-2]
    assert overtaken.vacuum().horizon == read_horizon(world.objects) == world.heads()[0] < raised
    assert overtaken.log.store_state().horizon == raised
    world.check()
    world.grow(checkpoints=2)
    assert world.process().vacuum().horizon > raised
    world.check()


def first_marker_late(operation: Operation) -> Fault:
    """Let a marker arrive when its vacuum is dead."""
    is_marker = operation.verb == "put_if_absent" and operation.name.startswith(names.HORIZONS)
    is_read_back = operation.verb == "get" and operation.name.startswith(names.HORIZONS)
    return Fault.LATE if is_marker else Fault.DIE_BEFORE if is_read_back else Fault.NONE
