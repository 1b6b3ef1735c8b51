"""A writer whose clock is far from the store's writes nothing, and asks the store for its time rarely."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import CreateTopic
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.contract import ObjectInfo
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.clock import SystemClock
from sparktxn.errors import ClockSkewError, KafkaException, StoreUnavailable
from sparktxn.producer import Producer
from sparktxn.store import Store
from sparktxn.testing.clocks import ManualClock
from sparktxn.testing.faultystore import Died, Fault, FaultyStore, Operation
from tests.world import next_number, open_log

DAY_S = 86_400.0
SKEW_S = 600.0


class Clock(ManualClock):
    """One whose wall clock is wrong by `skew_s`; the monotonic one is not."""

    def __init__(self, true: ManualClock, skew_s: float) -> None:
        super().__init__()
        self.true = true
        self.skew_s = skew_s

    def wall_ms(self) -> int:
        return int((self.true.now_s + self.skew_s) * 1000)

    def monotonic_s(self) -> float:
        return self.true.now_s

    def processor_s(self) -> float:
        return self.true.now_s

    def sleep(self, seconds: float) -> None:
        self.true.sleep(seconds)


class Undated(MemoryStore):
    """A store that gives objects no times."""

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        return [ObjectInfo(info.name, info.size_bytes, 0) for info in super().list(prefix, after)]


def _meets(fault: Fault, number: int, operation: Operation) -> Fault:
    return fault if operation.number == number else Fault.NONE


class World:
    def __init__(self, skew_s: float = 0.0, kind: type[MemoryStore] = MemoryStore) -> None:
        self.number = next_number()
        self.store_clock = ManualClock()
        self.objects = kind(f"clock-{self.number}", self.store_clock)
        self.fate: Callable[[Operation], Fault] = lambda operation: Fault.NONE
        self.faulty = FaultyStore(self.objects, lambda operation: self.fate(operation))
        self.clock = Clock(self.store_clock, 0.0)
        open_log(self.objects, self.clock)
        self.clock.skew_s = skew_s
        self.log = self.open()

    def open(self, **settings: Any) -> Log:
        return open_log(self.faulty, self.clock, check_clock=True, **settings)

    def write(self, name: str = "t") -> None:
        self.log.submit([CreateTopic(name, name, 1)])

    def operations(self, kind: str) -> int:
        return sum(operation.verb == kind for operation in self.faulty.operations)


@pytest.mark.parametrize("skew_s", [-3_650 * DAY_S, -30 * DAY_S, -SKEW_S - 1, SKEW_S + 1, 3_650 * DAY_S, 10**12])
def test_a_writer_far_from_the_stores_clock_is_refused_before_it_writes(skew_s: float) -> None:
    world = World(skew_s)
    before = world.log.entry
    with pytest.raises(ClockSkewError) as raised:
        world.write()
    error = raised.value.error
    assert error.retriable()
    assert not error.fatal()
    told = error.str()
    assert world.objects.uri in told
    assert "clock.skew.max.ms is 600000" in told
    assert "set this machine's clock right" in told
    assert ("ahead of" if skew_s > 0 else "behind") in told
    assert "2023-11-14T22:13:20.000Z" in told, "the store's clock"
    assert (world.log.entry, world.objects.list_names(names.ENTRIES)) == (before, [])
    assert world.objects.list(names.CLOCKS) == []
    world.clock.skew_s = 0
    world.write()
    assert world.log.entry == before + 1


@pytest.mark.parametrize("skew_s", [-SKEW_S, 0, SKEW_S])
def test_a_writer_near_the_stores_clock_writes(skew_s: float) -> None:
    world = World(skew_s)
    world.write()


def test_a_wrong_clock_makes_no_store() -> None:
    world = World()
    world.objects = MemoryStore(f"clock-none-{world.number}", world.store_clock)
    world.faulty = FaultyStore(world.objects)
    world.clock.skew_s = DAY_S
    with pytest.raises(ClockSkewError):
        world.open()
    assert world.objects.list("") == []
    world.clock.skew_s = 0
    opened = world.open()
    asked = len(world.faulty.operations)
    opened.submit([CreateTopic("t", "t", 1)])
    names_asked = [str(operation.name) for operation in world.faulty.operations[asked:]]
    assert not [name for name in names_asked if name.startswith(names.CLOCKS)], "the opening has asked"


def test_a_list_that_was_refused_is_not_written_by_a_later_call() -> None:
    world = World(DAY_S)
    with pytest.raises(ClockSkewError):
        world.write("refused")
    world.clock.skew_s = 0
    world.write("later")
    assert [topic.name for topic in world.log.topics()] == ["later"]


def test_readers_need_no_clock() -> None:
    world = World()
    world.write()
    world.clock.skew_s = 3_650 * DAY_S
    late = world.open()
    assert [topic.name for topic in late.topics()] == ["t"]
    late.refresh()


def test_the_store_is_asked_once_and_then_every_hour() -> None:
    world = World()
    asked = []
    for number in range(20):
        world.write(f"t-{number}")
        world.clock.sleep(600)
        asked.append(sum(str(operation.name).startswith(names.CLOCKS) for operation in world.faulty.operations))
    assert asked[0] == asked[5] > 0
    assert asked[-1] == 4 * asked[0]


def test_a_clock_that_is_set_while_a_handle_is_open_is_noticed_at_the_next_write() -> None:
    world = World()
    world.write("a")
    world.clock.skew_s = -SKEW_S + 1
    world.write("b")
    world.clock.skew_s = 2 * DAY_S
    with pytest.raises(ClockSkewError):
        world.write("c")
    world.clock.skew_s = 0
    world.write("d")


def test_a_machine_that_has_slept_asks_again_instead_of_refusing() -> None:
    """While a machine sleeps, its monotonic clock may stand still; its wall clock does not."""
    world = World()
    world.write("a")
    world.store_clock.now_s += 8 * 3_600
    world.clock.monotonic_s = lambda: world.store_clock.now_s - 8 * 3_600  # type: ignore[method-assign]
    world.write("b")


def test_a_store_that_answers_late_is_not_taken_for_one_with_another_clock() -> None:
    world = World()

    def slow(operation: Operation) -> Fault:
        world.clock.sleep(700)
        return Fault.NONE

    world.fate = slow
    world.log.submit([CreateTopic("t", "t", 1)])


def test_a_store_without_times_is_not_compared_with() -> None:
    World(3_650 * DAY_S, Undated).write()


def test_a_probe_that_is_not_answered_is_tried_again_until_the_deadline() -> None:
    world = World()
    failing = [3]

    def fate(operation: Operation) -> Fault:
        if str(operation.name).startswith(names.CLOCKS) and failing[0]:
            failing[0] -= 1
            return Fault.UNAVAILABLE
        return Fault.NONE

    world.fate = fate
    world.write()
    assert failing == [0]


def test_a_writer_that_may_not_delete_leaves_its_probe_to_others() -> None:
    world = World()
    world.fate = lambda operation: Fault.UNAVAILABLE if operation.verb == "delete" else Fault.NONE
    world.write()
    assert len(world.objects.list(names.CLOCKS)) == 1


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.NONE], ids=lambda fault: fault.value)
def test_every_operation_of_the_first_write_may_be_the_last(fault: Fault) -> None:
    world = World()
    opened = len(world.faulty.operations)
    world.write()
    for number in range(opened + 1, len(world.faulty.operations) + 1):
        again = World()
        again.fate = partial(_meets, fault, number)
        with suppress(Died, StoreUnavailable):
            again.write()
        again.fate = lambda operation: Fault.NONE
        again.faulty = FaultyStore(again.objects)
        again.log = again.open()
        with suppress(KafkaException):
            again.write("u")
        assert {"u"} <= {topic.name for topic in again.log.topics()}, number


def test_clients_are_refused_and_go_on_once_the_clock_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system dates its files by the kernel's clock: a process that is given another one is found out."""
    uri = str(tmp_path)
    with Store.open(uri, create=True) as store:
        store.create_topic("t")
    wrong_ms = [int(3_650 * DAY_S * 1000)]
    right = SystemClock.wall_ms
    monkeypatch.setattr(SystemClock, "wall_ms", lambda clock: right(clock) + wrong_ms[0])
    with Producer({"bootstrap.servers": uri, "transactional.id": "orders"}) as producer:
        with pytest.raises(ClockSkewError):
            producer.init_transactions(5)
        wrong_ms[0] = 0
        producer.init_transactions(5)
        producer.begin_transaction()
        producer.produce("t", "x")
        wrong_ms[0] = -int(30 * DAY_S * 1000)
        with pytest.raises(ClockSkewError):
            producer.commit_transaction(5)
        wrong_ms[0] = 0
        producer.commit_transaction(5)
    with Store.open(uri, options={"clock.skew.max.ms": 2**53}) as store:
        wrong_ms[0] = int(DAY_S * 1000)
        store.create_topic("allowed")
