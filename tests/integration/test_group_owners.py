"""Two consumers of one group on one partition: the one that commits later is refused, and a rightful one never is."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from sparktxn._kafka.message import OFFSET_BEGINNING, OFFSET_STORED, TopicPartition
from sparktxn.admin import AdminClient, ConsumerGroupTopicPartitions
from sparktxn.consumer import Consumer
from sparktxn.errors import ErrorCode, KafkaError, KafkaException, TransactionAborted
from tests.world import World, error_of, flags

PLACE = TopicPartition("six", 0)
REFUSED = ErrorCode.ILLEGAL_GENERATION


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    with world.producer() as seed:
        for number in range(20):
            seed.produce("six", str(number), partition=0)
    yield world
    world.close()


def at(offset: int, partition: int = 0) -> list[TopicPartition]:
    return [TopicPartition("six", partition, offset)]


def started(world: World, count: int = 3, **settings: Any) -> Consumer:
    """A consumer that has read some records."""
    consumer = world.consumer(group_id="group", enable_auto_commit=False, **settings)
    consumer.assign([PLACE])
    assert len(consumer.consume(count, 5)) == count
    return consumer


def listening(world: World, heard: list[KafkaError | None], **settings: Any) -> Consumer:
    """A consumer that notes how its commits go."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": world.uri,
            "group.id": "group",
            "auto.offset.reset": "earliest",
            "on_commit": lambda error, _: heard.append(error),
            **given,
        }
    )
    world.clients.append(consumer)
    consumer.assign([PLACE])
    return consumer


def refused(consumer: Consumer, offset: int, code: int = REFUSED) -> KafkaError:
    error = error_of(lambda: consumer.commit(offsets=at(offset), asynchronous=False), KafkaException)
    assert (error.code(), flags(error)) == (code, (False, False, False))
    return error


class TestLaterOnes:
    def test_a_plain_commit_is_refused_and_says_what_to_do(self, world: World) -> None:
        first, second = started(world), started(world)
        first.commit(asynchronous=False)
        error = refused(second, 3)
        assert "another consumer of group 'group'" in error.str()
        assert "assign() different partitions" in error.str()
        assert "seek() to what committed() returns" in error.str()
        assert world.committed("group", "six") == 3

    @pytest.mark.kafka("K106")
    def test_a_transaction_is_to_be_aborted_and_leaves_no_output(self, world: World) -> None:
        first, second = started(world), started(world)
        for consumer, name in ((first, "first"), (second, "second")):
            producer = world.transactional(name)
            producer.begin_transaction()
            producer.produce("t", name)
            producer.send_offsets_to_transaction(consumer.position([PLACE]), consumer.consumer_group_metadata())
            if consumer is first:
                producer.commit_transaction()
                continue
            error = error_of(producer.commit_transaction, TransactionAborted)
            assert (error.code(), flags(error)) == (REFUSED, (False, True, False))
            producer.abort_transaction()
        assert world.values("t") == [b"first"]

    def test_on_commit_hears_of_asynchronous_and_automatic_ones(self, world: World) -> None:
        heard: list[KafkaError | None] = []
        second = listening(world, heard, auto_commit_interval_ms=1)
        second.consume(2, 5)
        heard.clear()
        world.consumer(group_id="group").commit(offsets=at(9), asynchronous=False)
        second.commit(offsets=at(2), asynchronous=True)
        while not heard:
            second.poll(0.05)
        assert {error.code() if error is not None else None for error in heard} == {REFUSED}
        heard.clear()
        second.consume(1, 5)
        while not heard:
            second.poll(0.05)
        assert {error.code() if error is not None else None for error in heard} == {REFUSED}
        second.close()
        assert world.committed("group", "six") == 9

    def test_the_older_one_is_refused_after_the_newer_one_has_committed(self, world: World) -> None:
        older = started(world)
        older.commit(asynchronous=False)
        newer = started(world)
        newer.commit(asynchronous=False)
        older.consume(1, 5)
        refused(older, 4)
        assert world.committed("group", "six") == 6

    def test_an_explicit_start_counts_too(self, world: World) -> None:
        consumers = []
        for _ in range(2):
            consumer = world.consumer(group_id="group")
            consumer.assign(at(4))
            consumer.consume(1, 5)
            consumers.append(consumer)
        consumers[0].commit(asynchronous=False)
        refused(consumers[1], 5)

    def test_metadata_that_was_pickled_is_as_good(self, world: World) -> None:
        first, second = started(world), started(world)
        first.commit(asynchronous=False)
        producer = world.transactional()
        metadata = pickle.loads(pickle.dumps(second.consumer_group_metadata()))
        assert metadata == second.consumer_group_metadata()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(at(3), metadata)
        assert error_of(producer.commit_transaction, TransactionAborted).code() == REFUSED

    def test_an_administrators_change_makes_the_next_commit_fail(self, world: World) -> None:
        consumer = started(world)
        consumer.commit(asynchronous=False)
        admin = AdminClient({"bootstrap.servers": world.uri})
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("group", at(0))])["group"].result()
        assert "or an administrator" in refused(consumer, 5).str()
        assert world.committed("group", "six") == 0

    def test_reading_what_is_committed_does_not_make_it_ones_own(self, world: World) -> None:
        first, second = started(world), started(world, 5)
        first.commit(asynchronous=False)
        assert second.committed([PLACE])[0].offset == 3
        refused(second, 5)
        second.seek(TopicPartition("six", 0, 1))
        second.consume(1, 5)
        refused(second, 2)


