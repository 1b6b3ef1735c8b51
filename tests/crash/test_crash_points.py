"""Every store operation of a client operation is once the last one before death, and once ambiguous.

Afterwards a new process recovers as PROTOCOL.md requires. What was acknowledged is stored once, the rest is stored
whole or not at all, and the store works on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, cast

import pytest

from sparktxn._engine.format.commands import Command, CommandResult, CreateTopic, InitProducerId
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore import open_store
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.local import LocalStore
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.clock import SystemClock, callers_own_time
from sparktxn.errors import CommandRefused, ErrorCode, OutcomeUnknown, StoreUnavailable
from sparktxn.testing.clocks import ManualClock, SeededIds
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation
from tests.producercommands import ProducerCommands
from tests.seeds import share
from tests.servers import ObjectServer
from tests.simulation.history import observe
from tests.simulation.truth import ABORTED, COMMITTED, Truth, digest_of, truth_after
from tests.world import next_number, open_log

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quiet")]

FAULTS: list[Fault] = [fault for fault in Fault if fault is not Fault.NONE]
SETTINGS: dict[str, Any] = {"checkpoint_entries": 4, "checkpoint_seal_segments": 2, "fsync": False}
LEFT, RIGHT = (1, 0), (1, 1)
GROUP = "group"
NAME = "job"


class World:
    """A store in which `job` has committed two transactions, and a process that is about to meet a fault."""

    def __init__(self, objects: ObjectStore, seed: int) -> None:
        self.objects = objects
        self.clock = ManualClock()
        self.ids = SeededIds(seed)
        self.late: list[Callable[[], object]] = []
        self.database: tuple[int, int] | None = None
        log = self.open(objects)
        submit(log, CreateTopic("first", "topic", 2))
        told = submit(log, InitProducerId("second", NAME))[0]
        self.producer = ProducerCommands.of(NAME, told)
        for number in (1, 2):
            submit(log, *fused(self.producer, number, sequence=number - 1))
        self.fault_at, self.fault = 0, Fault.NONE
        self.faulty = FaultyStore(objects, self._fate, later=self.late.append)
        self.log = self.open(self.faulty)
        self.opened = len(self.faulty.operations)

    def open(self, objects: ObjectStore) -> Log:
        return open_log(objects, self.clock, self.ids, **SETTINGS)

    def truth(self) -> Truth:
        """The state by a replay of all entries, to which a process that opens the store must agree."""
        tail = Tail(self.objects, None)
        tail.advance()
        truth = truth_after(tail)
        log = self.open(self.objects)
        assert digest_of(log) == truth.digest
        assert observe(self.objects, log.view(None).partitions) == truth.partitions
        return truth

    def _fate(self, operation: Operation) -> Fault:
        return self.fault if operation.number == self.fault_at else Fault.NONE


def submit(log: Log, *commands: Command) -> list[CommandResult]:
    """Waits until the outcome is known: at each deadline, which is at once, it calls again."""
    ticket = log.send(commands)
    for _ in range(10):
        try:
            with log.within(0.001):
                return ticket.wait()
        except (OutcomeUnknown, StoreUnavailable):
            assert not ticket.is_done()
    raise AssertionError("the outcome stays unknown though the store is well again")


def fused(producer: ProducerCommands, transaction: int, sequence: int) -> list[Command]:
    return [
        producer.append(LEFT, sequence, transaction=transaction),
        producer.append(RIGHT, sequence, transaction=transaction),
        producer.offset(transaction, GROUP, LEFT, transaction),
        producer.end(transaction),
    ]


def segments_of(commands: list[Command]) -> list[str]:
    return [name for command in commands if (name := getattr(command, "segment", None))]


def commit_fused(world: World) -> None:
    submit(world.log, *fused(world.producer, 3, 2))


def commit_early(world: World) -> None:
    commands = fused(world.producer, 3, 2)
    submit(world.log, *commands[:1])
    submit(world.log, *commands[1:3])
    submit(world.log, *commands[3:])


def recover_transaction(world: World) -> None:
    """A new process learns how transaction 3 ended, and does its work again if it did not commit."""
    log = world.open(world.objects)
    told = submit(log, InitProducerId("third", NAME))[0]
    for put in world.late:
        put()
    newer = ProducerCommands.of(NAME, told)
    done = (told.transaction, told.committed) == (3, True)
    if not done:
        submit(log, *fused(newer, told.transaction + 1, 0))
    with pytest.raises(CommandRefused) as refused:
        submit(log, world.producer.append(LEFT, 9, transaction=told.transaction + 1))
    assert refused.value.error.code() == ErrorCode.INVALID_PRODUCER_EPOCH
    truth = world.truth()
    tries = [segments_of(fused(world.producer, 3, 2)), segments_of(fused(newer, 3, 0))]
    fates = [{truth.fates.get(segment) for segment in segments} for segments in tries]
    assert fates.count({COMMITTED}) == 1
    assert all(COMMITTED not in fate or fate == {COMMITTED} for fate in fates)
    assert truth.offsets[GROUP, *LEFT].offset == told.transaction + (not done)
    assert all(seen.last_stable_offset == seen.log_end_offset for seen in truth.partitions.values())


def check_transaction(world: World) -> None:
    truth = world.truth()
    assert {truth.fates[segment] for segment in segments_of(fused(world.producer, 3, 2))} == {COMMITTED}
    assert truth.offsets[GROUP, *LEFT].offset == 3


def abort(world: World) -> None:
    submit(world.log, world.producer.append(LEFT, 2, transaction=3))
    submit(world.log, world.producer.end(3, committed=False))


def check_abort(world: World) -> None:
    assert world.truth().fates[world.producer.append(LEFT, 2, transaction=3).segment] == ABORTED


def recover_abort(world: World) -> None:
    log = world.open(world.objects)
    submit(log, InitProducerId("third", NAME))
    for put in world.late:
        put()
    truth = world.truth()
    assert truth.fates.get(world.producer.append(LEFT, 2, transaction=3).segment) in (None, ABORTED)
    assert all(seen.last_stable_offset == seen.log_end_offset for seen in truth.partitions.values())


def stored(told: CommandResult) -> tuple[int, int]:
    """What a coordinator's database stores of a prepared transaction."""
    return told.prepared_producer_id, told.prepared_producer_epoch


