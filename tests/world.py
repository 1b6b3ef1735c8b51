"""One store with its clients: on the machine's clock (`World`), or on a clock that the test moves (`ClockedWorld`).

A file of tests that needs more names its own kind of world, and inherits from one of these.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from types import MappingProxyType
from typing import Any, Final

import pytest

from sparktxn._engine.format.commands import Command, CommandResult
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import Clock, Ids, RandomIds, SystemClock
from sparktxn._kafka.message import Message, TopicPartition
from sparktxn.consumer import Consumer
from sparktxn.errors import KafkaError, KafkaException, OutcomeUnknown
from sparktxn.producer import Producer
from sparktxn.store import Store, read_task
from sparktxn.testing.clocks import ManualClock, SeededIds, StrictBackground
from tests.lending import lend_log, take_log_back

_TOPICS: Final = MappingProxyType({"t": 1, "six": 6})
_UNDOTTED: Final = ("on_commit",)
_EMPTY_POLLS_MAX: Final = 40
_numbers = count()


def next_number() -> int:
    """A number that no other world of this process has: part of a store's name, or a seed."""
    return next(_numbers)


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a client, which a test writes as keyword arguments: `group_id` is `group.id`."""
    return {
        name if name.endswith("_cb") or name in _UNDOTTED else name.replace("_", "."): value
        for name, value in settings.items()
    }


@contextmanager
def store_in_memory(*topics: str) -> Iterator[str]:
    """The address of a new store of this process, which has the topics and stays open."""
    uri = f"memory://{RandomIds().token()}"
    with Store.open(uri, create=True) as store:
        for topic in topics:
            store.create_topic(topic)
        yield uri


def open_log(
    objects: ObjectStore,
    clock: Clock | None = None,
    ids: Ids | int | None = None,
    *,
    background: Background | None = None,
    create: bool = True,
    check_clock: bool = False,
    **settings: Any,
) -> Log:
    """A new process's log: on the machine's clock unless there is another, and with ids from a seed if there is one.

    Its background work is done at once, by the thread that asks for it, unless it is given another `background`.
    """
    return Log.open(
        objects,
        settings=StoreSettings(**settings),
        clock=clock or SystemClock(),
        ids=SeededIds(ids) if isinstance(ids, int) else ids or RandomIds(),
        background=background or StrictBackground(),
        create=create,
        check_clock=check_clock,
    )


class World:
    """A store in memory with `topics` (partitions by name), and its clients, which `close` closes."""

    def __init__(self, topics: Mapping[str, int] = _TOPICS, **options: Any) -> None:
        self.uri = f"memory://world-{uuid.uuid4().hex}"
        self.options = dotted(options)
        self.store = Store.open(self.uri, create=True, options=self.options)
        for name, partitions in topics.items():
            self.store.create_topic(name, partitions)
        self.clients: list[Any] = []

    def producer(self, transactional_id: str | None = None, **settings: Any) -> Producer:
        """A producer that is not initialised. It sends when asked to: what it stores never depends on the load."""
        given = {"linger.ms": 600_000, **dotted(settings)}
        if transactional_id is not None:
            given["transactional.id"] = transactional_id
        producer = Producer({"bootstrap.servers": self.uri, **self.options, **given})
        self.clients.append(producer)
        return producer

    def transactional(self, transactional_id: str = "orders", **settings: Any) -> Producer:
        """An initialised producer."""
        producer = self.producer(transactional_id, **settings)
        producer.init_transactions()
        return producer

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        """A consumer that starts at the beginning, and has subscribed to `topics` if there are any."""
        given = {"group_id": "readers", "auto_offset_reset": "earliest", "fetch_wait_max_ms": 5, **settings}
        consumer = Consumer({"bootstrap.servers": self.uri, **dotted(given)})
        self.clients.append(consumer)
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    def produce(self, *values: str, topic: str = "t", partition: int = 0, **kwargs: Any) -> None:
        """Appends outside transactions: no control records."""
        with Producer({"bootstrap.servers": self.uri}) as producer:
            for value in values:
                producer.produce(topic, value.encode(), partition=partition, **kwargs)

    def rows(self, topic: str, isolation: Any = "read_committed") -> list[dict[str, Any]]:
        view = self.store.view([topic])
        ranges = self.store.ranges(view, isolation=isolation)
        tasks = self.store.plan(view, ranges, isolation=isolation)
        return [row for task in tasks for batch in read_task(task, self.store.options) for row in batch.to_pylist()]

    def values(self, topic: str, isolation: Any = "read_committed") -> list[bytes]:
        return [row["value"] for row in self.rows(topic, isolation)]

    def texts(self, topic: str = "t") -> list[str]:
        """The committed values, as text."""
        return [value.decode() for value in self.values(topic)]

    def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """(last stable offset, log end offset) by partition."""
        view = self.store.view([topic])
        return {key[1]: (end.last_stable_offset, end.log_end_offset) for key, end in view.partitions.items()}

    def entry(self) -> int:
        """The newest entry's number."""
        with self.store.log.within(10):
            return self.store.log.refresh()

    def topic_id(self, name: str) -> int:
        topic = self.store.log.topic(name)
        assert topic is not None
        return topic.topic_id

    def submit(self, *commands: Command) -> list[CommandResult]:
        with self.store.log.within(60):
            return self.store.log.submit(commands)

    def committed(self, group: str, topic: str = "t", partition: int = 0) -> int | None:
        with self.store.log.within(10):
            self.store.log.refresh()
        found = self.store.log.committed_offset(group, self.topic_id(topic), partition)
        return None if found is None else found.offset

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.store.close()

    @contextmanager
    def losing_answers(self, times: int = 1) -> Iterator[list[Any]]:
        """The next `times` lists are written and their answers get lost: the first wait fails. Yields all lists."""
        log = self.store.log
        send, sent = log.send, []

        def answer(commands: Sequence[Command], condition: Any = None) -> Any:
            sent.append(list(commands))
            ticket = send(commands, condition)
            if len(sent) > times:
                return ticket
            with log.within(10):
                ticket.wait()
            return Answered([OutcomeUnknown("the answer was lost")], send=lambda: ticket, ticket=ticket)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log, "send", answer)
            yield sent

    @contextmanager
    def answering(
        self, *errors: KafkaException, times: int = 1, kind: type[Command] | None = None
    ) -> Iterator[list[Any]]:
        """The next lists (with a command of `kind`) are answered by `errors`, wait by wait, unwritten; those lists."""
        log = self.store.log
        send = log.send
        answered: list[list[Command]] = []

        def answer(commands: Sequence[Command], condition: Any = None) -> Any:
            if len(answered) < times and (kind is None or any(isinstance(command, kind) for command in commands)):
                answered.append(list(commands))
                return Answered(errors, lambda: send(commands, condition))
            return send(commands, condition)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log, "send", answer)
            yield answered


