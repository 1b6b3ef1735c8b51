"""The gateway's sockets: it accepts clients until it is asked to end, and then answers what has been sent."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

from msgspec.structs import replace

from sparktxn._foundation.process.clock import Deadline
from sparktxn._foundation.process.listening import AnsweredHosts, Endpoint, endpoint, listening
from sparktxn._programs.gateway.broker import Broker
from sparktxn._programs.gateway.connection import Connection
from sparktxn._programs.gateway.gatewaysettings import GatewaySettings
from sparktxn._programs.gateway.security.access import Access, AccessOptions, access_of
from sparktxn.errors import ConfigurationError
from sparktxn.store import Store

_DEFAULTS: Final = GatewaySettings()
_COLLECTED_AT: Final = 200_000
_TURN_S: Final = 0.0005
_OF_THIS_MACHINE: Final = AccessOptions()
_ARRIVAL_S: Final = 0.1
"""After it is asked to end, what comes so late was sent before."""
_DRAIN_S: Final = 10.0
"""So long may what was sent take to be answered."""
_LEFT_S: Final = 1.0
"""So long may a connection take to end that is left."""
_CLOSE_S: Final = 5.0
"""So long may the store take to answer what is under way then."""
_HANDSHAKE_S: Final = 10.0
_FRAME_READ_BYTES: Final = 1 << 16
_OTHER_FILES: Final = 256
"""What a gateway has open apart from its clients: files and sockets of the store, and of its pages."""


def serve(
    store: Store,
    listen: str,
    advertise: str | None = None,
    peers: str | None = None,
    *,
    settings: GatewaySettings = _DEFAULTS,
    access: AccessOptions = _OF_THIS_MACHINE,
    http: str | None = None,
    on_start: Callable[[str, str | None], None],
    allowed_hosts: Iterable[str] = (),
) -> None:
    """Serve Kafka's clients until this process gets SIGINT or SIGTERM, and close the store.

    Then new clients are refused, what was sent is answered within ten seconds, and the call returns some ten seconds
    later at the latest. A second signal ends the process at once: nothing that was acknowledged is lost.

    Args:
        store: what they read and write.
        listen: where, as HOST:PORT; port 0 is any that is free.
        advertise: where clients reach this gateway, as HOST:PORT, if that is elsewhere.
        peers: all gateways of the store, as HOST:PORT with commas between them.
        settings: how it serves.
        access: which clients it serves.
        http: where the pages /healthz and /metrics are, as HOST:PORT; None: nowhere.
        on_start: called with the address once the gateway listens, and with that of the pages.
        allowed_hosts: more hosts that requests for the pages may name, see `AnsweredHosts`.

    Raises:
        ConfigurationError: an address, a host or a file is wrong, it cannot listen there, or it must not without
            TLS or users.
    """
    host, port = endpoint("--listen", listen)
    allowed = access_of(host, access, store.log.ids)
    pages = None if http is None else _pages(http, allowed_hosts)
    settings = replace(
        settings,
        advertised=_advertised(host, advertise),
        peers=tuple(endpoint("--peers", peer.strip()) for peer in (peers or "").split(",") if peer.strip()),
        connections_max=_connections_max(settings.connections_max),
    )
    with ExitStack() as stack:
        listener = stack.enter_context(listening(host, port, "--listen"))
        listener.setblocking(False)
        served = Endpoint(host, listener.getsockname()[1])
        broker = Broker(store, settings, served)
        stack.callback(_close, broker)
        _tune_interpreter()
        asyncio.run(_run(broker, allowed, listener, pages, partial(on_start, str(served))))


def _pages(http: str, allowed_hosts: Iterable[str]) -> tuple[Endpoint, AnsweredHosts]:
    where = endpoint("--http", http, host="127.0.0.1")
    return where, AnsweredHosts(where.host, allowed_hosts)


def _connections_max(wanted: int) -> int:
    """Let this process have as many files open as it may, and return how many clients it may have, at least one.

    With more clients than that, a store of files could not be read either.
    """
    files = wanted + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return wanted
    more = files if hard == resource.RLIM_INFINITY else min(hard, files)
    with suppress(ValueError, OSError):  # the system has another limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
        soft = more
    return max(1, min(wanted, soft - _OTHER_FILES))


def _close(broker: Broker) -> None:
    """Give back what a gateway holds, its store, too; one that does not answer is not waited for any longer."""
    with Deadline(broker.log.clock, _CLOSE_S).governs():
        broker.close()
        broker.store.close()


def _advertised(host: str, advertise: str | None) -> Endpoint | None:
    if advertise is not None:
        return endpoint("--advertise", advertise)
    with suppress(ValueError):
        host = str(ipaddress.ip_address(host))
    if host in ("0.0.0.0", "::"):
        raise ConfigurationError(
            f"--listen is {host!r}, which is not an address that clients can reach: give one with --advertise"
        )
    return None


async def _run(
    broker: Broker,
    access: Access,
    listener: socket.socket,
    pages: tuple[Endpoint, AnsweredHosts] | None,
    on_start: Callable[[str | None], None],
) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        ending.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    if pages is None:
        on_start(None)
        await serve_clients(broker, access, listener, ending)
        return
    # Imported late: its packages are another extra.
    from sparktxn._programs.gateway.health import health_pages

    with health_pages(broker, loop, *pages) as address:
        on_start(address)
        await serve_clients(broker, access, listener, ending)


def _tune_interpreter() -> None:
    """Have the collector of garbage check records of batches seldom: they are many, and in no cycles.

    And have threads take turns sooner: a request goes through three of them, and would wait 5 ms for each.
    """
    sys.setswitchinterval(_TURN_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AT, 20, 50)


_Connections = dict[Connection, asyncio.Task[None]]


def _leave(connections: _Connections, connection: Connection) -> None:
    connection.abort()
    connections[connection].cancel()


async def serve_client(
    broker: Broker,
    access: Access,
    connections: _Connections,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Serve a client if there is a place for it, or another one can be left for it. It is among `connections` then."""
    task = asyncio.current_task()
    assert task is not None
    connection = Connection(broker, access, reader, writer)
    is_admitted, left = broker.clients.admit(connection, broker.log.clock.monotonic_s())
    if left is not None or not is_admitted:
        broker.figures.note_refused("connection")
    if left is not None:
        _leave(connections, left)
    if not is_admitted:
        writer.close()
        return
    connections[connection] = task
    try:
        with suppress(asyncio.CancelledError):
            await connection.serve()
    finally:
        broker.clients.remove(connection)
        del connections[connection]


async def serve_clients(broker: Broker, access: Access, listener: socket.socket, ending: asyncio.Event) -> None:
    """Serve the clients that come to `listener`, until `ending` is set; what they have sent by then is answered."""
    connections: _Connections = {}
    server = await asyncio.start_server(
        partial(serve_client, broker, access, connections),
        sock=listener,
        limit=_FRAME_READ_BYTES,
        ssl=access.tls,
        ssl_handshake_timeout=None if access.tls is None else _HANDSHAKE_S,
    )
    watching = asyncio.create_task(broker.placement.watch(tls=access.tls is not None))
    await ending.wait()
    watching.cancel()
    server.close()
    await asyncio.sleep(_ARRIVAL_S)
    for connection in connections:
        connection.drain()
    broker.log_end.end()
    if connections:
        await asyncio.wait(connections.values(), timeout=_DRAIN_S)
    # The first time a connection receives no more, the second time it does not wait for its answers either.
    for _ in range(2):
        for connection in list(connections):
            _leave(connections, connection)
        if connections:
            await asyncio.wait(connections.values(), timeout=_LEFT_S)
