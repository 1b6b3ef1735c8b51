"""The gateway's sockets: it accepts clients until it is asked to end, and then answers what has been sent."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from sparktxn.gateway.broker import Broker
from sparktxn.gateway.connection import Connection
from sparktxn.gateway.memory import RequestMemory
from sparktxn.gateway.settings import Endpoint, GatewaySettings, parse_endpoint
from sparktxn.process.listening import listening
from sparktxn.store import Store

__all__ = ["serve", "serve_clients"]

_DEFAULTS: Final = GatewaySettings()
_COLLECTED_AT: Final = 200_000
_TURN_S: Final = 0.0005
_DRAIN_S: Final = 10.0
_FRAME_READ_BYTES: Final = 1 << 16


def serve(
    store: Store,
    listen: str,
    advertise: str | None = None,
    peers: str | None = None,
    *,
    settings: GatewaySettings = _DEFAULTS,
    on_start: Callable[[str], None],
) -> None:
    """Serve Kafka's clients until this process gets SIGINT or SIGTERM.

    Args:
        store: what they read and write.
        listen: where, as HOST:PORT; port 0 is any that is free.
        advertise: where clients reach this gateway, as HOST:PORT, if that is elsewhere.
        peers: all gateways of the store, as HOST:PORT with commas between them.
        settings: how it serves.
        on_start: called with the address once the gateway listens.

    Raises:
        ConfigurationError: an address is wrong, or it cannot listen there.
    """
    host, port = parse_endpoint("--listen", listen)
    settings = replace(
        settings,
        advertised=None if advertise is None else parse_endpoint("--advertise", advertise),
        peers=tuple(parse_endpoint("--peers", peer.strip()) for peer in (peers or "").split(",") if peer.strip()),
    )
    listener = listening(host, port, "--listen")
    listener.setblocking(False)
    endpoint = Endpoint(host, listener.getsockname()[1])
    broker = Broker(store, settings, endpoint)
    _tune_interpreter()

    async def run() -> None:
        ending = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ending.set)
        on_start(str(endpoint))
        await serve_clients(broker, listener, ending)

    try:
        asyncio.run(run())
    finally:
        broker.close()
        listener.close()


def _tune_interpreter() -> None:
    """Have the collector of garbage look at records of batches seldom: they are many, and in no cycles.

    And have threads take turns sooner: a request goes through three of them, and would wait 5 ms for each.
    """
    sys.setswitchinterval(_TURN_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AT, 20, 50)


async def serve_clients(broker: Broker, listener: socket.socket, ending: asyncio.Event) -> None:
    """Serve the clients that come to `listener`, until `ending` is set; what they have sent by then is answered."""
    memory = RequestMemory(broker.settings.requests_bytes_max)
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(connections) >= broker.settings.connections_max:
            writer.close()
            return
        connections.add(task)
        try:
            with suppress(asyncio.CancelledError):
                await Connection(broker, memory, reader, writer).serve()
        finally:
            connections.discard(task)

    server = await asyncio.start_server(connected, sock=listener, limit=_FRAME_READ_BYTES)
    await ending.wait()
    server.close()
    for task in list(connections):
        task.cancel()
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            await asyncio.gather(*connections, return_exceptions=True)
