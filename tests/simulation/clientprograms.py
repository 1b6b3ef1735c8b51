"""What simulated processes do with the clients that users have: `Producer`, `Consumer`, `Store`, `AdminClient`.

Each program is one process from its start to its end, and begins again from its start when it dies. Every call is
counted as one operation of the history, but for reads that give nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, field

from sparktxn._engine.format.keytext import key_texts, partitions_of_texts
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._rows.scan.plan import Isolation, ReadTask
from sparktxn._rows.scan.reader import read
from sparktxn.admin import AdminClient, NewTopic
from sparktxn.consumer import Consumer
from sparktxn.errors import ErrorCode, KafkaException, RetentionPassed, StoreUnavailable, ViewExpired
from sparktxn.producer import Producer
from sparktxn.store import Store
from sparktxn.testing.faultystore import Died
from tests.simulation.clienthistory import Batch, ClientHistory, Place, Range, Record, Transaction
from tests.simulation.history import Outcome
from tests.simulation.simulator import Process

__all__ = [
    "ARROW",
    "COMPACTED",
    "KEYED",
    "SETTINGS",
    "TYPED",
    "ClientWorld",
    "consuming",
    "copying",
    "following",
    "read_commits",
    "read_view",
    "writing",
]

ARROW: Final = {"segment.format": "arrow", "compression.type": "none"}
TYPED: Final = (("value", "binary", True),)
KEYED: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.binary())])
COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
SETTINGS: Final = StoreSettings(checkpoint_entries=6, checkpoint_seal_segments=3, request_timeout_ms=2_000)
_CALL_S: Final = 5.0
_PATIENCE: Final = 12
_BEAT_S: Final = 5.0
_SESSION_MS: Final = 15_000
_SELDOM: Final = MappingProxyType({"session.timeout.ms": 1_800_000, "max.poll.interval.ms": 86_400_000})
"""Of consumers that sleep between their polls: there are no threads here that would show that they live."""
_PAUSES_S: Final = (0.1, 1.0, 12.0)
_LINGERS: Final = 0.3
_LINGERS_S: Final = (20.0, 120.0)
"""How long an instance may work on its inputs without a sign of life: it is taken out of its group meanwhile."""
_INPUTS_MAX: Final = 4
_KEYS: Final = 64
_IN_VAIN_MAX: Final = 16
"""How often an instance looks in vain before it ends: long enough for the time-outs of those that have died."""

Program = Callable[[Process], None]


class GivenUp(Exception):
    """This client is of no more use: a new one goes on."""


class ClientWorld(Struct):
    """What the processes of one history share: the topics, how they are stored, and who still works."""

    history: ClientHistory
    topics: dict[str, int]
    settings: dict[str, str] = field(default_factory=lambda: dict(ARROW))
    writing: set[str] = field(default_factory=set)
    working: set[str] = field(default_factory=set)
    timeout_ms: int = 60_000
    store: StoreSettings = SETTINGS
    typed: frozenset[str] = frozenset()
    """The topics that have declared columns: the value alone, at first."""
    keyed: frozenset[str] = frozenset()
    """The topics that have a key."""
    own_keys: bool = False
    """Each row of them has a key of its own."""
    keys_used: int = 0

    def begin(self, name: str, *, writes: bool) -> None:
        """Says, before the history begins, that a process will work."""
        self.working.add(name)
        if writes:
            self.writing.add(name)

    def end(self, name: str) -> None:
        """Says that a process has done its work."""
        self.working.discard(name)
        self.writing.discard(name)


def connect(process: Process, world: ClientWorld) -> tuple[str, Log]:
    """The address of this process's log, on which the topics exist."""
    uri, log = process.connect(world.store)
    missing = [*world.topics]
    with suppress(StoreUnavailable):
        missing = [name for name in world.topics if log.topic(name) is None]
    with AdminClient({"bootstrap.servers": uri}) as admin:
        while missing:
            asked = admin.create_topics([_new_topic(world, name) for name in missing])
            world.history.operations += len(missing)
            missing = [name for name, future in asked.items() if not _is_created(future.exception())]
            if missing:
                process.sleep(0.1)
    return uri, log


def _new_topic(world: ClientWorld, name: str) -> NewTopic:
    count = world.topics[name]
    if name in world.keyed:
        return NewTopic(name, count, config={"primary.key": "id", **world.settings}, schema=KEYED)
    return NewTopic(name, count, config=world.settings, schema=TYPED if name in world.typed else None)