def prepare_and_complete(world: World) -> None:
    *work, end = fused(world.producer, 3, 2)
    world.database = stored(submit(world.log, *work, world.producer.prepare(3))[-1])
    submit(world.log, end)


def keep_and_complete(world: World) -> None:
    """Another process has prepared, and its database has committed."""
    *work, _ = fused(world.producer, 3, 2)
    world.database = stored(submit(world.open(world.objects), *work, world.producer.prepare(3))[-1])
    told = submit(world.log, InitProducerId("third", NAME, keep_prepared=True))[0]
    assert stored(told) == world.database
    submit(world.log, ProducerCommands.of(NAME, told).end(3))


def recover_prepared(world: World) -> None:
    """A new process ends what is prepared as the database says."""
    log = world.open(world.objects)
    told = submit(log, InitProducerId("fourth", NAME, keep_prepared=True))[0]
    for put in world.late:
        put()
    if told.prepared_producer_id >= 0:
        submit(log, ProducerCommands.of(NAME, told).end(3, committed=stored(told) == world.database))
    with pytest.raises(CommandRefused) as refused:
        submit(log, world.producer.end(3, committed=world.database is None))
    assert refused.value.error.code() == ErrorCode.PRODUCER_FENCED
    truth = world.truth()
    fates = {truth.fates.get(segment) for segment in segments_of(fused(world.producer, 3, 2))}
    assert fates == {COMMITTED} if world.database is not None else fates in ({None}, {ABORTED})
    assert truth.offsets[GROUP, *LEFT].offset == (3 if world.database is not None else 2)
    assert all(seen.last_stable_offset == seen.log_end_offset for seen in truth.partitions.values())


def initialise(world: World) -> None:
    told = submit(world.log, InitProducerId("third", NAME))[0]
    assert (told.producer_id, told.producer_epoch) == (world.producer.producer_id, 1)
    assert (told.transaction, told.committed) == (2, True)


def check_initialised(world: World) -> None:
    transaction = world.open(world.objects).transaction(NAME)
    assert transaction is not None
    assert transaction.producer_epoch == 1


def recover_initialised(world: World) -> None:
    log = world.open(world.objects)
    told = submit(log, InitProducerId("fourth", NAME))[0]
    for put in world.late:
        put()
    assert told.producer_epoch in (1, 2)
    submit(log, *fused(ProducerCommands.of(NAME, told), 3, 0))
    world.truth()


def create(world: World) -> None:
    assert submit(world.log, CreateTopic("third", "other", 1))[0].topic_id == 2


