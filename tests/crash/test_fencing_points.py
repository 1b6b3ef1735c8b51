"""A producer is paused before each store operation of a transaction; another process ends it meanwhile; it continues.

A newer producer, a sweep or an administrator acts. The paused producer has committed all of it before, or is refused as
fenced and has committed nothing. No transaction stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparktxn._engine.format.commands import CreateTopic, EndTxn, InitProducerId
from sparktxn._foundation.process.clock import callers_own_time
from sparktxn._kafka.message import ConsumerGroupMetadata, TopicPartition
from sparktxn.consumer import Consumer
from sparktxn.errors import ErrorCode, KafkaException
from sparktxn.maintenance import sweep
from sparktxn.producer import Producer
from sparktxn.store import Store
from sparktxn.testing.faultystore import Fault, FaultyStore, Operation
from tests.world import ClockedWorld, next_number

pytestmark = pytest.mark.crash

GROUP = ConsumerGroupMetadata("group")
FENCED = (ErrorCode.LOCAL_FENCED, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class World(ClockedWorld):
    """One store, the paused producer's process, and another process that acts while it is paused."""

    def __init__(self, pause_before: int = 0, act: Callable[[World], None] | None = None) -> None:
        super().__init__(checkpoint_entries=3, checkpoint_seal_segments=2, timeout_check_interval_ms=10**12)
        self.other = self.process()
        self.other.submit([CreateTopic("topic", "topic", 2)])
        self._pause_before, self._act = pause_before, act
        self.acted = False
        self.faulty = FaultyStore(self.objects, self._fate)
        self.uris = {"other": self.lend("other", self.other), "paused": self.lend("paused", self.process(self.faulty))}
        self.producer = self.new_producer("paused")
        self.producer.init_transactions()
        self.initialised = len(self.faulty.operations)

    def new_producer(self, name: str) -> Producer:
        return Producer({"bootstrap.servers": self.uris[name], "transactional.id": "job"})

    def _fate(self, operation: Operation) -> Fault:
        if operation.number == self._pause_before and self._act is not None:
            self.acted = True
            with callers_own_time():  # another process acts: the paused call's deadline is not its own
                self._act(self)
        return Fault.NONE

    def close(self) -> None:
        self.producer.close()
        super().close()

    # what the world looks like

    def committed(self) -> list[bytes]:
        settings = {"group.id": f"reader-{next_number()}", "auto.offset.reset": "earliest"}
        with Consumer({"bootstrap.servers": self.uris["other"], **settings}) as reader:
            reader.subscribe(["topic"])
            return sorted(message.value() or b"" for message in reader.consume(100, timeout=5))

    def is_hanging(self) -> bool:
        view = self.other.view(["topic"])
        return any(seen.last_stable_offset < seen.log_end_offset for seen in view.partitions.values())


# --- what the paused producer does


def finish(call: Callable[[], None]) -> None:
    """Calls again what its deadline has passed for, as long as it was paused."""
    for _ in range(3):
        try:
            return call()
        except KafkaException as error:
            if not error.error.retriable():
                raise
    return call()