def keyed_row(world: ClientWorld, topic: str, partition: int, number: int, value: str) -> pa.Table:
    """Return a row of a keyed topic's partition.

    Rows of different transactions have the same keys, unless a compaction must leave all rows.
    """
    if world.own_keys:
        world.keys_used += _KEYS
        number = world.keys_used
    return pa.table({"id": [key_of(partition, world.topics[topic], number)], "value": [value.encode()]}, KEYED)


def key_of(partition: int, count: int, first: int) -> int:
    """Return the least key of a keyed topic's partition from `first` on."""
    keys = range(first, first + _KEYS)
    partitions = partitions_of_texts(key_texts([pa.array(keys, pa.int64())]), count).to_pylist()
    return keys[partitions.index(partition)]


def _is_created(error: BaseException | None) -> bool:
    if error is None:
        return True
    if not isinstance(error, KafkaException) or not _again_or_there(error):
        raise error
    return error.error.code() == ErrorCode.TOPIC_ALREADY_EXISTS


def _again_or_there(error: KafkaException) -> bool:
    return error.error.retriable() or error.error.code() == ErrorCode.TOPIC_ALREADY_EXISTS


class Writer:
    """One process's producer, and what it notes of each of its calls."""

    def __init__(
        self,
        process: Process,
        world: ClientWorld,
        uri: str,
        log: Log,
        transactional_id: str,
        *,
        publishes_offsets: bool = False,
    ) -> None:
        self._process = process
        self._world = world
        self._uri = uri
        self._log = log
        self._transactional_id = transactional_id
        self._publishes_offsets = publishes_offsets
        self._producer: Producer | None = None

    def initialise(self) -> None:
        """Takes the transactional id over, unless this process's producer has it.

        Raises:
            GivenUp: another one has taken it over meanwhile.
        """
        if self._producer is None:
            self._producer = self._initialised()

    def transaction(self, records: Iterable[tuple[str, int, str]], **consumed: Any) -> Transaction:
        """One transaction from its begin to its end.

        `records` are (topic, partition, what the value ends with); `consumed` are the inputs and offsets.

        Raises:
            GivenUp: the producer cannot go on, or was abandoned.
        """
        self.initialise()
        producer = self._producer
        if producer is None:
            raise GivenUp
        noted = self._world.history.begin(self._process.name, self._transactional_id)
        try:
            self._fill(producer, noted, records, **consumed)
            if self._process.random.random() < 0.75:
                self._commit(producer, noted)
            else:
                self._abort(producer, noted)
        except GivenUp:
            self._producer = None
            raise
        return noted

    def _initialised(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._uri,
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": self._world.timeout_ms,
            }
        )
        while True:
            self._world.history.operations += 1
            try:
                producer.init_transactions(_CALL_S)
            except KafkaException as error:
                if not error.error.retriable():
                    raise GivenUp from None
            else:
                return producer

    def _fill(
        self,
        producer: Producer,
        noted: Transaction,
        records: Iterable[tuple[str, int, str]],
        inputs: Iterable[str] = (),
        consumer: Consumer | None = None,
        expected: Mapping[tuple[str, int], int] = MappingProxyType({}),
    ) -> None:
        random = self._process.random
        history = self._world.history
        flushes = random.random() < 0.3
        noted.inputs = list(inputs)
        try:
            producer.begin_transaction()
            history.operations += 1
            if consumer is not None and self._publishes_offsets and random.random() < 0.5:
                self._publish_offsets(producer, noted, consumer)
            for number, (topic, partition, ending) in enumerate(records):
                value = f"{noted.name}.{number}<{ending}"
                noted.sent.append((topic, partition, value))
                try:
                    # Each record has a key of its own: a compaction must leave all of them.
                    key = f"{self._process.simulator.steps} {value}"
                    if topic in self._world.keyed:
                        producer.produce_arrow(
                            topic, keyed_row(self._world, topic, partition, number, value), partition
                        )
                    elif topic in self._world.typed:
                        producer.produce_arrow(topic, pa.table({"value": [value.encode()]}), partition)
                    else:
                        producer.produce(topic, value, key, partition=partition)
                except KafkaException:
                    noted.sent.pop()
                    raise
                history.operations += 1
                if flushes and random.random() < 0.5:
                    noted.fused = False
                    producer.flush(_CALL_S)
                    history.operations += 1
                    self._process.sleep(random.random() * random.choice(_PAUSES_S))
                    if random.random() < 0.05:
                        # As a process does that has lost interest: the transaction stays open.
                        raise GivenUp
            if consumer is not None and not noted.offsets:
                self._add_offsets(producer, noted, consumer)
            for (topic, partition), log_end_offset in expected.items():
                producer.expect(topic, partition, log_end_offset, _CALL_S)
                noted.expected[topic, partition] = log_end_offset
        except KafkaException as error:
            self._fail(producer, noted, error)

    def _add_offsets(self, producer: Producer, noted: Transaction, consumer: Consumer) -> None:
        positions = [known for known in consumer.position(consumer.assignment()) if known.offset >= 0]
        noted.offsets = {
            (consumer.consumer_group_metadata().group_id, known.topic, known.partition): known.offset
            for known in positions
        }
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), _CALL_S)
        self._world.history.operations += 1

    def _publish_offsets(self, producer: Producer, noted: Transaction, consumer: Consumer) -> None:
        """Publishes the offsets before any record; dies then now and again: nothing holds up readers but them."""
        self._add_offsets(producer, noted, consumer)
        noted.fused = False
        producer.flush(_CALL_S)
        if self._process.random.random() < 0.3:
            raise Died

    def _commit(self, producer: Producer, noted: Transaction) -> None:
        noted.ending = self._process.simulator.steps
        for attempt in range(_PATIENCE):
            self._world.history.operations += 1
            try:
                producer.commit_transaction(_CALL_S)
            except KafkaException as error:
                if error.error.retriable() and not error.error.txn_requires_abort():
                    if attempt and self._process.random.random() < 0.1:
                        break
                    continue
                self._fail(producer, noted, error)
            noted.outcome = Outcome.COMMITTED
            noted.told, noted.entry = self._process.simulator.steps, self._log.entry
            return
        raise GivenUp

    def _abort(self, producer: Producer, noted: Transaction) -> None:
        for _ in range(_PATIENCE):
            self._world.history.operations += 1
            try:
                producer.abort_transaction(_CALL_S)
            except KafkaException as error:
                if error.error.retriable():
                    continue
                raise GivenUp from None
            noted.outcome = Outcome.ABORTED
            return
        raise GivenUp

    def _fail(self, producer: Producer, noted: Transaction, error: KafkaException) -> None:
        """What the flags of an error ask for.

        Raises:
            GivenUp: always; after the abort, if it is one that asks for it.
        """
        if not error.error.fatal() and (error.error.txn_requires_abort() or noted.ending < 0):
            self._abort(producer, noted)
        raise GivenUp from error


