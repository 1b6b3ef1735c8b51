"""Requests leave nothing that waits for the interpreter to look for cycles, which a gateway has it do seldom.

Such garbage has what its request had: a client that fails in a loop, with records, would fill the gateway's memory.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType, TracebackType
from typing import Any

import pyarrow as pa
import pytest

from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn._programs.gateway.clienttransactions import HeldTransaction
from sparktxn._programs.gateway.connection import SERVED
from sparktxn._programs.gateway.wire.wiremessages import Request
from sparktxn._rows.stage.buffers import PartitionBuffer
from sparktxn.errors import ErrorCode, StoreUnavailable
from tests.fuzz.frames import TOPICS, valid_frame
from tests.gateway.gateways import Gateway, RawClient, encoded_request, gateway, raw_client
from tests.gateway.requests import add_partition, batch, end, init_producer, produce_members

TX = "tx"
API_VERSIONS, LAST = 18, 99
FRAMES = 8
FAILURES = 40
STILL_UNDER_WAY = 30
"""An error that a thread has just handed over may have so many frames."""
KEPT = (FrameType, TracebackType, BaseException, asyncio.Future, Request, HeldTransaction, PartitionBuffer, pa.Table)


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Leave what other modules have made out of the collections of these tests: it took most of their time."""
    gc.collect()
    gc.freeze()


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def in_cycles() -> Counter[str]:
    """Count what only the collector would have freed; the caches of libraries leave other things."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    return Counter(type(each).__name__ for each in gc.garbage if isinstance(each, KEPT))


def alive() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, KEPT))


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes) -> bool:
    """Send a frame, and a request behind it that is always answered; return whether the gateway has stayed."""
    writer.write(len(frame).to_bytes(4) + frame + encoded_request(API_VERSIONS, 0, LAST, {}))
    try:
        while True:
            size = int.from_bytes(await reader.readexactly(4))
            if int.from_bytes((await reader.readexactly(size))[:4]) == LAST:
                return True
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
        return False


def test_no_request_keeps_itself(tmp_path: Path) -> None:
    """Requests of each kind, most of which are refused in part."""

    async def sent(served: Gateway, key: int) -> None:
        random = Random(key)
        reader, writer = await asyncio.open_connection(*served.endpoint)
        for _ in range(FRAMES):
            if not await answered(reader, writer, valid_frame(random, key)):
                reader, writer = await asyncio.open_connection(*served.endpoint)
        writer.close()

    async def run() -> dict[int, Counter[str]]:
        found = {}
        async with gateway(tmp_path / "store") as served:
            for topic in TOPICS:
                served.broker.store.create_topic(topic, 3)
            for key in SERVED:
                await sent(served, key)
                with without_collector():
                    await sent(served, key)
                    found[key] = in_cycles()
        return found

    kept = {SERVED[key].handler.__name__: counts for key, counts in asyncio.run(run()).items() if counts}
    left = kept.pop("metadata", Counter())  # connections that the gateway ends: asyncio's own are in cycles
    assert kept == {}
    assert left.keys() <= {"Future", "Task"}


Fails = Callable[[RawClient, RawClient, ProducerIdAndEpoch], Awaitable[ProducerIdAndEpoch]]
VALUES = [b"x" * 1_000] * 10


async def produced(client: RawClient, identity: ProducerIdAndEpoch, version: int) -> int:
    sent = batch(VALUES, identity, 0, transactional=True)
    answer = await client.call(0, version, **produce_members("t", 0, sent, transactional_id=TX))
    return int(answer.responses[0].partition_responses[0].error_code.value)


async def renewed(client: RawClient, identity: ProducerIdAndEpoch, *, committed: bool) -> tuple[int, Any]:
    named = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}
    answer = await client.call(26, 5, transactional_id=TX, **named, committed=committed)
    return int(answer.error_code.value), ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


async def commits_elsewhere(here: RawClient, there: RawClient, identity: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    """Java's client, whose leader is not its coordinator."""
    assert await produced(here, identity, 12) == 0
    assert (await renewed(there, identity, committed=True))[0] == ErrorCode.TRANSACTION_ABORTABLE
    _, identity = await renewed(there, identity, committed=False)
    return identity


async def adds_elsewhere(here: RawClient, there: RawClient, identity: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    """Librdkafka, whose leader is not its coordinator."""
    assert await add_partition(there, TX, identity, "t") == 0
    assert await produced(here, identity, 9) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await end(there, TX, identity, committed=False) == 0
    return identity


async def aborts(here: RawClient, there: RawClient, identity: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    assert await produced(here, identity, 12) == 0
    code, identity = await renewed(here, identity, committed=False)
    assert code == 0
    return identity


async def begins_anew(here: RawClient, there: RawClient, identity: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    assert await produced(here, identity, 12) == 0
    return await init_producer(here, TX)


async def is_fenced(here: RawClient, there: RawClient, identity: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    newer = await init_producer(there, TX)
    assert await add_partition(here, TX, identity, "t") == ErrorCode.PRODUCER_FENCED
    assert await produced(here, identity, 9) == ErrorCode.INVALID_PRODUCER_EPOCH
    return newer


@pytest.mark.parametrize("fails", [commits_elsewhere, adds_elsewhere, aborts, begins_anew, is_fenced])
def test_a_producer_that_fails_in_a_loop_takes_no_memory(tmp_path: Path, fails: Fails) -> None:
    async def run() -> Counter[str]:
        (tmp_path / "same").symlink_to(tmp_path / "store", target_is_directory=True)
        async with gateway(tmp_path / "store") as served:
            served.broker.store.create_topic("t")
            async with (
                gateway(tmp_path / "same") as other,
                raw_client(served) as here,
                raw_client(other) as there,
            ):
                identity = await init_producer(there, TX)
                with without_collector():
                    for _ in range(3):
                        identity = await fails(here, there, identity)
                    before = alive()
                    for _ in range(FAILURES):
                        identity = await fails(here, there, identity)
                    return alive() - before

    more = asyncio.run(run())
    assert max(more.values(), default=0) < STILL_UNDER_WAY, more


@pytest.mark.parametrize("version", [0, 9, 12], ids=["no transaction", "version 1", "version 2"])
def test_a_store_that_says_no_leaves_no_refusals_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("access denied", transient=False)

    async def fail(client: RawClient, identity: ProducerIdAndEpoch) -> None:
        if version == 9:
            assert await add_partition(client, TX, identity, "t") != 0
        elif version == 12:
            assert await produced(client, identity, version) != 0
        else:
            answer = await client.call(0, 9, **produce_members("t", 0, batch(VALUES)))
            assert answer.responses[0].partition_responses[0].error_code.value != 0

    async def run() -> Counter[str]:
        async with gateway(tmp_path / "store", timeout_s=0.1) as served, raw_client(served) as client:
            served.broker.store.create_topic("t")
            identity = await init_producer(client, TX)
            with monkeypatch.context() as patch:
                patch.setattr(type(served.broker.log.objects), "put_if_absent", refuse)
                await fail(client, identity)
                with without_collector():
                    for _ in range(5):
                        await fail(client, identity)
                    return in_cycles()

    assert asyncio.run(run()) == {}
