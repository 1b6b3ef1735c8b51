"""Logs over one memory store, each with a way to the objects that a test can let fail."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Command, CommandResult, CreateTopic, InitProducerId
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn.testing.clocks import ManualClock
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.producercommands import ProducerCommands
from tests.world import next_number, open_log

LEFT, RIGHT = (1, 0), (1, 1)


class Client:
    """A process: its log, and what becomes of its operations. `fate` may be set at any time."""

    def __init__(self, objects: ObjectStore, clock: ManualClock, seed: int, **settings: Any) -> None:
        self.fate: Callable[[Operation], Fault] = lambda operation: Fault.NONE
        self.late: list[Callable[[], object]] = []
        self.objects = FaultyStore(objects, lambda operation: self.fate(operation), later=self.late.append)
        self.log = open_log(self.objects, clock, seed, **settings)
        self.producer = ProducerCommands(None, -1, -1)

    def submit(self, *commands: Command, timeout_s: float | None = 5.0) -> list[CommandResult]:
        with self.log.within(timeout_s):
            return self.log.submit(commands)

    def initialise(self, transactional_id: str, request_id: str) -> ProducerCommands:
        self.producer = ProducerCommands.of(
            transactional_id, self.submit(InitProducerId(request_id, transactional_id))[0]
        )
        return self.producer

    def fused(self, transaction: int, sequence: int) -> list[Command]:
        return [
            self.producer.append(LEFT, sequence, transaction=transaction),
            self.producer.append(RIGHT, sequence, transaction=transaction),
            self.producer.end(transaction),
        ]

    def fail_next(self, verb: str, fault: Fault, *, part_of_name: str = "") -> None:
        """The next operation of this kind fails; those after it do not."""

        def fate(operation: Operation) -> Fault:
            if operation.verb != verb or part_of_name not in operation.name:
                return Fault.NONE
            self.fate = lambda later: Fault.NONE
            return fault

        self.fate = fate


class Shared:
    """One store, its clock, and the processes on it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.objects = MemoryStore(f"log-{next_number()}", self.clock)
        self._seeds = count()

    def client(self, **settings: Any) -> Client:
        chosen = {"checkpoint_entries": 1_000, "checkpoint_seal_segments": 2, **settings}
        return Client(self.objects, self.clock, next(self._seeds), **chosen)

    def vacuum(self, horizon: int) -> None:
        """What the vacuum leaves of the log: a marker, and no entry below it."""
        self.objects.put_if_absent(names.horizon(horizon), b"horizon")
        self.objects.delete([names.entry(number) for number in range(1, horizon)])

    def names_of_entries(self) -> list[int]:
        return sorted(
            number for name in self.objects.list_names(names.ENTRIES) if (number := names.parse_entry(name)) is not None
        )


@pytest.fixture
def shared() -> Shared:
    """A store with a topic of two partitions."""
    store = Shared()
    store.client().submit(CreateTopic("topic", "topic", 2))
    return store


@pytest.fixture
def client(shared: Shared) -> Client:
    return shared.client()