class ClockedWorld:
    """A store in memory on a clock that the test moves; each process has a log with `settings`.

    Ids are other ones in each world, unless it is given a `seed`. They decide which parts of the state are read. So
    only worlds with the same seed do the same operations of the store.
    """

    def __init__(self, *, seed: int | None = None, **settings: Any) -> None:
        self.settings = settings
        self._seeds = None if seed is None else count(seed)
        self.name = f"clocked-{next_number()}"
        self.clock = ManualClock()
        self.objects = MemoryStore(self.name, self.clock)
        self._lent: list[str] = []

    def process(self, objects: ObjectStore | None = None, clock: ManualClock | None = None, **settings: Any) -> Log:
        """A new process's log, through `objects` and by `clock` if its own differ from the world's."""
        seed = next_number() if self._seeds is None else next(self._seeds)
        return open_log(objects or self.objects, clock or self.clock, seed, **{**self.settings, **settings})

    def lend(self, name: str, log: Log) -> str:
        """Has the clients of the URI that this returns work on `log`, as in its process."""
        uri = f"memory://{self.name}-{name}"
        lend_log(uri, log)
        self._lent.append(uri)
        return uri

    def close(self) -> None:
        """Ends the clients' way to the logs."""
        while self._lent:
            take_log_back(self._lent.pop())


class Answered:
    """The ticket of a list that is answered by errors at first; a second wait sends it if it was not sent."""

    def __init__(self, errors: Sequence[KafkaException], send: Callable[[], Any], ticket: Any = None) -> None:
        self._errors = list(errors)
        self._may_be_sent = any(isinstance(error, OutcomeUnknown) for error in errors)
        self._send = send
        self._ticket = ticket

    def wait(self) -> list[CommandResult]:
        if self._errors:
            raise self._errors.pop(0)
        self._ticket = self._ticket or self._send()
        return self._ticket.wait()

    def withdraw(self) -> bool:
        if self._ticket is None:
            return not self._may_be_sent
        return bool(self._ticket.withdraw())

    wait_once = wait
    let_go = withdraw


def error_of(call: Callable[[], object], kind: type[KafkaException] = KafkaException) -> KafkaError:
    """The error that the call raises."""
    with pytest.raises(kind) as raised:
        call()
    return raised.value.error


def flags(error: KafkaError) -> tuple[bool, bool, bool]:
    """fatal, txn_requires_abort, retriable."""
    return error.fatal(), error.txn_requires_abort(), error.retriable()


def messages(consumer: Consumer, timeout: float = 0.05) -> list[Message]:
    """What the consumer hands out until it has read all there is; none is an error."""
    found = messages_and_errors(consumer, timeout)
    for message in found:
        assert message.error() is None, message.error()
    return found


def messages_and_errors(consumer: Consumer, timeout: float = 0.05) -> list[Message]:
    """What the consumer hands out until a poll of `timeout` seconds returns nothing and it has read all there is.

    A poll that returns nothing says little on a busy machine. A partition that is paused never ends: some more polls
    are enough then.
    """
    found = []
    empty = 0
    while empty < _EMPTY_POLLS_MAX:
        message = consumer.poll(timeout)
        if message is not None:
            found.append(message)
            continue
        empty += 1
        if _is_at_the_end(consumer):
            break
    return found


def _is_at_the_end(consumer: Consumer) -> bool:
    partitions = consumer.assignment()
    if not partitions:  # a slow machine has not assigned any yet
        return False
    try:
        ends = [consumer.get_watermark_offsets(partition, 5)[1] for partition in partitions]
    except KafkaException:  # a topic that was deleted
        return True
    # A position past the end is reset by a later poll.
    return all(found.offset == end for found, end in zip(consumer.position(partitions), ends, strict=True))


def position(consumer: Consumer, topic: str = "t", partition: int = 0) -> int:
    return consumer.position([TopicPartition(topic, partition)])[0].offset
