"""aiokafka's consumers in groups at two gateways of a store."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from sparktxn._programs.gateway.placement import Placement
from sparktxn.store import Store
from tests.gateway.gateways import Gateway, gateway

RECORDS = 200


def make_peers(*gateways: Gateway) -> None:
    """Have each gateway name all of them, as `--peers` does: their ports are known only now."""
    for served in gateways:
        served.broker.placement = Placement(served.endpoint, tuple(each.endpoint for each in gateways))


def test_every_record_is_read_once_while_members_come_go_and_lose_their_gateway(tmp_path: Path) -> None:
    uri = tmp_path / "store"
    with Store.open(str(uri), create=True) as store:
        store.create_topic("t", 4)
    (tmp_path / "same").symlink_to(uri, target_is_directory=True)
    read: Counter[bytes] = Counter()

    def consumer(*addresses: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            "t",
            bootstrap_servers=list(addresses),
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=100,
        )

    async def consume(member: AIOKafkaConsumer) -> None:
        while True:
            found = await member.getmany(timeout_ms=100, max_records=10)
            values = [record.value for records in found.values() for record in records]
            if not values:
                continue
            with contextlib.suppress(Exception):  # a member that has lost a partition has read nothing
                await member.commit({place: records[-1].offset + 1 for place, records in found.items() if records})
                read.update(values)

    async def run() -> None:
        async with gateway(tmp_path / "same") as lasting:
            async with gateway(uri) as dying:
                make_peers(dying, lasting)
                producer = AIOKafkaProducer(bootstrap_servers=lasting.address)
                await producer.start()
                members = [consumer(dying.address, lasting.address), consumer(lasting.address)]
                tasks = []
                for member in members:
                    await member.start()
                    tasks.append(asyncio.create_task(consume(member)))
                for number in range(RECORDS // 2):
                    await producer.send_and_wait("t", b"%d" % number, partition=number % 4)
            for number in range(RECORDS // 2, RECORDS):
                await producer.send_and_wait("t", b"%d" % number, partition=number % 4)
            async with asyncio.timeout(60):
                while len(read) < RECORDS:
                    await asyncio.sleep(0.1)
            for task, member in zip(tasks, members, strict=True):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await member.stop()
            await producer.stop()
            last = consumer(lasting.address)
            await last.start()
            assert [await last.committed(TopicPartition("t", number)) for number in range(4)] == [RECORDS // 4] * 4
            await last.stop()

    asyncio.run(run())
    assert len(read) == RECORDS
    assert set(read.values()) == {1}
