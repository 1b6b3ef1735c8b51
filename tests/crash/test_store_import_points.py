"""Every store operation of an import from another store is once the last one before death, and once ambiguous.

No reader sees a part of it. Another process that imports again leaves each record once, and a vacuum deletes what the
dead one has left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparktxn import Producer, read_arrow
from sparktxn.errors import OutcomeUnknown, SegmentExpired, StoreUnavailable
from sparktxn.maintenance import verify
from sparktxn.store import Store
from sparktxn.testing.faultystore import Died, Fault
from sparktxn.transfer import import_from_store
from tests.crash.test_rewrite_points import at
from tests.crash.test_vacuum_points import FAULTS
from tests.lending import lend_log, take_log_back
from tests.maintenance.vacuumworld import Process, World
from tests.seeds import share
from tests.world import next_number

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quiet")]

STEPS = 8


@pytest.fixture(scope="module")
def source() -> Iterator[Store]:
    """A topic of two partitions, a part of which the target has: a transaction was open when it was imported."""
    with Store.open(f"memory://source-{next_number()}", create=True) as store:
        store.create_topic("t", 2)
        settings = {"bootstrap.servers": store.uri, "transactional.id": "id", "transaction.publish": "flush"}
        with Producer(settings) as producer, Producer({"bootstrap.servers": store.uri}) as plain:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(6):
                producer.produce("t", b"%d" % number, partition=number % 2)
                producer.flush()
                plain.produce("t", b"plain %d" % number, partition=0)
                plain.flush()
            producer.commit_transaction()
            yield store


@pytest.fixture(scope="module")
def prepared(source: Store) -> World:
    world = World()
    world.process().store.create_topic("t", 2)
    with lent(world.process()) as process:
        import_from_store(process.store, "t", source, "t", entry=source.view().entry // 2)
    return world


@contextlib.contextmanager
def lent(process: Process) -> Iterator[Process]:
    """Let tasks reach the objects as the process does, so that it may die at theirs too."""
    lend_log(process.store.uri, process.log)
    try:
        yield process
    finally:
        take_log_back(process.store.uri)


def rows(store: Store, entry: int | None = None) -> list[tuple[Any, ...]]:
    names = ["partition", "key", "value", "headers", "timestamp"]
    return sorted(map(repr, read_arrow(store, "t", columns=names, as_of=entry).read_all().to_pylist()))  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_an_import_may_be_the_last(prepared: World, source: Store, fault: Fault) -> None:
    expected = rows(source)
    with lent(World(of=prepared).process()) as whole:
        created = whole.view().entry
        begun = rows(whole.store)
        operations = len(whole.objects.operations)
        import_from_store(whole.store, "t", source, "t")
        operations = len(whole.objects.operations) - operations
        assert rows(whole.store) == expected
    assert operations > STEPS
    assert 0 < len(begun) < len(expected)
    left_behind = 0
    for number in share(range(1, operations + 1), FAULTS.index(fault)):
        world = World(of=prepared)
        with lent(world.process()) as process:
            process.fate = at(len(process.objects.operations) + number, fault)
            with contextlib.suppress(Died, StoreUnavailable, OutcomeUnknown, SegmentExpired):
                import_from_store(process.store, "t", source, "t")
            late: list[Callable[[], object]] = [*process.late]
        with lent(world.process()) as again:
            for entry in range(created, again.view().entry + 1):
                assert rows(again.store, entry) in (begun, expected), number
            for put in late[: len(late) // 2]:
                put()
            import_from_store(again.store, "t", source, "t")
            for put in late[len(late) // 2 :]:
                put()
        with lent(world.process()) as last:
            assert rows(last.store) == expected, number
            report = verify(last.store)
            assert report.problems == (), number
            left_behind += report.unreferenced
            last.log.checkpoint()
            last.vacuum()
            assert rows(last.store) == expected, number
    if fault is Fault.DIE_BEFORE:
        assert left_behind > 0
