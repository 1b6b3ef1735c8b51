"""Every store operation of a copy, of its source and of its target, is once the last one before death, or ambiguous.

A root that is half copied is not a store. The next copy goes on, and what it makes is what an undisturbed one makes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.log.follow.confirm import read_horizon
from sparktxn._foundation.config.store import StoreOptions
from sparktxn.errors import DamagedObject, OutcomeUnknown, StoreNotFound, StoreUnavailable
from sparktxn.maintenance import CopyReport, verify
from sparktxn.maintenance.copying.storecopy import Copying, Work
from sparktxn.store import Store
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation
from tests.crash.test_rewrite_points import RealWorld, Rows, at, rows
from tests.crash.test_vacuum_points import FAULTS, WORLDS
from tests.maintenance.vacuumworld import Process, RememberingStore
from tests.seeds import share
from tests.world import next_number, open_log

pytestmark = pytest.mark.crash

UNIQUE = 20


@pytest.fixture(scope="module", params=WORLDS)
def small(request: pytest.FixtureRequest) -> RealWorld:
    """Sealed runs, a vacuumed beginning and a transaction that is open."""
    world = RealWorld(inline=request.param)
    world.grow(checkpoints=3, transactions=1)
    world.process().vacuum()
    world.grow(checkpoints=1, transactions=2)
    world.writer.submit(*world.fused()[:-1])
    return world


class Target:
    """A root to copy to, and what becomes of its operations."""

    def __init__(self, world: RealWorld, *, of: Target | None = None) -> None:
        self.world = world
        self.inner = RememberingStore(f"copied-{next_number()}", world.clock)
        if of is not None:
            self.inner.copy_of(of.inner)

    def copy(
        self, process: Process, fate: Callable[[Operation], Fault], late: list[Callable[[], object]]
    ) -> tuple[CopyReport, FaultyStore]:
        objects = FaultyStore(self.inner, fate, later=late.append)
        work = Work(process.store, StoreOptions(), 1, None)
        return Copying(process.log, objects, work, None, None).run(), objects

    def store(self) -> Store:
        return Store(self.inner.uri, {}, open_log(self.inner, self.world.clock, next_number(), create=False))

    def objects(self) -> dict[str, bytes | None]:
        """The objects in it, without what differs between two copies: its id, and the documents of its attempts."""
        found = [info.name for info in self.inner.list("") if not info.name.startswith((names.COPIES, names.CLOCKS))]
        return {name: self.inner.get(name) for name in found if name != names.STORE}


def healthy(operation: Operation) -> Fault:
    return Fault.NONE


class Reader:
    """A process that opens a store and only reads."""

    def __init__(self, store: Store) -> None:
        self.store, self.log = store, store.log
        self.entry = self.log.refresh()

    def view(self, entry: int | None = None) -> Any:
        return self.log.view(None, entry=entry)

    def rows(self, entry: int | None = None) -> Rows:
        reader: Any = self
        return rows(reader, entry)

    def history(self) -> dict[int, Rows]:
        """The records at every entry that can be viewed."""
        return {entry: self.rows(entry) for entry in range(read_horizon(self.log.objects), self.entry + 1)}


def opened(target: Target) -> Reader | None:
    """The store in a root; None if it is refused as one."""
    try:
        return Reader(target.store())
    except StoreNotFound:
        return None


def disturbed(
    world: RealWorld, before: Target | None, number: int, fault: Fault, of: str
) -> tuple[Target, list[Callable[[], object]]]:
    """Copy while one operation, of the source or of the target, fails."""
    process, target = world.process(), Target(world, of=before)
    late: list[Callable[[], object]] = []
    fate: Callable[[Operation], Fault] = healthy
    if of == "source":
        begun = len(process.objects.operations)
        process.fate = at(begun + number, fault)
    else:
        fate = at(number, fault)
    with contextlib.suppress(Died, StoreUnavailable, OutcomeUnknown, DamagedObject):
        target.copy(process, fate, late)
    return target, late


@pytest.mark.parametrize("of", ["source", "target"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_a_copy_may_be_the_last(small: RealWorld, fault: Fault, of: str) -> None:
    process, whole = small.process(), Target(small)
    begun = len(process.objects.operations)
    report, objects = whole.copy(process, healthy, [])
    assert Reader(whole.store()).history() == Reader(small.process().store).history()
    assert verify(whole.store()).problems == ()
    assert report.horizon > 1
    expected = whole.objects()
    operations = process.objects.operations[begun:] if of == "source" else objects.operations
    assert len(operations) > UNIQUE
    refused = 0
    for number in (tried := share(range(1, len(operations) + 1), FAULTS.index(fault))):
        target, late = disturbed(small, None, number, fault, of)
        if (reader := opened(target)) is None:
            refused += 1
        else:
            # A refused hint makes no copy fail: the next one writes it.
            hint = {names.LAST_CHECKPOINT: expected[names.LAST_CHECKPOINT]}
            assert target.objects() | hint == expected
            assert reader.entry == report.entry
        for put in late:
            put()
        again, _ = target.copy(small.process(), healthy, [])
        assert again.is_complete
        assert target.objects() == expected
    if fault is Fault.DIE_BEFORE:
        assert refused >= len(tried) - 1


@pytest.mark.parametrize("of", ["source", "target"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_bringing_a_copy_forward_may_be_the_last(small: RealWorld, fault: Fault, of: str) -> None:
    world = small.copy()
    before = Target(world)
    older = before.copy(world.process(), healthy, [])[0].entry
    world.writer.submit(world.producer.end(world.transaction))
    world.grow(checkpoints=1, transactions=1)
    process, whole = world.process(), Target(world, of=before)
    begun = len(process.objects.operations)
    _, objects = whole.copy(process, healthy, [])
    history = Reader(world.process().store).history()
    assert Reader(whole.store()).history() == history
    assert verify(whole.store()).problems == ()
    expected = whole.objects()
    operations = process.objects.operations[begun:] if of == "source" else objects.operations
    for number in share(range(1, len(operations) + 1), FAULTS.index(fault)):
        target, late = disturbed(world, before, number, fault, of)
        # It stands at an entry in between: a store that holds whole entries up to there.
        reader = opened(target)
        assert reader is not None
        assert older <= reader.entry <= max(history)
        assert reader.rows() == history[reader.entry]
        for put in late:
            put()
        target.copy(world.process(), healthy, [])
        assert target.objects() == expected
