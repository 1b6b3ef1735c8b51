"""Processes whose clients do not wait: several in threads of one process, with time-outs of a blink.

They give up, close, are interrupted, make the next call with other arguments, and die, between any two operations of
the store. The answer to each call is noted; what is not known stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
from msgspec import Struct, field

from sparktxn._engine.format.commands import OffsetCommit, OffsetToCommit
from sparktxn._engine.log.log import Log
from sparktxn._kafka.message import Message, TopicPartition
from sparktxn._rows.stage.stagedsegment import StagedSegment
from sparktxn._rows.stage.stager import SegmentStager, StageTopic
from sparktxn.consumer import Consumer
from sparktxn.errors import (
    BatchRefused,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    ProducerFenced,
)
from sparktxn.producer import Producer
from sparktxn.store import SinkCommit, Store
from tests.simulation.clienthistory import Delivery, Request, Transaction
from tests.simulation.clientprograms import ClientWorld, Program, connect, keyed_row
from tests.simulation.fibers import current_fiber
from tests.simulation.history import Outcome
from tests.simulation.offers import init_mark
from tests.simulation.simulator import Process

__all__ = ["Client", "SinkJob", "Work", "committing_offsets", "impatient"]
__all__ += ["initialising", "producing", "sinking", "slipping", "storing"]

Result = TypeVar("Result")
_TIMEOUTS_S: Final = (0.0, 0.02, 0.3, 3.0, 30.0)
_TOPICS: Final = ("in", "left")
_GROUP: Final = "plain"
_NO_ID: Final = "no id"
_STORED: Final = "stored offset"
"""What is committed at intervals, and again at the next one if that fails."""
_INTERRUPTED: Final = 0.15
_INTERRUPTED_WITHIN: Final = 8


Work = Callable[["Client", Process, ClientWorld, str, Log], None]


class Client(Struct):
    """One client of a process with several: what it does, and how often it still does it, over all of its lives."""

    name: str
    work: Work
    calls: int
    uses: int = 0


def impatient(world: ClientWorld, clients: Sequence[Client]) -> Program:
    """A process with these clients, each in a thread of its own, over one log."""

    def program(process: Process) -> None:
        uri, log = connect(process, world)
        threads = [process.spawn(partial(_run, client, process, world, uri, log)) for client in clients]
        process.join(*threads)
        world.end(process.name)

    return program


def _run(client: Client, process: Process, world: ClientWorld, uri: str, log: Log) -> None:
    while client.calls > 0:
        client.uses += 1
        try:
            client.work(client, process, world, uri, log)
        except (KafkaException, KeyboardInterrupt):
            process.sleep(process.random.random())


def _called(client: Client, process: Process, world: ClientWorld) -> str:
    """Counts a call of a client; what this use of it is called."""
    client.calls -= 1
    world.history.operations += 1
    return f"{process.name}'s {client.name} {client.uses}"


def _interrupted(process: Process, call: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """Calls, and now and then interrupts the call between two operations of the store.

    Raises:
        KeyboardInterrupt: it was.
    """
    fiber = current_fiber()
    assert fiber is not None, "only a process's own threads call"
    if process.random.random() < _INTERRUPTED:
        fiber.interrupted_in = process.random.randint(1, _INTERRUPTED_WITHIN)
    try:
        return call(*arguments, **named)
    finally:
        fiber.interrupted_in = 0


def _now(process: Process) -> int:
    return process.simulator.steps


def _begun(process: Process, world: ClientWorld, client: str, transactional_id: str, count: int) -> Transaction:
    """A transaction of new records, not yet sent."""
    noted = world.history.begin(client, transactional_id)
    places = [(topic, number) for topic in _TOPICS for number in range(world.topics[topic])]
    noted.sent = [(*process.random.choice(places), f"{noted.name}.{number}<") for number in range(count)]
    noted.ending = _now(process)
    return noted


# --- Store.commit ---------------------------------------------------------------------------------------------------


def _staged(process: Process, world: ClientWorld, log: Log, noted: Transaction) -> list[StagedSegment]:
    """The transaction's records as segments that nothing names, each staged as by a task of its own."""
    with log.within(3.0):
        log.refresh()
    topics = {name: StageTopic.of(known) for name in _TOPICS if (known := log.topic(name)) is not None}
    inline_bytes = process.simulator.inline_bytes
    staged: list[StagedSegment] = []
    for number, (topic, partition, value) in enumerate(noted.sent):
        stager = SegmentStager(
            log.objects,
            process.ids,
            log.entry,
            topics,
            seed=0,
            clock=process.clock,
            inline_bytes=inline_bytes,
            default_topic=topic if topic in world.keyed else None,
        )
        if topic in world.keyed:
            stager.write(keyed_row(world, topic, partition, number, value))
        else:
            columns = {"topic": [topic], "partition": pa.array([partition], pa.int32()), "value": [value.encode()]}
            stager.write(pa.table(columns))
        staged += stager.finish()
    return staged


