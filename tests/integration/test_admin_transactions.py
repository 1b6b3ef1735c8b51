"""Administration of transactions (KIP-664) on a real log in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace

from sparktxn._foundation.values.structs import OpenTransaction, ProducerIdAndEpoch
from sparktxn._kafka.message import ConsumerGroupMetadata, TopicPartition
from sparktxn.admin import (
    AbortTransactionSpec,
    AdminClient,
    ConsumerGroupTopicPartitions,
    ProducerState,
    TransactionListing,
    TransactionState,
)
from sparktxn.errors import ErrorCode, KafkaError, KafkaException, ProducerFenced
from sparktxn.producer import Producer
from tests import world as worlds

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
MINUTE_MS = 60_000


class World(worlds.World):
    """A store with topics t and u, its administrator, and producers."""

    def __init__(self) -> None:
        super().__init__({"t": 2, "u": 1})
        self.admin = AdminClient({"bootstrap.servers": self.uri})
        self.clients.append(self.admin)

    def initialised(self, name: str, *, keep_prepared: bool = False) -> Producer:
        producer = self.producer(name)
        producer.init_transactions(keep_prepared=keep_prepared)
        return producer

    def opened(self, name: str, *partitions: int) -> Producer:
        """A producer whose transaction has published a record in each of the partitions of t."""
        producer = self.transactional(name)
        producer.begin_transaction()
        for partition in partitions or (0,):
            producer.produce("t", "v", partition=partition)
        producer.flush()
        return producer

    def describe(self, name: str) -> Any:
        return only(self.admin.describe_transactions([name]))

    def open_in(self, partition: TopicPartition = HERE) -> list[ProducerState]:
        described = only(self.admin.describe_producers([partition])).active_producers
        return [known for known in described if known.current_transaction_start_offset is not None]

    def spec(self, partition: TopicPartition = HERE) -> AbortTransactionSpec:
        (producer,) = self.open_in(partition)
        return AbortTransactionSpec(partition, producer.producer_id, producer.producer_epoch)

    def later(self, monkeypatch: pytest.MonkeyPatch, minutes: int) -> None:
        """Lets the administrator's clock, and no other, run ahead."""
        log = self.admin._log()
        clock = log.clock

        class Later:
            def __getattr__(self, name: str) -> Any:
                return getattr(clock, name)

            def wall_ms(self) -> int:
                return clock.wall_ms() + minutes * MINUTE_MS

        monkeypatch.setattr(log, "clock", Later())


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def only(answers: dict[Any, Future[Any]]) -> Any:
    (future,) = answers.values()
    return future.result(timeout=0)


def refused(future: Future[Any] | dict[Any, Future[Any]]) -> KafkaError:
    if isinstance(future, dict):
        (future,) = future.values()
    with pytest.raises(KafkaException) as caught:
        future.result(timeout=0)
    return caught.value.error


class TestListing:
    @pytest.fixture
    def world(self, world: World) -> World:
        world.initialised("empty")
        world.opened("ongoing")
        with world.initialised("committed").transaction() as producer:
            producer.produce("t", "v")
        world.opened("aborted").abort_transaction()
        return world

    def listed(self, world: World, **filters: Any) -> list[str]:
        return [listing.transactional_id for listing in world.admin.list_transactions(**filters).result(timeout=0)]

    @pytest.mark.kafka("K122")
    def test_all_with_their_states(self, world: World) -> None:
        found = world.admin.list_transactions().result(timeout=0)
        assert {listing.transactional_id: str(listing.state) for listing in found} == {
            "aborted": "CompleteAbort",
            "committed": "CompleteCommit",
            "empty": "Empty",
            "ongoing": "Ongoing",
        }
        assert found == sorted(found, key=lambda listing: listing.transactional_id)
        assert found[2] == TransactionListing("empty", 0, TransactionState.EMPTY)

    @pytest.mark.kafka("K122")
    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({"states": ["Ongoing"]}, ["ongoing"]),
            ({"states": [TransactionState.EMPTY, "CompleteCommit"]}, ["committed", "empty"]),
            ({"states": ["Dead"]}, []),
            ({"states": []}, ["aborted", "committed", "empty", "ongoing"]),
            ({"producer_ids": [0, 1]}, ["empty", "ongoing"]),
            ({"producer_ids": [99]}, []),
            ({"transactional_id_pattern": ".*ted"}, ["aborted", "committed"]),
            ({"transactional_id_pattern": "commit"}, []),
            ({"states": ["Ongoing"], "producer_ids": [0]}, []),
            ({"states": ["Ongoing"], "duration_filter_ms": 10 * MINUTE_MS}, ["ongoing"]),
            ({"states": ["Ongoing"], "duration_filter_ms": 30 * MINUTE_MS}, []),
        ],
    )
    def test_filters(
        self, world: World, monkeypatch: pytest.MonkeyPatch, filters: dict[str, Any], expected: list[str]
    ) -> None:
        world.later(monkeypatch, 20)
        assert self.listed(world, **filters) == expected

    @pytest.mark.kafka("K122")
    def test_an_unknown_state_is_reported_and_is_no_error(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, logger="sparktxn"):
            assert self.listed(world, states=["Ongoing", "Sleeping"]) == ["ongoing"]
            assert self.listed(world, states=["Sleeping"]) == []
        assert "Sleeping" in caplog.text

    def test_a_pattern_that_is_none_is_refused(self, world: World) -> None:
        assert refused(world.admin.list_transactions(transactional_id_pattern="(")) == ErrorCode.INVALID_REQUEST


