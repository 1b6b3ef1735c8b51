"""Consumers of one group share its partitions: callbacks, hand-over, expiry, and what each member may commit.

Each process of a test has a log of its own on one store, by a clock that the test moves; no test waits.
"""

from __future__ import annotations

import gc
import itertools
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.log.log import Log
from sparktxn._kafka.message import TopicPartition
from sparktxn.admin import AdminClient, NewPartitions, NewTopic
from sparktxn.consumer import Consumer
from sparktxn.consumer.polling import ViewEvent
from sparktxn.errors import ErrorCode, KafkaError, KafkaException, StoreUnavailable
from sparktxn.producer import Producer
from sparktxn.store import Store
from tests.world import ClockedWorld, dotted, error_of

INCREMENTAL: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
KIP_848: dict[str, Any] = {"group_protocol": "consumer"}
PROTOCOLS = [pytest.param(INCREMENTAL, id="cooperative-sticky"), pytest.param(KIP_848, id="consumer")]
SESSION_S = 45.0


class World(ClockedWorld):
    """Topic `t` of four partitions and `one` of one, and processes with one consumer each."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, str, list[int]]] = []
        self.consumers: list[Consumer] = []
        self.logs: dict[str, Log] = {}
        self.admin = AdminClient({"bootstrap.servers": self.uri("admin")})
        self.create("t", 4)

    def create(self, topic: str, partitions: int = 1) -> None:
        self.admin.create_topics([NewTopic(topic, partitions)])[topic].result()

    def uri(self, process: str) -> str:
        if process not in self.logs:
            self.logs[process] = self.process()
            self.lend(process, self.logs[process])
        return f"memory://{self.name}-{process}"

    def member(self, name: str, *topics: str, callbacks: bool = True, **settings: Any) -> Consumer:
        """A consumer in a process of its own, that has subscribed and notes its callbacks."""
        given = {"group_id": "g", "auto_offset_reset": "earliest", "fetch_wait_max_ms": 5, **settings}
        consumer = Consumer({"bootstrap.servers": self.uri(name), **dotted(given)})
        self.consumers.append(consumer)
        told = {
            kind: lambda _, partitions, kind=kind: self.heard.append((name, kind, [p.partition for p in partitions]))
            for kind in ("on_assign", "on_revoke", "on_lost")
        }
        consumer.subscribe(list(topics) or ["t"], **(told if callbacks else {}))
        return consumer

    def produce(self, *values: str, topic: str = "t", partition: int = 0) -> None:
        with Producer({"bootstrap.servers": self.uri("admin")}) as producer:
            for value in values:
                producer.produce(topic, value, partition=partition)

    def run(self, *consumers: Consumer, seconds: float = 1.0) -> list[str]:
        """Polls each consumer in turn, until so much time has passed; what they have handed out."""
        until_s = self.clock.monotonic_s() + seconds
        found = []
        while self.clock.monotonic_s() < until_s:
            for consumer in consumers:
                message = consumer.poll(0)
                if message is not None:
                    assert message.error() is None, message.error()
                    found.append((message.value() or b"").decode())
            self.clock.sleep(0.05)
        return found

    def told(self) -> list[tuple[str, str, list[int]]]:
        """What callbacks have heard since the last call."""
        heard, self.heard = self.heard, []
        return heard

    def entry(self) -> int:
        log = self.logs["admin"]
        return log.refresh()

    def members(self) -> int:
        self.entry()
        return len(self.logs["admin"].group_members("g"))

    def committed(self, partition: int = 0) -> int | None:
        self.entry()
        log = self.logs["admin"]
        topic = log.topic("t")
        assert topic is not None
        found = log.committed_offset("g", topic.topic_id, partition)
        return None if found is None else found.offset

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()
        self.admin.close()
        super().close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def owned(consumer: Consumer) -> list[int]:
    return [partition.partition for partition in consumer.assignment()]


def code_of(call: Any) -> int:
    return error_of(call).code()


class TestSharing:
    @pytest.mark.kafka("G01", "G23")
    def test_a_first_member_gets_all_and_a_second_takes_half(self, world: World) -> None:
        first = world.member("first")
        world.run(first, seconds=0.2)
        assert world.told() == [("first", "on_assign", [0, 1, 2, 3])]
        second = world.member("second")
        world.run(first, second)
        assert world.told() == [
            ("first", "on_revoke", [0, 1, 2, 3]),
            ("first", "on_assign", owned(first)),
            ("second", "on_assign", owned(second)),
        ]
        assert sorted(owned(first) + owned(second)) == [0, 1, 2, 3]
        assert len(owned(first)) == len(owned(second)) == 2

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_incremental_callbacks_get_what_goes_and_what_comes(self, world: World, protocol: dict[str, Any]) -> None:
        first = world.member("first", **protocol)
        world.run(first, seconds=0.2)
        second = world.member("second", **protocol)
        world.run(first, second)
        heard = world.told()
        assert heard[0] == ("first", "on_assign", [0, 1, 2, 3])
        assert heard[1] == ("first", "on_revoke", owned(second))
        assert [call for call in heard[2:] if call[2]] == [("second", "on_assign", owned(second))]
        first.close()
        assert world.told() == [("first", "on_revoke", owned_before(heard, second))]
        world.run(second)
        assert world.told() == [("second", "on_assign", owned_before(heard, second))]

    def test_a_member_alone_costs_one_entry_to_open_and_one_to_close(self, world: World) -> None:
        world.produce("a", "b")
        before = world.entry()
        consumer = world.member("alone")
        assert world.run(consumer) == ["a", "b"]
        assert world.entry() == before + 1
        consumer.close()
        assert world.entry() == before + 2
        assert world.committed() == 2

    def test_one_that_closes_hands_over_within_its_last_entry(self, world: World) -> None:
        world.produce("a", "b")
        first, second = world.member("first"), world.member("second")
        world.run(first, second)
        before = world.entry()
        assert {world.committed(partition) for partition in range(4)} <= {None, 2}
        first.close()
        assert world.entry() == before + 1
        world.run(second)
        assert owned(second) == [0, 1, 2, 3]
        # A member that only gains writes no entry.
        assert world.entry() == before + 1

    def test_nothing_is_lost_and_nothing_comes_twice_while_members_come_and_go(self, world: World) -> None:
        number = 0
        found: list[str] = []
        members: list[Consumer] = []
        for turn in range(8):
            for partition in range(4):
                world.produce(*(str(number + i) for i in range(5)), partition=partition)
                number += 5
            if turn % 3 == 2:
                members.pop(0).close()
            else:
                members.append(world.member(f"m{turn}", **(KIP_848 if turn % 2 else {})))
            found += world.run(*members, seconds=0.4)
        found += world.run(*members, seconds=3)
        assert sorted(map(int, found)) == list(range(number))

    @pytest.mark.kafka("G23")
    def test_more_members_than_partitions_leaves_some_without(self, world: World) -> None:
        world.create("one")
        members = [world.member(f"m{number}", "one") for number in range(3)]
        world.run(*members)
        assert sorted(len(owned(member)) for member in members) == [0, 0, 1]
        assert sorted(partitions for _, kind, partitions in world.told() if kind == "on_assign")[0] == []

    @pytest.mark.kafka("G18")
    def test_new_partitions_and_topics_of_a_pattern_are_shared(self, world: World) -> None:
        first, second = world.member("first", "^t"), world.member("second", "^t")
        world.run(first, second)
        world.admin.create_partitions([NewPartitions("t", 6)])["t"].result()
        world.run(first, second)
        assert sorted(owned(first) + owned(second)) == [0, 1, 2, 3, 4, 5]
        world.create("t-2", 2)
        world.run(first, second)
        places = [(place.topic, place.partition) for member in (first, second) for place in member.assignment()]
        assert len(places) == len(set(places)) == 8
        assert len(first.assignment()) == 4


def owned_before(heard: list[tuple[str, str, list[int]]], second: Consumer) -> list[int]:
    """What the first member was left with, by what callbacks have heard."""
    taken = heard[1][2]
    return [partition for partition in range(4) if partition not in taken]


class TestHandOver:
    def test_stored_offsets_travel_with_the_release(self, world: World) -> None:
        for partition in range(4):
            world.produce("a", "b", partition=partition)
        first = world.member("first", **INCREMENTAL)
        assert len(world.run(first)) == 8
        assert world.committed() is None
        second = world.member("second", **INCREMENTAL)
        before = world.entry()
        assert world.run(first, second) == []
        # The join, and one entry with the offsets and the release.
        assert world.entry() == before + 2
        assert [world.committed(partition) for partition in owned(second)] == [2, 2]

    def test_a_commit_in_on_revoke_is_accepted(self, world: World) -> None:
        world.produce("a", "b", "c")
        consumer = Consumer(
            {"bootstrap.servers": world.uri("first"), **dotted({"group_id": "g", "auto_offset_reset": "earliest"})}
            | {"enable.auto.commit": False, "fetch.wait.max.ms": 5}
        )
        world.consumers.append(consumer)
        codes: list[int] = []

        def on_revoke(member: Consumer, _: list[TopicPartition]) -> None:
            try:
                member.commit(asynchronous=False)
            except KafkaException as error:
                codes.append(error.error.code())

        consumer.subscribe(["t"], on_revoke=on_revoke)
        assert world.run(consumer) == ["a", "b", "c"]
        second = world.member("second", enable_auto_commit=False)
        world.run(consumer, second)
        assert world.committed() == 3
        assert codes == []

    @pytest.mark.parametrize("ends_by", ["poll", "unsubscribe", "close"])
    def test_other_threads_may_ask_while_on_revoke_waits_for_them(self, world: World, ends_by: str) -> None:
        """As confluent-kafka's AIOConsumer does, whose callbacks await committed() on a thread: theirs hung."""
        world.produce("a", "b", "c")
        first = world.member("first", callbacks=False, enable_auto_commit=False)
        answers: list[Any] = []

        def on_revoke(member: Consumer, partitions: list[TopicPartition]) -> None:
            def ask() -> None:
                # Not at the end of the test, when nothing is left to commit.
                with suppress(KafkaException):
                    member.commit(asynchronous=False)
                answers.append((member.committed(partitions, 5), member.position(partitions), member.assignment()))

            asking = threading.Thread(target=ask, daemon=True)
            asking.start()
            asking.join(60)
            assert not asking.is_alive(), "committed() hangs while on_revoke waits for it"

        first.subscribe(["t"], on_revoke=on_revoke)
        assert world.run(first) == ["a", "b", "c"]
        if ends_by == "poll":
            world.run(first, world.member("second", enable_auto_commit=False))
        else:
            getattr(first, ends_by)()
        committed, position, assigned = answers[0]
        (read,) = [one for one in committed if one.offset >= 0]
        assert read.offset == 3
        assert (len(position), len(assigned)) == (4, 4)

    def test_a_batch_is_returned_before_its_partitions_go(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """A rebalance inside consume() waits, and what is committed after it is where the partitions begin again."""
        first = world.member("first", enable_auto_commit=False)
        world.run(first, seconds=0.2)
        for partition in range(4):
            world.produce("a", "b", partition=partition)
        second = world.member("second", enable_auto_commit=False)
        sleep = world.clock.sleep

        def join_meanwhile(seconds: float) -> None:
            with monkeypatch.context() as inner:
                inner.setattr(world.clock, "sleep", sleep)
                second.poll(0)
            # The offsets that this look reads are those before the commit.
            first._reading.states.move_view(ViewEvent.CHANGED)
            sleep(seconds)

        world.told()
        monkeypatch.setattr(world.clock, "sleep", join_meanwhile)
        assert len(first.consume(50, 1)) == 8
        assert [kind for who, kind, _ in world.told() if who == "first"] == []
        monkeypatch.undo()
        first.commit(asynchronous=False)
        assert world.run(first, second) == []
        assert len(owned(first)) == len(owned(second)) == 2

    def test_a_poll_waits_for_commits_while_partitions_are_owed_and_not_afterwards(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The release that others wait for is such a commit. What the member keeps has its place, and asks for none."""
        first = world.member("first", enable_auto_commit=False, **INCREMENTAL)
        world.run(first, seconds=0.5)
        awaited: list[Any] = []
        monkeypatch.setattr(first._reading, "_await", awaited.append)
        world.run(first, seconds=2)
        assert awaited == []
        second = world.member("second", enable_auto_commit=False, **INCREMENTAL)
        world.run(first, second, seconds=2)
        assert len(owned(first)) == len(owned(second)) == 2
        assert len(awaited) == 1
        world.run(first, second, seconds=2)
        assert len(awaited) == 1

    def test_a_list_that_was_put_off_is_not_given_inside_a_batch(self, world: World) -> None:
        """With whole lists a member waits for the rest. Once it has waited enough, the state has not changed."""
        world.create("wide", 12)
        settings: dict[str, Any] = {"enable_auto_commit": False, "partition_assignment_strategy": "roundrobin"}
        others = [world.member(name, "wide", **settings) for name in ("b", "c", "d")]
        world.run(*others, seconds=3)
        assert [len(owned(other)) for other in others] == [4, 4, 4]
        late = world.member("late", "wide", **settings)
        world.run(late, seconds=0.5)
        # Each of the others owes it one partition. It gets that of the first, and waits for two.
        world.run(others[0])
        world.run(late, seconds=5)
        (first,) = owned(late)
        world.run(others[1])
        world.run(late)
        assert owned(late) == [first], "the second is put off, for the third is still to come"
        world.produce(*"xyz", topic="wide", partition=first)
        world.told()
        assert [message.value() for message in late.consume(50, 5)] == [b"x", b"y", b"z"]
        assert world.told() == [], "its partitions change once the batch has been returned"
        late.commit(asynchronous=False)
        assert world.run(late, seconds=2) == []
        assert len(owned(late)) == 2

    def test_a_callback_that_raises_does_not_keep_what_goes(self, world: World) -> None:
        world.produce("a", "b")
        first = world.member("first", callbacks=False, **INCREMENTAL)
        calls = []

        def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
            calls.append(len(partitions))
            raise ValueError("a defect of the application")

        first.subscribe(["t"], on_revoke=on_revoke)
        world.run(first)
        second = world.member("second", **INCREMENTAL)
        world.run(second, seconds=0.2)
        with pytest.raises(ValueError, match="a defect"):
            world.run(first)
        assert world.run(first, second) == []
        assert len(owned(first)) == len(owned(second)) == 2
        with pytest.raises(ValueError, match="a defect"):
            first.close()
        assert calls == [2, 2]
        world.run(second)
        assert owned(second) == [0, 1, 2, 3]
        assert world.committed() == 2

    @pytest.mark.parametrize("processes", ["one", "each its own"])
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_a_restart_of_a_member_costs_an_entry_for_each_member(
        self, world: World, protocol: dict[str, Any], processes: str
    ) -> None:
        """Its leave, its join, and one for each of the three others, which gives a partition back."""
        world.create("wide", 12)
        named = (lambda index: "all") if processes == "one" else (lambda index: f"p{index}")
        members = [world.member(named(index), "wide", callbacks=False, **protocol) for index in range(4)]
        world.run(*members)
        for index in range(4):
            before = world.entry()
            members.pop(0).close()
            members.append(world.member(named(index), "wide", callbacks=False, **protocol))
            world.run(*members, seconds=0.5)
            assert sorted(len(owned(member)) for member in members) == [3, 3, 3, 3]
            assert world.entry() == before + 5

    def test_a_partition_that_comes_back_goes_on_where_it_was(self, world: World) -> None:
        for partition in range(4):
            world.produce(f"a{partition}", f"b{partition}", partition=partition)
        first, second = (world.member(name, callbacks=False, **INCREMENTAL) for name in ("first", "second"))
        assert len(world.run(first, second)) == 8
        third, fourth = (world.member(name, callbacks=False, **INCREMENTAL) for name in ("third", "fourth"))
        third.poll(0)
        fourth.poll(0)
        world.run(first, seconds=0.2)
        assert len(owned(first)) == 1
        third.close()
        fourth.close()
        world.produce("c", partition=0)
        assert world.run(first, second) == ["c"]
        assert sorted(owned(first) + owned(second)) == [0, 1, 2, 3]

    def test_a_user_who_does_not_poll_does_not_hold_up_a_release(self, tmp_path: Path) -> None:
        """By the machine's clock: the thread that shows that members live sends it."""
        uri = str(tmp_path)
        with AdminClient({"bootstrap.servers": uri}) as admin:
            admin.create_topics([NewTopic("t", 4)])["t"].result()
            settings = {"bootstrap.servers": uri, "group.id": "g", "group.protocol": "consumer"}
            members = [Consumer(settings) for _ in range(4)]
            for member in members[:2]:
                member.subscribe(["t"])
            until_s = time.monotonic() + 60
            while [len(owned(member)) for member in members[:2]] != [2, 2] and time.monotonic() < until_s:
                for member in members[:2]:
                    member.poll(0.05)
            log = Store.open(uri).log
            for member in members[2:]:
                member.subscribe(["t"])
                member.poll(1)
            while len(owned(members[0])) == 2 and time.monotonic() < until_s:
                members[0].poll(0.05)
            while time.monotonic() < until_s:
                log.refresh()
                if sorted(len(one.assigned) for one in log.group_members("g")) == [0, 1, 1, 1]:
                    break
                time.sleep(0.05)
            # The second one has not polled since, and owes its partition.
            assert sorted(len(one.assigned) for one in log.group_members("g")) == [0, 1, 1, 1]
            for member in members:
                member.close()

    @pytest.mark.kafka("G24")
    def test_a_refused_offset_commit_does_not_hold_up_the_release(self, world: World) -> None:
        """Kafka: testReconcilePartitionsRevokedWithFailedAutoCommitCompletesRevocationAnyway."""
        world.produce("a")
        first = world.member("first", **INCREMENTAL, enable_auto_offset_store=False)
        world.run(first)
        for partition in first.assignment():
            partition.offset, partition.metadata = 1, "x" * 5_000
            first.store_offsets(offsets=[partition])
        second = world.member("second", **INCREMENTAL)
        world.run(first, second)
        assert len(owned(first)) == len(owned(second)) == 2
        assert world.committed() is None

    @pytest.mark.kafka("G19", "K106")
    def test_a_former_owner_cannot_commit(self, world: World) -> None:
        world.produce("a")
        first = world.member("first", **INCREMENTAL)
        world.run(first)
        second = world.member("second", **INCREMENTAL)
        world.run(first, second)
        (taken, *_) = owned(second)
        assert code_of(lambda: first.commit(offsets=[TopicPartition("t", taken, 1)], asynchronous=False)) == (
            ErrorCode.ILLEGAL_GENERATION
        )
        stranger = Consumer({"bootstrap.servers": world.uri("third"), "group.id": "g"})
        world.consumers.append(stranger)
        assert code_of(lambda: stranger.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)) == (
            ErrorCode.UNKNOWN_MEMBER_ID
        )

    @pytest.mark.kafka("G27", "K105")
    def test_a_new_owner_waits_for_an_open_transaction_of_the_old_one(self, world: World) -> None:
        world.create("out")
        world.produce("a", "b")
        first = world.member("first", enable_auto_commit=False)
        producer = Producer({"bootstrap.servers": world.uri("first"), "transactional.id": "x"})
        producer.init_transactions()
        producer.begin_transaction()
        assert world.run(first) == ["a", "b"]
        producer.produce("out", b"A")
        producer.send_offsets_to_transaction(first.position(first.assignment()), first.consumer_group_metadata())
        producer.flush()
        first.close()
        second = world.member("second")
        assert world.run(second) == []
        producer.commit_transaction()
        world.produce("c")
        assert world.run(second) == ["c"]
        producer.close()


class TestMetadata:
    def test_it_names_the_member_and_its_epoch_and_may_be_pickled(self, world: World) -> None:
        consumer = world.member("first", group_instance_id="i")
        assert consumer.memberid() is None
        world.run(consumer, seconds=0.2)
        metadata = consumer.consumer_group_metadata()
        assert pickle.loads(pickle.dumps(metadata)) == metadata
        member = world.logs["first"].member("g", consumer.memberid() or "")
        assert member is not None
        assert (metadata.group_id, metadata.member_id, metadata.generation_id, metadata.group_instance_id) == (
            "g",
            member.member_id,
            member.member_epoch,
            "i",
        )

    def test_a_member_id_is_known_before_the_first_poll_under_the_new_protocol_only(self, world: World) -> None:
        """confluent-kafka's test_consumer_memberid."""
        classic, new = world.member("first"), world.member("second", **KIP_848)
        assert classic.memberid() is None
        before = new.memberid()
        world.run(classic, new)
        assert before
        assert new.memberid() == before
        assert classic.memberid() not in (None, before)

    def test_it_changes_with_the_callbacks_only(self, world: World) -> None:
        seen = []
        first = world.member("first", **INCREMENTAL)
        world.run(first, seconds=0.2)
        before = first.consumer_group_metadata()
        second = world.member("second", **INCREMENTAL)
        world.run(second, seconds=0.2)
        assert first.consumer_group_metadata() == before
        while not any(kind == "on_revoke" for _, kind, _ in world.heard):
            seen.append(first.consumer_group_metadata())
            world.run(first, seconds=0.05)
        assert set(seen) == {before}

    @pytest.mark.kafka("G20", "K106")
    @pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
    def test_a_transaction_with_metadata_of_an_earlier_life_is_aborted(self, world: World, code: ErrorCode) -> None:
        world.produce("a")
        world.create("out")
        first = world.member("first", **INCREMENTAL)
        world.run(first)
        metadata, positions = first.consumer_group_metadata(), first.position(first.assignment())
        second = world.member("second", **INCREMENTAL)
        world.run(first, second)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            first.close()
        producer = Producer({"bootstrap.servers": world.uri("first"), "transactional.id": "x"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("out", b"A")
        producer.send_offsets_to_transaction(positions, metadata)
        with pytest.raises(KafkaException) as caught:
            producer.commit_transaction()
        assert caught.value.error.code() == code
        assert caught.value.error.txn_requires_abort()
        producer.abort_transaction()
        producer.close()


class TestCalls:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_a_callback_of_increments_takes_the_incremental_calls(self, world: World, protocol: dict[str, Any]) -> None:
        """confluent-kafka's test_incremental_assign."""
        world.produce("a", "b", "c")
        codes: list[int] = []

        def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            codes.append(code_of(lambda: consumer.assign(partitions)))
            partitions[0].offset = 2
            consumer.incremental_assign(partitions)
            codes.append(code_of(lambda: consumer.incremental_assign(partitions[:1])))
            codes.append(code_of(lambda: consumer.incremental_unassign([TopicPartition("t", 77)])))

        consumer = world.member("first", callbacks=False, **protocol)
        consumer.subscribe(["t"], on_assign=on_assign)
        assert world.run(consumer) == ["c"]
        assert codes == [ErrorCode.LOCAL_STATE, ErrorCode.LOCAL_CONFLICT, ErrorCode.LOCAL_INVALID_ARG]

    def test_a_callback_of_whole_lists_takes_assign(self, world: World) -> None:
        codes: list[int] = []

        def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            codes.append(code_of(lambda: consumer.incremental_assign(partitions)))

        consumer = world.member("first", callbacks=False)
        consumer.subscribe(["t"], on_assign=on_assign)
        world.run(consumer)
        assert codes == [ErrorCode.LOCAL_STATE]
        # The refused call has chosen too: nothing is assigned on its own.
        assert consumer.assignment() == []


class TestExpiry:
    @pytest.mark.kafka("G11")
    def test_the_partitions_of_a_silent_member_are_taken_over(self, world: World) -> None:
        world.produce("a", "b")
        first, second = world.member("first"), world.member("second")
        world.run(first, second)
        began_s = world.clock.monotonic_s()
        while len(owned(second)) < 4:
            world.run(second, seconds=1)
            assert world.clock.monotonic_s() - began_s < SESSION_S * 1.1 + 15 + 2
        assert world.clock.monotonic_s() - began_s > SESSION_S - 2
        assert world.members() == 1

    @pytest.mark.parametrize("commits", [False, True], ids=["by its object", "by its commits"])
    @pytest.mark.parametrize("phase", range(7))
    def test_a_killed_member_is_noticed_within_a_tenth_of_its_session(
        self, world: World, phase: int, commits: bool
    ) -> None:
        """After its last sign of life, however that falls between the observer's listings."""
        timing: dict[str, Any] = {
            "session_timeout_ms": 6_000,
            "heartbeat_interval_ms": 2_000,
            "enable_auto_commit": False,
        }
        first = world.member("first", **INCREMENTAL, **timing)
        world.run(first, seconds=0.1 + phase / 4)
        second = world.member("second", **INCREMENTAL, **timing)
        world.run(first, second, seconds=5 + phase / 3)
        log = world.logs["admin"]
        if commits:
            for number in range(20):
                first.commit(offsets=[TopicPartition("t", owned(first)[0], number)], asynchronous=False)
                world.run(first, second, seconds=0.2)
        signed_s = log.clock.monotonic_s() - 0.2
        if not commits:
            signs = world.objects.list(names.GROUPS)
            name = names.member_sign("g", str(first.memberid()))
            (signed_s,) = (sign.modified_ms / 1000 for sign in signs if sign.name == name)
        world.run(second, seconds=signed_s + 5.9 - world.clock.monotonic_s())
        assert world.members() == 2, "its session had not ended"
        world.run(second, seconds=signed_s + 6.6 - world.clock.monotonic_s())
        assert world.members() == 1

    def test_a_sign_that_the_store_refuses_is_left_for_a_second(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = world.member("first", heartbeat_interval_ms=3_000)
        world.run(first, seconds=0.2)
        refused: list[float] = []

        def refuse(name: str, data: bytes) -> None:
            refused.append(world.clock.monotonic_s())
            raise StoreUnavailable("rateLimitExceeded (HTTP 429)")

        monkeypatch.setattr(world.objects, "put", refuse)
        world.run(first, seconds=12)
        monkeypatch.undo()
        pauses = [later - sooner for sooner, later in itertools.pairwise(refused)]
        assert len(pauses) >= 7
        assert min(pauses) >= 1.0
        world.run(first, seconds=2)
        assert world.members() == 1
        assert world.told() == [("first", "on_assign", [0, 1, 2, 3])]

    def test_a_member_that_polls_is_never_taken_over(self, world: World) -> None:
        first, second = world.member("first"), world.member("second")
        world.run(first, second)
        entry = world.entry()
        world.told()
        for _ in range(40):
            world.run(first, second, seconds=0.1)
            world.clock.sleep(7)
        assert world.told() == []
        assert world.entry() == entry, "signs of life are not entries"
        assert len(world.objects.list(names.GROUPS)) == 2

    @pytest.mark.kafka("G25")
    def test_one_that_comes_back_to_life_has_lost_its_partitions_and_joins_again(self, world: World) -> None:
        world.produce("a", "b")
        first = world.member("first")
        second = world.member("second")
        world.run(first, second)
        before = first.memberid()
        taken = owned(first)
        world.told()
        for _ in range(8):
            world.run(second, seconds=8)
        assert owned(second) == [0, 1, 2, 3]
        world.told()
        assert first.poll(0) is None
        assert world.told() == [("first", "on_lost", taken)]
        world.run(first, second)
        assert first.memberid() not in (None, before)
        assert sorted(owned(first) + owned(second)) == [0, 1, 2, 3]

    def test_without_on_lost_on_revoke_is_called(self, world: World) -> None:
        """confluent-kafka's test_cooperative_rebalance_2."""
        heard: list[list[int]] = []
        first = world.member("first", callbacks=False, **INCREMENTAL)
        first.subscribe(["t"], on_revoke=lambda _, partitions: heard.append([p.partition for p in partitions]))
        world.run(first, seconds=0.2)
        world.clock.sleep(SESSION_S + 1)
        first.poll(0)
        assert heard == [[0, 1, 2, 3]]

    def test_one_whose_own_lease_is_over_stops_delivering_whoever_knows(self, world: World) -> None:
        world.produce(*map(str, range(10)))
        consumer = world.member("first")
        message = consumer.poll(1)
        assert message is not None
        world.clock.sleep(SESSION_S + 1)
        # Nothing was committed: the next life begins where the group was.
        assert world.run(consumer) == [str(number) for number in range(10)]
        assert [kind for _, kind, _ in world.told()] == ["on_assign", "on_lost", "on_assign"]
        assert world.members() == 1

    def test_one_who_comes_to_a_crashed_group_takes_over_at_once(self, world: World) -> None:
        """By the store's clock: it need not watch for a session time-out."""
        members = [world.member(f"m{number}") for number in range(3)]
        world.run(*members)
        world.clock.sleep(SESSION_S + 2)
        late = world.member("late")
        world.run(late)
        assert owned(late) == [0, 1, 2, 3]
        assert world.members() == 1

    def test_one_who_comes_early_to_a_crashed_group_waits(self, world: World) -> None:
        members = [world.member(f"m{number}") for number in range(2)]
        world.run(*members)
        world.clock.sleep(SESSION_S - 10)
        late = world.member("late")
        world.run(late)
        assert owned(late) == []
        assert world.members() == 3

    def test_a_member_with_a_longer_session_watches_one_with_a_short_one(self, world: World) -> None:
        first = world.member("first", session_timeout_ms=3_000)
        second = world.member("second")
        world.run(first, second)
        began_s = world.clock.monotonic_s()
        while len(owned(second)) < 4:
            world.run(second, seconds=0.2)
            assert world.clock.monotonic_s() - began_s < 3 * 1.1 + 1.5
        assert world.clock.monotonic_s() - began_s > 2

    @pytest.mark.kafka("G13")
    def test_a_member_that_does_not_give_up_what_it_owes_expires(self, world: World) -> None:
        """Kafka: testRebalanceTimeoutExpiration. Its signs go on, its user does not poll."""
        first = world.member("first", max_poll_interval_ms=3_600_000, **INCREMENTAL)
        world.run(first, seconds=0.2)
        log = world.logs["first"]
        member = log.member("g", first.memberid() or "")
        assert member is not None
        assert member.rebalance_timeout_ms == 3_600_000
        second = world.member("second", max_poll_interval_ms=3_600_000, **INCREMENTAL)
        world.run(second)
        assert owned(second) == []
        pulse = first._membership._pulse
        assert pulse is not None
        for _ in range(260):
            pulse.beat()
            world.run(second, seconds=0.1)
            world.clock.sleep(14.4)
        assert owned(second) == [0, 1, 2, 3]
        assert world.members() == 1


class TestPollInterval:
    @pytest.mark.kafka("G26")
    def test_a_user_who_does_not_poll_leaves_is_told_and_comes_back(self, world: World) -> None:
        """Kafka: testPollTimerExpiration, testStaleMemberRejoinsWhenTimerResetsNoCallbacks."""
        world.produce("a")
        first = world.member("first", max_poll_interval_ms=60_000)
        second = world.member("second")
        world.run(first, second)
        taken, before = owned(first), first.memberid()
        pulse = first._membership._pulse
        assert pulse is not None
        for _ in range(7):
            world.clock.sleep(10)
            world.run(second, seconds=0.05)
            pulse.beat()
        world.run(second)
        assert owned(second) == [0, 1, 2, 3]
        assert world.members() == 1
        world.told()
        message = first.poll(0)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._MAX_POLL_EXCEEDED
        assert "60 s" in error.str()
        assert world.told() == []
        world.run(first, second)
        assert ("first", "on_lost", taken) in world.told()
        assert first.memberid() != before
        assert sorted(owned(first) + owned(second)) == [0, 1, 2, 3]


class TestStaticMembers:
    @pytest.mark.kafka("G14")
    @pytest.mark.parametrize("protocol", [{}, KIP_848], ids=["classic", "consumer"])
    def test_one_that_closes_gets_its_partitions_back(self, world: World, protocol: dict[str, Any]) -> None:
        """Kafka: testStaticMemberGetsBackAssignmentUponRejoin."""
        first = world.member("first", group_instance_id="i1", **protocol)
        second = world.member("second", group_instance_id="i2", **protocol)
        world.run(first, second)
        mine, others = owned(first), owned(second)
        first.close()
        world.run(second)
        assert owned(second) == others
        back = world.member("back", group_instance_id="i1", **protocol)
        world.told()
        world.run(back, second)
        assert owned(back) == mine
        assert owned(second) == others
        assert world.told() == [("back", "on_assign", mine)]

    @pytest.mark.kafka("G12")
    def test_its_partitions_go_to_others_when_its_session_ends(self, world: World) -> None:
        first, second = world.member("first", group_instance_id="i1"), world.member("second")
        world.run(first, second)
        first.close()
        for _ in range(8):
            world.run(second, seconds=8)
        assert owned(second) == [0, 1, 2, 3]
        assert world.members() == 1

    def test_a_newcomer_of_the_classic_protocol_wins_and_the_older_is_fenced(self, world: World) -> None:
        first = world.member("first", group_instance_id="i")
        world.run(first, seconds=0.2)
        newcomer = world.member("newcomer", group_instance_id="i")
        world.run(newcomer, seconds=0.2)
        assert owned(newcomer) == [0, 1, 2, 3]
        error = fatal_of(first, world)
        assert "FENCED_INSTANCE_ID" in error.str()
        assert first.assignment() == []
        assert world.members() == 1

    @pytest.mark.kafka("G16")
    def test_a_newcomer_of_the_new_protocol_is_refused_while_the_older_lives(self, world: World) -> None:
        first = world.member("first", group_instance_id="i", **KIP_848)
        world.run(first, seconds=0.2)
        newcomer = world.member("newcomer", group_instance_id="i", **KIP_848)
        assert "UNRELEASED_INSTANCE_ID" in fatal_of(newcomer, world).str()
        world.run(first, seconds=0.2)
        assert owned(first) == [0, 1, 2, 3]


class TestDropped:
    def test_a_consumer_that_is_dropped_leaves_its_group_and_no_thread(self, tmp_path: Path) -> None:
        settings = {"bootstrap.servers": str(tmp_path), "group.id": "g", "fetch.wait.max.ms": 5, "store.fsync": "false"}
        options = {"store.fsync": "false"}
        with Store.open(str(tmp_path), options=options, create=True) as store:
            store.create_topic("t", 4)

            def members() -> int:
                store.log.refresh()
                return len(store.log.group_members("g"))

            dropped = [Consumer(settings)]
            dropped[0].subscribe(["t"])
            until(lambda: dropped[0].poll(0.01) is None and bool(dropped[0].assignment()))
            assert members() == 1
            assert any(thread.name.startswith("sparktxn-members") for thread in threading.enumerate())
            dropped.clear()
            gc.collect()
            until(lambda: members() == 0)
            until(lambda: not any(thread.name.startswith("sparktxn-members") for thread in threading.enumerate()))


def until(is_true: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < ends_s
        time.sleep(0.01)


def fatal_of(consumer: Consumer, world: World) -> KafkaError:
    for _ in range(40):
        message = consumer.poll(0)
        if message is not None and (error := message.error()) is not None:
            assert (error.code(), error.fatal()) == (ErrorCode.LOCAL_FATAL, True)
            return error
        world.clock.sleep(0.05)
    raise AssertionError("no error came")
