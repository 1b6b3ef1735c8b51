"""What confluent-kafka's own transactional tests and its example do, with the import and the address changed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from sparktxn import Consumer, KafkaError, Producer, TopicPartition
from sparktxn._engine.format.commands import InitProducerId
from sparktxn.errors import OutcomeUnknown
from tests.world import World, error_of, flags

TRANSACTIONAL = {"transactional.id": "example_transactional_id"}


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def produce_in_transaction(producer: Producer, topic: str, count: int) -> list[KafkaError]:
    """Begins, produces with a poll after each record, and flushes; the errors of delivery reports."""
    failed: list[KafkaError] = []
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, f"test-data{number}", on_delivery=lambda error, _: failed.append(error) if error else 0)
        producer.poll(0.0)
    producer.flush()
    return failed


def read_to_the_end(consumer: Consumer) -> int:
    """How many records come before the end of every partition is reported."""
    count = 0
    ended: set[tuple[str | None, int | None]] = set()
    while not ended or len(ended) < len(consumer.assignment()):
        message = consumer.poll(timeout=1.0)
        if message is None:
            continue
        place, error = (message.topic(), message.partition()), message.error()
        if error is None:
            ended.discard(place)
            count += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(place)
    return count


def committed_records(world: World, topic: str, group: str = "verify") -> int:
    with reader(world, group) as consumer:
        consumer.subscribe([topic])
        return read_to_the_end(consumer)


def reader(world: World, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": world.uri,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


@pytest.fixture
def producer(world: World) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": world.uri, **TRANSACTIONAL})
    producer.init_transactions()
    yield producer
    producer.close()


@pytest.mark.kafka("K133")
def test_commit(world: World, producer: Producer) -> None:
    assert produce_in_transaction(producer, "t", 100) == []
    producer.commit_transaction()
    assert committed_records(world, "t") == 100


@pytest.mark.kafka("K86", "K133")
def test_abort(world: World, producer: Producer) -> None:
    assert produce_in_transaction(producer, "t", 100) == []
    producer.abort_transaction()
    assert committed_records(world, "t") == 0


@pytest.mark.kafka("K86", "K133")
def test_abort_then_commit(world: World, producer: Producer) -> None:
    produce_in_transaction(producer, "t", 100)
    producer.abort_transaction()
    produce_in_transaction(producer, "t", 25)
    producer.commit_transaction()
    assert committed_records(world, "t") == 25


@pytest.mark.kafka("K104", "K112")
def test_offsets_sent_to_a_transaction(world: World, producer: Producer) -> None:
    with Producer({"bootstrap.servers": world.uri}) as seed:
        for number in range(100):
            seed.produce("t", str(number))
    with reader(world, "copy") as consumer:
        consumer.subscribe(["t"])
        assert read_to_the_end(consumer) == 100
        produce_in_transaction(producer, "six", 100)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
        again = Producer({"bootstrap.servers": world.uri, **TRANSACTIONAL})
        again.init_transactions()
        assert [place.offset for place in consumer.committed(consumer.assignment())] == [100]
        again.close()


@pytest.mark.kafka("K118")
def test_while_an_init_that_timed_out_is_not_repeated_everything_else_is_a_conflict(world: World) -> None:
    producer = world.producer("test")
    with world.answering(OutcomeUnknown("slow"), kind=InitProducerId):
        error = error_of(lambda: producer.init_transactions(0.5))
    assert (error, flags(error)) == (KafkaError._TIMED_OUT, (False, False, True))
    metadata = world.consumer(group_id="testgroup").consumer_group_metadata()
    calls: list[Any] = [
        producer.begin_transaction,
        lambda: producer.send_offsets_to_transaction([TopicPartition("topic", 0, 123)], metadata),
        lambda: producer.commit_transaction(0.5),
        lambda: producer.abort_transaction(0.5),
    ]
    for call in calls:
        conflict = error_of(call)
        assert (conflict, flags(conflict)) == (KafkaError._CONFLICT, (False, False, True))
    producer.init_transactions()
    producer.begin_transaction()


@pytest.mark.kafka("K104", "K133")
def test_the_example_of_consuming_transforming_and_producing(world: World, producer: Producer) -> None:
    """It commits every 100 records, and once more at the end of the input."""
    with Producer({"bootstrap.servers": world.uri}) as seed:
        for number in range(250):
            seed.produce("six", f"v{number}", f"k{number}", partition=3)
    commits = 0
    with reader(world, "eos") as consumer:
        consumer.assign([TopicPartition("six", 3)])

        def commit() -> None:
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            producer.commit_transaction()

        producer.begin_transaction()
        count, ended = 0, False
        while not ended:
            producer.poll(0)
            message = consumer.poll(timeout=1.0)
            if message is None:
                continue
            if message.error() is not None:
                ended = message.error() == KafkaError._PARTITION_EOF
                continue
            count += 1
            key, value = (b64encode(part or b"") for part in (message.key(), message.value()))
            producer.produce("t", value, key, on_delivery=lambda error, _: pytest.fail(str(error)) if error else None)
            if count % 100 == 0:
                commit()
                producer.begin_transaction()
                commits, count = commits + 1, 0
        commit()
    assert commits == 2
    assert world.values("t") == [b64encode(b"v%d" % number) for number in range(250)]
    assert world.committed("eos", "six", 3) == 250