def writing(world: ClientWorld, transactional_id: str, transactions: int) -> Program:
    """Writes transactions over random partitions, until it has tried so many."""
    done = 0

    def program(process: Process) -> None:
        nonlocal done
        uri, log = connect(process, world)
        writer = Writer(process, world, uri, log, transactional_id)
        random = process.random
        places = [(topic, number) for topic, count in world.topics.items() for number in range(count)]
        places = [place for place in places if place[0] != "out"]
        while done < transactions:
            done += 1
            try:
                writer.transaction([(*random.choice(places), "") for _ in range(random.randint(1, 4))])
            except GivenUp:
                process.sleep(random.random())
            except StoreUnavailable:
                process.sleep(0.5)
        world.end(process.name)

    return program


def deciding(world: ClientWorld, transactional_id: str, transactions: int) -> Program:
    """Writes transactions that expect the ends of one or two partitions, as it has seen them a moment before."""
    done = 0

    def program(process: Process) -> None:
        nonlocal done
        uri, log = connect(process, world)
        writer = Writer(process, world, uri, log, transactional_id)
        random = process.random
        while done < transactions:
            done += 1
            try:
                writer.initialise()
                with Store.open(uri) as store:
                    view = store.view(timeout_s=_CALL_S)
                place, other = ("left", 0), ("in", random.randrange(world.topics["in"]))
                expected = {place: view.partitions[place].log_end_offset}
                if random.random() < 0.5:
                    expected[other] = view.partitions[other].log_end_offset
                process.sleep(random.random() * random.choice(_PAUSES_S))
                written = [place, *random.choices([place, other], k=random.randint(0, 2))]
                writer.transaction([(*where, "") for where in written], expected=expected)
            except (GivenUp, KafkaException):
                process.sleep(random.random())
        world.end(process.name)

    return program


