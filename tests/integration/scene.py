"""One store in memory with its clients, and answers of the log that a test chooses."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from sparktxn.clock import Deadline
from sparktxn.consumer import Consumer
from sparktxn.errors import KafkaError, KafkaException, OutcomeUnknown
from sparktxn.format.commands import Command, CommandResult
from sparktxn.message import Message, TopicPartition
from sparktxn.producer import Producer
from sparktxn.store import Store, read_task


class Scene:
    """Topics `t` of one partition and `six` of six."""

    def __init__(self) -> None:
        self.uri = f"memory://scene-{uuid.uuid4().hex}"
        self.store = Store.open(self.uri, create=True)
        self.store.create_topic("t", 1)
        self.store.create_topic("six", 6)
        self.clients: list[Any] = []

    def producer(self, transactional_id: str | None = "orders", **settings: Any) -> Producer:
        """One that is not initialised."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        if transactional_id is not None:
            given["transactional.id"] = transactional_id
        producer = Producer({"bootstrap.servers": self.uri, **given})
        self.clients.append(producer)
        return producer

    def transactional(self, transactional_id: str = "orders", **settings: Any) -> Producer:
        producer = self.producer(transactional_id, **settings)
        producer.init_transactions()
        return producer

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        given = {"group_id": "readers", "auto_offset_reset": "earliest", "fetch_wait_max_ms": 5, **settings}
        consumer = Consumer({"bootstrap.servers": self.uri, **{k.replace("_", "."): v for k, v in given.items()}})
        self.clients.append(consumer)
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    def rows(self, topic: str, isolation: Any = "read_committed") -> list[dict[str, Any]]:
        view = self.store.view([topic])
        ranges = self.store.ranges(view, isolation=isolation)
        tasks = self.store.plan(view, ranges, isolation=isolation)
        return [row for task in tasks for batch in read_task(task, self.store.options) for row in batch.to_pylist()]

    def values(self, topic: str, isolation: Any = "read_committed") -> list[bytes]:
        return [row["value"] for row in self.rows(topic, isolation)]

    def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """(last stable offset, log end offset) by partition."""
        view = self.store.view([topic])
        return {key[1]: (end.last_stable_offset, end.log_end_offset) for key, end in view.partitions.items()}

    def topic_id(self, name: str) -> int:
        topic = self.store.log.topic(name)
        assert topic is not None
        return topic.topic_id

    def submit(self, *commands: Command) -> list[CommandResult]:
        return self.store.log.submit(commands, self.store.log.deadline(10))

    def committed(self, group: str, topic: str = "t", partition: int = 0) -> int | None:
        self.store.log.refresh(self.store.log.deadline(10))
        found = self.store.log.committed_offset(group, self.topic_id(topic), partition)
        return None if found is None else found.offset

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.store.close()

    @contextmanager
    def losing_answers(self, times: int = 1) -> Iterator[list[Any]]:
        """The next lists are written, and their answers get lost: their callers' first wait is in vain; those lists."""
        log = self.store.log
        send, lost = log.send, []

        def answer(commands: Sequence[Command]) -> Any:
            ticket = send(commands)
            if len(lost) >= times:
                return ticket
            lost.append(list(commands))
            ticket.wait(log.deadline(10))
            return Answered([OutcomeUnknown("the answer was lost")], send=lambda: ticket, ticket=ticket)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log, "send", answer)
            yield lost

    @contextmanager
    def answering(
        self, *errors: KafkaException, times: int = 1, kind: type[Command] | None = None
    ) -> Iterator[list[Any]]:
        """The next lists (with a command of `kind`) are answered by `errors`, wait by wait, unwritten; those lists."""
        log = self.store.log
        send, answered = log.send, []

        def answer(commands: Sequence[Command]) -> Any:
            if len(answered) < times and (kind is None or any(isinstance(command, kind) for command in commands)):
                answered.append(list(commands))
                return Answered(errors, lambda: send(commands))
            return send(commands)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(log, "send", answer)
            yield answered


class Answered:
    """The ticket of a list that is answered by errors at first; who waits again, sends it if it was not sent."""

    def __init__(self, errors: Sequence[KafkaException], send: Callable[[], Any], ticket: Any = None) -> None:
        self._errors = list(errors)
        self._may_be_sent = any(isinstance(error, OutcomeUnknown) for error in errors)
        self._send = send
        self._ticket = ticket

    def wait(self, deadline: Deadline) -> list[CommandResult]:
        if self._errors:
            raise self._errors.pop(0)
        self._ticket = self._ticket or self._send()
        return self._ticket.wait(deadline)  # type: ignore[no-any-return]

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
    """What the consumer hands out until nothing comes for `timeout` seconds; none is an error."""
    found = []
    while (message := consumer.poll(timeout)) is not None:
        assert message.error() is None, message.error()
        found.append(message)
    return found


def position(consumer: Consumer, topic: str = "t", partition: int = 0) -> int:
    return consumer.position([TopicPartition(topic, partition)])[0].offset
