"""The sentences of docs/gateway.md on what a gateway promises, one test each."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from kio.schema.errors import ErrorCode

from sparktxn import Producer
from sparktxn.admin import AdminClient, NewTopic
from tests.gateway.processes import Gateway, gateway, new_store
from tests.gateway.wire import WAIT_S, Wire

PARTITION = TopicPartition("orders", 0)


def with_producer(address: str, work: Callable[[AIOKafkaProducer], Awaitable[Any]], **settings: Any) -> Any:
    async def run() -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=address, request_timeout_ms=20_000, **settings)
        await producer.start()
        try:
            return await work(producer)
        finally:
            await producer.stop()

    return asyncio.run(run())


async def seen(address: str, isolation_level: str) -> list[bytes]:
    """All that a consumer reads, up to the end that its isolation level has."""
    consumer = AIOKafkaConsumer(bootstrap_servers=address, isolation_level=isolation_level, group_id=None)
    await consumer.start()
    try:
        consumer.assign([PARTITION])
        await consumer.seek_to_beginning(PARTITION)
        end_offset = (await consumer.end_offsets([PARTITION]))[PARTITION]
        found: list[bytes] = []
        async with asyncio.timeout(WAIT_S):
            while await consumer.position(PARTITION) < end_offset:
                batches = await consumer.getmany(timeout_ms=300)
                found += [record.value for records in batches.values() for record in records]
        return found
    finally:
        await consumer.stop()


def test_records_of_an_open_transaction_are_in_memory_until_its_commit(served: Gateway) -> None:
    async def work(producer: AIOKafkaProducer) -> None:
        async with producer.transaction():
            sent = await (await producer.send("orders", b"one", partition=0))
            assert sent.offset == -1, "its offset is not known yet"
            assert await seen(served.address, "read_uncommitted") == []
        assert await seen(served.address, "read_committed") == [b"one"]
        assert await seen(served.address, "read_uncommitted") == [b"one"]

    with_producer(served.address, work, transactional_id="memory")


def test_what_was_acknowledged_outside_transactions_survives_a_kill(tmp_path: Path) -> None:
    store = new_store(tmp_path)

    async def work(producer: AIOKafkaProducer) -> None:
        for number in range(5):
            await producer.send_and_wait("orders", str(number).encode(), partition=0)
        found.process.send_signal(signal.SIGKILL)

    with gateway(store, own_python=True) as found:
        with_producer(found.address, work)
        found.process.wait()
    with gateway(store) as other:
        assert asyncio.run(seen(other.address, "read_committed")) == [b"0", b"1", b"2", b"3", b"4"]


def identity(wire: Wire, name: str) -> dict[str, Any]:
    members = {"transactional_id": name, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    answer = wire.ask("init_producer_id", 4, **members)
    assert answer.error_code is ErrorCode.none
    return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}


def begin(wire: Wire, name: str, known: dict[str, Any]) -> None:
    answer = wire.ask(
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id=name,
        v3_and_below_topics=[{"name": "orders", "partitions": [0]}],
        **{f"v3_and_below_{member}": value for member, value in known.items()},
    )
    (topic,) = answer.results_by_topic_v3_and_below
    assert [part.partition_error_code for part in topic.results_by_partition] == [ErrorCode.none]


def end(wire: Wire, name: str, known: dict[str, Any], *, committed: bool) -> ErrorCode:
    return ErrorCode(wire.ask("end_txn", 3, transactional_id=name, committed=committed, **known).error_code)


def test_what_a_lost_gateway_had_open_is_aborted_at_another_one(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with gateway(store) as other:
        with gateway(store, own_python=True) as lost, Wire(lost.address) as wire:
            known = identity(wire, "shop")
            begin(wire, "shop", known)
            lost.process.send_signal(signal.SIGKILL)
            lost.process.wait()
        with Wire(other.address) as wire:
            assert end(wire, "shop", known, committed=True) is ErrorCode.invalid_producer_id_mapping
            assert end(wire, "shop", known, committed=False) is ErrorCode.none
            begin(wire, "shop", known)
            assert end(wire, "shop", known, committed=True) is ErrorCode.none


def test_a_producer_is_fenced_by_one_at_another_gateway_and_by_one_without(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with gateway(store) as one, gateway(store) as other, Wire(one.address) as here, Wire(other.address) as there:
        first = identity(here, "shop")
        begin(here, "shop", first)
        second = identity(there, "shop")
        assert end(here, "shop", first, committed=True) is ErrorCode.producer_fenced
        begin(there, "shop", second)
        with Producer({"bootstrap.servers": store, "transactional.id": "shop"}) as producer:
            producer.init_transactions()
        assert end(there, "shop", second, committed=True) is ErrorCode.producer_fenced


def test_an_administrator_ends_what_is_in_a_gateways_memory(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with gateway(store) as found, Wire(found.address) as wire, Wire(found.address) as admin:
        known = identity(wire, "shop")
        begin(wire, "shop", known)
        asked = [{"name": "orders", "partition_indexes": [0]}]
        (topic,) = admin.ask("describe_producers", 0, topics=asked).topics
        assert [each.producer_id for part in topic.partitions for each in part.active_producers] == [
            known["producer_id"]
        ]
        identity(admin, "shop")  # as forceTerminateTransaction does
        assert end(wire, "shop", known, committed=True) is ErrorCode.producer_fenced
        (state,) = admin.ask("describe_transactions", 0, transactional_ids=["shop"]).transaction_states
        assert state.transaction_state != "Ongoing"
        known = identity(wire, "shop")
        begin(wire, "shop", known)
        with AdminClient({"bootstrap.servers": store}) as direct:  # as `txnlog transactions fence` does
            direct.fence_producers(["shop"])["shop"].result()
        assert end(wire, "shop", known, committed=True) is ErrorCode.producer_fenced


def test_typed_topics_are_refused_to_producers(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with AdminClient({"bootstrap.servers": store}) as admin:
        schema = pa.schema([("city", pa.string())])
        admin.create_topics([NewTopic("trips", 1, schema=schema)])["trips"].result()

    async def work(producer: AIOKafkaProducer) -> None:
        with pytest.raises(KafkaError):
            await producer.send_and_wait("trips", b"Berlin", partition=0)

    with gateway(store) as found:
        with_producer(found.address, work)


def test_records_without_acknowledgement_are_stored_as_others(tmp_path: Path) -> None:
    async def work(producer: AIOKafkaProducer) -> None:
        for number in range(3):
            await producer.send("orders", str(number).encode(), partition=0)
        await producer.flush()

    with gateway(new_store(tmp_path)) as found:
        with_producer(found.address, work, acks=0)
        assert asyncio.run(seen(found.address, "read_committed")) == [b"0", b"1", b"2"]
