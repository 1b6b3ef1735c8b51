"""Offsets in transactions: when they wait, when they count, and who must wait for them (KIP-447)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sparktxn._kafka.message import ConsumerGroupMetadata, TopicPartition
from sparktxn.errors import ErrorCode, KafkaException, TransactionAborted
from tests.world import World, error_of, flags

GROUP = ConsumerGroupMetadata("group")
PLACE = TopicPartition("six", 0)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def at(offset: int, partition: int = 0) -> list[TopicPartition]:
    return [TopicPartition("six", partition, offset)]


@pytest.mark.kafka("K104", "K105")
@pytest.mark.parametrize("commit", [True, False])
def test_flushed_offsets_wait_and_whoever_asks_is_told_to_wait(world: World, commit: bool) -> None:
    producer = world.transactional()
    consumer = world.consumer(group_id="group")
    consumer.commit(offsets=at(1), asynchronous=False)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(at(5), GROUP)
    assert consumer.committed([PLACE], 1)[0].offset == 1
    producer.flush()
    error = error_of(lambda: consumer.committed([PLACE], 0.05), KafkaException)
    assert (error.code(), flags(error)) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, (False, False, True))
    assert consumer.committed([TopicPartition("six", 1)], 0.05)[0].offset < 0
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    assert consumer.committed([PLACE], 1)[0].offset == (5 if commit else 1)


@pytest.mark.kafka("K105")
def test_committed_waits_for_the_end_of_the_transaction(world: World) -> None:
    producer = world.transactional()
    consumer = world.consumer(group_id="group")
    producer.begin_transaction()
    producer.send_offsets_to_transaction(at(7), GROUP)
    producer.flush()
    ending = threading.Timer(0.2, producer.commit_transaction)
    ending.start()
    try:
        assert consumer.committed([PLACE], 10)[0].offset == 7
    finally:
        ending.join()


@pytest.mark.kafka("K105")
def test_who_takes_a_partition_over_begins_after_the_open_transaction(world: World) -> None:
    """Two producers of one group: the second consumer must not read again what the first is about to commit."""
    with world.producer() as seed:
        for number in range(4):
            seed.produce("six", str(number), partition=0)
    first = world.transactional("first")
    reader = world.consumer(group_id="group")
    reader.assign([PLACE])
    first.begin_transaction()
    for message in reader.consume(3, 5):
        first.produce("t", message.value())
    first.send_offsets_to_transaction(reader.position([PLACE]), reader.consumer_group_metadata())
    first.flush()
    successor = world.consumer(group_id="group")
    successor.assign([PLACE])
    assert successor.poll(0.1) is None
    first.commit_transaction()
    found = successor.poll(5)
    assert found is not None
    assert found.value() == b"3"


@pytest.mark.kafka("K108")
def test_of_a_plain_and_a_transactional_commit_the_one_sent_later_stands(world: World) -> None:
    producer = world.transactional()
    consumer = world.consumer(group_id="group")
    producer.begin_transaction()
    producer.send_offsets_to_transaction([*at(5, 0), *at(5, 1)], GROUP)
    producer.flush()
    consumer.commit(offsets=[*at(3, 0), *at(3, 1)], asynchronous=False)
    producer.send_offsets_to_transaction(at(6, 1), GROUP)
    producer.commit_transaction()
    assert [world.committed("group", "six", partition) for partition in (0, 1)] == [3, 6]


@pytest.mark.kafka("K104")
def test_offsets_of_several_groups_and_of_both_sides_of_a_flush_commit_together(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(at(1), GROUP)
    producer.send_offsets_to_transaction(at(2), ConsumerGroupMetadata("other"))
    producer.flush()
    producer.send_offsets_to_transaction(at(3, 1), GROUP)
    assert [world.committed(group, "six", 0) for group in ("group", "other")] == [None, None]
    producer.commit_transaction()
    assert world.committed("group", "six", 0) == 1
    assert world.committed("other", "six", 0) == 2
    assert world.committed("group", "six", 1) == 3


@pytest.mark.kafka("K106", "K114")
def test_a_flush_with_offsets_of_a_stale_generation_asks_for_an_abort(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    producer.produce("t", "lost")
    producer.send_offsets_to_transaction(at(5), ConsumerGroupMetadata("group", generation_id=3))
    producer.flush()
    error = error_of(producer.commit_transaction, TransactionAborted)
    assert (error.code(), flags(error)) == (ErrorCode.ILLEGAL_GENERATION, (False, True, False))
    producer.abort_transaction()
    with producer.transaction():
        producer.produce("t", "kept")
        producer.send_offsets_to_transaction(at(5), GROUP)
    assert world.values("t") == [b"kept"]
    assert world.committed("group", "six") == 5


@pytest.mark.kafka("K105", "K07")
def test_an_init_ends_what_makes_offsets_unstable(world: World) -> None:
    dead = world.transactional()
    dead.begin_transaction()
    dead.send_offsets_to_transaction(at(5), GROUP)
    dead.flush()
    consumer = world.consumer(group_id="group")
    error_of(lambda: consumer.committed([PLACE], 0), KafkaException)
    world.transactional()
    assert consumer.committed([PLACE], 10)[0].offset < 0
