"""Every store operation of a vacuum is once the last one before death, and once ambiguous.

Afterwards nothing that a view from the horizon on names is gone, and processes that were open continue. A second vacuum
leaves what an undisturbed vacuum would have left. The same for a checkpoint that seals alongside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import DeleteRecords
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn.errors import OutcomeUnknown, StoreUnavailable
from sparktxn.testing.faultystore import Died, Fault, Operation
from tests.maintenance.vacuumworld import LEFT, Process, World
from tests.seeds import share
from tests.simulation.truth import digest_of

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quiet")]

FAULTS: list[Fault] = [fault for fault in Fault if fault is not Fault.NONE]
WORLDS = [pytest.param(False, id="files", marks=pytest.mark.nightly), pytest.param(True, id="files and inline")]
"""The first one has more operations on segments, but none of another kind than the second, so it runs at night."""


@pytest.fixture(scope="module", params=WORLDS)
def littered(request: pytest.FixtureRequest) -> World:
    """All kinds of garbage: entries, heads, parts, merged and cut-off runs, segments, and a second writer's runs."""
    world = World(inline=request.param)
    world.grow(checkpoints=1, transactions=1)
    other = world.process()
    world.grow(checkpoints=1, transactions=1)
    other.log.refresh()
    other.log.checkpoint()
    world.upload(world.producer.append(LEFT, 99, born=1))
    world.commit()
    world.writer.submit(DeleteRecords("delete", *LEFT, 5))
    world.grow(checkpoints=2, transactions=1)
    return world


def at(number: int, fault: Fault) -> Callable[[Operation], Fault]:
    return lambda operation: fault if operation.number == number else Fault.NONE


def left_in(world: World) -> set[str]:
    """What there is, but for the log's newest entries, whose number depends on what was repeated."""
    return {name for name in world.names("") if names.parse_entry(name) is None and not name.startswith(names.CLOCKS)}


def below_the_horizon(world: World) -> list[int]:
    """The entries that a vacuum has kept."""
    return [entry for entry in world.entries() if entry < read_horizon(world.objects)]


def finish(world: World, reader: Process) -> None:
    """A later vacuum in another process, and a reader that was open all the time."""
    world.process().vacuum()
    world.check()
    reader.log.view(None)
    assert digest_of(reader.log) == digest_of(world.process().log)


@pytest.mark.holes(33)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_a_vacuum_may_be_the_last(littered: World, fault: Fault) -> None:
    whole = littered.copy()
    cleaner = whole.process()
    opened = len(cleaner.objects.operations)
    report = cleaner.vacuum()
    assert min(report.entries, report.checkpoints, report.checkpoint_parts, report.segments, report.sealed_files) > 0
    expected = left_in(whole)
    kept = below_the_horizon(whole)
    assert bool(kept) == whole.inline
    operations = cleaner.objects.operations[opened:]
    assert len(operations) > 50
    for operation in share(operations, FAULTS.index(fault)):
        world = littered.copy()
        cleaner, reader = world.process(), world.process()
        cleaner.fate = at(operation.number, fault)
        before = set(world.names(names.TOPICS)) | set(world.names("_log/"))
        try:
            cleaner.vacuum(timeout_s=0.001)
        except (Died, StoreUnavailable, OutcomeUnknown):
            if set(before) - set(world.names("")):
                assert read_horizon(world.objects) > 1, "something was deleted before the horizon's marker"
        for put in cleaner.late:
            put()
        finish(world, reader)
        assert left_in(world) - expected <= set(world.objects.list_names(names.HORIZONS))
        assert expected <= left_in(world)
        if read_horizon(world.objects) == read_horizon(whole.objects):
            assert below_the_horizon(world) == kept, "other entries are kept than need be"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_a_vacuum_that_writes_checkpoints_first_may_be_the_last(
    littered: World, fault: Fault
) -> None:
    whole = littered.copy()
    whole.commit(2)
    cleaner = whole.process()
    opened = len(cleaner.objects.operations)
    report = cleaner.vacuum(now=True)
    assert whole.process().log.refresh() - report.horizon <= 3
    for operation in share(cleaner.objects.operations[opened:], FAULTS.index(fault)):
        world = littered.copy()
        world.commit(2)
        cleaner, reader = world.process(), world.process()
        cleaner.fate = at(operation.number, fault)
        before = set(world.names(names.TOPICS))
        with contextlib.suppress(Died, StoreUnavailable, OutcomeUnknown):
            cleaner.vacuum(now=True, timeout_s=0.001)
        if before - set(world.names(names.TOPICS)):
            assert read_horizon(world.objects) > 1, "something was deleted before the horizon's marker"
        for put in cleaner.late:
            put()
        world.check()
        finished = world.process().vacuum(now=True)
        assert world.process().log.refresh() - finished.horizon <= 4
        world.commit(1)
        finish(world, reader)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_a_checkpoint_beside_a_vacuum_may_be_the_last(littered: World, fault: Fault) -> None:
    """The checkpointer stands on what the vacuum deletes, and fails too."""
    probe = littered.copy()
    writer = probe.process()
    probe.commit(2)
    writer.log.refresh()
    opened = len(writer.objects.operations)
    assert writer.log.checkpoint() is not None
    for operation in share(writer.objects.operations[opened:], FAULTS.index(fault)):
        world = littered.copy()
        writer, reader = world.process(), world.process()
        world.commit(2)
        writer.log.refresh()
        world.process().vacuum()
        writer.fate = at(operation.number, fault)
        with contextlib.suppress(Died, StoreUnavailable):
            writer.log.checkpoint()
        for put in writer.late:
            put()
        world.check()
        finish(world, reader)
