"""Every store operation of a repair is once the last one before death, and once ambiguous.

Each object is then as it was, or as it was before the damage. The next repair finishes the work.
"""

from __future__ import annotations

import contextlib

import pytest

from sparktxn._engine.format import names
from sparktxn.errors import OutcomeUnknown, StoreUnavailable
from sparktxn.maintenance import repair, verify
from sparktxn.testing.faultystore import Died, Fault
from tests.crash.test_rewrite_points import RealWorld, at
from tests.crash.test_vacuum_points import FAULTS
from tests.seeds import share

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quiet")]

SEALED = ("/manifest", ".txnindex", ".snapshot")


@pytest.fixture(scope="module")
def small() -> RealWorld:
    """Sealed runs, single segments and an aborted transaction."""
    world = RealWorld()
    world.grow(checkpoints=1, transactions=2)
    world.writer.submit(*world.transaction_of(committed=False))
    world.grow(checkpoints=2, transactions=2)
    return world


def content(world: RealWorld) -> dict[str, bytes | None]:
    return {info.name: world.objects.get(info.name) for info in world.objects.list("")}


def damage(world: RealWorld) -> dict[str, bytes | None]:
    """Cut off or delete objects of each kind in turn; return what they held."""
    found = {}
    for number, (name, data) in enumerate(sorted(content(world).items())):
        is_part = names.parse_checkpoint_part(name) is not None and b'"segments"' not in (data or b"")
        if not (name.endswith(SEALED) or is_part):
            continue
        found[name] = data
        world.objects.delete([name])
        if number % 2:
            world.objects.put(name, b"damaged")
    return found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_a_repair_may_be_the_last(small: RealWorld, fault: Fault) -> None:
    world = small.copy()
    whole = content(world)
    damaged = damage(world)
    assert {name.rpartition(".")[2].rpartition("/")[2] for name in damaged} == {
        "manifest",
        "txnindex",
        "snapshot",
        "json",
    }
    process = world.copy().process()
    begun = len(process.objects.operations)
    report = repair(process.store, dry_run=False)
    assert {one.object_name for one in report.repaired} == damaged.keys()
    operations = process.objects.operations[begun:]
    writes = [number for number, operation in enumerate(operations, 1) if operation.verb.startswith("put")]
    assert len(writes) >= len(damaged)
    for number in share(sorted({*writes, *range(1, len(operations) + 1, 29)}), FAULTS.index(fault)):
        own = world.copy()
        process = own.process()
        process.fate = at(len(process.objects.operations) + number, fault)
        with contextlib.suppress(Died, StoreUnavailable, OutcomeUnknown):
            repair(process.store, dry_run=False)
        between = content(own)
        before = content(world)
        assert all(between.get(name) in (whole[name], before.get(name)) for name in damaged), number
        for put in process.late:
            put()
        again = own.process()
        repair(again.store, dry_run=False)
        assert content(own) == whole, number
        assert verify(again.store).problems == (), number
