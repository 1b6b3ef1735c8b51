"""Every store operation of a copy of a topic is once the last one before death, or ambiguous.

A root that is half copied is no store. The next copy goes on, also of a newer view, and the topic reads as its source.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import pytest

from sparktxn.clock import Deadline
from sparktxn.config.store import StoreOptions
from sparktxn.errors import DamagedObject, OutcomeUnknown, StoreNotFound, StoreUnavailable
from sparktxn.format.commands import CreateTopic
from sparktxn.log.follow.copies import newest_copy
from sparktxn.maintenance import CopyReport, verify
from sparktxn.maintenance.copywork import Work
from sparktxn.maintenance.topiccopy import TopicCopying
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation
from tests.crash.test_copy_points import Reader, Target, healthy, opened
from tests.crash.test_rewrite_points import RealWorld, Rows, at
from tests.crash.test_vacuum_points import FAULTS, WORLDS
from tests.maintenance.vacuumworld import TOPIC, Process
from tests.seeds import share

pytestmark = pytest.mark.crash

UNIQUE = 20


@pytest.fixture(scope="module", params=WORLDS)
def small(request: pytest.FixtureRequest) -> RealWorld:
    """Sealed runs, a vacuumed beginning, a transaction that is open, and a topic that is left out."""
    world = RealWorld(inline=request.param)
    world.writer.submit(CreateTopic("other", "other", 1))
    world.grow(checkpoints=3, transactions=1)
    world.process().vacuum()
    world.grow(checkpoints=1, transactions=2)
    world.writer.submit(*world.fused()[:-1])
    return world


class TopicTarget(Target):
    """A root to copy a topic to, and what becomes of its operations."""

    def copy(
        self, process: Process, fate: Callable[[Operation], Fault], late: list[Callable[[], object]]
    ) -> tuple[CopyReport, FaultyStore]:
        objects = FaultyStore(self.inner, fate, later=late.append)
        deadline = Deadline(self.world.clock, None)
        work = Work(process.store, StoreOptions(), 1, None, deadline)
        return TopicCopying(process.log, objects, (TOPIC,), None, deadline, work, None).run(), objects

    def seen(self) -> Seen:
        """What a reader of the copy finds, which must be clean."""
        reader = Reader(self.store())
        assert list(reader.view().topics) == [TOPIC]
        assert verify(reader.store).problems == ()
        return seen(reader)


class Seen(NamedTuple):
    """The newest entry of a store, the topic's records and the ends of its partitions."""

    entry: int
    rows: Rows
    ends: list[tuple[int, int, int]]


def seen(reader: Reader) -> Seen:
    ends = [reader.view().partitions[TOPIC, number] for number in range(2)]
    offsets = [(end.log_start_offset, end.last_stable_offset, end.log_end_offset) for end in ends]
    return Seen(reader.entry, reader.rows(), offsets)


def disturbed(world: RealWorld, number: int, fault: Fault, of: str) -> tuple[TopicTarget, list[Callable[[], object]]]:
    """Copy while one operation, of the source or of the target, fails."""
    process, target = world.process(), TopicTarget(world)
    late: list[Callable[[], object]] = []
    fate: Callable[[Operation], Fault] = healthy
    if of == "source":
        process.fate = at(len(process.objects.operations) + number, fault)
    else:
        fate = at(number, fault)
    with contextlib.suppress(Died, StoreUnavailable, OutcomeUnknown, DamagedObject, StoreNotFound):
        target.copy(process, fate, late)
    return target, late


@pytest.mark.parametrize("of", ["source", "target"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
def test_every_operation_of_a_copy_of_a_topic_may_be_the_last(small: RealWorld, fault: Fault, of: str) -> None:
    process, whole = small.process(), TopicTarget(small)
    begun = len(process.objects.operations)
    _, objects = whole.copy(process, healthy, [])
    expected = seen(Reader(small.process().store))
    assert whole.seen() == expected
    operations = process.objects.operations[begun:] if of == "source" else objects.operations
    assert len(operations) > UNIQUE
    later = small.copy()
    later.writer.submit(later.producer.end(later.transaction))
    later.grow(checkpoints=1, transactions=1)
    expected_later = seen(Reader(later.process().store))
    refused = 0
    for number in (tried := share(range(1, len(operations) + 1), FAULTS.index(fault))):
        target, late = disturbed(small, number, fault, of)
        is_refused = opened(target) is None
        refused += is_refused
        # Every second one goes on after the source has, which has sealed other runs.
        goes_on = is_refused and number % 2 == 0
        again, _ = target.copy((later if goes_on else small).process(), healthy, [])
        assert again.is_complete
        for put in late:
            put()
        assert target.seen() == (expected_later if goes_on else expected)
        newest = newest_copy(target.inner)
        assert newest is not None
        assert (newest.complete, newest.entry, list(newest.topics)) == (True, again.entry, [TOPIC])
    if fault is Fault.DIE_BEFORE:
        assert refused >= len(tried) - 1
