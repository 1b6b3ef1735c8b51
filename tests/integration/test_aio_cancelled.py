"""Calls whose task is cancelled: the same call then says how it has ended, and no other overtakes it.

Each call is cancelled before its client has done anything, once it has and has not returned, and when it has returned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from threading import Event
from typing import Any

import pytest

from sparktxn import (
    Consumer,
    ConsumerGroupMetadata,
    KafkaException,
    Message,
    OutcomeUnknown,
    Producer,
    ProducerFenced,
    Store,
    TopicPartition,
    TransactionAborted,
    read_arrow,
)
from sparktxn.aio import AIOConsumer, AIOProducer
from tests.world import next_number

MOMENTS = ("before", "within", "after")


@pytest.fixture
def uri() -> str:
    found = f"memory://cancelled-{next_number()}"
    with Store.open(found, create=True) as store:
        store.create_topic("t", 2)
        with Producer({"bootstrap.servers": found}) as producer:
            for number in range(6):
                producer.produce("t", b"%d" % number, partition=1)
    return found


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        await asyncio.wait_for(body(), 60)
        assert failures == []

    asyncio.run(main())


def stored(uri: str, partition: int = 0) -> list[bytes]:
    found = read_arrow(uri, "t", columns=["value", "partition"]).read_all().to_pylist()
    return [row["value"] for row in found if row["partition"] == partition]


class Held:
    """A method of a client that is held where a test wants it, and counts how often it was called."""

    def __init__(self, kind: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.moment: str | None = None
        self.reached, self.goes_on, self.ended = Event(), Event(), Event()
        original = getattr(kind, name)

        def held(client: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            moment, self.moment = self.moment, None
            if moment == "before":
                self._hold()
            try:
                return original(client, *args, **kwargs)
            finally:
                if moment == "within":
                    self._hold()
                self.ended.set()

        held.__name__ = name
        monkeypatch.setattr(kind, name, held)

    def _hold(self) -> None:
        self.reached.set()
        assert self.goes_on.wait(30)

    async def cancel(self, call: Awaitable[Any], moment: str) -> None:
        """Cancel the task of a call at a moment. Before it ends, the next calls can begin."""
        self.moment = moment
        for event in (self.reached, self.goes_on, self.ended):
            event.clear()
        task = asyncio.ensure_future(call)
        if moment == "after":
            await asyncio.sleep(0)
            while not self.ended.is_set():
                await asyncio.sleep(0) if not self.calls else time.sleep(0.001)
            time.sleep(0.02)  # the thread has given its answer, and the loop has not seen it
        else:
            while not self.reached.is_set():
                await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        asyncio.get_running_loop().call_later(0.05, self.goes_on.set)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], Held]:
    return lambda kind, name: Held(kind, name, monkeypatch)


OFFSETS = [TopicPartition("t", 1, 3)]
GROUP = ConsumerGroupMetadata("g")


async def in_transaction(uri: str, *values: bytes) -> AIOProducer:
    producer = AIOProducer({"bootstrap.servers": uri, "transactional.id": "x"})
    await producer.init_transactions()
    await producer.begin_transaction()
    for value in values:
        await producer.produce("t", value, partition=0)
    return producer


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("name", "args", "runs"),
    [
        ("init_transactions", (), 1),
        ("begin_transaction", (), 1),
        ("send_offsets_to_transaction", (OFFSETS, GROUP), 2),
        ("flush", (), 2),
        ("commit_transaction", (), 1),
        ("abort_transaction", (), 1),
        ("close", (), 1),
    ],
)
def test_the_same_call_of_a_producer_says_how_it_has_ended(
    uri: str, held: Callable[[type, str], Held], name: str, args: tuple[Any, ...], runs: int, moment: str
) -> None:
    hold = held(Producer, name)

    async def body() -> None:
        producer = AIOProducer({"bootstrap.servers": uri, "transactional.id": "x"})
        if name != "init_transactions":
            await producer.init_transactions()
            if name != "begin_transaction":
                await producer.begin_transaction()
                await producer.produce("t", b"v", partition=0)
        call = getattr(producer, name)
        hold.calls = 0
        await hold.cancel(call(*args), moment)
        await call(*args)
        assert hold.calls == runs
        if name == "init_transactions":
            await producer.begin_transaction()
        if name in ("send_offsets_to_transaction", "flush"):
            await producer.commit_transaction()
        await producer.close()

    run(body)
    assert stored(uri) == ([b"v"] if name in ("send_offsets_to_transaction", "flush", "commit_transaction") else [])


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_commit_that_failed_is_never_told_to_have_succeeded(
    uri: str, held: Callable[[type, str], Held], moment: str
) -> None:
    hold = held(Producer, "commit_transaction")

    async def body() -> None:
        async with await in_transaction(uri, b"v") as producer:
            with Producer({"bootstrap.servers": uri, "transactional.id": "x"}) as newer:
                newer.init_transactions()
            await hold.cancel(producer.commit_transaction(), moment)
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()
            assert hold.calls == 1

    run(body)
    assert stored(uri) == []


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("error", [OutcomeUnknown("lost"), ConnectionError("lost")])
def test_after_an_unknown_outcome_the_same_call_resolves_it(
    uri: str, monkeypatch: pytest.MonkeyPatch, held: Callable[[type, str], Held], moment: str, error: Exception
) -> None:
    """What the call has raised is reported first, once; then it runs again."""
    original = Producer.commit_transaction
    raising = [error]

    def lost(self: Producer, timeout: float = -1) -> None:
        if raising:
            raise raising.pop()
        original(self, timeout)

    monkeypatch.setattr(Producer, "commit_transaction", lost)
    hold = held(Producer, "commit_transaction")

    async def body() -> None:
        async with await in_transaction(uri, b"v") as producer:
            await hold.cancel(producer.commit_transaction(), moment)
            with pytest.raises(type(error)):
                await producer.commit_transaction()
            await producer.commit_transaction()
            with pytest.raises(KafkaException, match="begin_transaction"):
                await producer.commit_transaction()

    run(body)
    assert stored(uri) == [b"v"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_other_calls_wait_for_a_commit_that_was_left(uri: str, held: Callable[[type, str], Held], moment: str) -> None:
    hold = held(Producer, "commit_transaction")

    async def body() -> None:
        async with await in_transaction(uri, b"1") as producer:
            await hold.cancel(producer.commit_transaction(), moment)
            with pytest.raises(KafkaException, match="READY"):
                await producer.abort_transaction()
            with pytest.raises(KafkaException, match="READY"):
                await producer.produce("t", b"outside")
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.produce("t", b"2", partition=0)
            await hold.cancel(producer.commit_transaction(), moment)
            # The next transaction begins: its commit is another one.
            await producer.begin_transaction()
            await producer.produce("t", b"3", partition=0)
            assert stored(uri) == [b"1", b"2"]
            await producer.commit_transaction()
            assert hold.calls == 3
            await producer.begin_transaction()
            await producer.produce("t", b"4", partition=0)
            await hold.cancel(producer.commit_transaction(), moment)

    run(body)
    assert stored(uri) == [b"1", b"2", b"3", b"4"], "close() waits, too"


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_nobody_has_seen_fail_is_raised_by_the_next_call(
    uri: str, held: Callable[[type, str], Held], moment: str
) -> None:
    hold = held(Producer, "send_offsets_to_transaction")

    async def body() -> None:
        async with await in_transaction(uri, b"v") as producer:
            wrong: Any = ["no partition"]
            await hold.cancel(producer.send_offsets_to_transaction(wrong, GROUP), moment)
            with pytest.raises(TypeError, match="positions") as raised:
                await producer.commit_transaction()
            assert "send_offsets_to_transaction()" in raised.value.__notes__[0]
            await hold.cancel(producer.send_offsets_to_transaction([TopicPartition("no", 0, 1)], GROUP), moment)
            with pytest.raises(TransactionAborted):
                await producer.begin_transaction()
            await producer.abort_transaction()
            await producer.begin_transaction()

    run(body)
    assert stored(uri) == []


def test_an_abort_may_follow_a_commit_that_failed(uri: str, held: Callable[[type, str], Held]) -> None:
    hold = held(Producer, "commit_transaction")

    async def body() -> None:
        async with await in_transaction(uri, b"v") as producer:
            await producer.purge()
            await hold.cancel(producer.commit_transaction(), "within")
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.produce("t", b"next", partition=0)
            await producer.commit_transaction()

    run(body)
    assert stored(uri) == [b"next"]


def test_a_call_that_waits_keeps_its_time_out(uri: str, held: Callable[[type, str], Held]) -> None:
    hold = held(Producer, "commit_transaction")

    async def body() -> None:
        async with await in_transaction(uri, b"v") as producer:
            await hold.cancel(producer.commit_transaction(), "before")
            with pytest.raises(OutcomeUnknown, match="under way"):
                await producer.commit_transaction(timeout=0.01)
            await producer.commit_transaction()

    run(body)
    assert stored(uri) == [b"v"]


def test_a_close_that_failed_says_so_to_who_calls_it_next(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    close = Consumer.close

    def failing(self: Consumer) -> None:
        time.sleep(0.1)
        close(self)
        raise ZeroDivisionError

    monkeypatch.setattr(Consumer, "close", failing)

    async def body() -> None:
        consumer = AIOConsumer({"bootstrap.servers": uri, "group.id": "g"})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.close(), 0.01)
        with pytest.raises(ZeroDivisionError):
            await consumer.close()
        await consumer.close()

    run(body)


# --- produce ----------------------------------------------------------------------------------------------------------


def test_a_record_whose_produce_was_cancelled_is_stored_if_its_callback_is_called(
    uri: str, held: Callable[[type, str], Held]
) -> None:
    hold = held(Producer, "produce")
    delivered: list[bytes | None] = []

    async def on_delivery(error: object, message: Message) -> None:
        await asyncio.sleep(0)
        assert error is None
        delivered.append(message.value())

    async def body() -> None:
        async with AIOProducer({"bootstrap.servers": uri, "on_delivery": on_delivery}) as producer:
            for moment in MOMENTS:
                await hold.cancel(producer.produce("t", moment, partition=0), moment)
                await producer.flush()
            full = {"bootstrap.servers": uri, "queue.buffering.max.messages": 1, "linger.ms": 600_000}
        async with AIOProducer(full) as producer:
            await producer.produce("t", b"first", partition=0, on_delivery=on_delivery)
            waiting = asyncio.ensure_future(producer.produce("t", b"no room", partition=0, on_delivery=on_delivery))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting

    run(body)
    assert delivered == stored(uri)
    assert delivered[:3] == [b"before", b"within", b"after"]


def test_a_commit_contains_a_record_whose_produce_was_cancelled_before_it_or_never(
    uri: str, held: Callable[[type, str], Held]
) -> None:
    hold = held(Producer, "produce")

    async def body() -> None:
        async with await in_transaction(uri) as producer:
            await hold.cancel(producer.produce("t", b"v", partition=0), "before")
            await producer.commit_transaction()
            assert stored(uri) == [b"v"]

    run(body)


def test_on_delivery_is_called_with_errors_and_one_that_fails_stops_nothing(uri: str) -> None:
    told: list[Any] = []

    def plain(error: Any, message: Message) -> None:
        told.append((error and error.name(), message.value()))

    async def failing(error: object, message: Message) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        async with await in_transaction(uri) as producer:
            lost = await producer.produce("t", b"1", partition=0, on_delivery=plain)
            await producer.abort_transaction()
            with pytest.raises(KafkaException):
                await lost
            await producer.begin_transaction()
            await producer.produce("t", b"2", partition=0, on_delivery=failing)
            kept = await producer.produce("t", b"3", partition=0, on_delivery=plain, timestamp=5, headers={"h": "1"})
            await producer.commit_transaction()
            assert [type(one) for one in failures] == [ZeroDivisionError]
            assert (await kept).timestamp()[1] == 5
            wrong: Any = 3
            with pytest.raises(TypeError, match="on_delivery"):
                await producer.produce("t", b"4", on_delivery=wrong)
            with pytest.raises(TypeError, match="callback"):
                await producer.produce("t", b"4", callback=plain)  # type: ignore[call-arg]

    asyncio.run(asyncio.wait_for(main(), 60))
    assert told == [("_PURGE_QUEUE", b"1"), (None, b"3")]
    assert stored(uri) == [b"2", b"3"]


def test_an_open_transaction_is_not_published_before_its_commit(uri: str) -> None:
    """Its records are in the commit's own entry: nothing polls for their reports meanwhile."""

    async def body() -> None:
        with Store.open(uri) as store:
            async with await in_transaction(uri, b"1") as producer:
                before = store.view().entry
                await asyncio.sleep(0.4)
                assert store.view().entry == before
                await producer.commit_transaction()
                assert store.view().entry == before + 1

    run(body)


