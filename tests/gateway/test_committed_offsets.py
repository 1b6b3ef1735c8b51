"""A gateway takes any offset of a group, as a broker does; consumers then go by it, or by `auto.offset.reset`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from sparktxn import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from sparktxn.admin import AdminClient
from sparktxn.store import Store
from tests.gateway.gateways import Gateway, RawClient, at_a_gateway
from tests.gateway.groupclients import GROUP, committed
from tests.gateway.processes import new_store
from tests.gateway.requests import end, init_producer

RECORDS = 4
BELOW = (-1, -2, -5, -1001, -(2**31), -(2**63) + 1)
WITHIN = (0, 1, RECORDS)
BEYOND = (RECORDS + 1, 10**12, 2**63 - 1)
Way = Literal["OffsetCommit", "TxnOffsetCommit"]


async def commit(client: RawClient, way: Way, offset: int) -> int:
    """Commit an offset of a group without members; return the code."""
    part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": "m"}
    named = {"group_id": GROUP, "member_id": "", "group_instance_id": None}
    topics = [{"name": "t", "partitions": [part]}]
    if way == "OffsetCommit":
        answer = await client.call(8, 7, **named, generation_id_or_member_epoch=-1, topics=topics)
        return int(answer.topics[0].partitions[0].error_code.value)
    identity = await init_producer(client, "tx")
    producer = {
        "transactional_id": "tx",
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
    }
    assert (await client.call(25, 3, **producer, group_id=GROUP)).error_code.value == 0
    answer = await client.call(28, 3, **producer, **named, generation_id=-1, topics=topics)
    assert await end(client, "tx", identity, committed=True) == 0
    return int(answer.topics[0].partitions[0].error_code.value)


def filled(store: str) -> None:
    with Producer({"bootstrap.servers": store}) as producer:
        for number in range(RECORDS):
            producer.produce("t", str(number), partition=0)
        producer.flush()


def first_read(store: str, reset: str) -> int | None:
    """Return the offset at which a consumer of the store begins; None if it gets nothing."""
    settings = {"bootstrap.servers": store, "group.id": GROUP, "auto.offset.reset": reset}
    with Consumer({**settings, "enable.auto.commit": False}) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        message = consumer.poll(1.0)
        return None if message is None else message.offset()


@pytest.mark.parametrize("way", ["OffsetCommit", "TxnOffsetCommit"])
def test_any_offset_is_taken_and_answered_and_means_what_it_means_at_a_broker(tmp_path: Path, way: Way) -> None:
    store = str(tmp_path / "store")

    async def case(served: Gateway, client: RawClient) -> None:
        await asyncio.to_thread(filled, store)
        for offset in (*BELOW, *WITHIN, *BEYOND):
            assert await commit(client, way, offset) == 0, offset
            assert await committed(client, 0) == (offset, "m", 0)
            await asyncio.to_thread(check_readers, store, offset)

    at_a_gateway(tmp_path, case)


def check_readers(store: str, offset: int) -> None:
    with AdminClient({"bootstrap.servers": store}) as admin:
        asked = [ConsumerGroupTopicPartitions(GROUP)]
        (found,) = admin.list_consumer_group_offsets(asked)[GROUP].result().topic_partitions or []
        assert (found.offset, found.leader_epoch) == (offset, None)
    with Consumer({"bootstrap.servers": store, "group.id": GROUP}) as consumer:
        (found,) = consumer.committed([TopicPartition("t", 0)])
        assert (found.offset, found.leader_epoch) == (offset, None)
    with Store.open(store) as opened:
        known = opened.committed_offsets(GROUP).topic_partitions or []
        assert [one.offset for one in known] == ([offset] if offset >= 0 else [])
    if offset in (-1, -2, RECORDS, RECORDS + 1, 2**63 - 1, 1):
        is_within = offset in WITHIN
        expected = (offset if offset < RECORDS else None) if is_within else 0
        assert first_read(store, "earliest") == expected
        assert first_read(store, "latest") == (expected if is_within else None)


@pytest.mark.parametrize("offset", BELOW)
def test_programs_of_the_store_refuse_an_offset_below_0_as_their_clients_do(tmp_path: Path, offset: int) -> None:
    """Java's OffsetAndMetadata and librdkafka's requests have none either: only other clients send them."""
    store = new_store(tmp_path, "t")
    partition = TopicPartition("t", 0, offset)
    with Consumer({"bootstrap.servers": store, "group.id": GROUP}) as consumer:
        with pytest.raises((KafkaException, ValueError)):
            consumer.commit(offsets=[partition], asynchronous=False)
        assert consumer.committed([TopicPartition("t", 0)])[0].offset == -1001
    with AdminClient({"bootstrap.servers": store}) as admin:
        altered = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP, [partition])])[GROUP]
        assert "below 0" in str(altered.exception())
