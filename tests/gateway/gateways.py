"""Gateways of a test in its own loop, and a client that sends single requests."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

from sparktxn._foundation.process.listening import Endpoint, listening
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.gatewayserver import serve_clients
from sparktxn._programs.gateway.gatewaysettings import GatewaySettings
from sparktxn._programs.gateway.security.access import AccessOptions, access_of
from sparktxn._programs.gateway.wire import wiremessages
from sparktxn.store import Store

HOST = "127.0.0.1"
OF_THIS_MACHINE = AccessOptions()


class Gateway:
    """One that serves."""

    def __init__(self, broker: Broker, endpoint: Endpoint) -> None:
        self.broker = broker
        self.endpoint = endpoint
        self.address = str(endpoint)


@asynccontextmanager
async def gateway(
    uri: str | Path, *, access: AccessOptions = OF_THIS_MACHINE, **settings: Any
) -> AsyncIterator[Gateway]:
    """Serve a store, which is made if there is none, until the block ends: at `port`, if the settings have one."""
    port = settings.pop("port", 0)
    with Store.open(str(uri), create=True) as store:
        listener = listening(HOST, port, "--listen")
        listener.setblocking(False)
        endpoint = Endpoint(HOST, listener.getsockname()[1])
        broker = Broker(store, GatewaySettings(**settings), endpoint)
        ending = asyncio.Event()
        serving = asyncio.create_task(serve_clients(broker, access_of(HOST, access, store.log.ids), listener, ending))
        try:
            yield Gateway(broker, endpoint)
        finally:
            ending.set()
            await serving
            await asyncio.to_thread(broker.close)
            listener.close()


class RawClient:
    """Sends one request at a time, of any version, and returns what answers it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._numbers = count(1)

    async def send(self, api: int, version: int, /, **members: Any) -> int:
        """Send a request; return its number."""
        number = next(self._numbers)
        self.writer.write(encoded_request(api, version, number, members))
        await self.writer.drain()
        return number

    async def receive(self, key: int, version: int) -> Any:
        """Return the next answer, which is to a request of this kind."""
        size = int.from_bytes(await self.reader.readexactly(4))
        frame = await self.reader.readexactly(size)
        response = wiremessages._payload("response", key, version)
        _, start = entity_reader(response.__header_schema__)(frame, 0)
        body, _ = entity_reader(response)(frame, start)
        return body

    async def call(self, api: int, version: int, /, **members: Any) -> Any:
        """Send a request, and return its answer."""
        await self.send(api, version, **members)
        return await self.receive(api, version)


def encoded_request(key: int, version: int, number: int, members: dict[str, Any]) -> bytes:
    """Return the frame of a request, with its size."""
    request = wiremessages._payload("request", key, version)
    header_type = request.__header_schema__
    header = {
        "request_api_key": i16(key),
        "request_api_version": i16(version),
        "correlation_id": i32(number),
        "client_id": "raw",
    }
    buffer = io.BytesIO()
    entity_writer(header_type)(buffer, wiremessages._built(header_type, header))
    entity_writer(request)(buffer, wiremessages._built(request, members))
    frame = buffer.getvalue()
    return len(frame).to_bytes(4) + frame


@asynccontextmanager
async def raw_client(served: Gateway) -> AsyncIterator[RawClient]:
    """Connect to a gateway until the block ends."""
    reader, writer = await asyncio.open_connection(*served.endpoint)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


Case = Callable[[Gateway, RawClient], Coroutine[Any, Any, None]]


def at_a_gateway(folder: Path, case: Case, **settings: Any) -> None:
    """Run a case with a client of a gateway, whose store has topic ``t`` of two partitions."""

    async def run() -> None:
        with Store.open(str(folder / "store"), create=True) as store:
            store.create_topic("t", 2)
            async with gateway(folder / "store", **settings) as served, raw_client(served) as client:
                await case(served, client)

    asyncio.run(run())
