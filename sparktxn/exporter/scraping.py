"""The exporter as a server of this process, until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from sparktxn.exporter.storemetrics import StoreMetrics
from sparktxn.process.listening import address_of, listening
from sparktxn.process.wsgiserver import wsgi_server
from sparktxn.store import Store

__all__ = ["serve"]


def serve(store: Store, host: str, port: int, *, timeout_s: float | None, on_start: Callable[[str], None]) -> None:
    """Serve the figures of an open store at ``/metrics`` until this process is interrupted.

    Args:
        store: the store.
        host: the name or address to listen at.
        port: the port; 0 is any that is free.
        timeout_s: how long the store may take for a scrape; None is no limit.
        on_start: called with the page's address once the server listens.

    Raises:
        ConfigurationError: it cannot listen there.
        KeyboardInterrupt: it was interrupted.
    """
    metrics = StoreMetrics(store, timeout_s)
    with closing(listening(host, port, "--listen")) as listener:
        server = wsgi_server(metrics.wsgi(), host, listener)
        on_start(f"{address_of(host, listener)}/metrics")
        server.serve_forever()
