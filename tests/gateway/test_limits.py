"""What one client may take of a gateway: requests that are announced and never sent, and too many connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from sparktxn._foundation.process.listening import Endpoint
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.connection import Connection
from sparktxn._programs.gateway.gatewaysettings import GatewaySettings
from sparktxn._programs.gateway.security.access import OPEN
from sparktxn.errors import StoreUnavailable
from sparktxn.store import Store
from tests.gateway.gateways import Gateway, RawClient, at_a_gateway, raw_client
from tests.gateway.processes import gateway, new_store
from tests.gateway.wire import Wire


def with_connection(
    folder: Path,
    settings: GatewaySettings,
    work: Callable[[Broker, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    """Do `work` as a client of a gateway of this process."""

    async def run(store: Store) -> None:
        broker = Broker(store, settings, Endpoint("127.0.0.1", 9092))

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await Connection(broker, OPEN, reader, writer).serve()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        try:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await work(broker, reader, writer)
            writer.close()
        finally:
            server.close()
            await asyncio.to_thread(broker.close)

    with Store.open(new_store(folder)) as store:
        asyncio.run(run(store))


def test_a_request_that_never_comes_gives_its_memory_back(tmp_path: Path) -> None:
    async def work(broker: Broker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((100_000).to_bytes(4) + b"half of it")
        while not broker.memory.held_bytes:
            await asyncio.sleep(0.01)
        assert await reader.read() == b"", "the connection has ended"
        assert broker.memory.held_bytes == 0

    with_connection(tmp_path, GatewaySettings(request_s=0.2), work)


def test_requests_wait_unread_until_there_is_memory_for_them(tmp_path: Path) -> None:
    async def work(broker: Broker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frame = bytes.fromhex("0012 0000 00000007 ffff")  # ApiVersions of version 0
        taken = broker.memory.loan(len(frame))
        await taken.take(2000)
        writer.write(len(frame).to_bytes(4) + frame)
        await asyncio.sleep(0.2)
        assert broker.memory.held_bytes == 2000
        taken.end()
        size_bytes = int.from_bytes(await reader.readexactly(4))
        assert (await reader.readexactly(size_bytes))[:4] == (7).to_bytes(4)

    with_connection(tmp_path, GatewaySettings(requests_bytes_max=2000), work)


def test_the_options_set_the_limits(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    options = ("--no-create-topics", "--partitions", "3", "--max-connections", "2", "--linger", "0ms")
    with gateway(store, *options) as found, Wire(found.address) as wire:
        asked = {"topics": [{"name": "missing"}], "allow_auto_topic_creation": True}
        (topic,) = wire.ask("metadata", 4, **asked).topics
        assert topic.error_code is ErrorCode.unknown_topic_or_partition
        new = {"name": "made", "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
        (made,) = wire.ask("create_topics", 7, topics=[new]).topics
        assert made.num_partitions == 3
        resource = {"resource_type": 4, "resource_name": "0", "configuration_keys": None}
        (result,) = wire.ask("describe_configs", 4, resources=[resource]).results
        values = {config.name: config.value for config in result.configs}
        assert (values["max.connections"], values["auto.create.topics.enable"]) == ("2", "false")
        with Wire(found.address) as second, Wire(found.address) as third:
            assert second.ask("list_groups", 5).error_code is ErrorCode.none
            assert third.is_closed()


def test_a_store_that_does_not_answer_ends_a_connection_without_an_error_of_the_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(served: Gateway, client: RawClient) -> None:
        def silent(_: object) -> None:
            raise StoreUnavailable("the store does not answer")

        asked = {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        with monkeypatch.context() as patch:
            patch.setattr(Store, "topics", silent)
            with pytest.raises(asyncio.IncompleteReadError):
                await client.call(3, 9, **asked, include_cluster_authorized_operations=False)
        async with raw_client(served) as again:
            found = await again.call(3, 9, **asked, include_cluster_authorized_operations=False)
            assert [topic.name for topic in found.topics] == ["t"]

    with caplog.at_level(logging.WARNING, "sparktxn"):
        at_a_gateway(tmp_path, case)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the store does not answer" in caplog.text