def storing(transactional_id: str | None) -> Callable[[Client, Process, ClientWorld, str, Log], None]:
    """Commits by `Store.commit`, without a sink or with versions; what is unknown is often followed by other rows.

    Without a transactional id all processes share one, and there are no versions.
    """

    def work(client: Client, process: Process, world: ClientWorld, uri: str, log: Log) -> None:
        random = process.random
        with_versions = random.random() < 0.5 and transactional_id is not None
        with Store.open(uri) as store:
            for version in range(1, random.randint(3, 7)):
                who = _called(client, process, world)
                noted = _begun(process, world, who, transactional_id or _NO_ID, random.randint(1, 2))
                staged = _staged(process, world, log, noted)
                sink = SinkCommit(who, "", version) if with_versions else None
                _commit(process, store, noted, staged, sink)
                if client.calls <= 0:
                    break

    return work


def _commit(
    process: Process, store: Store, noted: Transaction, staged: list[StagedSegment], sink: SinkCommit | None
) -> None:
    """Commits, once or more often.

    Raises:
        ProducerFenced, BatchRefused: this handle is of no more use.
    """
    random = process.random
    is_first = True
    transactional_id = None if noted.transactional_id == _NO_ID else noted.transactional_id
    while True:
        try:
            _interrupted(
                process,
                store.commit,
                staged,
                transactional_id=transactional_id,
                sink=sink,
                timeout_s=random.choice(_TIMEOUTS_S),
            )
        except (OutcomeUnknown, KeyboardInterrupt):
            pass
        except KafkaException as error:
            if is_first:
                noted.outcome = Outcome.REFUSED
            if isinstance(error, ProducerFenced | BatchRefused):
                raise
            return
        else:
            noted.outcome = Outcome.COMMITTED
            noted.told, noted.entry = _now(process), store.log.entry
            return
        is_first = False
        if random.random() < 0.5:
            return


class SinkJob(Struct):
    """A streaming query: its batches, each of which has the same records in every process, and takes effect once."""

    transactional_id: str
    batches: int
    planned: list[Transaction] = field(default_factory=list)
    committed: int = 0


def sinking(job: SinkJob) -> Callable[[Client, Process, ClientWorld, str, Log], None]:
    """Writes a query's batches as a driver does: in order, until each is known to be there; each use is a new run."""

    def work(client: Client, process: Process, world: ClientWorld, uri: str, log: Log) -> None:
        run_id = process.ids.token()[:8]
        with Store.open(uri) as store:
            while job.committed < job.batches:
                _called(client, process, world)
                batch_id = job.committed
                if batch_id == len(job.planned):
                    planned = _begun(process, world, job.transactional_id, job.transactional_id, 2)
                    job.planned.append(planned)
                batch = job.planned[batch_id]
                staged = _staged(process, world, log, batch)
                sink = SinkCommit("query", run_id, batch_id)
                _interrupted(
                    process,
                    store.commit,
                    staged,
                    transactional_id=job.transactional_id,
                    sink=sink,
                    timeout_s=process.random.choice(_TIMEOUTS_S),
                )
                batch.outcome = Outcome.COMMITTED
                job.committed = max(job.committed, batch_id + 1)
        client.calls = 0

    return work


