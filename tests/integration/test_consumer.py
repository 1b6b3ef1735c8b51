"""The consumer on a real log in memory, fed by the real producer."""

from __future__ import annotations

import os
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import OffsetToCommit, TxnOffsetCommit
from sparktxn._foundation.process.background import InlineBackground, ThreadBackground
from sparktxn._kafka.message import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Message,
    TopicPartition,
)
from sparktxn._rows.scan.plan import plan_ranges
from sparktxn.admin import AdminClient, NewPartitions, NewTopic
from sparktxn.consumer import Consumer, fetcher
from sparktxn.consumer.offsets import GroupOffsets
from sparktxn.errors import (
    ConfigurationError,
    DamagedObject,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    StoreNotFound,
    StoreUnavailable,
    ViewExpired,
)
from sparktxn.producer import Producer
from tests import world as worlds
from tests.world import messages, messages_and_errors, position

_POLLS_MAX = 2000


class World(worlds.World):
    """A store with the topics that a test names."""

    def __init__(self) -> None:
        super().__init__({})

    def topic(self, name: str = "t", partitions: int = 1, **kwargs: Any) -> str:
        self.store.create_topic(name, partitions, **kwargs)
        return name

    def transaction(self, *values: str, topic: str = "t", partition: int = 0, commit: bool = True) -> None:
        """A transaction that has published before it ends, so that its abort leaves a range in the log."""
        producer = self.transactional()
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode(), partition=partition)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()

    def reader(self, *topics: str, **settings: Any) -> Consumer:
        consumer = self.consumer(**settings)
        consumer.subscribe(list(topics) or ["t"])
        return consumer


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def values(consumer: Consumer, timeout: float = 0.05) -> list[str]:
    return [(message.value() or b"").decode() for message in messages(consumer, timeout)]


def error_of(message: Message | None) -> KafkaError:
    assert message is not None
    error = message.error()
    assert error is not None
    return error


def committed(consumer: Consumer, topic: str = "t", partition: int = 0) -> int:
    return consumer.committed([TopicPartition(topic, partition)], 5)[0].offset