def check_created(world: World) -> None:
    assert [topic.name for topic in world.open(world.objects).topics()] == ["other", "topic"]
    world.truth()


def recover_created(world: World) -> None:
    log = world.open(world.objects)
    try:
        submit(log, CreateTopic("fourth", "other", 1))
    except CommandRefused as refused:
        assert refused.error.code() == ErrorCode.TOPIC_ALREADY_EXISTS  # noqa: PT017 - either outcome is in order
    for put in world.late:
        put()
    check_created(world)


def checkpoint(world: World) -> None:
    for _ in range(3):
        try:
            assert world.log.checkpoint() is not None
        except StoreUnavailable:
            continue
        return
    raise AssertionError("no checkpoint though the store is well again")


def check_checkpoint(world: World) -> None:
    world.truth()


def recover_checkpoint(world: World) -> None:
    for put in world.late:
        put()
    world.truth()
    world.open(world.objects).checkpoint()
    world.truth()


CASES = {
    "fused commit": (commit_fused, check_transaction, recover_transaction),
    "early publish and commit": (commit_early, check_transaction, recover_transaction),
    "early publish and abort": (abort, check_abort, recover_abort),
    "prepare and complete": (prepare_and_complete, check_transaction, recover_prepared),
    "keep and complete": (keep_and_complete, check_transaction, recover_prepared),
    "init_producer_id": (initialise, check_initialised, recover_initialised),
    "create_topic": (create, check_created, recover_created),
    "checkpoint": (checkpoint, check_checkpoint, recover_checkpoint),
}


@pytest.fixture(params=["memory", pytest.param("local", marks=pytest.mark.nightly)])
def make_world(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], World]:
    def make() -> World:
        number = next_number()
        if request.param == "memory":
            return World(MemoryStore(f"crash-{number}", ManualClock()), number)
        return World(LocalStore(str(tmp_path / str(number)), fsync=False), number)

    return make


@pytest.mark.kafka("K50", "K80", "K88", "K138")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.value)
@pytest.mark.parametrize("case", CASES)
def test_every_operation_may_be_the_last(make_world: Callable[[], World], case: str, fault: Fault) -> None:
    for operation in share(operations_of(make_world, case), FAULTS.index(fault)):
        meet(make_world, case, operation, fault)


def operations_of(make_world: Callable[[], World], case: str) -> list[Operation]:
    """The operations of a case that meets no fault."""
    run, check, _ = CASES[case]
    world = make_world()
    run(world)
    check(world)
    operations = world.faulty.operations[world.opened :]
    assert len(operations) >= 2
    return operations


def meet(make_world: Callable[[], World], case: str, operation: Operation, fault: Fault) -> None:
    """Runs a case whose operation meets the fault, and recovers where that was its end."""
    run, check, recover = CASES[case]
    world = make_world()
    world.fault_at, world.fault = operation.number, fault
    try:
        run(world)
    except Died:
        recover(world)
    else:
        assert fault not in (Fault.DIE_BEFORE, Fault.DIE_AFTER), f"{operation} was not reached"
        check(world)
        for put in world.late:
            put()
        check(world)


class Untimed:
    """A store on a server, whose requests no deadline of the test's clock ends: that clock stands still meanwhile."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._objects, name)
        if not callable(found):
            return found

        @wraps(found)
        def asked(*arguments: Any, timeout_s: float | None = None, **named: Any) -> Any:
            with callers_own_time():
                return found(*arguments, **named)

        return asked


@pytest.mark.clouds
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("emulator", ["fake_gcs_server", "azurite_server"])
def test_operations_on_an_emulator_of_a_cloud_may_be_the_last(
    request: pytest.FixtureRequest, emulator: str, case: str
) -> None:
    server: ObjectServer = request.getfixturevalue(emulator)

    def make_world() -> World:
        number = next_number()
        bucket = f"points-{number:06}"  # emulators look through a whole bucket for each listing
        server.create_bucket(bucket)
        uri, clock = server.uri(bucket, "store"), SystemClock()
        objects = Untimed(open_store(uri, settings=StoreSettings(), storage=server.storage, clock=clock))
        return World(cast(ObjectStore, objects), number)

    operations = operations_of(make_world, case)
    points = [(operation, fault) for fault in FAULTS for operation in operations]
    for operation, fault in share(points, list(CASES).index(case), 40, 8):
        meet(make_world, case, operation, fault)