# --- consumers --------------------------------------------------------------------------------------------------------


async def reader(uri: str, **settings: Any) -> AIOConsumer:
    given = {"group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "earliest", **settings}
    consumer = AIOConsumer({"bootstrap.servers": uri, **given})
    await consumer.assign([TopicPartition("t", 1, 0)])
    return consumer


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_same_commit_of_a_consumer_says_how_it_has_ended(
    uri: str, held: Callable[[type, str], Held], moment: str
) -> None:
    hold = held(Consumer, "commit")

    async def body() -> None:
        async with await reader(uri) as consumer:
            await consumer.consume(2, 10)
            await hold.cancel(consumer.commit(asynchronous=False), moment)
            (told,) = await consumer.commit(asynchronous=False) or [TopicPartition("none")]
            assert told.offset == 2
            assert (await consumer.committed([TopicPartition("t", 1)]))[0].offset == 2
            await consumer.consume(1, 10)
            await hold.cancel(consumer.commit(asynchronous=False), moment)
            await consumer.consume(1, 10)
            # What was read since is committed, too.
            (told,) = await consumer.commit(asynchronous=False) or [TopicPartition("none")]
            assert told.offset == 4
            with pytest.raises(KafkaException, match="_NO_OFFSET"):
                await consumer.commit(asynchronous=False)
            wrong = [TopicPartition("no", 0, 1)]
            await hold.cancel(consumer.commit(offsets=wrong, asynchronous=False), moment)
            with pytest.raises(KafkaException, match="does not exist"):
                await consumer.commit(offsets=wrong, asynchronous=False)

    run(body)


@pytest.mark.parametrize("moment", MOMENTS)
def test_changes_of_a_consumer_keep_their_order(uri: str, held: Callable[[type, str], Held], moment: str) -> None:
    seek, more = held(Consumer, "seek"), held(Consumer, "incremental_assign")

    async def body() -> None:
        async with await reader(uri) as consumer:
            await consumer.poll(10)
            await seek.cancel(consumer.seek(TopicPartition("t", 1, 5)), moment)
            message = await consumer.poll(10)
            assert message is not None
            assert message.offset() == 5
            await more.cancel(consumer.incremental_assign([TopicPartition("t", 0, 0)]), moment)
            await consumer.incremental_assign([TopicPartition("t", 0, 0)])
            assert more.calls == 1
            with pytest.raises(KafkaException, match="_CONFLICT"):
                await consumer.incremental_assign([TopicPartition("t", 0, 0)])
            await seek.cancel(consumer.seek(TopicPartition("t", 7, 0)), moment)
            if moment != "after":
                assert await consumer.poll(0) is None, "it waits no longer than it may"
            with pytest.raises(KafkaException, match="not assigned"):
                await consumer.poll(10)
            assert len(await consumer.assignment()) == 2

    run(body)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", ["poll", "consume"])
def test_a_message_that_no_read_has_returned_counts_as_not_read(
    uri: str, held: Callable[[type, str], Held], name: str, moment: str
) -> None:
    hold = held(Consumer, name)

    async def body() -> None:
        async with await reader(uri) as consumer:
            assert len(await consumer.consume(2, 10)) == 2
            await hold.cancel(getattr(consumer, name)(), moment)
            await consumer.commit()
            (position,) = await consumer.position([TopicPartition("t", 1)])
            assert position.offset == 2
            message = await consumer.poll(10)
            assert message is not None
            assert message.offset() == 2
            await hold.cancel(getattr(consumer, name)(), moment)
        async with await reader(uri) as consumer:
            await consumer.assign([TopicPartition("t", 1)])
            assert (await consumer.committed([TopicPartition("t", 1)]))[0].offset == 2

    run(body)


def test_messages_come_by_async_for(uri: str) -> None:
    async def body() -> None:
        async with await reader(uri, **{"enable.partition.eof": True}) as consumer:
            found: list[bytes | None] = []

            async def read(until: int) -> None:
                async for message in consumer:
                    found.append(message.value())
                    if len(found) == until:
                        break

            await read(2)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read(99), 1)
            assert found == [b"%d" % number for number in range(6)]
            (position,) = await consumer.position([TopicPartition("t", 1)])
            assert position.offset == 6
            await consumer.assign([TopicPartition("t", 9, 0)])
            with pytest.raises(KafkaException, match="not 9"):
                await read(99)

    run(body)


