"""The catalog as a server of this process, until it is interrupted."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from typing import Final

import uvicorn

from sparktxn.catalog.application import application
from sparktxn.errors import ConfigurationError
from sparktxn.store import Store

__all__ = ["listening", "serve"]

_FINISH_S: Final = 5
"""So long do requests have to be answered once the server ends."""


def serve(store: Store, host: str, port: int, *, timeout_s: float | None, on_start: Callable[[str], None]) -> None:
    """Serve the tables of an open store until this process is interrupted; requests then are still answered.

    Args:
        store: the store.
        host: the name or address to listen at.
        port: the port; 0 is any that is free.
        timeout_s: how long the store may take for a request; None is no limit.
        on_start: called with the catalog's address once it listens.

    Raises:
        ConfigurationError: it cannot listen there.
        KeyboardInterrupt: it was interrupted.
    """
    with closing(listening(host, port)) as listener:
        on_start(_address(host, listener))
        server = uvicorn.Server(
            uvicorn.Config(
                application(store, timeout_s),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_FINISH_S,
            )
        )
        server.run(sockets=[listener])


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ConfigurationError: the host is not this machine's, or the port is not free, or not allowed.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen at port {port} of {host!r}: {_reason(error)}: choose another port with --port, or an "
            f"address of this machine with --host"
        ) from error


def _reason(error: OSError) -> str:
    """Return what the system says, without the address that Python adds to it."""
    return (error.strerror or str(error)).partition(" (while ")[0]


def _address(host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"
