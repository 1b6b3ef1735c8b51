"""The catalog as a server of this process, until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparktxn.process.webserver import serve_application
from sparktxn.store import Store
from sparktxn.tables.catalog.application import application

__all__ = ["serve"]


def serve(
    store: Store,
    host: str,
    port: int,
    *,
    timeout_s: float | None,
    on_start: Callable[[str], None],
    allowed_hosts: Iterable[str] = (),
) -> None:
    """Serve the tables of an open store until this process is interrupted; requests then are still answered.

    Args:
        store: the store.
        host: the name or address to listen at.
        port: the port; 0 is any that is free.
        timeout_s: how long the store may take for a request; None means no limit.
        on_start: called with the catalog's address once it listens.
        allowed_hosts: more hosts that requests may name, see `AnsweredHosts`.

    Raises:
        ConfigurationError: it cannot listen there, or one of `allowed_hosts` is not a host.
        KeyboardInterrupt: it was interrupted.
    """
    app = application(store, timeout_s)
    serve_application(app, host, port, "--listen", on_start, allowed_hosts=allowed_hosts)
