"""Does with aiokafka what `tests/interop/gateway/clients.py` asks of each client."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

PLAN = json.loads(sys.argv[1])
CODECS, GROUP, COMMITTED, ABORTED = PLAN["codecs"], PLAN["group"], PLAN["committed"], PLAN["aborted"]
WAIT_S = PLAN["wait_s"]


def known(mechanism: str = PLAN["mechanisms"][0], password: str = PLAN["password"]) -> dict[str, Any]:
    settings = {"bootstrap_servers": PLAN["address"], "security_protocol": "SASL_PLAINTEXT"}
    names = {"sasl_mechanism": mechanism, "sasl_plain_username": PLAN["user"], "sasl_plain_password": password}
    return {**settings, **names}


async def is_known(mechanism: str, password: str) -> bool:
    producer = AIOKafkaProducer(**known(mechanism, password), request_timeout_ms=5000)
    try:
        await asyncio.wait_for(producer.start(), WAIT_S)
    except KafkaError:
        return False
    finally:
        await producer.stop()
    return True


async def produce(topic: str, values: list[str], **settings: Any) -> None:
    async with AIOKafkaProducer(**known(), enable_idempotence=True, **settings) as producer:
        for value in values:
            await producer.send_and_wait(topic, value.encode())


@asynccontextmanager
async def member(topic: str, group: str) -> AsyncIterator[AIOKafkaConsumer]:
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(topic, **known(), **settings, isolation_level="read_committed") as consumer:
        yield consumer


async def read(consumer: AIOKafkaConsumer, count: int) -> list[str]:
    found: list[str] = []
    end_s = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < end_s:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            found += [record.value.decode() for record in records]
    return sorted(found)


async def codecs() -> dict[str, list[str]]:
    found = {}
    for codec, values in CODECS.items():
        topic = f"{PLAN['topic']}-{codec}"
        await produce(topic, values, compression_type=None if codec == "none" else codec)
        async with member(topic, topic) as consumer:
            found[codec] = await read(consumer, len(values))
    return found


async def group() -> list[list[str]]:
    topic = f"{PLAN['topic']}-group"
    found = []
    for values in GROUP:
        await produce(topic, values)
        async with member(topic, topic) as consumer:
            found.append(await read(consumer, len(values)))
            await consumer.commit()
    return found


async def transaction() -> list[str]:
    source, target = f"{PLAN['topic']}-source", f"{PLAN['topic']}-transaction"
    await produce(source, COMMITTED)
    async with AIOKafkaProducer(**known(), transactional_id=target) as producer:
        await producer.begin_transaction()
        for value in ABORTED:
            await producer.send_and_wait(target, value.encode())
        await producer.abort_transaction()
        async with member(source, source) as consumer, producer.transaction():
            for value in await read(consumer, len(COMMITTED)):
                await producer.send_and_wait(target, value.encode())
            partitions = [TopicPartition(source, place) for place in (0, 1)]
            offsets = {partition: await consumer.position(partition) for partition in partitions}
            await producer.send_offsets_to_transaction(offsets, source)
    async with member(target, target) as consumer:
        return await read(consumer, len(COMMITTED))


async def administration() -> dict[str, Any]:
    # Imported late: aiokafka 0.8 has none.
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    topic = f"{PLAN['topic']}-admin"
    admin = AIOKafkaAdminClient(**known())
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1)])
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "86400000"})])
    described = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    entries = described[0].resources[0][4]
    (topic_described,) = await admin.describe_topics([topic])
    found = {
        "partitions": len(topic_described["partitions"]),
        "retention.ms": next(entry[1] for entry in entries if entry[0] == "retention.ms"),
    }
    await admin.delete_topics([topic])
    is_deleted = topic not in await admin.list_topics()
    await admin.close()
    return {**found, "is_deleted": is_deleted}


async def main() -> None:
    parts: dict[str, Callable[[], Awaitable[Any]]] = {
        "codecs": codecs,
        "group": group,
        "transaction": transaction,
        "admin": administration,
    }
    done = {name: await parts[name]() for name in PLAN["parts"]}
    logins = [each for each in PLAN["mechanisms"] if await is_known(each, PLAN["password"])]
    is_refused = not await is_known(PLAN["mechanisms"][0], "wrong")
    print(json.dumps({"version": aiokafka.__version__, "logins": logins, "is_refused": is_refused, **done}))


asyncio.run(main())
