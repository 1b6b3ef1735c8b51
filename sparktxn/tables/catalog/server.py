"""The catalog as a server of this process, until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

import uvicorn

from sparktxn.process.listening import address_of, listening
from sparktxn.store import Store
from sparktxn.tables.catalog.application import application

__all__ = ["serve"]

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
    with closing(listening(host, port, "--host")) as listener:
        on_start(address_of(host, listener))
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