class TestRecords:
    def test_all_of_a_record_comes_back(self, world: World) -> None:
        world.topic()
        headers = [("a", b"1"), ("a", b"2"), ("b", None)]
        with Producer({"bootstrap.servers": world.uri}) as producer:
            producer.produce("t", b"v", b"k", headers=headers, timestamp=1_700_000_000_123)
            producer.produce("t", None, b"gone")
            producer.produce("t", b"", headers=[("c", b"3")])
        consumer = world.reader()
        first, second, third = messages(consumer)
        assert (first.topic(), first.partition(), first.offset()) == ("t", 0, 0)
        assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers)
        assert first.timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_123)
        assert (second.key(), second.value(), second.headers(), second.offset()) == (b"gone", None, None, 1)
        assert (third.key(), third.value(), third.headers()) == (None, b"", [("c", b"3")])

    def test_headers_stay_with_their_records_where_a_chunk_begins_inside_a_segment(self, world: World) -> None:
        world.topic()
        with Producer({"bootstrap.servers": world.uri}) as producer:
            for number in range(50):
                producer.produce("t", b"x" * 100, headers=[("n", str(number).encode())] if number % 3 else None)
        consumer = world.reader(max_partition_fetch_bytes=700)
        found = [message.headers() for message in messages(consumer)]
        assert found == [[("n", str(number).encode())] if number % 3 else None for number in range(50)]

    def test_log_append_time_is_told(self, world: World) -> None:
        world.topic(settings={"message.timestamp.type": "LogAppendTime"})
        world.produce("a", timestamp=1_000)
        kind, milliseconds = messages(world.reader())[0].timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert milliseconds > 1_700_000_000_000

    def test_partitions_take_turns(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        # Workers that answer at once: else a partition whose records have arrived does not wait for its turn.
        monkeypatch.setattr(ThreadBackground, "sibling", lambda *_: InlineBackground())
        world.topic(partitions=2)
        for partition in (0, 1):
            world.produce(*["x" * 100] * 200, partition=partition)
        consumer = world.reader(max_partition_fetch_bytes=2_000)
        order = [message.partition() for message in messages(consumer)]
        assert order.count(0) == order.count(1) == 200
        first = order[:100]
        assert 30 <= first.count(0) <= 70

    def test_each_partition_is_in_order_however_it_is_fetched(self, world: World) -> None:
        world.topic(partitions=3)
        for number in range(30):
            world.produce(*[f"{number}.{i}" for i in range(7)], partition=number % 3)
        consumer = world.reader(max_partition_fetch_bytes=50, fetch_max_bytes=1)
        found = messages(consumer)
        assert len(found) == 210
        for partition in range(3):
            assert [m.offset() for m in found if m.partition() == partition] == list(range(70))

    def test_consume_gives_what_there_is_within_the_timeout(self, world: World) -> None:
        world.topic()
        world.produce("a", "b", "c")
        consumer = world.reader()
        assert [m.value() for m in consumer.consume(2, 1)] == [b"a", b"b"]
        assert [m.value() for m in consumer.consume(5, 0.02)] == [b"c"]
        assert consumer.consume(5, 0.01) == []
        assert consumer.consume(0) == []
        with pytest.raises(ValueError, match="-1"):
            consumer.consume(-1)

    def test_records_written_later_come(self, world: World) -> None:
        world.topic()
        consumer = world.reader()
        assert consumer.poll(0) is None
        world.produce("late")
        assert values(consumer) == ["late"]


class TestIsolation:
    @pytest.mark.kafka("K86")
    def test_only_what_is_committed_is_read(self, world: World) -> None:
        world.topic()
        world.transaction("a", "b")
        world.transaction("x", commit=False)
        world.transaction("c")
        assert values(world.reader(group_id="rc")) == ["a", "b", "c"]
        uncommitted = world.reader(group_id="ru", isolation_level="read_uncommitted")
        assert values(uncommitted) == ["a", "b", "x", "c"]

    @pytest.mark.kafka("K72", "K73", "K83")
    def test_an_open_transaction_holds_what_follows_it(self, world: World) -> None:
        world.topic()
        producer = world.transactional()
        producer.begin_transaction()
        producer.produce("t", b"open", partition=0)
        producer.flush()
        world.produce("after")
        consumer, uncommitted = world.reader(), world.reader(group_id="ru", isolation_level="read_uncommitted")
        assert values(consumer) == []
        assert consumer.get_watermark_offsets(TopicPartition("t", 0)) == (0, 0)
        assert values(uncommitted) == ["open", "after"]
        assert uncommitted.get_watermark_offsets(TopicPartition("t", 0)) == (0, 2)
        producer.commit_transaction()
        assert values(consumer) == ["open", "after"]

    @pytest.mark.kafka("K86")
    def test_the_position_passes_control_records_and_aborted_ranges(self, world: World) -> None:
        world.topic()
        world.transaction("a")
        world.transaction("x", "y", commit=False)
        consumer = world.reader()
        message = consumer.poll(1)
        assert message is not None
        assert position(consumer) == 1
        assert consumer.poll(0.02) is None
        low, high = consumer.get_watermark_offsets(TopicPartition("t", 0))
        assert (low, high) == (0, 5)
        assert position(consumer) == high
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), cached=True) == (0, 5)