class TestDescribing:
    @pytest.mark.kafka("K123")
    def test_an_ongoing_transaction(self, world: World) -> None:
        world.opened("shop", 1, 0)
        found = world.describe("shop")
        assert (found.state, found.producer_id, found.producer_epoch) == (TransactionState.ONGOING, 0, 0)
        assert (found.topic_partitions, found.transaction_timeout_ms, found.prepared) == ([HERE, THERE], 60_000, None)
        assert found.transaction_start_time_ms > 0
        assert (found.transaction, found.coordinator_id) == (1, 0)

    @pytest.mark.kafka("K123")
    def test_before_the_first_transaction_there_is_no_start(self, world: World) -> None:
        world.initialised("shop")
        assert world.describe("shop").transaction_start_time_ms is None

    @pytest.mark.kafka("K123")
    def test_an_id_that_is_unknown_or_empty(self, world: World) -> None:
        assert refused(world.admin.describe_transactions(["x"])) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert refused(world.admin.describe_transactions([""])) == ErrorCode.INVALID_REQUEST

    @pytest.mark.kafka("K123")
    def test_a_prepared_transaction_says_so(self, world: World) -> None:
        world.opened("shop").prepare_transaction()
        world.initialised("shop", keep_prepared=True)
        found = world.describe("shop")
        assert (found.state, found.producer_epoch) == (TransactionState.ONGOING, 1)
        assert found.prepared == ProducerIdAndEpoch(0, 0)

    def test_partitions_of_a_deleted_topic_are_left_out(self, world: World) -> None:
        producer = world.opened("shop")
        producer.produce("u", "v")
        producer.flush()
        only(world.admin.delete_topics(["u"]))
        assert world.describe("shop").topic_partitions == [HERE]

    @pytest.mark.kafka("K124")
    def test_the_producers_of_a_partition(self, world: World) -> None:
        producer = world.opened("shop")
        producer.commit_transaction()
        entry = world.admin._log().entry
        with producer.transaction():
            for _ in range(3):
                producer.produce("t", "v", partition=0, timestamp=1_234)
            producer.flush()
            (found,) = only(world.admin.describe_producers([HERE])).active_producers
        assert found == ProducerState(0, 0, 3, 1_234, entry, 2)
        (found,) = only(world.admin.describe_producers([HERE])).active_producers
        assert found.current_transaction_start_offset is None
        assert only(world.admin.describe_producers([THERE])).active_producers == []

    @pytest.mark.kafka("K124")
    @pytest.mark.parametrize("partition", [TopicPartition("t", 2), TopicPartition("x", 0), TopicPartition("t", -1)])
    def test_the_producers_of_no_partition(self, world: World, partition: TopicPartition) -> None:
        assert refused(world.admin.describe_producers([partition])) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestAborting:
    @pytest.mark.kafka("K126")
    def test_it_is_aborted_everywhere_and_its_producer_is_told_why(self, world: World) -> None:
        producer = world.opened("shop", 0, 1)
        assert world.admin.abort_transaction(world.spec()).result(timeout=0) is None
        assert world.open_in(HERE) == world.open_in(THERE) == []
        assert world.describe("shop").state is TransactionState.COMPLETE_ABORT
        with pytest.raises(ProducerFenced, match="an administrator has aborted"):
            producer.commit_transaction()

    @pytest.mark.kafka("K126")
    def test_a_prepared_one_can_be_aborted_though_another_identity_owns_it(self, world: World) -> None:
        prepared = world.opened("shop").prepare_transaction()
        newer = world.initialised("shop", keep_prepared=True)
        world.admin.abort_transaction(world.spec()).result(timeout=0)
        assert world.open_in() == []
        with pytest.raises(ProducerFenced, match="an administrator has aborted"):
            newer.complete_transaction(prepared)

    @pytest.mark.kafka("K126")
    def test_what_is_not_open_there_is_not_aborted(self, world: World) -> None:
        producer = world.opened("shop")
        spec = world.spec()
        producer.commit_transaction()
        for wrong in (spec, replace(spec, producer_id=77), replace(spec, topic_partition=THERE)):
            assert refused(world.admin.abort_transaction(wrong)) == ErrorCode.INVALID_TXN_STATE
        for partition in (TopicPartition("t", 9), TopicPartition("x", 0)):
            wrong = replace(spec, topic_partition=partition)
            assert refused(world.admin.abort_transaction(wrong)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(TypeError):
            world.admin.abort_transaction("shop")  # type: ignore[arg-type]

    @pytest.mark.kafka("K126")
    def test_other_epochs_are_refused(self, world: World) -> None:
        producer = world.opened("shop")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.produce("t", "v", partition=0)
        producer.flush()
        spec = world.spec()
        for epoch in (-1, 1):
            wrong = replace(spec, producer_epoch=epoch)
            assert refused(world.admin.abort_transaction(wrong)) == ErrorCode.INVALID_PRODUCER_EPOCH
        wrong = replace(spec, coordinator_epoch=1)
        assert refused(world.admin.abort_transaction(wrong)) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        (known,) = world.open_in()
        spec = replace(spec, coordinator_epoch=known.coordinator_epoch)
        world.admin.abort_transaction(spec).result(timeout=0)
        assert world.open_in() == []


class TestFencing:
    @pytest.mark.kafka("K127")
    @pytest.mark.parametrize("flushed", [True, False])
    def test_a_running_producer_is_fenced_and_told_by_whom(self, world: World, flushed: bool) -> None:
        producer = world.initialised("shop")
        producer.begin_transaction()
        producer.produce("t", "v", partition=0)
        if flushed:
            producer.flush()
        identity = only(world.admin.fence_producers(["shop"]))
        assert identity == ProducerIdAndEpoch(0, 2 if flushed else 1)
        assert world.open_in() == []
        with pytest.raises(ProducerFenced, match="an administrator has fenced it"):
            producer.commit_transaction()

    @pytest.mark.kafka("K127")
    def test_after_a_commit_the_next_transaction_is_fenced(self, world: World) -> None:
        producer = world.opened("shop")
        producer.commit_transaction()
        only(world.admin.fence_producers(["shop"]))
        producer.begin_transaction()
        producer.produce("t", "v")
        with pytest.raises(ProducerFenced):
            producer.commit_transaction()

    def test_the_timeout_of_the_id_stays(self, world: World) -> None:
        settings = {"bootstrap.servers": world.uri, "transactional.id": "shop", "transaction.timeout.ms": 5_000}
        with Producer(settings) as producer:
            producer.init_transactions()
        only(world.admin.fence_producers(["shop"]))
        assert world.describe("shop").transaction_timeout_ms == 5_000

    def test_a_prepared_transaction_is_aborted_by_it(self, world: World) -> None:
        prepared = world.opened("shop").prepare_transaction()
        only(world.admin.fence_producers(["shop"]))
        error = None
        try:
            world.initialised("shop", keep_prepared=True).complete_transaction(prepared)
        except KafkaException as raised:
            error = raised.error
        assert error == ErrorCode.INVALID_TXN_STATE


class TestFindingWhatHangs:
    @pytest.mark.kafka("K85", "K125")
    def test_what_is_open_for_too_long_is_found_and_can_be_aborted(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.opened("shop", 0, 1)
        world.opened("other", 1).commit_transaction()
        assert world.admin.find_hanging_transactions().result(timeout=0) == []
        world.later(monkeypatch, 16)
        found = world.admin.find_hanging_transactions().result(timeout=0)
        assert [(one.topic_partition, one.transactional_id, one.start_offset) for one in found] == [
            (HERE, "shop", 0),
            (THERE, "shop", 0),
        ]
        assert found[0].duration_ms > 15 * MINUTE_MS
        assert world.admin.find_hanging_transactions(topic="u").result(timeout=0) == []
        assert len(world.admin.find_hanging_transactions(topic="t", partition=1).result(timeout=0)) == 1
        long_ms = 60 * MINUTE_MS
        assert world.admin.find_hanging_transactions(max_transaction_timeout_ms=long_ms).result(timeout=0) == []
        one = found[0]
        spec = AbortTransactionSpec(one.topic_partition, one.producer_id, one.producer_epoch, one.coordinator_epoch)
        world.admin.abort_transaction(spec).result(timeout=0)
        assert world.admin.find_hanging_transactions().result(timeout=0) == []

    @pytest.mark.kafka("K125")
    def test_a_prepared_one_does_not_hang(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.opened("shop").prepare_transaction()
        world.later(monkeypatch, 16)
        assert world.admin.find_hanging_transactions().result(timeout=0) == []

    @pytest.mark.kafka("K125")
    def test_one_that_no_transactional_id_owns_is_found(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.opened("shop")
        log = world.admin._log()
        topic = log.topic("t")
        assert topic is not None
        located = log.partition(topic.topic_id, 0)
        assert located is not None
        state, segments = located
        orphan = replace(state, open_transactions=(OpenTransaction(0, 0, "nobody"),))
        monkeypatch.setattr(
            log, "partition", lambda topic_id, number: (orphan, segments) if (topic_id, number) == (1, 0) else None
        )
        world.later(monkeypatch, 16)
        (found,) = world.admin.find_hanging_transactions(topic="t").result(timeout=0)
        assert (found.transactional_id, found.producer_id, found.start_offset) == (None, 0, 0)
        spec = AbortTransactionSpec(HERE, 0, 0)
        assert refused(world.admin.abort_transaction(spec)) == ErrorCode.INVALID_TXN_STATE

    @pytest.mark.kafka("K125")
    def test_a_partition_needs_its_topic(self, world: World) -> None:
        with pytest.raises(ValueError, match="topic="):
            world.admin.find_hanging_transactions(partition=0)
        assert refused(world.admin.find_hanging_transactions(topic="x")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestGroups:
    def offsets(self, world: World, *, require_stable: bool = False) -> list[TopicPartition]:
        asked = [ConsumerGroupTopicPartitions("g", [HERE])]
        answer = only(world.admin.list_consumer_group_offsets(asked, require_stable=require_stable))
        return list(answer.topic_partitions)

    @pytest.mark.kafka("K105")
    @pytest.mark.parametrize("committed_before", [True, False])
    def test_an_offset_in_an_open_transaction_is_unstable(self, world: World, committed_before: bool) -> None:
        if committed_before:
            before = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 3)])
            only(world.admin.alter_consumer_group_offsets([before]))
        producer = world.initialised("shop")
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], ConsumerGroupMetadata("g"))
        prepared = producer.prepare_transaction()
        (unstable,) = self.offsets(world, require_stable=True)
        assert unstable.error == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert unstable.error.retriable()
        (last,) = self.offsets(world)
        assert (last.error, last.offset) == (None, 3 if committed_before else -1001)
        producer.complete_transaction(prepared)
        (stable,) = self.offsets(world, require_stable=True)
        assert (stable.error, stable.offset) == (None, 7)

    @pytest.mark.kafka("K109")
    def test_a_deleted_group_has_no_offsets_and_gets_none_from_open_transactions(self, world: World) -> None:
        before = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 3)])
        only(world.admin.alter_consumer_group_offsets([before]))
        producer = world.initialised("shop")
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], ConsumerGroupMetadata("g"))
        prepared = producer.prepare_transaction()
        assert only(world.admin.delete_consumer_groups(["g"])) is None
        producer.complete_transaction(prepared)
        assert world.admin.list_consumer_groups().result(timeout=0).valid == []
        assert refused(world.admin.delete_consumer_groups(["g"])) == ErrorCode.GROUP_ID_NOT_FOUND
        assert refused(world.admin.delete_consumer_groups([""])) == ErrorCode.INVALID_REQUEST