def fused(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce("topic", b"1", partition=0)
    producer.produce("topic", b"2", partition=1)
    producer.send_offsets_to_transaction([TopicPartition("topic", 0, 7)], GROUP)
    finish(producer.commit_transaction)


def early(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce("topic", b"1", partition=0)
    producer.flush()
    producer.produce("topic", b"2", partition=1)
    producer.flush()
    producer.send_offsets_to_transaction([TopicPartition("topic", 0, 7)], GROUP)
    finish(producer.commit_transaction)


def early_then_abort(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce("topic", b"1", partition=0)
    producer.flush()
    producer.produce("topic", b"2", partition=1)
    producer.flush()
    finish(producer.abort_transaction)


WORK = {"fused": fused, "early": early, "early then abort": early_then_abort}


# --- what others do meanwhile


def second_instance(world: World) -> None:
    newer = world.new_producer("other")
    newer.init_transactions()
    newer.close()


def swept(world: World) -> None:
    world.clock.sleep(61)
    sweep(Store(world.uris["other"], {}, world.other))


def swept_until_forgotten(world: World) -> None:
    swept(world)
    world.clock.sleep(8 * 86_400)
    sweep(Store(world.uris["other"], {}, world.other))


def fenced_by_admin(world: World) -> None:
    command = InitProducerId(world.other.ids.token(), "job", fence_reason="an administrator has fenced it")
    world.other.submit([command])


def aborted_by_admin(world: World) -> None:
    world.other.refresh()
    found = world.other.transaction("job")
    if found is not None and found.status.name == "ONGOING":
        command = EndTxn(
            "job",
            found.producer_id,
            found.producer_epoch,
            found.transaction,
            committed=False,
            fence_reason="an administrator has aborted it",
        )
        world.other.submit([command])


ACTIONS: dict[str, tuple[Callable[[World], None], str]] = {
    "second instance": (second_instance, "a newer producer has initialised it"),
    "sweep": (swept, "transaction timed out after 61000 ms"),
    "admin fence": (fenced_by_admin, "an administrator has fenced it"),
    "admin abort": (aborted_by_admin, "an administrator has aborted it"),
}


def outcome_of(work: Callable[[Producer], None], producer: Producer) -> KafkaException | None:
    """None if the work was done; else the error that ends this producer: an abortable one is aborted, as users do."""
    try:
        work(producer)
    except KafkaException as error:
        if not error.error.txn_requires_abort():
            return error
        try:
            finish(producer.abort_transaction)
        except KafkaException as revealed:
            return revealed
        return error
    return None


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(*arguments: Any) -> World:
        made.append(World(*arguments))
        return made[-1]

    yield make
    for world in made:
        world.close()


def operations_of(make_world: Callable[..., World], work: Callable[[Producer], None]) -> range:
    world = make_world()
    work(world.producer)
    assert world.committed() == ([] if work is early_then_abort else [b"1", b"2"])
    return range(world.initialised + 1, len(world.faulty.operations) + 1)


@pytest.mark.kafka("K44", "K110", "K127", "K134")
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("work", WORK)
def test_a_producer_that_wakes_anywhere_has_committed_before_or_is_fenced(
    make_world: Callable[..., World], work: str, action: str
) -> None:
    act, reason = ACTIONS[action]
    outcomes = {"done": 0, "fenced": 0}
    for number in operations_of(make_world, WORK[work]):
        world = make_world(number, act)
        error = outcome_of(WORK[work], world.producer)
        assert world.acted
        if error is None:
            assert world.committed() == ([] if work == "early then abort" else [b"1", b"2"]), number
            outcomes["done"] += 1
        elif error.error.code() == ErrorCode.LOCAL_MSG_TIMED_OUT:
            # It slept past its records' delivery time-out before it could learn more.
            assert error.error.txn_requires_abort(), (number, error)
            assert world.committed() == [], number
        else:
            assert error.error.code() in FENCED, (number, error)
            assert error.error.fatal(), (number, error)
            assert reason in error.error.str(), (number, error)
            assert world.committed() == [], number
            outcomes["fenced"] += 1
        assert not world.is_hanging(), number
        newer = world.new_producer("other")
        newer.init_transactions()
        fused(newer)
        newer.close()
        times = 2 if error is None and work != "early then abort" else 1
        assert world.committed() == sorted([b"1", b"2"] * times), number
    # After the last entry there are operations left in which nothing can go wrong any more.
    assert outcomes["done"] > 0
    # A fused commit is not in the log while it is paused: there is nothing that could time out, or be aborted.
    assert (outcomes["fenced"] > 0) == (work != "fused" or action in ("second instance", "admin fence"))


@pytest.mark.kafka("K46", "K48")
@pytest.mark.parametrize("work", WORK)
def test_a_producer_whose_id_has_been_forgotten_can_abort_and_go_on(
    make_world: Callable[..., World], work: str
) -> None:
    for number in operations_of(make_world, WORK[work]):
        world = make_world(number, swept_until_forgotten)
        error = outcome_of(WORK[work], world.producer)
        expected = [b"1", b"2"] if error is None and work != "early then abort" else []
        assert world.committed() == expected, number
        if error is not None:
            timed_out = error.error.code() == ErrorCode.LOCAL_MSG_TIMED_OUT
            assert timed_out or error.error.code() == ErrorCode.INVALID_PRODUCER_ID_MAPPING, (number, error)
            assert error.error.txn_requires_abort()
        assert not world.is_hanging(), number
        outcome = outcome_of(fused, world.producer)
        if outcome is not None:
            # Forgotten after this transaction had ended: the next one says so, and its abort initialises again.
            assert outcome.error.code() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            fused(world.producer)
        assert world.committed() == sorted([*expected, b"1", b"2"]), number