class TestGoingOn:
    @pytest.mark.parametrize("way", ["seek", "stored", "assign", "subscribe"])
    def test_one_that_reads_on_from_the_committed_offset_may_commit(self, world: World, way: str) -> None:
        first, second = started(world), started(world, 5)
        first.commit(asynchronous=False)
        refused(second, 5)
        if way == "seek":
            second.seek(second.committed([PLACE])[0])
        elif way == "stored":
            second.seek(TopicPartition("six", 0, OFFSET_STORED))
        elif way == "assign":
            second.assign(second.committed([PLACE]))
        else:
            second.subscribe(["six"])
        message = second.poll(5)
        assert message is not None
        assert message.value() == b"3"
        second.commit(message, asynchronous=False)
        assert world.committed("group", "six") == 4
        # A group that has members takes no commit of a consumer that is none.
        refused(first, 3, ErrorCode.UNKNOWN_MEMBER_ID if way == "subscribe" else REFUSED)

    def test_an_offset_that_moved_between_asking_and_seeking_is_noticed(self, world: World) -> None:
        first, second = started(world), world.consumer(group_id="group")
        first.commit(asynchronous=False)
        asked = second.committed([PLACE])
        first.consume(2, 5)
        first.commit(asynchronous=False)
        second.assign(asked)
        assert second.consume(1, 5)[0].value() == b"3"
        refused(second, 4)


