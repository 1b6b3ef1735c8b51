"""A gateway that is asked to end does so, whatever its clients, names and store do; one that reads nothing is left."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktxn._engine.format.schema import RECORD_SCHEMA
from sparktxn._foundation.process.clock import Deadline
from sparktxn._foundation.process.listening import Endpoint
from sparktxn._programs.gateway import gatewayserver
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.connection import _IN_FLIGHT_MAX, Connection
from sparktxn._programs.gateway.gatewaysettings import GatewaySettings
from sparktxn._rows.stage.stagedsegment import StageTopic
from sparktxn.store import Store
from tests.gateway.gateways import Gateway, RawClient, at_a_gateway, gateway
from tests.gateway.requests import batch, produce_members

RELEASE_S = 30.0
"""So long after its beginning a test ends that would else wait without end; it has failed then."""


@pytest.fixture
def hung():
    """Holds what waits for it, until the test ends."""
    event = threading.Event()
    timer = threading.Timer(RELEASE_S, event.set)
    timer.start()
    yield event
    timer.cancel()
    event.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(gatewayserver, "_DRAIN_S", 0.3)
    monkeypatch.setattr(gatewayserver, "_LEFT_S", 0.3)


@pytest.fixture
def unread(monkeypatch):
    """Call it, and what the client has not got yet is as if it did not read: the sockets' buffers are full."""
    connections: list[Connection] = []

    class Noted(Connection):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            connections.append(self)

    monkeypatch.setattr(gatewayserver, "Connection", Noted)
    return lambda: connections[0]._writer.transport.get_protocol().pause_writing()


async def ask(client: RawClient) -> None:
    await client.send(18, 3, client_software_name="x", client_software_version="1")


def test_a_client_that_reads_no_answers_is_left(tmp_path, unread):
    async def case(served: Gateway, client: RawClient) -> None:
        await ask(client)
        await client.receive(18, 3)
        unread()
        await ask(client)
        while len(served.broker.clients):
            await asyncio.sleep(0.01)
        assert served.broker.figures.samples()["txnlog_gateway_refused_total"]["unread",] == 1

    at_a_gateway(tmp_path, case, answer_s=0.3)


def test_a_client_that_reads_late_keeps_its_connection(tmp_path):
    async def case(served: Gateway, client: RawClient) -> None:
        await ask(client)
        await asyncio.sleep(1)
        await client.receive(18, 3)
        await ask(client)
        await client.receive(18, 3)
        assert served.broker.figures.samples()["txnlog_gateway_refused_total"]["unread",] == 0

    at_a_gateway(tmp_path, case, answer_s=0.3)


def test_a_client_that_reads_no_answers_keeps_no_gateway_from_its_end(tmp_path, unread):
    """Its connection has more requests than answers may wait, and so does not even see that it is to end."""

    async def case(_: Gateway, client: RawClient) -> None:
        await ask(client)
        await client.receive(18, 3)
        unread()
        for _number in range(2 * _IN_FLIGHT_MAX):
            await ask(client)
        await asyncio.sleep(0.3)

    at_a_gateway(tmp_path, case)


def test_an_answer_that_never_comes_keeps_no_gateway_from_its_end(tmp_path, monkeypatch):
    async def case(served: Gateway, client: RawClient) -> None:
        monkeypatch.setattr(served.broker.appends, "add", lambda *_, **__: Future())
        await client.send(0, 9, **produce_members("t", 0, batch([b"1"])))
        while not served.broker.memory.held_bytes:
            await asyncio.sleep(0.01)

    at_a_gateway(tmp_path, case)


def test_a_name_that_is_being_looked_up_keeps_no_gateway_from_its_end(tmp_path, monkeypatch, hung):
    found, asked = socket.getaddrinfo, threading.Event()

    def lookup(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == "peer.example":
            asked.set()
            hung.wait()
        return found(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)

    async def run() -> None:
        async with gateway(tmp_path / "store", peers=(Endpoint("peer.example", 9092),)) as served:
            while len(served.broker.placement.alive()) > 1:
                await asyncio.sleep(0.01)

    asyncio.run(run())
    assert asked.is_set()
    assert not hung.is_set()


def test_a_peer_is_found_by_its_name(tmp_path):
    async def run() -> None:
        async with gateway(tmp_path / "store") as other:
            peer = Endpoint("localhost", other.endpoint.port)
            async with gateway(tmp_path / "store", peers=(peer, Endpoint("localhost", 1))) as served:
                placement = served.broker.placement
                while len(placement.alive()) != 2:
                    await asyncio.sleep(0.01)
                assert placement.nodes.index(peer) in placement.alive()

    asyncio.run(run())


def test_a_store_that_does_not_answer_keeps_no_gateway_from_its_end(tmp_path: Path, monkeypatch, hung):
    with Store.open(str(tmp_path / "store"), create=True) as store:
        store.create_topic("t")
        topic = store.log.topic("t")
        assert topic is not None
        broker = Broker(store, GatewaySettings(), Endpoint("127.0.0.1", 9092))
        monkeypatch.setattr(broker.appends, "_round", lambda _: hung.wait())
        row = {"value": b"1", "headers": []}
        broker.appends.add(StageTopic.of(topic), 0, pa.Table.from_pylist([row], RECORD_SCHEMA))
        broker.calls._threads.submit(hung.wait)
        with Deadline(store.log.clock, 0.3).governs():
            broker.close()
        assert not hung.is_set()


def test_the_store_is_closed_with_its_gateway(tmp_path: Path):
    store = Store.open(str(tmp_path / "store"), create=True)
    gatewayserver._close(Broker(store, GatewaySettings(), Endpoint("127.0.0.1", 9092)))
    with pytest.raises(RuntimeError):
        store.topics()