# --- offsets --------------------------------------------------------------------------------------------------------


def committing_offsets(client: Client, process: Process, world: ClientWorld, uri: str, log: Log) -> None:
    """A consumer that commits offsets in every way: at once, alongside the caller, on its own, and while it closes."""
    random = process.random
    world.history.plain_groups.add(_GROUP)
    asked: dict[str, Request] = {}

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            request = asked.get(partition.metadata or "")
            if request is not None:
                _note(process, request, error)

    consumer = Consumer(
        {
            "bootstrap.servers": uri,
            "group.id": _GROUP,
            "enable.auto.commit": random.random() < 0.5,
            "auto.commit.interval.ms": 1_000,
            "enable.auto.offset.store": False,
            "on_commit": on_commit,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0) for topic in _TOPICS])
        for _ in range(random.randint(1, 5)):
            who = _called(client, process, world)
            request = world.history.ask("offset commit", who)
            asked[request.mark] = request
            offset = TopicPartition(random.choice(_TOPICS), 0, random.randint(1, 9), request.mark)
            with suppress(KafkaException):
                _ask_for_offset(process, consumer, request, offset)
    finally:
        with suppress(KafkaException):
            consumer.close()
        for request in asked.values():
            if request.let_go < 0:
                request.let_go = _now(process)


def _ask_for_offset(process: Process, consumer: Consumer, request: Request, offset: TopicPartition) -> None:
    random = process.random
    way = random.choice(("beside", "beside", "at once", "stored"))
    if way == "stored":
        # Committed at an interval or by close(), unless another one is stored over it.
        request.what = _STORED
        consumer.store_offsets(offsets=[offset])
    elif way == "beside":
        consumer.commit(offsets=[offset], asynchronous=True)
    else:
        try:
            _interrupted(process, consumer.commit, offsets=[offset], asynchronous=False)
        except KafkaException as error:
            _note(process, request, error.error)
            raise
        except KeyboardInterrupt:
            request.let_go = _now(process)
            raise
        _note(process, request, None)
    for _ in range(random.randint(0, 2)):
        consumer.poll(random.choice(_TIMEOUTS_S[:4]))


def _note(process: Process, request: Request, error: KafkaError | None) -> None:
    """Note the answer to a request: from an error on its client holds it no longer, but for one that is made again."""
    if error is None:
        request.outcome = Outcome.COMMITTED
        return
    if request.what == _STORED:
        return
    request.let_go = _now(process)
    if error.code() not in _UNKNOWN_CODES:
        request.outcome = Outcome.REFUSED


_UNKNOWN_CODES: Final = (OutcomeUnknown.code,)


# --- transactional ids ----------------------------------------------------------------------------------------------


def initialising(transactional_id: str) -> Callable[[Client, Process, ClientWorld, str, Log], None]:
    """Takes a transactional id over with hardly any patience, writes a little, and closes whenever it likes."""

    def work(client: Client, process: Process, world: ClientWorld, uri: str, log: Log) -> None:
        who = _called(client, process, world)
        request = world.history.ask("init_transactions", who)
        timeout_ms = 100_000 + len(world.history.requests)
        request.mark = init_mark(timeout_ms)
        producer = Producer(
            {
                "bootstrap.servers": uri,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
            }
        )
        written: list[Transaction] = []
        try:
            _initialise(client, process, producer, request)
            while client.calls > 0 and process.random.random() < 0.7:
                _called(client, process, world)
                written.append(_begun(process, world, who, transactional_id, process.random.randint(1, 2)))
                _write(process, producer, written[-1])
        finally:
            with suppress(KafkaException):
                producer.close(process.random.choice(_TIMEOUTS_S[:4]))
            request.let_go = request.let_go if request.let_go >= 0 else _now(process)
            for noted in written:
                noted.let_go = _now(process)

    return work


