"""One consumer that several threads use: each record comes once, and no call waits longer than its time-out."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from sparktxn import Consumer, Message, Producer, TopicPartition
from tests.world import World

RECORDS = 2_000
SOON_S = 60.0
"""What ends a test that would hang."""


@pytest.fixture
def world() -> Iterator[World]:
    opened = World({"in": 3})
    yield opened
    opened.close()


def consumer_of(world: World, **settings: object) -> Consumer:
    return world.consumer(enable_auto_commit=False, **settings)


def started(*calls: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def feed(world: World, count: int) -> None:
    with Producer({"bootstrap.servers": world.uri}) as producer:
        for number in range(count):
            producer.produce("in", b"%d" % number, partition=number % 3)
            if number % 50 == 0:
                producer.flush()
        producer.flush()


def test_threads_that_read_get_each_record_once(world: World) -> None:
    got: Counter[bytes | None] = Counter()
    lock = threading.Lock()
    errors: list[Exception] = []
    deadline_s = time.monotonic() + SOON_S
    with consumer_of(world) as consumer:
        consumer.subscribe(["in"])

        def reads(take: Callable[[], list[Message]]) -> None:
            try:
                while sum(got.values()) < RECORDS and time.monotonic() < deadline_s:
                    found = take()
                    with lock:
                        got.update(message.value() for message in found)
            except Exception as error:
                errors.append(error)

        def polled() -> list[Message]:
            message = consumer.poll(0.05)
            return [] if message is None else [message]

        calls = [polled, polled, lambda: consumer.consume(7, 0.05)]
        threads = started(lambda: feed(world, RECORDS), *(lambda take=take: reads(take) for take in calls))
        while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline_s:
            consumer.commit(asynchronous=True, offsets=[TopicPartition("in", 0, 1)])
            consumer.pause([TopicPartition("in", 1)])
            consumer.resume([TopicPartition("in", 1)])
            time.sleep(0.01)
    assert errors == []
    assert got == Counter(b"%d" % number for number in range(RECORDS))


def test_a_waiting_poll_lets_other_threads_call(world: World) -> None:
    """They would wait for a minute else, which the test does not."""
    feed(world, 3)
    polling, ended = threading.Event(), threading.Event()
    found: list[object] = []
    with consumer_of(world) as consumer:
        consumer.assign([TopicPartition("in", partition, 0) for partition in range(3)])
        assert len(consumer.consume(3, SOON_S)) == 3

        def poll() -> None:
            polling.set()
            try:
                found.append(consumer.poll(SOON_S))
            finally:
                ended.set()

        started(poll)
        assert polling.wait(SOON_S)
        committed = consumer.commit(asynchronous=False)
        assert committed is not None
        assert sum(partition.offset for partition in committed) == 3
        consumer.pause([TopicPartition("in", 0)])
        consumer.seek(TopicPartition("in", 1, 0))
        assert sorted(consumer.position(consumer.assignment()))[1].offset in (0, 1)
        assert not ended.is_set() or found[0] is not None
        consumer.assign([TopicPartition("in", 2, 0)])
        assert ended.wait(SOON_S)
        assert isinstance(found[0], Message)


def test_close_ends_a_waiting_poll(world: World) -> None:
    raised: list[Exception] = []
    polling = threading.Event()
    consumer = consumer_of(world)
    consumer.assign([TopicPartition("in", 0)])

    def poll() -> None:
        polling.set()
        try:
            consumer.poll()
        except RuntimeError as error:
            raised.append(error)

    (thread,) = started(poll)
    assert polling.wait(SOON_S)
    consumer.close()
    thread.join(SOON_S)
    assert [str(error) for error in raised] == ["Consumer closed"]


def test_of_two_reads_the_second_waits_no_longer_than_its_time_out(world: World) -> None:
    reading = threading.Event()
    with consumer_of(world) as consumer:
        consumer.assign([TopicPartition("in", 0)])

        def read() -> None:
            reading.set()
            consumer.consume(1, SOON_S)

        (thread,) = started(read)
        assert reading.wait(SOON_S)
        # The first one may not have begun yet: then these return by their own time-outs.
        assert consumer.poll(0) is None
        assert consumer.poll(0.05) is None
        assert consumer.consume(5, 0.05) == []
        assert consumer.consume_arrow(5, 0.05) is None
        feed(world, 6)
        thread.join(SOON_S)
        assert not thread.is_alive()


def test_a_callback_may_call_its_consumer(world: World) -> None:
    feed(world, 3)
    seen: list[Message | None] = []

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign([TopicPartition(one.topic, one.partition, 0) for one in partitions])
        seen.append(consumer.poll(0))
        assert len(consumer.assignment()) == 3

    with consumer_of(world) as consumer:
        consumer.subscribe(["in"], on_assign=on_assign)
        read = consumer.consume(3, SOON_S)
        assert len(read) + sum(message is not None for message in seen) == 3


@pytest.mark.parametrize("first", ["close", "unsubscribe", "poll"])
@pytest.mark.parametrize("second", ["close", "unsubscribe"])
def test_while_on_revoke_runs_another_thread_leaves_once_it_has_returned(world: World, first: str, second: str) -> None:
    """One partition at a time is revoked, by whichever call it is."""
    revoked: list[TopicPartition] = []
    running, may_return, other_began = (threading.Event() for _ in range(3))
    order: list[str] = []

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        revoked.extend(partitions)
        running.set()
        assert may_return.wait(SOON_S)
        order.append("returned")

    consumer = consumer_of(world, partition_assignment_strategy="cooperative-sticky")
    consumer.subscribe(["in"], on_revoke=on_revoke)
    with consumer_of(world, partition_assignment_strategy="cooperative-sticky") as other:
        while not consumer.assignment():
            consumer.poll(0.05)

        def begins() -> None:
            if first != "poll":
                getattr(consumer, first)()
                return
            other.subscribe(["in"])
            while not running.is_set():
                other.poll(0.05)
                consumer.poll(0.05)

        def follows() -> None:
            other_began.set()
            getattr(consumer, second)()
            order.append("left")

        (one,) = started(begins)
        assert running.wait(SOON_S)
        (two,) = started(follows)
        assert other_began.wait(SOON_S)
        two.join(0.05)
        assert order == []
        may_return.set()
        for thread in (one, two):
            thread.join(SOON_S)
            assert not thread.is_alive()
    consumer.close()
    assert order[0] == "returned"
    assert order[-1] == "left"
    assert Counter(revoked) == Counter(TopicPartition("in", number) for number in range(3))


@pytest.mark.parametrize("outer", ["close", "unsubscribe"])
@pytest.mark.parametrize("call", ["close", "unsubscribe"])
def test_on_revoke_that_leaves_is_called_once(world: World, outer: str, call: str) -> None:
    calls: list[int] = []

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(len(partitions))
        getattr(consumer, call)()

    consumer = consumer_of(world)
    consumer.subscribe(["in"], on_revoke=on_revoke)
    while not consumer.assignment():
        consumer.poll(0.05)
    getattr(consumer, outer)()
    consumer.close()
    assert calls == [3]
    with world.store.log.within(SOON_S):
        assert world.store.log.refresh()
    assert world.store.log.group("readers") is None


def test_an_endless_and_a_huge_time_out_are_taken(world: World) -> None:
    feed(world, 1)
    with consumer_of(world) as consumer:
        consumer.assign([TopicPartition("in", partition, 0) for partition in range(3)])
        assert consumer.poll(1e12) is not None