def test_a_callback_may_await_while_the_call_that_it_belongs_to_was_left(uri: str) -> None:
    """It does not wait for that call, which waits for it."""
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def on_revoke(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
        begun.set()
        await goes_on.wait()
        await consumer.commit(asynchronous=False)

    async def body() -> None:
        given = {
            "bootstrap.servers": uri,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        async with AIOConsumer(given) as consumer:
            await consumer.subscribe(["t"], on_revoke=on_revoke)
            assert len(await consumer.consume(3, 20)) == 3
            leaving = asyncio.ensure_future(consumer.unsubscribe())
            await begun.wait()
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            goes_on.set()
            assert (await consumer.committed([TopicPartition("t", 1)]))[0].offset == 3

    run(body)


def test_a_commit_that_was_cancelled_twice_says_that_it_has_committed(
    uri: str, held: Callable[[type, str], Held]
) -> None:
    """The second one found nothing to commit any more."""
    hold = held(Consumer, "commit")

    async def body() -> None:
        async with await reader(uri) as consumer:
            await consumer.consume(2, 10)
            for _ in range(3):
                await hold.cancel(consumer.commit(asynchronous=False), "within")
                await asyncio.sleep(0.1)
            (told,) = await consumer.commit(asynchronous=False) or [TopicPartition("none")]
            assert told.offset == 2

    run(body)