class TestWhereItBegins:
    @pytest.mark.parametrize(
        ("reset", "expected"),
        [
            ("earliest", ["a"]), ("smallest", ["a"]), ("beginning", ["a"]),
            ("latest", []), ("largest", []), ("end", []),
        ],
    )  # fmt: skip
    def test_without_a_committed_offset_the_setting_says(self, world: World, reset: str, expected: list[str]) -> None:
        world.topic()
        world.produce("a")
        consumer = world.reader(auto_offset_reset=reset)
        assert values(consumer) == expected
        world.produce("b")
        assert values(consumer) == ["b"]

    def test_the_reset_may_be_an_error_that_a_seek_mends(self, world: World) -> None:
        world.topic()
        world.produce("a")
        consumer = world.reader(auto_offset_reset="error")
        error = error_of(consumer.poll(1))
        assert error.code() == ErrorCode.LOCAL_AUTO_OFFSET_RESET
        assert "seek" in error.str()
        assert consumer.poll(0.02) is None
        consumer.seek(TopicPartition("t", 0, 0))
        assert values(consumer) == ["a"]

    @pytest.mark.parametrize(
        ("offset", "expected"),
        [
            (OFFSET_BEGINNING, ["a", "b", "c"]),
            (OFFSET_END, []),
            (OFFSET_STORED, ["b", "c"]),
            (OFFSET_INVALID, ["b", "c"]),
            (2, ["c"]),
            (-2_000 - 1, ["c"]),
            (99, ["a", "b", "c"]),
        ],
    )
    def test_an_assignment_says_it(self, world: World, offset: int, expected: list[str]) -> None:
        world.topic()
        world.produce("a", "b", "c")
        consumer = world.consumer()
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        consumer.assign([TopicPartition("t", 0, offset)])
        assert values(consumer) == expected

    def test_below_the_log_start_the_setting_says(self, world: World) -> None:
        world.topic()
        world.produce("a", "b", "c")
        with AdminClient({"bootstrap.servers": world.uri}) as admin:
            for future in admin.delete_records([TopicPartition("t", 0, 2)]).values():
                assert future.result().low_watermark == 2
        consumer = world.consumer()
        consumer.assign([TopicPartition("t", 0, 0)])
        assert values(consumer) == ["c"]
        consumer.seek(TopicPartition("t", 0, 1))
        assert values(consumer) == ["c"]

    @pytest.mark.parametrize("bad", [TopicPartition("t", -1, 0), TopicPartition("t", 0, -7)])
    def test_what_is_no_place_is_refused(self, world: World, bad: TopicPartition) -> None:
        world.topic()
        with pytest.raises(KafkaException) as caught:
            world.consumer().assign([bad])
        assert caught.value.error.code() == ErrorCode.LOCAL_INVALID_ARG

    @pytest.mark.kafka("K92")
    def test_a_topic_created_again_is_begun_anew(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        # Workers that answer at once: else one may look between the deletion and the creation, and report an error.
        monkeypatch.setattr(ThreadBackground, "sibling", lambda *_: InlineBackground())
        world.topic()
        world.produce("old", "old")
        consumer = world.reader()
        assert values(consumer) == ["old", "old"]
        with AdminClient({"bootstrap.servers": world.uri}) as admin:
            admin.delete_topics(["t"])["t"].result()
        world.topic()
        world.produce("new")
        assert values(consumer) == ["new"]


class TestSeekAndPause:
    def test_seek_goes_back_and_forth_also_inside_a_chunk(self, world: World) -> None:
        world.topic()
        world.produce("a", "b", "c", "d")
        consumer = world.reader()
        assert [m.value() for m in consumer.consume(2, 1)] == [b"a", b"b"]
        consumer.seek(TopicPartition("t", 0, 0))
        assert position(consumer) == 0
        assert values(consumer) == ["a", "b", "c", "d"]
        consumer.seek(TopicPartition("t", 0, OFFSET_BEGINNING))
        assert position(consumer) == OFFSET_INVALID
        assert len(values(consumer)) == 4

    def test_seek_needs_an_assigned_partition(self, world: World) -> None:
        world.topic()
        with pytest.raises(KafkaException) as caught:
            world.consumer().seek(TopicPartition("t", 0, 0))
        assert caught.value.error.code() == ErrorCode.LOCAL_UNKNOWN_PARTITION

    def test_pausing_what_is_not_assigned_does_nothing(self, world: World) -> None:
        world.topic()
        world.produce("a")
        consumer = world.reader()
        consumer.pause([TopicPartition("t", 7), TopicPartition("no", 0)])
        consumer.resume([TopicPartition("no", 0)])
        assert values(consumer) == ["a"]

    def test_a_loop_over_a_consumer_yields_messages_and_raises_errors(self, world: World) -> None:
        world.topic()
        world.produce("a", "b")
        consumer = world.reader(**{"enable.partition.eof": True})
        found = []
        for message in consumer:
            found.append(message.value())
            if len(found) == 2:
                world.produce("c")
            if len(found) == 3:
                break
        assert found == [b"a", b"b", b"c"]
        with pytest.raises(KafkaException) as caught:
            next(iter(world.reader("nowhere")))
        assert caught.value.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_paused_partition_waits_where_it_is(self, world: World) -> None:
        world.topic(partitions=2)
        for partition in (0, 1):
            world.produce(*[f"{partition}{i}" for i in range(3)], partition=partition)
        consumer = world.reader()
        first = consumer.poll(1)
        assert first is not None
        paused = TopicPartition("t", first.partition() or 0)
        consumer.pause([paused])
        assert {value[0] for value in values(consumer)} == {str(1 - paused.partition)}
        assert position(consumer, partition=paused.partition) == 1
        consumer.resume([paused])
        assert values(consumer) == [f"{paused.partition}1", f"{paused.partition}2"]


class TestSubscriptions:
    def test_callbacks_tell_what_comes_and_goes(self, world: World) -> None:
        world.topic(partitions=2)
        told: list[tuple[str, list[int]]] = []
        consumer = world.consumer()
        consumer.subscribe(
            ["t"],
            on_assign=lambda c, partitions: told.append(("assign", [p.partition for p in partitions])),
            on_revoke=lambda c, partitions: told.append(("revoke", [p.partition for p in partitions])),
        )
        assert told == []
        until_s = time.monotonic() + 60
        while not told and time.monotonic() < until_s:
            consumer.poll(0.02)
        assert told == [("assign", [0, 1])]
        assert consumer.assignment() == [TopicPartition("t", 0), TopicPartition("t", 1)]
        consumer.close()
        assert told == [("assign", [0, 1]), ("revoke", [0, 1])]

    def test_on_assign_may_assign_other_offsets(self, world: World) -> None:
        world.topic()
        world.produce("a", "b", "c")

        def at_two(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                partition.offset = 2
            consumer.assign(partitions)

        consumer = world.consumer()
        consumer.subscribe(["t"], on_assign=at_two)
        assert values(consumer) == ["c"]

    def test_new_partitions_are_read_and_the_others_go_on(self, world: World) -> None:
        world.topic()
        world.produce("a")
        consumer = world.reader(enable_auto_commit=False, partition_assignment_strategy="cooperative-sticky")
        assert values(consumer) == ["a"]
        with AdminClient({"bootstrap.servers": world.uri}) as admin:
            admin.create_partitions([NewPartitions("t", 2)])["t"].result()
        world.produce("b", partition=1)
        assert values(consumer) == ["b"]
        assert len(consumer.assignment()) == 2

    def test_a_pattern_takes_topics_that_come_later(self, world: World) -> None:
        world.topic("orders-1")
        world.topic("other")
        world.produce("a", topic="orders-1")
        world.produce("no", topic="other")
        consumer = world.reader("^orders-")
        assert values(consumer) == ["a"]
        world.topic("orders-2")
        world.produce("b", topic="orders-2")
        assert values(consumer) == ["b"]

    def test_an_unknown_topic_is_told_once_with_the_mend(self, world: World) -> None:
        world.topic("known")
        world.produce("a", topic="known")
        consumer = world.reader("known", "nowhere")
        found = messages_and_errors(consumer)
        errors = [message for message in found if message.error() is not None]
        assert len(errors) == 1
        error = error_of(errors[0])
        assert error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors[0].topic() == "nowhere"
        assert "create_topics" in error.str()
        assert len(found) == 2
        world.topic("nowhere")
        world.produce("b", topic="nowhere")
        assert values(consumer) == ["b"]

    def test_an_unknown_partition_is_told_once(self, world: World) -> None:
        world.topic()
        consumer = world.consumer()
        consumer.assign([TopicPartition("t", 7)])
        assert error_of(consumer.poll(1)).code() == ErrorCode.LOCAL_UNKNOWN_PARTITION
        assert consumer.poll(0.02) is None

    def test_unsubscribe_reads_nothing_more(self, world: World) -> None:
        world.topic()
        world.produce("a", "b")
        consumer = world.reader()
        consumer.consume(1, 1)
        consumer.unsubscribe()
        assert consumer.assignment() == []
        assert consumer.poll(0.01) is None

    def test_another_subscription_replaces_the_first(self, world: World) -> None:
        world.topic("one")
        world.topic("two")
        world.produce("1", topic="one")
        world.produce("2", topic="two")
        consumer = world.reader("one")
        assert values(consumer) == ["1"]
        consumer.subscribe(["two"])
        assert values(consumer) == ["2"]
        assert consumer.assignment() == [TopicPartition("two", 0)]

    def test_incremental_assignments(self, world: World) -> None:
        world.topic(partitions=2)
        world.produce("a", partition=0)
        world.produce("b", partition=1)
        consumer = world.consumer()
        consumer.incremental_assign([TopicPartition("t", 0)])
        assert values(consumer) == ["a"]
        consumer.incremental_assign([TopicPartition("t", 1)])
        assert values(consumer) == ["b"]
        with pytest.raises(KafkaException) as caught:
            consumer.incremental_assign([TopicPartition("t", 1)])
        assert caught.value.error.code() == ErrorCode.LOCAL_CONFLICT
        consumer.incremental_unassign([TopicPartition("t", 0)])
        assert consumer.assignment() == [TopicPartition("t", 1)]
        consumer.unassign()
        assert consumer.assignment() == []

    @pytest.mark.parametrize("bad", ["t", [1]])
    def test_not_a_list_of_names(self, world: World, bad: Any) -> None:
        with pytest.raises(TypeError, match=r"^topics.*: expected a"):
            world.consumer().subscribe(bad)

    def test_the_end_of_a_partition_is_told_once_per_end(self, world: World) -> None:
        world.topic()
        world.produce("a")
        consumer = world.reader(enable_partition_eof=True)
        first, second = consumer.poll(1), consumer.poll(1)
        assert first is not None
        assert first.value() == b"a"
        assert error_of(second).code() == ErrorCode.LOCAL_PARTITION_EOF
        assert second is not None
        assert second.offset() == 1
        assert consumer.poll(0.02) is None
        world.produce("b")
        assert [m.error() is None for m in messages_and_errors(consumer)] == [True, False]


class TestOffsets:
    def test_commit_gives_the_next_reader_its_place(self, world: World) -> None:
        world.topic()
        world.produce("a", "b", "c")
        consumer = world.reader(enable_auto_commit=False)
        consumer.consume(2, 1)
        assert committed(consumer) == OFFSET_INVALID
        assert consumer.commit(asynchronous=False) == [TopicPartition("t", 0)]
        assert committed(consumer) == 2
        consumer.close()
        assert values(world.reader()) == ["c"]

    def test_commit_of_a_message_is_the_offset_after_it(self, world: World) -> None:
        world.topic()
        world.produce("a", "b")
        consumer = world.reader(enable_auto_commit=False)
        message = consumer.poll(1)
        assert message is not None
        consumer.commit(message=message, asynchronous=False)
        assert committed(consumer) == 1

    @pytest.mark.kafka("K112")
    def test_metadata_comes_back(self, world: World) -> None:
        world.topic()
        consumer = world.consumer()
        consumer.commit(offsets=[TopicPartition("t", 0, 5, "note", 3)], asynchronous=False)
        (found,) = consumer.committed([TopicPartition("t", 0)], 1)
        assert (found.offset, found.metadata, found.leader_epoch) == (5, "note", 3)
        consumer.commit(offsets=[TopicPartition("t", 0, 6)], asynchronous=False)
        (found,) = consumer.committed([TopicPartition("t", 0)], 1)
        assert (found.offset, found.metadata, found.leader_epoch) == (6, None, None)

    @pytest.mark.kafka("K112")
    def test_metadata_of_stored_offsets_is_committed_with_them(self, world: World) -> None:
        world.topic()
        world.produce("a", "b")
        consumer = world.reader(enable_auto_offset_store=False)
        consumer.poll(1)
        consumer.store_offsets(offsets=[TopicPartition("t", 0, 1, "note", 3)])
        consumer.commit(asynchronous=False)
        (found,) = consumer.committed([TopicPartition("t", 0)], 1)
        assert (found.offset, found.metadata, found.leader_epoch) == (1, "note", 3)

    def test_nothing_to_commit(self, world: World) -> None:
        world.topic()
        consumer = world.reader()
        with pytest.raises(KafkaException) as caught:
            consumer.commit(asynchronous=False)
        assert caught.value.error.code() == ErrorCode.LOCAL_NO_OFFSET

    def test_an_asynchronous_commit_is_told_inside_poll(self, world: World) -> None:
        world.topic()
        world.produce("a")
        told: list[tuple[KafkaError | None, list[TopicPartition]]] = []
        consumer = world.reader(enable_auto_commit=False, on_commit=lambda e, p: told.append((e, p)))
        consumer.poll(1)
        assert consumer.commit() is None
        assert told == []
        for _ in range(100):
            consumer.poll(0.02)
            if told:
                break
        ((error, offsets),) = told
        assert error is None
        assert [p.offset for p in offsets] == [1]

    def test_committed_answers_after_the_commits_that_were_asked_for_before(self, world: World) -> None:
        world.topic()
        consumer = world.consumer()
        for offset in range(1, 60):
            consumer.commit(offsets=[TopicPartition("t", 0, offset)])
            assert consumer.committed([TopicPartition("t", 0)], timeout=30)[0].offset == offset

    def test_committed_does_not_wait_longer_than_its_time_out(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.topic()
        consumer = world.consumer()
        go_on = threading.Event()
        send = GroupOffsets.send

        def sends_late(self: GroupOffsets, *given: Any) -> Any:
            go_on.wait()
            return send(self, *given)

        monkeypatch.setattr(GroupOffsets, "send", sends_late)
        consumer.commit(offsets=[TopicPartition("t", 0, 1)])
        with pytest.raises(OutcomeUnknown, match="an earlier offset commit has not ended in time"):
            consumer.committed([TopicPartition("t", 0)], timeout=0.01)
        go_on.set()
        assert consumer.committed([TopicPartition("t", 0)], timeout=30)[0].offset == 1

    @pytest.mark.parametrize("call", ["poll", "consume", "consume_arrow"])
    def test_a_poll_before_a_subscription_says_so_once(
        self, world: World, call: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.topic()
        consumer = world.consumer()
        for _ in range(2):
            assert not getattr(consumer, call)(timeout=0)
        (said,) = [one.getMessage() for one in caplog.records]
        assert said == f"{consumer!r} is polled before subscribe() or assign(): it has no records to return"

    @pytest.mark.parametrize("how", ["subscribe", "assign", "incremental_assign"])
    def test_a_poll_after_a_subscription_says_nothing(
        self, world: World, how: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.topic()
        consumer = world.consumer()
        getattr(consumer, how)(["t"] if how == "subscribe" else [TopicPartition("t", 0)])
        consumer.poll(0)
        consumer.unsubscribe()
        consumer.poll(0)
        assert caplog.records == []

    def test_close_waits_for_asynchronous_commits(self, world: World) -> None:
        world.topic()
        world.produce("a", "b")
        consumer = world.reader(enable_auto_commit=False)
        consumer.poll(1)
        consumer.commit()
        consumer.close()
        assert committed(world.consumer()) == 1

    def test_offsets_are_committed_on_their_own_at_close(self, world: World) -> None:
        world.topic()
        world.produce("a", "b", "c")
        with world.reader() as consumer:
            consumer.consume(2, 1)
        assert values(world.reader()) == ["c"]

    def test_offsets_are_committed_on_their_own_while_polling(self, world: World) -> None:
        world.topic()
        world.produce("a", "b", "c")
        consumer = world.reader(auto_commit_interval_ms=0)
        consumer.poll(1)
        consumer.poll(1)
        assert consumer._commits.wait()
        assert committed(world.consumer()) == 1, "the message that was just handed out is not yet consumed"

    def test_automatic_commits_can_be_switched_off(self, world: World) -> None:
        world.topic()
        world.produce("a")
        with world.reader(enable_auto_commit=False, auto_commit_interval_ms=0) as consumer:
            assert values(consumer) == ["a"]
        assert committed(world.consumer()) == OFFSET_INVALID

    def test_only_what_was_stored_is_committed(self, world: World) -> None:
        world.topic()
        world.produce("a", "b", "c")
        consumer = world.reader(enable_auto_offset_store=False)
        first, _ = consumer.consume(2, 1)
        consumer.store_offsets(first)
        consumer.close()
        assert committed(world.consumer()) == 1

    def test_storing_needs_its_setting(self, world: World) -> None:
        world.topic()
        consumer = world.reader()
        with pytest.raises(KafkaException) as caught:
            consumer.store_offsets(offsets=[TopicPartition("t", 0, 1)])
        assert caught.value.error.code() == ErrorCode.LOCAL_INVALID_ARG

    def test_unknown_partitions_are_told(self, world: World) -> None:
        consumer = world.consumer()
        (found,) = consumer.committed([TopicPartition("no", 0)], 1)
        assert found.error is not None
        assert found.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaException) as caught:
            consumer.commit(offsets=[TopicPartition("no", 0, 1)], asynchronous=False)
        assert caught.value.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.kafka("K105")
    def test_offsets_in_an_open_transaction_are_waited_for(self, world: World) -> None:
        world.topic()
        world.topic("out")
        world.produce("a", "b")
        consumer = world.reader(enable_auto_commit=False)
        consumer.poll(1)
        producer = world.transactional()
        producer.begin_transaction()
        producer.produce("out", b"A")
        producer.flush()
        topic = world.store.log.topic("t")
        assert topic is not None
        offsets = (OffsetToCommit(topic.topic_id, 0, 1),)
        member = consumer.consumer_group_metadata()
        pending = TxnOffsetCommit(
            "orders",
            producer.producer_id,
            producer.producer_epoch,
            1,
            "readers",
            offsets,
            generation_id=member.generation_id,
            member_id=member.member_id,
        )
        world.store.log.submit([pending])
        consumer.close()
        waiting = world.reader()
        with pytest.raises(KafkaException) as caught:
            waiting.committed([TopicPartition("t", 0)], 0.05)
        assert caught.value.error.code() == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert caught.value.error.retriable()
        assert waiting.poll(0.05) is None, "its place is not known before the transaction ends"
        producer.commit_transaction()
        assert values(waiting) == ["b"]

    def test_group_metadata_may_be_pickled(self, world: World) -> None:
        metadata = world.consumer().consumer_group_metadata()
        assert pickle.loads(pickle.dumps(metadata)) == metadata
        assert (metadata.group_id, metadata.generation_id) == ("readers", -1)

    def test_offsets_for_times(self, world: World) -> None:
        world.topic()
        for number in range(3):
            world.produce(str(number), timestamp=1_000 * (number + 1))
        consumer = world.consumer()
        asked = [TopicPartition("t", 0, time) for time in (0, 1_001, 3_000, 3_001)]
        assert [p.offset for p in consumer.offsets_for_times(asked, 1)] == [0, 1, 2, OFFSET_END]
        logical = [TopicPartition("t", 0, OFFSET_BEGINNING), TopicPartition("t", 0, OFFSET_END)]
        assert [p.offset for p in consumer.offsets_for_times(logical, 1)] == [0, 3]

    def test_watermarks_of_what_does_not_exist(self, world: World) -> None:
        world.topic()
        for partition in (TopicPartition("no", 0), TopicPartition("t", 3)):
            with pytest.raises(KafkaException) as caught:
                world.consumer().get_watermark_offsets(partition, 1)
            assert caught.value.error.code() == ErrorCode.LOCAL_UNKNOWN_PARTITION

    def test_list_topics(self, world: World) -> None:
        world.topic(partitions=3)
        metadata = world.consumer().list_topics()
        assert list(metadata.topics) == ["t"]
        assert sorted(metadata.topics["t"].partitions) == [0, 1, 2]
        assert world.consumer().list_topics("no").topics["no"].error is not None


class TestColumns:
    def test_kafkas_record(self, world: World) -> None:
        world.topic(partitions=2)
        world.produce("a", "b", partition=0)
        world.produce("c", partition=1)
        table = world.reader().consume_arrow(timeout=30)
        assert table is not None
        assert {"topic", "partition", "offset", "timestamp", "key", "value", "headers"} <= set(table.column_names)
        found = zip(*(table.column(name).to_pylist() for name in ("partition", "offset", "value")), strict=True)
        assert sorted(found) == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]

    def test_it_goes_on_where_poll_stood_and_back(self, world: World) -> None:
        world.topic()
        world.produce("a", "b", "c", "d")
        consumer = world.reader()
        first = consumer.poll(1)
        assert first is not None
        table = consumer.consume_arrow(2, timeout=30)
        assert table is not None
        assert table.column("value").to_pylist() == [b"b", b"c"]
        assert position(consumer) == 3
        assert values(consumer) == ["d"]
        assert consumer.consume_arrow(timeout=0.01) is None

    def test_typed_topics_give_their_columns(self, world: World) -> None:
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        world.topic("typed", schema=schema)
        world.topic("plain")
        with Producer({"bootstrap.servers": world.uri}) as producer:
            producer.produce_arrow("typed", pa.table({"id": [1, 2], "name": ["x", None]}, schema=schema))
        world.produce("v", topic="plain")
        consumer = world.reader("typed", "plain")
        tables = [consumer.consume_arrow(timeout=30) for _ in range(2)]
        by_kind = {"id" in table.column_names: table for table in tables if table is not None}
        assert by_kind[True].select(["id", "name", "_topic", "_offset"]).to_pylist() == [
            {"id": 1, "name": "x", "_topic": "typed", "_offset": 0},
            {"id": 2, "name": None, "_topic": "typed", "_offset": 1},
        ]
        assert by_kind[False].column("value").to_pylist() == [b"v"]

    def test_typed_topics_have_no_messages_and_nothing_is_lost(self, world: World) -> None:
        world.topic("typed", schema=pa.schema([("id", pa.int64())]))
        with Producer({"bootstrap.servers": world.uri}) as producer:
            producer.produce_arrow("typed", pa.table({"id": [1]}))
        consumer = world.reader("typed")
        with pytest.raises(KafkaException, match="consume_arrow"):
            consumer.poll(1)
        table = consumer.consume_arrow(timeout=30)
        assert table is not None
        assert table.column("id").to_pylist() == [1]

    def test_an_unknown_topic_is_raised(self, world: World) -> None:
        with pytest.raises(KafkaException) as caught:
            world.reader("nowhere").consume_arrow(timeout=30)
        assert caught.value.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestWhenThingsBreak:
    def segment_of(self, world: World, partition: int) -> str:
        view = world.store.view(["t"]).partitions["t", partition]
        return names.segment("t", view.topic.topic_id, partition, view.segments[0].name)

    def test_a_damaged_segment_is_named_and_the_rest_is_read(self, world: World) -> None:
        world.topic(partitions=2, settings={"append.inline.bytes": "0"})
        world.produce("bad", partition=0)
        world.produce("good", partition=1)
        name = self.segment_of(world, 0)
        objects = world.store.log.objects
        data = objects.get(name)
        assert data is not None
        objects.put(name, data[:-1] + bytes([data[-1] ^ 1]))
        consumer = world.reader()
        found: list[bytes | None] = []
        errors: list[str] = []

        def poll_until(enough: Callable[[], bool]) -> None:
            for _ in range(_POLLS_MAX):
                try:
                    message = consumer.poll(0.01)
                except DamagedObject as error:
                    errors.append(error.object_name)
                else:
                    found.extend([] if message is None else [message.value()])
                if enough():
                    return

        poll_until(lambda: found == [b"good"] and len(errors) >= 2)
        assert found == [b"good"]
        assert set(errors) == {name}
        assert position(consumer, partition=0) == 0
        objects.put(name, data)
        poll_until(lambda: len(found) == 2)  # a read from before the repair may still report the damage
        assert found == [b"good", b"bad"]
        assert set(errors) == {name}
        assert values(consumer) == []

    def test_a_store_that_does_not_answer_is_told_and_tried_again(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.topic()
        world.produce("a")
        told: list[KafkaError] = []
        consumer = world.reader(error_cb=told.append)
        log = world.store.log

        def unavailable(*_: object, **__: object) -> None:
            raise StoreUnavailable("the store is away")

        with monkeypatch.context() as patched:
            patched.setattr(type(log), "view", unavailable)
            assert consumer.poll(0.05) is None
        assert told
        assert all(error.code() == ErrorCode.LOCAL_TRANSPORT and error.retriable() for error in told)
        assert values(consumer) == ["a"]

    def test_an_expired_view_is_replaced_once(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.topic()
        world.produce("a")
        plan = plan_ranges
        failures = [ViewExpired("passed")]

        def expired(*args: Any, **kwargs: Any) -> Any:
            if failures:
                raise failures.pop()
            return plan(*args, **kwargs)

        monkeypatch.setattr(fetcher, "plan_ranges", expired)
        assert values(world.reader()) == ["a"]
        failures += [ViewExpired("passed")] * 2
        consumer = world.reader(group_id="again")
        with pytest.raises(ViewExpired):
            consumer.poll(1)
        assert values(consumer) == ["a"]

    def test_a_missing_store(self) -> None:
        with pytest.raises(StoreNotFound, match="create_topics"):
            Consumer({"bootstrap.servers": f"memory://{uuid.uuid4().hex}", "group.id": "g"})

    def test_a_closed_consumer_says_so(self, world: World) -> None:
        world.topic()
        world.produce("a", "b")
        consumer = world.reader()
        consumer.poll(1)
        consumer.close()
        consumer.close()
        for call in (consumer.poll, consumer.consume, consumer.consume_arrow, consumer.commit, consumer.assignment):
            with pytest.raises(RuntimeError, match="closed"):
                call()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    def test_a_forked_consumer_says_so(self, world: World) -> None:
        world.topic()
        world.produce("a", "b", "c")
        consumer = world.reader()
        consumer.poll(1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                consumer.poll(0)
            except RuntimeError as error:
                code = 0 if "fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert values(consumer) == ["b", "c"]

    def test_an_unknown_setting_is_named(self) -> None:
        with pytest.raises(ConfigurationError, match=r'No such configuration property: "group\.idd".*group\.id'):
            Consumer({"bootstrap.servers": "memory://x", "group.idd": "g"})


def test_an_idle_consumer_looks_ever_less_often(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.topic()
    log = world.store.log
    looks: list[int] = []
    view = type(log).view
    slept: list[float] = []
    now = [0.0]

    def counted(*args: Any, **kwargs: Any) -> Any:
        looks.append(1)
        return view(*args, **kwargs)

    monkeypatch.setattr(type(log), "view", counted)
    monkeypatch.setattr(type(log.clock), "monotonic_s", lambda _: now[0])

    def sleep(_: object, seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(type(log.clock), "sleep", sleep)
    fresh = world.reader(group_id="fresh", fetch_wait_max_ms=200, enable_auto_commit=False)
    assert fresh.poll(10) is None
    assert sum(slept) == pytest.approx(10)
    assert max(slept) == pytest.approx(0.2)
    assert len(looks) < 70


def test_admin_and_consumer_see_each_other_in_one_process(world: World) -> None:
    with AdminClient({"bootstrap.servers": world.uri}) as admin:
        admin.create_topics([NewTopic("fresh", 1)])["fresh"].result()
    world.produce("a", topic="fresh")
    assert values(world.reader("fresh")) == ["a"]


def test_a_transaction_takes_the_position_of_its_consumer(world: World) -> None:
    world.topic()
    world.topic("out")
    world.produce("a", "b")
    consumer = world.reader(enable_auto_commit=False)
    producer = world.transactional()
    with producer.transaction(offsets_from=consumer):
        for message in consumer.consume(2, 1):
            producer.produce("out", message.value())
    assert values(world.reader("out", group_id="check")) == ["a", "b"]
    assert committed(consumer) == 2
