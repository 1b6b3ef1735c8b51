"""The memory of requests, and of open transactions: no more is held than is allowed, and each one gets its turn."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record._crecords import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as WireCode

from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.clienttransactions import TransactionMemory
from sparktxn._programs.gateway.handlers import producing
from sparktxn._programs.gateway.requestmemory import RequestMemory
from sparktxn._programs.gateway.wire.recordbatches import decode_batch
from tests.gateway.gateways import Gateway, RawClient, at_a_gateway, raw_client
from tests.gateway.requests import add_partition, compressed, init_producer, produce, produce_members, signed


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(1, 150), st.integers(0, 3), st.booleans()), min_size=1, max_size=20))
def test_what_is_held_never_exceeds_the_limit_but_for_one_large_request(asked):
    async def run() -> None:
        memory = RequestMemory(100)
        held: list[int] = []

        async def hold(size: int, steps: int) -> None:
            await memory.acquire(size)
            held.append(size)
            try:
                assert sum(held) <= memory.held_bytes
                assert memory.held_bytes <= 100 or len(held) == 1
                for _ in range(steps):
                    await asyncio.sleep(0)
            finally:
                held.remove(size)
                memory.release(size)

        tasks = [asyncio.create_task(hold(size, steps)) for size, steps, _ in asked]
        await asyncio.sleep(0)
        for task, (_, _, cancelled) in zip(tasks, asked, strict=True):
            if cancelled:
                task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError), ended
        assert memory.held_bytes == 0
        await memory.acquire(1)
        assert memory.held_bytes == 1

    asyncio.run(run())


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "clear", "close"]), st.integers(0, 3), st.integers(1, 60)), max_size=30)
)
def test_the_total_of_transactions_is_the_sum_of_those_that_are_held(steps):
    memory = TransactionMemory(100)
    shares = [memory.share() for _ in range(4)]
    held, closed = [0] * 4, set()
    for step, place, size_bytes in steps:
        if step == "add":
            shares[place].add(size_bytes)
            held[place] += 0 if place in closed else size_bytes
        else:
            shares[place].clear() if step == "clear" else shares[place].close()
            held[place] = 0
            closed |= {place} if step == "close" else set()
        assert memory.held_bytes == sum(held)
        assert memory.is_above == (sum(held) > 100)


LIMIT_BYTES = 70_000_000
"""A batch counts as one of 64 MiB, until it is known to have less."""


def bomb(count: int = 6, size_bytes: int = 500_000) -> bytes:
    """A batch that is a thousand times as large once it is decompressed."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for place in range(count):
        builder.append(place, 1_700_000_000_000, None, bytes(size_bytes), [])
    plain = bytes(builder.build())
    made = compressed(plain, 4, bytes(pa.Codec("zstd").compress(plain[61:], asbytes=True)))
    assert len(made) * 1_000 < len(plain)
    return made


@pytest.mark.parametrize("transactional", [False, True])
def test_batches_of_many_clients_that_grow_a_thousandfold_wait_for_each_other(tmp_path, monkeypatch, transactional):
    """Each is most of what all may have, and a request has three of them: none waits for its own."""
    seen: list[int] = []
    brokers: list[Broker] = []

    def noting(*given: Any, **named: Any) -> Any:
        seen.append(brokers[0].decompressed.held_bytes)
        return decode_batch(*given, **named)

    async def case(served: Gateway, client: RawClient) -> None:
        brokers.append(served.broker)
        monkeypatch.setattr(producing, "decode_batch", noting)

        async def send(number: int) -> None:
            async with raw_client(served) as own:
                members = produce_members("t", 0, bomb())
                if transactional:
                    name = f"tx{number}"
                    identity = await init_producer(own, name)
                    assert await add_partition(own, name, identity, "t") == 0
                    assert await add_partition(own, name, identity, "t", 1) == 0
                    members = produce_members("t", 0, signed(bomb(), identity), transactional_id=name)
                records = members["topic_data"][0]["partition_data"][0]["records"]
                members["topic_data"][0]["partition_data"].append({"index": 1, "records": records})
                members["topic_data"].append({"name": "none", "partition_data": [{"index": 0, "records": records}]})
                answer = await own.call(0, 9, **members)
                codes = [part.error_code.value for topic in answer.responses for part in topic.partition_responses]
                assert codes == [0, 0, 3]

        await asyncio.gather(*map(send, range(12)))
        assert served.broker.decompressed.held_bytes == 0
        assert max(seen) <= LIMIT_BYTES
        assert len(seen) >= 24

    at_a_gateway(tmp_path, case, decompressed_bytes_max=LIMIT_BYTES, linger_ms=0)


def test_what_fits_alone_is_taken_alone(tmp_path):
    async def case(served: Gateway, client: RawClient) -> None:
        answers = await asyncio.gather(*(one_more(served) for _ in range(4)))
        assert [answer.error_code.value for answer in answers] == [0] * 4
        assert served.broker.decompressed.held_bytes == 0

    async def one_more(served: Gateway) -> Any:
        async with raw_client(served) as own:
            return await produce(own, "t", 0, bomb())

    at_a_gateway(tmp_path, case, decompressed_bytes_max=1)


def test_what_is_refused_or_fails_gives_its_memory_back(tmp_path, monkeypatch):
    async def case(served: Gateway, client: RawClient) -> None:
        broken = bytearray(bomb())
        broken[-1] ^= 1
        assert (await produce(client, "t", 0, bytes(broken))).error_code == WireCode.corrupt_message
        assert (await produce(client, "t", 0, bomb(1, 1_100_000))).error_code == WireCode.message_too_large
        assert served.broker.decompressed.held_bytes == 0
        monkeypatch.setattr(served.broker.appends, "add", lambda *_: 1 / 0)
        with pytest.raises(asyncio.IncompleteReadError):
            await produce(client, "t", 0, bomb())
        assert served.broker.decompressed.held_bytes == 0

    at_a_gateway(tmp_path, case)


def test_a_batch_of_many_records_is_not_all_objects_at_once():
    count = 200_000
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for place in range(count):
        builder.append(place, 1_700_000_000_000, None, b"", [("h", b"1")] if place == 150_000 else [])
    data = bytes(builder.build())
    decode_batch(data, 0)
    tracemalloc.start()
    try:
        found = decode_batch(data, 0)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.records.num_rows == count
    assert found.records.column("headers")[150_000].as_py() == [{"key": "h", "value": b"1"}]
    assert found.records.column("headers").null_count >= count - 10_000
    assert peak_bytes < count * 60