def _initialise(client: Client, process: Process, producer: Producer, request: Request) -> None:
    """Initialises, now and then more than once.

    Raises:
        KafkaException, KeyboardInterrupt: it has not.
    """
    while True:
        try:
            _interrupted(process, producer.init_transactions, process.random.choice(_TIMEOUTS_S))
        except KafkaException as error:
            if not error.error.retriable():
                raise
            if process.random.random() < 0.5:
                raise
        else:
            request.outcome = Outcome.COMMITTED
            return


def _write(process: Process, producer: Producer, noted: Transaction) -> None:
    """One transaction, whose end is asked for once or more often.

    Raises:
        KafkaException, KeyboardInterrupt: it is not known to have ended, or the producer is of no more use.
    """
    random = process.random
    producer.begin_transaction()
    for topic, partition, value in noted.sent:
        producer.produce(topic, value, f"{process.simulator.steps} {value}", partition=partition)
        if random.random() < 0.2:
            noted.fused = False
            _interrupted(process, producer.flush, random.choice(_TIMEOUTS_S))
    end, outcome = producer.commit_transaction, Outcome.COMMITTED
    if random.random() < 0.2:
        end, outcome = producer.abort_transaction, Outcome.ABORTED
    noted.ending = _now(process)
    while True:
        try:
            _interrupted(process, end, random.choice(_TIMEOUTS_S))
        except KafkaException as error:
            if not error.error.retriable() or random.random() < 0.3:
                raise
        else:
            noted.outcome = outcome
            return


# --- producers without transactions ---------------------------------------------------------------------------------


def producing(client: Client, process: Process, world: ClientWorld, uri: str, log: Log) -> None:
    """A producer whose records linger and are sent by a thread of its own; it flushes, polls and closes impatiently."""
    random = process.random
    waiting: dict[str, Transaction] = {}

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        value, offset = message.value(), message.offset()
        assert value is not None
        noted = waiting.pop(value.decode())
        if error is None:
            noted.outcome = Outcome.COMMITTED
        elif "(possibly persisted)" not in error.str():
            noted.outcome = Outcome.REFUSED
        else:
            noted.let_go = _now(process)  # the report says that the outcome is not known, and that it is not put again
        if error is None and offset is not None and offset >= 0:
            topic, partition = message.topic() or "", message.partition() or 0
            world.history.deliveries.append(Delivery(value.decode(), topic, partition, offset))

    producer = Producer(
        {
            "bootstrap.servers": uri,
            "linger.ms": random.choice((0, 5, 500)),
            "delivery.timeout.ms": random.choice((1_000, 5_000, 60_000)),
            "on_delivery": on_delivery,
        }
    )
    who = f"{process.name}'s {client.name} {client.uses}"
    try:
        for _ in range(random.randint(1, 6)):
            _called(client, process, world)
            noted = _begun(process, world, who, "", 1)
            noted.fused = False
            [(topic, partition, value)] = noted.sent
            waiting[value] = noted
            _interrupted(process, producer.produce, topic, value, partition=partition)
            drawn = random.random()
            if drawn < 0.3:
                producer.poll(random.choice(_TIMEOUTS_S[:3]))
            elif drawn < 0.5:
                _interrupted(process, producer.flush, random.choice(_TIMEOUTS_S))
            elif drawn < 0.7:
                process.sleep(random.random())
    finally:
        producer.close(random.choice(_TIMEOUTS_S))
        for noted in waiting.values():
            noted.let_go = _now(process)


# --- what should never be asked for ---------------------------------------------------------------------------------


def slipping(client: Client, process: Process, world: ClientWorld, uri: str, log: Log) -> None:
    """A list that no entry can hold, from a caller that no check has stopped: it is that caller's error alone."""
    _called(client, process, world)
    wrong: Any = process.random.choice(((1, "\ud800"), (2**63, ""), (1.5, "")))
    with suppress(Exception):
        ticket = log.send([OffsetCommit(process.ids.token(), _GROUP, (OffsetToCommit(1, 0, *wrong),))])
        if process.random.random() < 0.5:
            with log.within(process.random.choice(_TIMEOUTS_S)):
                ticket.wait()
    process.sleep(process.random.random())