def copying(world: ClientWorld, group: str, *, alone: bool = True) -> Program:
    """Reads the topic "in" as a group, and writes what it has read to "out" with the group's offsets.

    The group's offsets are read after the transactional id was taken over. What another process has read before it was
    fenced is then either committed or void. One that is not `alone` has a transactional id of its own, often a new one
    in each of its lives. No other instance is fenced by it. It publishes offsets early, and may die or give up then.
    Now and again it is silent before it commits, for so long that another instance gets its partitions.
    """

    def program(process: Process) -> None:
        uri, log = connect(process, world)
        transactional_id = group
        if not alone:
            transactional_id = process.random.choice((process.name, f"{process.name} {process.ids.token()[:4]}"))
        writer = Writer(process, world, uri, log, transactional_id, publishes_offsets=not alone)
        consumer = None
        idle = 0
        in_vain = 0
        while idle < 2 or world.writing or (in_vain < _IN_VAIN_MAX and not alone):
            in_vain = 0 if world.writing else in_vain + 1
            try:
                writer.initialise()
                if consumer is None:
                    consumer = _consumer(uri, group, **_membership(process, alone=alone))
                inputs = _consumed(process, world, log, consumer, f"{process.name} copies")
                idle = 0 if inputs else idle + 1
                if inputs:
                    in_vain = 0
                    if not alone and process.random.random() < _LINGERS:
                        process.sleep(process.random.uniform(*_LINGERS_S))
                    records = [("out", process.random.randrange(world.topics["out"]), value) for value in inputs]
                    noted = writer.transaction(records, inputs=inputs, consumer=consumer)
                    if noted.outcome is not Outcome.COMMITTED:
                        consumer = _given_up(process, consumer)
            except (GivenUp, KafkaException):
                consumer = _given_up(process, consumer)
            if idle or consumer is None:
                _sleep(process, None if alone else consumer, process.random.random() * _idle_s(idle))
        _given_up(process, consumer)
        world.end(process.name)

    return program


def _idle_s(idle: int) -> float:
    return float(min(300, 5 + 30 * idle))


def _membership(process: Process, *, alone: bool) -> dict[str, Any]:
    """The settings of a member: one that sleeps for long has a name, and its partitions back when it starts again."""
    return {**_SELDOM, "group.instance.id": process.name} if alone else {"session.timeout.ms": _SESSION_MS}


def _given_up(process: Process, consumer: Consumer | None) -> None:
    """Drops a consumer; often it leaves its group first."""
    if consumer is not None and process.random.random() < 0.7:
        with suppress(KafkaException):
            consumer.close()


def _sleep(process: Process, consumer: Consumer | None, seconds: float) -> None:
    """Sleeps, while the consumer shows that it lives: its thread does that elsewhere."""
    left_s = seconds
    while consumer is not None and left_s > _BEAT_S:
        process.sleep(_BEAT_S)
        left_s -= _BEAT_S
        consumer._membership.beat_if_due(process.clock.monotonic_s())
    process.sleep(max(0.0, left_s))


def consuming(world: ClientWorld, *, committed: bool) -> Program:
    """Reads all topics with a consumer, until all others have come to an end."""

    def program(process: Process) -> None:
        uri, log = connect(process, world)
        consumer = _consumer(
            uri, f"reads-{process.name}-{process.ids.token()}", [*world.topics], committed=committed, **_SELDOM
        )
        idle = 0
        who = f"{process.name} {process.ids.token()[:4]}"
        while world.working:
            with suppress(KafkaException):
                idle = 0 if _consumed(process, world, log, consumer, who, committed=committed) else idle + 1
            process.sleep(process.random.random() * _idle_s(idle))

    return program


def _consumer(
    uri: str, group: str, topics: list[str] | None = None, *, committed: bool = True, **settings: Any
) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": uri,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            **settings,
        }
    )
    consumer.subscribe(topics or ["in"])
    return consumer


