"""`producer.transaction(offsets_from=consumer)`: a block that fails gives its input back, and the next one reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparktxn._kafka.message import OFFSET_END, TopicPartition
from sparktxn.consumer import Consumer
from sparktxn.errors import (
    CommandRefused,
    ErrorCode,
    KafkaException,
    OutcomeLost,
    OutcomeUnknown,
    ProducerFenced,
    TransactionAborted,
)
from sparktxn.producer import Producer, TransactionPhase
from tests.world import World, error_of

PLACES = [TopicPartition("six", number) for number in range(3)]
PER_PARTITION = 10


class BlockFailed(Exception):
    """What a block raises."""


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    with world.producer() as seed:
        for number in range(PER_PARTITION):
            for place in PLACES:
                seed.produce("six", f"{place.partition}-{number}", partition=place.partition)
    yield world
    world.close()


def reading(world: World, **settings: Any) -> Consumer:
    consumer = world.consumer(group_id="group", **{"enable_auto_commit": False, **settings})
    consumer.assign(PLACES)
    return consumer


def places(consumer: Consumer) -> list[int]:
    return [found.offset for found in consumer.position(PLACES)]


def values(consumer: Consumer, count: int) -> list[bytes]:
    return sorted(message.value() or b"" for message in consumer.consume(count, 5))


@contextmanager
def failing(producer: Producer, consumer: Consumer) -> Iterator[None]:
    """A block that fails at its end."""
    with pytest.raises(BlockFailed), producer.transaction(offsets_from=consumer):  # noqa: PT012
        yield
        raise BlockFailed


def run(producer: Producer, consumer: Consumer, work: Callable[[], object]) -> None:
    """A block that does `work`."""
    with producer.transaction(offsets_from=consumer):
        work()


@pytest.mark.parametrize("before", [0, 4, 13])
@pytest.mark.parametrize("flushed", [False, True])
def test_the_next_block_reads_what_a_failed_one_has_read(world: World, before: int, flushed: bool) -> None:
    consumer, producer = reading(world), world.transactional()
    if before:
        with producer.transaction(offsets_from=consumer):
            consumer.consume(before, 5)
    began = places(consumer)
    seen = []
    for attempt in range(3):
        with failing(producer, consumer):
            seen.append(values(consumer, 7 + attempt))
            producer.produce("t", "lost")
            if flushed:
                producer.send_offsets_to_transaction(consumer.position(PLACES), consumer.consumer_group_metadata())
                producer.flush()
        if before:
            assert places(consumer) == began
    assert set(seen[0]) <= set(seen[1]) <= set(seen[2])
    with producer.transaction(offsets_from=consumer):
        for value in values(consumer, 3 * PER_PARTITION - before):
            producer.produce("t", value)
    assert len(world.values("t")) == 3 * PER_PARTITION - before
    assert [world.committed("group", "six", place.partition) for place in PLACES] == [PER_PARTITION] * 3


def test_a_commit_that_is_to_be_aborted_gives_the_input_back(world: World) -> None:
    consumer, producer = reading(world), world.transactional()
    refusal = CommandRefused(ErrorCode.ILLEGAL_GENERATION, "refused")
    for _ in range(2):
        seen: list[bytes] = []

        def work(seen: list[bytes] = seen) -> None:
            seen += values(consumer, 30)
            producer.produce("t", "x")

        with world.answering(refusal), pytest.raises(TransactionAborted):
            run(producer, consumer, work)
        assert seen == sorted(f"{number % 3}-{number // 3}".encode() for number in range(30))
        assert producer.transaction_state is TransactionPhase.READY
    with producer.transaction(offsets_from=consumer):
        assert len(consumer.consume(30, 5)) == 30
    assert [world.committed("group", "six", place.partition) for place in PLACES] == [PER_PARTITION] * 3


def test_purged_records_give_the_input_back(world: World) -> None:
    consumer, producer = reading(world), world.transactional()

    def work() -> None:
        consumer.consume(30, 5)
        producer.produce("t", "x")
        producer.purge()

    assert error_of(lambda: run(producer, consumer, work), TransactionAborted).code() == ErrorCode.LOCAL_INCONSISTENT
    assert len(consumer.consume(30, 5)) == 30


def test_columns_paused_partitions_and_messages_that_were_fetched(world: World) -> None:
    consumer, producer = reading(world), world.transactional()
    consumer.consume(1, 5)
    consumer.pause([PLACES[2]])
    began = places(consumer)
    with failing(producer, consumer):
        table = consumer.consume_arrow(5, 5)
        assert table is not None
        consumer.consume(2, 5)
    assert places(consumer) == began
    rest = values(consumer, 2 * PER_PARTITION)
    assert not any(value.startswith(b"2-") for value in rest[: 2 * PER_PARTITION - 1])
    consumer.resume([PLACES[2]])
    rest += values(consumer, 3 * PER_PARTITION - 1 - len(rest))
    assert len(set(rest)) == 3 * PER_PARTITION - 1


def test_stored_offsets_return_and_automatic_commits_wait(world: World) -> None:
    consumer = reading(world, enable_auto_commit=True, auto_commit_interval_ms=1)
    producer = world.transactional()
    with failing(producer, consumer):
        for _ in range(12):
            consumer.consume(2, 5)
        assert world.committed("group", "six", 0) is None
    consumer.poll(0)
    consumer.close()
    assert [world.committed("group", "six", place.partition) in (None, 0, 1) for place in PLACES] == [True] * 3


def test_offsets_that_the_user_stores_return_too(world: World) -> None:
    consumer, producer = reading(world, enable_auto_offset_store=False), world.transactional()
    consumer.consume(1, 5)
    consumer.store_offsets(offsets=[TopicPartition("six", 0, 1, "note")])
    with failing(producer, consumer):
        consumer.store_offsets(offsets=[TopicPartition("six", 0, 9)])
    (stored,) = consumer.commit(asynchronous=False) or []
    assert (stored.offset, stored.metadata) == (1, "note")


def test_a_place_that_the_block_has_found_is_where_it_began(world: World) -> None:
    """The end of a partition moves on: a block that began there returns to the end that it has found."""
    consumer, producer = world.consumer(group_id="group", enable_auto_commit=False), world.transactional()
    consumer.assign([TopicPartition("six", 0, OFFSET_END)])
    with failing(producer, consumer):
        assert consumer.poll(0.1) is None
        with world.producer() as seed:
            seed.produce("six", "new", partition=0)
        message = consumer.poll(5)
        assert message is not None
        assert message.value() == b"new"
    message = consumer.poll(5)
    assert message is not None
    assert message.value() == b"new"


def test_partitions_that_come_or_go_in_the_block(world: World) -> None:
    consumer, producer = reading(world), world.transactional()
    consumer.consume(1, 5)
    with failing(producer, consumer):
        consumer.incremental_unassign([PLACES[0]])
        consumer.incremental_assign([TopicPartition("t", 0)])
        with world.producer() as seed:
            seed.produce("t", "late")
        while not any(message.topic() == "t" for message in consumer.consume(5, 5)):
            pass
    assert TopicPartition("six", 0) not in consumer.assignment()
    assert b"late" in values(consumer, 2 * PER_PARTITION + 1)


def test_a_commit_whose_outcome_is_not_known_moves_the_consumer_nowhere(world: World) -> None:
    consumer, producer = reading(world), world.transactional()

    def work() -> None:
        consumer.consume(30, 5)
        producer.produce("t", "x")

    with world.losing_answers(), pytest.raises(OutcomeUnknown):
        run(producer, consumer, work)
    assert places(consumer) == [PER_PARTITION] * 3
    producer.commit_transaction()
    assert world.values("t") == [b"x"]
    assert consumer.poll(0.1) is None


def test_a_fenced_producer_gives_the_input_back_and_says_what_to_do(world: World) -> None:
    consumer, old = reading(world), world.transactional()
    consumer.consume(30, 5)
    consumer.seek(TopicPartition("six", 0, 4))
    new = world.producer("orders")

    def work() -> None:
        consumer.consume(6, 5)
        new.init_transactions()
        old.produce("t", "x")

    with pytest.raises(ProducerFenced) as raised:
        run(old, consumer, work)
    assert places(consumer)[0] == 4
    assert any("can only be closed" in note for note in raised.value.__notes__)
    with new.transaction(offsets_from=consumer):
        assert len(consumer.consume(6, 5)) == 6
    assert world.committed("group", "six", 0) == PER_PARTITION


def test_a_commit_that_nobody_can_tell_of_moves_the_consumer_nowhere(world: World) -> None:
    consumer, producer = reading(world), world.transactional()

    def work() -> None:
        consumer.consume(30, 5)
        producer.produce("t", "x")

    with world.answering(OutcomeLost("vacuumed")), pytest.raises(KafkaException) as raised:
        run(producer, consumer, work)
    assert raised.value.error.fatal()
    assert places(consumer) == [PER_PARTITION] * 3
    assert any("make new ones" in note for note in raised.value.__notes__)


def test_a_prepared_transaction_is_its_coordinators(world: World) -> None:
    consumer, producer = reading(world), world.transactional()
    with failing(producer, consumer):
        consumer.consume(30, 5)
        producer.send_offsets_to_transaction(consumer.position(PLACES), consumer.consumer_group_metadata())
        prepared = producer.prepare_transaction()
    assert places(consumer) == [PER_PARTITION] * 3
    producer.complete_transaction(prepared)
    assert world.committed("group", "six", 0) == PER_PARTITION


def test_a_consumer_that_the_block_has_closed(world: World) -> None:
    consumer, producer = reading(world), world.transactional()
    with failing(producer, consumer):
        consumer.close()


def test_an_end_takes_what_a_beginning_has_given(world: World) -> None:
    consumer = reading(world)
    with pytest.raises(TypeError, match="what begin_block"):
        consumer.end_block("here", committed=True)  # type: ignore[arg-type]
    assert error_of(lambda: consumer.commit(asynchronous=False), KafkaException).code() == ErrorCode.LOCAL_NO_OFFSET
