"""The catalog as a server of this process, until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable

from sparktxn.process.webserver import serve_application
from sparktxn.store import Store
from sparktxn.tables.catalog.application import application

__all__ = ["serve"]


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
    serve_application(application(store, timeout_s), host, port, "--listen", on_start)
