"""Awaited transactions of ten records, and a consumer with awaited callbacks of rebalances, in one loop."""

import asyncio
import logging
import sys

from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.aio import AIOConsumer, AIOProducer

logger = logging.getLogger("aio")
logger.addHandler(logging.NullHandler())
ROUNDS = 3


async def seen(_) -> None:
    """A callback that awaits nothing."""


COMMON = {
    "bootstrap.servers": sys.argv[1],
    "logger": logger,
    "debug": "conf",
    "error_cb": seen,
    "throttle_cb": seen,
    "stats_cb": seen,
    "statistics.interval.ms": 5000,
}


async def produce() -> None:
    producer = AIOProducer({**COMMON, "transactional.id": "aio-example"}, max_workers=5)
    await producer.init_transactions()
    for number in range(ROUNDS):
        await producer.begin_transaction()
        sent = [await producer.produce(topic="aio", key=f"k{n}", value=f"{number}-{n}", partition=0) for n in range(10)]
        await producer.flush()
        reports = await asyncio.gather(*sent)
        print("produced", [report.offset() for report in reports])
        await producer.commit_transaction()
    await producer.close()


async def consume() -> None:
    consumer = AIOConsumer(
        {
            **COMMON,
            "group.id": "aio",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
        }
    )
    calls = []

    async def on_assign(member, partitions):
        calls.append("assign")
        await member.assign(partitions)

    async def on_revoke(member, partitions):
        calls.append(f"revoke {len(partitions)}")

    async def on_lost(member, partitions):
        calls.append("lost")

    await consumer.subscribe(["aio"], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    values = []
    while len(values) < ROUNDS * 10:
        message = await consumer.poll(1.0)
        if message is None:
            continue
        assert message.error() is None, message.error()
        values.append(message.value().decode())
        await consumer.store_offsets(message=message)
        if len(values) % 10 == 0:
            committed = await consumer.commit(asynchronous=False)
            print("committed", [place.offset for place in committed])
    print(values == [f"{number}-{n}" for number in range(ROUNDS) for n in range(10)])
    await consumer.unsubscribe()
    await consumer.close()
    print(calls)


async def main() -> None:
    admin = AdminClient({"bootstrap.servers": sys.argv[1]})
    admin.create_topics([NewTopic("aio", 1, 1)])["aio"].result(20)
    await produce()
    await consume()


asyncio.run(main())