class TestRightfulOwners:
    def test_all_kinds_of_commits_follow_each_other(self, world: World) -> None:
        consumer = world.consumer(group_id="group", auto_commit_interval_ms=1)
        consumer.assign([PLACE])
        producer = world.transactional()
        for number in range(4):
            consumer.consume(2, 5)
            consumer.commit(asynchronous=True)
            consumer.commit(offsets=at(number), asynchronous=True)
            with producer.transaction(offsets_from=consumer):
                producer.produce("t", str(number))
            consumer.commit(offsets=at(2 * number + 1), asynchronous=False)
        assert world.committed("group", "six") == 7
        assert len(world.values("t")) == 4

    def test_several_under_way_at_once(self, world: World) -> None:
        heard: list[KafkaError | None] = []
        consumer = listening(world, heard, enable_auto_commit=False)
        consumer.consume(1, 5)
        for offset in (5, 3, 8, 2):
            consumer.commit(offsets=at(offset), asynchronous=True)
        consumer.commit(offsets=at(4), asynchronous=False)
        assert world.committed("group", "six") == 4
        consumer.close()
        assert heard == [None] * 4, "the synchronous one raises or returns"

    def test_lower_offsets_after_seeking_back(self, world: World) -> None:
        consumer = started(world, 5)
        consumer.commit(asynchronous=False)
        for target in (TopicPartition("six", 0, 1), TopicPartition("six", 0, OFFSET_BEGINNING)):
            consumer.seek(target)
            message = consumer.poll(5)
            assert message is not None
            consumer.commit(message, asynchronous=False)
        assert world.committed("group", "six") == 1

    def test_partitions_that_were_never_assigned(self, world: World) -> None:
        other = started(world)
        other.commit(asynchronous=False)
        consumer = world.consumer(group_id="group")
        consumer.commit(offsets=at(7), asynchronous=False)
        consumer.assign([PLACE])
        consumer.commit(offsets=at(8), asynchronous=False)
        assert world.committed("group", "six") == 8

    def test_a_deleted_group_is_made_anew(self, world: World) -> None:
        consumer = started(world)
        consumer.commit(asynchronous=False)
        AdminClient({"bootstrap.servers": world.uri}).delete_consumer_groups(["group"])["group"].result()
        consumer.commit(offsets=at(3), asynchronous=False)
        assert world.committed("group", "six") == 3

    def test_a_topic_that_was_created_again(self, world: World) -> None:
        consumer = started(world)
        consumer.commit(asynchronous=False)
        AdminClient({"bootstrap.servers": world.uri}).delete_topics(["six"])["six"].result()
        world.store.create_topic("six", 1)
        consumer.commit(offsets=at(0), asynchronous=False)
        with world.producer() as seed:
            seed.produce("six", "new", partition=0)
        # What the consumer had fetched of the deleted topic comes first.
        message = next(found for found in iter(lambda: consumer.poll(5), None) if found.value() == b"new")
        consumer.commit(message, asynchronous=False)
        assert world.committed("group", "six") == 1

    def test_a_transaction_that_aborts_and_the_next_one(self, world: World) -> None:
        consumer = started(world)
        producer = world.transactional()
        for flush, commit in ((True, False), (False, False), (True, True), (False, True)):
            producer.begin_transaction()
            producer.send_offsets_to_transaction(consumer.position([PLACE]), consumer.consumer_group_metadata())
            if flush:
                producer.flush()
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            consumer.consume(1, 5)
        assert world.committed("group", "six") == 6

    def test_an_answer_that_was_lost(self, world: World) -> None:
        consumer = started(world)
        producer = world.transactional()
        producer.begin_transaction()
        producer.produce("t", "once")
        producer.send_offsets_to_transaction(consumer.position([PLACE]), consumer.consumer_group_metadata())
        with world.losing_answers():
            assert error_of(producer.commit_transaction, KafkaException).retriable()
            producer.commit_transaction()
        consumer.commit(offsets=at(2), asynchronous=False)
        assert (world.values("t"), world.committed("group", "six")) == ([b"once"], 2)

    def test_a_prepared_transaction_and_the_consumer_that_has_prepared_it(self, world: World) -> None:
        consumer, other = started(world), started(world)
        producer = world.transactional()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(consumer.position([PLACE]), consumer.consumer_group_metadata())
        prepared = producer.prepare_transaction()
        assert "open transaction of 'orders' holds offset 3" in refused(other, 3).str()
        producer.complete_transaction(prepared)
        refused(other, 3)
        with producer.transaction(offsets_from=consumer):
            consumer.consume(1, 5)
        assert world.committed("group", "six") == 4

    def test_a_consumer_that_starts_again(self, world: World) -> None:
        for number in range(1, 4):
            with started(world, 2) as consumer:
                consumer.commit(asynchronous=False)
            assert world.committed("group", "six") == 2 * number

    def test_two_consumers_of_one_group_with_different_partitions_share_a_transaction(self, world: World) -> None:
        with world.producer() as seed:
            for number in range(9):
                seed.produce("six", str(number), partition=1)
        first, second = started(world), world.consumer(group_id="group", enable_auto_commit=False)
        second.assign([TopicPartition("six", 1)])
        producer = world.transactional()
        for _ in range(3):
            second.consume(2, 5)
            producer.begin_transaction()
            for consumer in (first, second):
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
            producer.commit_transaction()
            first.consume(1, 5)
        assert [world.committed("group", "six", number) for number in (0, 1)] == [5, 6]
