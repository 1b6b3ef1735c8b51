"""A read-process-write service for asyncio: orders in, invoices out, each order exactly once.

    python examples/asyncio_service.py --store /tmp/orders --create 1000
    python examples/asyncio_service.py --store /tmp/orders --exit-when-idle 2
    python examples/asyncio_service.py --store /tmp/orders --check

The first line makes a store with a thousand orders, the second serves them, and the third counts the invoices. Each
batch is one transaction, with the offsets of the orders that it has read. Ctrl-C cancels the service wherever it is;
kill -9 does so harder. Started again, it goes on, and in the end each order has one invoice.

A call that takes too long is cancelled by asyncio.timeout, and made again: the same call says how it has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from sparktxn import KafkaException, Message, Producer, Store, TopicPartition, read_arrow
from sparktxn.aio import AIOConsumer, AIOProducer

ORDERS, INVOICES = "orders", "invoices"
PARTITIONS = 4
LIMIT_S = 5.0
"""How long a call may take before the service says that it waits."""

Answer = TypeVar("Answer")


async def ended(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return what a call returns that must not be left alone; say so while it takes long, or has to be repeated."""
    while True:
        try:
            async with asyncio.timeout(LIMIT_S):
                return await call()
        except TimeoutError:
            print("the store is slow: still waiting", file=sys.stderr)
        except KafkaException as error:
            if not error.error.retriable():
                raise
            print(f"again: {error}", file=sys.stderr)


def invoice(order: Message) -> bytes:
    """What becomes of an order: a pure function, so a repetition writes the same."""
    given = json.loads(order.value() or b"{}")
    return json.dumps({"order": given["order"], "cents": given["cents"] * 119 // 100}).encode()


async def rewind(consumer: AIOConsumer, orders: Sequence[Message]) -> None:
    """Read these orders again."""
    for order in reversed(orders):
        place = TopicPartition(order.topic() or "", order.partition() or 0, order.offset() or 0)
        await consumer.seek(place)


async def serve_batch(producer: AIOProducer, consumer: AIOConsumer, orders: Sequence[Message]) -> None:
    """Write the invoices of some orders, and commit that they were read, in one transaction."""
    await ended(producer.begin_transaction)
    try:
        for order in orders:
            await producer.produce(INVOICES, invoice(order), key=order.key())
        positions = await consumer.position(await consumer.assignment())
        group = await consumer.consumer_group_metadata()
        await ended(lambda: producer.send_offsets_to_transaction(positions, group))
        await ended(producer.commit_transaction)
    except KafkaException as error:
        if error.error.fatal():
            raise
        await ended(producer.abort_transaction)
        await rewind(consumer, orders)


async def serve(store: str, name: str, idle_s: float | None) -> int:
    """Serve orders until none comes for so long; return how many. Leaving the blocks aborts what is open."""
    count = 0
    given = {"bootstrap.servers": store}
    reading = {"group.id": "invoices", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    async with (
        AIOProducer({**given, "transactional.id": name}) as producer,
        AIOConsumer({**given, **reading, "group.instance.id": name}) as consumer,
    ):
        await ended(producer.init_transactions)
        await consumer.subscribe([ORDERS])
        while found := await next_batch(consumer, idle_s):
            await serve_batch(producer, consumer, found)
            count += len(found)
    return count


async def next_batch(consumer: AIOConsumer, idle_s: float | None) -> list[Message]:
    """Return the first order within `idle_s`, and those that are there with it."""
    first = await consumer.poll(idle_s)
    found = [] if first is None else [first, *await consumer.consume(99, 0.05)]
    for message in found:
        if error := message.error():
            raise KafkaException(error)
    return found


def create(store: str, orders: int) -> None:
    """Make a store with its topics and some orders."""
    with Store.open(store, create=True) as made:
        for topic in (ORDERS, INVOICES):
            made.create_topic(topic, PARTITIONS)
    with Producer({"bootstrap.servers": store}) as producer:
        for number in range(orders):
            value = json.dumps({"order": number, "cents": 100 + number})
            producer.produce(ORDERS, value, f"customer-{number % 17}")


def check(store: str) -> str:
    """Return a sentence about the invoices; it begins with "right" if each order has one."""
    numbers = {
        topic: sorted(json.loads(value)["order"] for value in read_arrow(store, topic).read_all()["value"].to_pylist())
        for topic in (ORDERS, INVOICES)
    }
    word = "right" if numbers[ORDERS] == numbers[INVOICES] else "wrong"
    return f"{word}: {len(numbers[ORDERS])} orders, {len(numbers[INVOICES])} invoices"


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True, metavar="ADDRESS", help="where the store is")
    parser.add_argument("--create", type=int, metavar="ORDERS", help="make the store with so many orders, and end")
    parser.add_argument("--check", action="store_true", help="count orders and invoices, and end")
    parser.add_argument("--name", default="service-1", help="this instance's name, its own")
    parser.add_argument("--exit-when-idle", type=float, metavar="SECONDS", help="end after so long without an order")
    given = parser.parse_args()
    if given.create is not None:
        create(given.store, given.create)
    elif given.check:
        print(check(given.store))
    else:
        with suppress(KeyboardInterrupt):
            print(f"served {asyncio.run(serve(given.store, given.name, given.exit_when_idle))} orders")


if __name__ == "__main__":
    main()
