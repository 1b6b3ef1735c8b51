"""What a case of the differential program gets: topics, clients, and verdicts that two runs can compare."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_S = 20.0
Case = Callable[["Kit"], Any]
CASES: dict[str, Case] = {}


def case(run: Case) -> Case:
    """Register a case; its name says the subject."""
    assert run.__name__ not in CASES, run.__name__
    CASES[run.__name__] = run
    return run


def flags(error: Any) -> str:
    """Return a code of Kafka's with the flags that are set: [F]atal, [R]etriable, [A]bort."""
    shown = "".join(
        letter
        for letter, is_set in zip("FRA", (error.fatal(), error.retriable(), error.txn_requires_abort()), strict=True)
        if is_set
    )
    return f"{error.code()}[{shown}]"


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or how it fails; the words of an error are each library's own.

    An error of several classes gives all of them, with a bar between: a program may catch either.
    """
    try:
        return plain(call())
    except Exception as error:
        names = [kind.__name__ for kind in (TypeError, ValueError, KeyError, RuntimeError) if isinstance(error, kind)]
        if isinstance(error, KafkaException):
            names.append(f"KafkaException {flags(error.args[0])}")
        return "|".join(names or [type(error).__name__])


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it, the same for both libraries."""
    if isinstance(value, KafkaError):
        return flags(value)
    if isinstance(value, TopicPartition):
        return [value.partition, value.offset, value.metadata, plain(value.error)]
    if isinstance(value, bytes):
        return "b:" + value.decode("latin-1")
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__


class Kit:
    """One case's broker or store. Names of topics and groups begin with the case's own."""

    def __init__(self, address: str, name: str) -> None:
        self.settings = {"bootstrap.servers": address}
        self.name = name
        self.group = f"{name}-group"
        self._consumers: list[Consumer] = []
        self._topics = 0
        self.admin = AdminClient(self.settings)

    def topic(self, partitions: int = 1, **config: str) -> str:
        self._topics += 1
        topic = f"{self.name}-{self._topics}"
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(WAIT_S)
        until(lambda: self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].error is None)
        return topic

    def producer(self, **settings: Any) -> Producer:
        return Producer({**self.settings, "linger.ms": 5, **dotted(settings)})

    def transactional(self, identity: str = "id", **settings: Any) -> Producer:
        """A producer of a transactional id; `init_transactions` has run."""
        producer = self.producer(transactional_id=f"{self.name}-{identity}", **settings)
        producer.init_transactions(WAIT_S)
        return producer

    def consumer(self, **settings: Any) -> Consumer:
        base = {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**self.settings, **base, **dotted(settings)})
        self._consumers.append(consumer)
        return consumer

    def assigned(self, topic: str, partition: int = 0, offset: int = 0, **settings: Any) -> Consumer:
        consumer = self.consumer(**settings)
        consumer.assign([TopicPartition(topic, partition, offset)])
        return consumer

    def fill(self, topic: str, count: int, partition: int = 0, **record: Any) -> None:
        producer = self.producer()
        for number in range(count):
            producer.produce(topic, f"v{number}", partition=partition, **record)
        assert producer.flush(WAIT_S) == 0

    def commit(self, topic: str, *values: str, **settings: Any) -> Producer:
        """Commit a transaction with these values; return its producer."""
        producer = self.transactional(**settings)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.commit_transaction(WAIT_S)
        return producer

    def close(self) -> None:
        for consumer in self._consumers:
            with contextlib.suppress(RuntimeError):
                consumer.close()


CALLBACKS = ("on_delivery", "on_commit", "error_cb")


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name if name in CALLBACKS else name.replace("_", "."): value for name, value in settings.items()}


def messages(consumer: Consumer, count: int, wait_s: float = WAIT_S) -> list[Any]:
    """Return the next messages, errors among them; fewer if none come in time."""
    found: list[Any] = []
    end = time.monotonic() + wait_s
    while len(found) < count and time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None:
            found.append(message)
    return found


def values(consumer: Consumer, count: int, wait_s: float = WAIT_S) -> list[Any]:
    """Return (offset, value) of the next messages."""
    return [[one.offset(), plain(one.error() or one.value())] for one in messages(consumer, count, wait_s)]


def until(done: Callable[[], Any], wait_s: float = WAIT_S) -> bool:
    """Call `done` until it returns something true; False if the time is over."""
    end = time.monotonic() + wait_s
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def result(futures: dict[Any, Any]) -> Any:
    """Return what the only future of an administrator's call returns."""
    (future,) = futures.values()
    return future.result(WAIT_S)
