"""Programs for asyncio whose tasks are cancelled at random moments, against a plain model.

A program does what docs/asyncio.md says: after a cancelled call it makes the same call again. Then no record is lost or
doubled, and each outcome that a call returns is true.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pytest

from sparktxn import Consumer, KafkaException, Message, Producer, Store, TopicPartition, read_arrow
from sparktxn.aio import AIOConsumer, AIOProducer
from tests.seeds import examples, seed_of
from tests.world import next_number

R = TypeVar("R")

RECORDS = 24
PARTS = (0, 1)
_CANCELLED = object()


class Chaos:
    """Cancels the tasks of calls at random moments."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cancelled = 0

    async def once(self, call: Awaitable[R]) -> Any:
        """Return what a call returns, or `_CANCELLED`."""
        task = asyncio.ensure_future(call)
        if self.random.random() < 0.5:
            return await task
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(self.random.choice((0, 0, 0.0005, 0.003)))
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            self.cancelled += 1
            return _CANCELLED

    async def told(self, call: Callable[[], Awaitable[R]]) -> R:
        """Make the same call until it says how it has ended."""
        while (found := await self.once(call())) is _CANCELLED:
            pass
        answer: R = found
        return answer


@contextmanager
def store() -> Iterator[str]:
    uri = f"memory://chaos-{next_number()}"
    with Store.open(uri, create=True) as opened:
        for topic in ("in", "out"):
            opened.create_topic(topic, len(PARTS))
        with Producer({"bootstrap.servers": uri}) as producer:
            for number in range(RECORDS):
                producer.produce("in", b"%d" % number, partition=number % len(PARTS))
        yield uri


def values(uri: str, topic: str) -> list[int]:
    return [int(row["value"]) for row in read_arrow(uri, topic, columns=["value"]).read_all().to_pylist()]


async def process(uri: str, chaos: Chaos, limit: int) -> None:
    """Read, process and write up to `limit` messages, each batch in a transaction; then stop, as a service does."""
    given = {"bootstrap.servers": uri}
    own = {"group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    producer = AIOProducer({**given, "transactional.id": "p"})
    consumer = AIOConsumer({**given, **own})
    try:
        await chaos.told(producer.init_transactions)
        await chaos.told(lambda: consumer.assign([TopicPartition("in", part) for part in PARTS]))
        done = 0
        while done < limit:
            size = chaos.random.randrange(1, 6)
            messages = await chaos.told(lambda size=size: consumer.consume(size, 0.2))  # type: ignore[misc]
            if not messages:
                break
            await chaos.told(producer.begin_transaction)
            whole = True
            for message in messages:
                taken = await chaos.once(producer.produce("out", message.value(), partition=message.partition() or 0))
                whole = whole and taken is not _CANCELLED
            if not whole:  # it is not known whether a record is in it
                await chaos.told(producer.abort_transaction)
                for part in PARTS:
                    first = next((one.offset() for one in messages if one.partition() == part), None)
                    if first is not None:
                        where = TopicPartition("in", part, first)
                        await chaos.told(lambda where=where: consumer.seek(where))  # type: ignore[misc]
                continue
            positions = await chaos.told(lambda: consumer.position([TopicPartition("in", part) for part in PARTS]))
            group = await chaos.told(consumer.consumer_group_metadata)
            await chaos.told(lambda: producer.send_offsets_to_transaction(positions, group))  # noqa: B023
            await chaos.told(producer.commit_transaction)
            done += len(messages)
    finally:
        await chaos.told(producer.close)
        await chaos.told(consumer.close)


@pytest.mark.parametrize("history", range(examples(3, 60)))
def test_read_process_write_is_exactly_once(history: int) -> None:
    chaos = Chaos(seed_of(f"test_read_process_write_is_exactly_once/{history}", history))
    with store() as uri:

        async def main() -> None:
            for _ in range(6):
                await process(uri, chaos, 6)
            await process(uri, chaos, RECORDS)

        asyncio.run(asyncio.wait_for(main(), 120))
        found = values(uri, "out")
        assert sorted(found) == [*range(RECORDS)]
        for part in PARTS:
            assert [one for one in found if one % len(PARTS) == part] == [*range(part, RECORDS, len(PARTS))]
    assert chaos.cancelled


@pytest.mark.parametrize("history", range(examples(3, 60)))
def test_a_record_is_stored_if_it_is_told_to_be(history: int) -> None:
    chaos = Chaos(seed_of(f"test_a_record_is_stored_if_it_is_told_to_be/{history}", history))
    told: list[int] = []
    with store() as uri:

        def on_delivery(error: object, message: Message) -> None:
            assert error is None
            told.append(int(message.value() or b""))

        async def main() -> None:
            given = {"bootstrap.servers": uri, "linger.ms": 1, "queue.buffering.max.messages": 4}
            async with AIOProducer({**given, "on_delivery": on_delivery}) as producer:
                for number in range(60):
                    await chaos.once(producer.produce("out", b"%d" % number, partition=0))
                assert await chaos.told(producer.flush) == 0
                assert sorted(told) == values(uri, "out"), "flush() waits for each callback, too"

        asyncio.run(asyncio.wait_for(main(), 120))
        assert sorted(told) == values(uri, "out")
    assert chaos.cancelled


@pytest.mark.parametrize("history", range(examples(3, 60)))
def test_a_consumer_that_dies_has_committed_what_its_reads_have_returned(history: int) -> None:
    chaos = Chaos(seed_of(f"test_a_consumer_that_dies_has_committed_what_its_reads_have_returned/{history}", history))
    with store() as uri:
        read: dict[int, int] = dict.fromkeys(PARTS, 0)
        committed: dict[int, int] = dict.fromkeys(PARTS, 0)

        async def life() -> None:
            own = {"group.id": "g", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
            consumer = AIOConsumer({"bootstrap.servers": uri, **own})
            await chaos.told(lambda: consumer.assign([TopicPartition("in", part) for part in PARTS]))
            read.update(committed)
            for _ in range(chaos.random.randrange(2, 8)):
                call = chaos.random.choice((lambda: consumer.poll(0.1), lambda: consumer.consume(3, 0.1)))
                found = await chaos.once(call())
                for message in found if isinstance(found, list) else [found]:
                    if isinstance(message, Message):
                        part = message.partition()
                        assert part is not None
                        assert message.offset() == read[part], "none is lost or doubled"
                        read[part] += 1
                if chaos.random.random() < 0.5:
                    with suppress(KafkaException):  # there is nothing to commit
                        await chaos.told(lambda: consumer.commit(asynchronous=False))
                        committed.update(read)
            if chaos.random.random() < 0.5:
                await chaos.told(consumer.close)

        async def main() -> None:
            for _ in range(12):
                await life()

        asyncio.run(asyncio.wait_for(main(), 120))
        with Consumer({"bootstrap.servers": uri, "group.id": "g"}) as last:
            found = last.committed([TopicPartition("in", part) for part in PARTS])
        assert {one.partition: max(one.offset, 0) for one in found} == committed
    assert chaos.cancelled
