"""Every store operation of every call of the clients is once the last one before death, and once ambiguous.

Afterwards the next process takes over, and everything is read once more. All checkers of histories hold: those of what
clients saw, and those of the log as it truly was.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, TypeVar, cast

import pyarrow as pa
import pytest

from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._kafka.message import Message, TopicPartition
from sparktxn.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from sparktxn.consumer import Consumer
from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.maintenance import Sweeper, sweep
from sparktxn.producer import PreparedTransaction, Producer
from sparktxn.store import Store
from sparktxn.testing.clocks import ManualClock
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation
from tests.lending import lend_log, take_log_back
from tests.seeds import share
from tests.simulation.checkers import check_checkpoints, check_order
from tests.simulation.clientcheckers import check_client_history
from tests.simulation.clienthistory import ClientHistory, Transaction
from tests.simulation.clientprograms import KEYED, key_of
from tests.simulation.clientscenarios import come_to_rest
from tests.simulation.history import Outcome
from tests.simulation.sharedobjects import SharedObjects
from tests.simulation.truth import digest_of, replay
from tests.world import next_number, open_log

pytestmark = [pytest.mark.crash, pytest.mark.usefixtures("quiet")]

SETTINGS: dict[str, Any] = {"checkpoint_entries": 7, "checkpoint_seal_segments": 2, "timeout_check_interval_ms": 10**12}
ARROW = {"segment.format": "arrow", "compression.type": "none"}
READ_FAULTS = (Fault.DIE_AFTER, Fault.UNAVAILABLE)
# To die before an operation is to die after the one before it; a conflict is a refusal, or a lost answer.
WRITE_FAULTS = (*READ_FAULTS, Fault.REFUSED, Fault.RESPONSE_LOST, Fault.LATE, Fault.COPY_LATER, Fault.TWICE)
WRITES = ("put_if_absent", "put", "delete")
TRIES = 20
T = TypeVar("T")


class World:
    """A store with topics, two transactions and a group; then a process that is about to meet a fault."""

    faulty: FaultyStore
    fault_at: int
    decided: PreparedTransaction | None
    """What a database has decided to commit."""

    def __init__(self) -> None:
        self.shared = SharedObjects(lambda: self.clock.wall_ms())
        self.clock = ManualClock()
        self.history = ClientHistory()
        self.late: list[Callable[[], object]] = []
        self.uri = f"{self.shared.uri}-process"
        self.log = self._open(self.shared)
        self._lend()
        with AdminClient({"bootstrap.servers": self.uri}) as admin:
            new = [NewTopic(name, count_, config=ARROW) for name, count_ in (("in", 2), ("out", 1), ("spare", 1))]
            new.append(NewTopic("table", 2, config=ARROW | {"primary.key": "id"}, schema=KEYED))
            for future in admin.create_topics(new).values():
                future.result()
        self.history.keyed_topics = frozenset({"table"})
        producer = self.producer("before")
        for _ in range(2):
            commit(self, producer, fill(self, producer, "before"))
        commit(self, producer, upsert(self, producer, "before"))

    def _open(self, objects: ObjectStore) -> Log:
        return open_log(objects, self.clock, next_number(), **SETTINGS)

    def _lend(self) -> None:
        lend_log(self.uri, self.log)

    def copy(self, fault_at: int, fault: Fault) -> World:
        """Another world like this one, with a new process; its `fault_at`-th operation meets the fault."""
        other = object.__new__(World)
        other.clock = ManualClock(self.clock.now_s)
        other.shared = SharedObjects(other.clock.wall_ms)
        for name in ("objects", "history", "_modified_ms", "_folders"):
            setattr(other.shared, name, deepcopy(getattr(self.shared, name)))
        other.history = deepcopy(self.history)
        other.late = []
        other.uri = f"{other.shared.uri}-process"
        faulty = FaultyStore(other.shared, lambda operation: other.fate(operation, fault), later=other.late.append)
        other.faulty, other.fault_at, other.decided = faulty, fault_at, None
        other.log = other._open(faulty)
        other.begun = len(faulty.operations)
        other._lend()
        return other

    def begin(self) -> None:
        """Says that what comes now is what the case is about."""
        self.begun = len(self.faulty.operations)

    def fate(self, operation: Operation, fault: Fault) -> Fault:
        """What becomes of one operation of the process."""
        return fault if operation.number == self.fault_at else Fault.NONE

    def producer(self, name: str, **settings: object) -> Producer:
        """An initialised producer."""
        producer = Producer({"bootstrap.servers": self.uri, "transactional.id": name, **settings})
        insist(lambda: producer.init_transactions(1.0))
        return producer

    def reopen(self) -> None:
        """Another process, that meets no fault."""
        take_log_back(self.uri)
        self.log = self._open(self.shared)
        self._lend()

    def land(self) -> None:
        """Lets what was held back arrive."""
        late, self.late = self.late, []
        for put in late:
            put()

    def check(self) -> None:
        """All guarantees, after the next process of each id has taken over."""
        self.history.final = []
        come_to_rest(self.shared, self.history)
        check_client_history(self.history)
        truths = replay(self.shared)
        check_order(truths)
        check_checkpoints(self.shared, truths)
        self.reopen()
        assert digest_of(self.log) == truths[-1].digest


def text_of(message: Message) -> str:
    value = message.value()
    assert value is not None
    return value.decode()


def insist(call: Callable[[], T]) -> T:
    """Calls again as long as the error says so."""
    for _ in range(TRIES):
        try:
            return call()
        except KafkaException as error:
            if not error.error.retriable():
                raise
    raise AssertionError("the call fails for ever though the store is well again")


def fill(world: World, producer: Producer, name: str, *, flush: bool = False) -> Transaction:
    """A transaction with records in three partitions, published at once or with its commit."""
    noted = world.history.begin(name, name)
    noted.fused = not flush
    producer.begin_transaction()
    for number, (topic, partition) in enumerate((("in", 0), ("in", 1), ("out", 0), ("in", 0))):
        value = f"{noted.name}.{number}<"
        insist(partial(producer.produce, topic, value, partition=partition))
        noted.sent.append((topic, partition, value))
        if flush and number % 2 == 0:
            producer.flush(1.0)
    return noted


def row_of(partition: int, number: int, value: str) -> pa.Table:
    """A row of the keyed topic, in a partition."""
    return pa.table({"id": [key_of(partition, 2, number)], "value": [value.encode()]}, KEYED)


def upsert(world: World, producer: Producer, name: str, *, mixed: bool = False, flush: bool = False) -> Transaction:
    """A transaction with rows of a keyed topic, the same keys in each, and with a record of another one."""
    noted = world.history.begin(name, name)
    noted.fused = not (mixed and flush)
    producer.begin_transaction()
    for number, partition in enumerate((0, 1, 0)):
        value = f"{noted.name}.{number}<"
        insist(partial(producer.produce_arrow, "table", row_of(partition, number, value)))
        noted.sent.append(("table", partition, value))
        if mixed and number == 1:
            insist(partial(producer.produce, "out", f"{noted.name}.9<", partition=0))
            noted.sent.append(("out", 0, f"{noted.name}.9<"))
        if flush and number == 1:
            producer.flush(1.0)
    return noted


def commit(world: World, producer: Producer, noted: Transaction) -> None:
    noted.ending = 0
    insist(lambda: producer.commit_transaction(1.0))
    noted.outcome = Outcome.COMMITTED


def commit_fused(world: World) -> None:
    producer = world.producer("first")
    world.begin()
    commit(world, producer, fill(world, producer, "first"))


def commit_early(world: World) -> None:
    producer = world.producer("first")
    world.begin()
    commit(world, producer, fill(world, producer, "first", flush=True))


def initialise_twice(world: World) -> None:
    """The second one fences the first, whose transaction is open."""
    fill(world, world.producer("before"), "before", flush=True).outcome = Outcome.ABORTED
    world.begin()
    world.producer("before")


def abort_early(world: World) -> None:
    producer = world.producer("first")
    world.begin()
    noted = fill(world, producer, "first", flush=True)
    insist(lambda: producer.abort_transaction(1.0))
    noted.outcome = Outcome.ABORTED


def copy_with_offsets(world: World) -> None:
    """Read-process-write: what is read, what comes of it, and the group's offsets, in one transaction."""
    producer = world.producer("copies")
    world.begin()
    consumer = Consumer(
        {
            "bootstrap.servers": world.uri,
            "group.id": "copies",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["in"])
    for _ in range(2):
        messages = [message for _ in range(TRIES) for message in consumer.consume(3, 0.1) if message.error() is None][
            :3
        ]
        noted = world.history.begin("copies", "copies")
        producer.begin_transaction()
        for number, message in enumerate(messages):
            value = f"{noted.name}.{number}<{text_of(message)}"
            producer.produce("out", value, partition=0)
            noted.sent.append(("out", 0, value))
            noted.inputs.append(text_of(message))
            noted.offsets["copies", "in", cast(int, message.partition())] = cast(int, message.offset()) + 1
        offsets = [TopicPartition(topic, partition, offset) for (_, topic, partition), offset in noted.offsets.items()]
        for offset in offsets:
            consumer.seek(offset)
        insist(partial(producer.send_offsets_to_transaction, offsets, consumer.consumer_group_metadata(), 1.0))
        commit(world, producer, noted)


def prepare_and_complete(world: World) -> None:
    """The database's decision is taken as soon as the transaction is prepared."""
    producer = world.producer("prepared")
    world.begin()
    for _ in range(2):
        noted = fill(world, producer, "prepared")
        noted.fused = False
        prepared = insist(lambda: producer.prepare_transaction(1.0))
        noted.ending = 0
        world.decided = prepared
        noted.outcome = Outcome.COMMITTED
        insist(partial(producer.complete_transaction, prepared, 1.0))


def recover_prepared(world: World) -> None:
    """What the database has decided is completed by the next process."""
    world.reopen()
    producer = Producer({"bootstrap.servers": world.uri, "transactional.id": "prepared"})
    producer.init_transactions(keep_prepared=True)
    if world.decided is not None:
        producer.complete_transaction(world.decided)


def commit_plain_offsets(world: World) -> None:
    consumer = Consumer({"bootstrap.servers": world.uri, "group.id": "plain", "enable.auto.commit": False})
    for offset in (1, 2):
        at = [TopicPartition("spare", 0, offset)]
        insist(partial(consumer.commit, offsets=at, asynchronous=False))
    assert insist(lambda: consumer.committed([TopicPartition("spare", 0)]))[0].offset == 2


def create_alter_and_delete(world: World) -> None:
    """Topics are made, changed, widened and deleted. Done before, by the try whose answer was lost, is as good."""
    world.history.deleted_topics.add("spare")
    entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "in", incremental_configs=[entry])
    rejecting = ConfigEntry("reject.transaction.message", "true", incremental_operation=AlterConfigOpType.SET)
    store = ConfigResource("BROKER", "0", incremental_configs=[rejecting])
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        _settle(lambda: admin.create_topics([NewTopic("new", 2, config=ARROW)])["new"], ErrorCode.TOPIC_ALREADY_EXISTS)
        _settle(lambda: admin.incremental_alter_configs([resource])[resource])
        _settle(lambda: admin.incremental_alter_configs([store])[store])
        _settle(lambda: admin.create_partitions([NewPartitions("new", 3)])["new"], ErrorCode.INVALID_PARTITIONS)
        _settle(lambda: admin.delete_topics(["spare"])["spare"], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    insist(lambda: world.log.refresh())
    assert [(topic.name, topic.partition_count) for topic in world.log.topics()] == [
        ("in", 2),
        ("new", 3),
        ("out", 1),
        ("table", 2),
    ]
    assert world.log.store_state().settings == {"reject.transaction.message": "true"}


def delete_records(world: World) -> None:
    world.history.trimmed_topics.add("in")
    asked = TopicPartition("in", 0, 2)
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        assert _settle(lambda: admin.delete_records([asked])[asked]).low_watermark == 2  # type: ignore[attr-defined]


def _settle(ask: Callable[[], object], *done: ErrorCode) -> object:
    try:
        return insist(lambda: ask().result())  # type: ignore[attr-defined]
    except KafkaException as error:
        if error.error.code() not in done:
            raise
        return None


def checkpoint_and_seal(world: World) -> None:
    insist(world.log.checkpoint)
    producer = world.producer("first")
    commit(world, producer, fill(world, producer, "first"))
    insist(world.log.checkpoint)


def sweep_time_outs(world: World) -> None:
    """One sweeper by what it has seen, another by the store's clock; the first has aborted it, or the second does."""
    producer = world.producer("slow", **{"transaction.timeout.ms": 1_000})
    fill(world, producer, "slow", flush=True).outcome = Outcome.ABORTED
    world.begin()
    with Store.open(world.uri) as store:
        sweeper = Sweeper(store)
        insist(lambda: sweeper.sweep(1.0))
        world.clock.now_s += 2
        insist(lambda: sweeper.sweep(1.0))
        world.clock.now_s += 2
        insist(lambda: sweep(store, timeout_s=1.0))
        insist(lambda: sweep(store, timeout_s=1.0))
        view = insist(lambda: store.view(timeout_s=1.0))
    assert all(seen.last_stable_offset == seen.log_end_offset for seen in view.partitions.values())


def fence(world: World) -> None:
    fill(world, world.producer("slow"), "slow", flush=True).outcome = Outcome.ABORTED
    world.begin()
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        _settle(lambda: admin.fence_producers(["slow"])["slow"])


def commit_keyed(world: World) -> None:
    producer = world.producer("first")
    world.begin()
    commit(world, producer, upsert(world, producer, "first"))
    commit(world, producer, upsert(world, producer, "first", flush=True))


def commit_keyed_with_others(world: World) -> None:
    producer = world.producer("first")
    world.begin()
    commit(world, producer, upsert(world, producer, "first", mixed=True, flush=True))


def abort_keyed(world: World) -> None:
    producer = world.producer("first")
    world.begin()
    noted = upsert(world, producer, "first", mixed=True, flush=True)
    insist(lambda: producer.abort_transaction(1.0))
    noted.outcome = Outcome.ABORTED
    commit(world, producer, upsert(world, producer, "first"))


def take_over_keyed(world: World) -> None:
    """The second one fences the first, whose rows are uploaded and named by nothing."""
    upsert(world, world.producer("before"), "before", mixed=True, flush=True).outcome = Outcome.ABORTED
    world.begin()
    producer = world.producer("before")
    commit(world, producer, upsert(world, producer, "before"))


def store_keyed(world: World, transactional_id: str | None) -> None:
    """As a job of Spark commits: rows that are staged before, in one list."""
    world.begin()
    with Store.open(world.uri) as store:
        for number in range(2):
            noted = world.history.begin("job", transactional_id or "")
            stager = insist(partial(store.stage_plan, ["table"])).open(seed=number, default_topic="table", inline=True)
            noted.sent = [("table", partition, f"{noted.name}.{partition}<") for partition in (0, 1)]
            for _, partition, value in noted.sent:
                stager.write(row_of(partition, number, value))
            staged, noted.ending = insist(stager.finish), 0
            insist(partial(store.commit, staged, transactional_id=transactional_id))
            noted.outcome = Outcome.COMMITTED


CASES: dict[str, Callable[[World], None]] = {
    "fused commit": commit_fused,
    "early publish and commit": commit_early,
    "init over an open transaction": initialise_twice,
    "early publish and abort": abort_early,
    "offsets in a transaction": copy_with_offsets,
    "prepare and complete": prepare_and_complete,
    "plain offset commit": commit_plain_offsets,
    "create, alter, widen and delete topics": create_alter_and_delete,
    "delete records": delete_records,
    "checkpoint and seal": checkpoint_and_seal,
    "sweep": sweep_time_outs,
    "fence": fence,
    "keyed rows": commit_keyed,
    "keyed rows with others": commit_keyed_with_others,
    "keyed rows and abort": abort_keyed,
    "keyed rows of two processes": take_over_keyed,
    "keyed rows of a job": partial(store_keyed, transactional_id="job"),
    "keyed rows of a job without an id": partial(store_keyed, transactional_id=None),
}


@pytest.fixture(scope="module")
def before() -> World:
    return World()


@pytest.mark.parametrize("case", CASES)
def test_every_operation_may_be_the_last_and_every_answer_ambiguous(before: World, case: str) -> None:
    run = CASES[case]
    world = before.copy(0, Fault.NONE)
    run(world)
    operations = world.faulty.operations[world.begun :]
    world.check()
    assert len(operations) > 3
    points = [
        (operation, fault)
        for operation in operations
        for fault in (WRITE_FAULTS if operation.verb in WRITES else READ_FAULTS)
        if fault.means_something_for(operation.verb)
    ]
    for operation, fault in share(points, list(CASES).index(case)):
        try:
            _try(before.copy(operation.number, fault), run, fault)
        except Exception as error:
            error.add_note(f"{case}: {fault.value} at {operation}")
            raise


def _try(world: World, run: Callable[[World], None], fault: Fault) -> None:
    try:
        run(world)
    except Died:
        assert fault is Fault.DIE_AFTER
        if run is prepare_and_complete:
            recover_prepared(world)
    except KafkaException as error:
        if error.error.retriable():
            raise
        # The next process goes on from what there is.
    assert len(world.faulty.operations) >= world.fault_at, "the operation was not reached"
    if world.fault_at % 2:
        world.land()
    world.check()
    if world.late:
        world.land()
        world.check()
    take_log_back(world.uri)