def _consumed(
    process: Process, world: ClientWorld, log: Log, consumer: Consumer, reader: str, *, committed: bool = True
) -> list[str]:
    """The next values, noted as read."""
    began = process.simulator.steps
    messages = consumer.consume(_INPUTS_MAX, 0.2)
    world.history.operations += bool(messages)
    records = []
    for message in messages:
        if message.error() is None:
            # A consumer shows no topic ids: no topic that is consumed here is ever created again.
            topic, value, offset = message.topic(), message.value(), message.offset()
            if topic is None or value is None or offset is None:
                raise AssertionError(f"{reader} was given half a record")
            known = log.topic(topic)
            if known is None:
                raise AssertionError(f"{reader} was given a record of topic {topic}, which does not exist")
            place = (topic, known.topic_id, message.partition() or 0)
            records.append(Record(place, offset, value.decode()))
    if records:
        ended = process.simulator.steps
        world.history.batches.append(Batch(reader, -1, committed, False, began, ended, {}, tuple(records)))
    return [record.value for record in records]


def following(world: ClientWorld) -> Program:
    """Reads all topics in commit order, as a query would, until all others have come to an end."""

    def program(process: Process) -> None:
        uri, _ = connect(process, world)
        after_entry = 0
        reader = f"{process.name} {process.ids.token()[:4]}"
        idle = 0
        with Store.open(uri) as store:
            while world.working:
                try:
                    batch = _next_batch(process, world, store, reader, after_entry)
                    after_entry = batch.to_entry
                    idle = 0 if batch.records else idle + 1
                except (ViewExpired, RetentionPassed):
                    after_entry = 0
                    reader = f"{process.name} {process.ids.token()[:4]}"
                except KafkaException:
                    pass
                process.sleep(process.random.random() * _idle_s(idle))

    return program


def _next_batch(process: Process, world: ClientWorld, store: Store, reader: str, after_entry: int) -> Batch:
    began = process.simulator.steps
    view = store.view(timeout_s=_CALL_S)
    rows_max = process.random.choice((None, None, 3))
    batch = read_commits(
        store, view, after_entry, rows_max=rows_max, reader=reader, began=began, ended=lambda: process.simulator.steps
    )
    world.history.operations += 3 * bool(batch.records)
    world.history.batches.append(batch)
    return batch


def _place(view: ReadView, topic: str, partition: int) -> Place:
    return (topic, view.topics[topic].topic_id, partition)


def read_view(
    store: Store,
    view: ReadView,
    ranges: dict[tuple[str, int], tuple[int, int]],
    *,
    reader: str,
    whole: bool,
    began: int,
    ended: Callable[[], int],
    isolation: Isolation = "read_committed",
) -> Batch:
    """The records of `ranges` in a view, by the tasks that a query would run."""
    records = _records(store, view, store.plan(view, ranges, isolation=isolation, columns=_columns(view), rows="all"))
    committed = isolation == "read_committed"
    return Batch(reader, view.entry, committed, whole, began, ended(), _seen(view, ranges), records)


def read_commits(
    store: Store,
    view: ReadView,
    after_entry: int,
    *,
    reader: str,
    began: int,
    ended: Callable[[], int],
    rows_max: int | None = None,
) -> Batch:
    """What entries after `after_entry` have committed, up to a limit or all, by the tasks that a query would run."""
    to_entry = store.commit_cut(view, after_entry, rows_max=rows_max).entry
    tasks = store.plan_commits(view, after_entry, to_entry=to_entry, columns=_columns(view), rows="all")
    seen = _seen(view, store.ranges(view, isolation="read_uncommitted"))
    records = _records(store, view, tasks)
    return Batch(reader, view.entry, True, True, began, ended(), seen, records, to_entry, after_entry == 0)


def _columns(view: ReadView) -> list[str] | None:
    """Return the columns that are read; all if topics have different ones."""
    return None if any(topic.schema for topic in view.topics.values()) else ["value", "offset"]


def _records(store: Store, view: ReadView, tasks: list[ReadTask]) -> tuple[Record, ...]:
    records: list[Record] = []
    for task in tasks:
        place = _place(view, task.topic, task.partition)
        for rows in read(store.log.objects, task):
            offset = "_offset" if "_offset" in rows.schema.names else "offset"
            values, offsets = rows.column("value").to_pylist(), rows.column(offset).to_pylist()
            records += [Record(place, at, value.decode()) for at, value in zip(offsets, values, strict=True)]
    return tuple(records)


def _seen(view: ReadView, ranges: dict[tuple[str, int], tuple[int, int]]) -> dict[Place, Range]:
    return {
        _place(view, *key): Range(
            *ranges[key], partition.log_start_offset, partition.last_stable_offset, partition.log_end_offset
        )
        for key, partition in view.partitions.items()
    }
