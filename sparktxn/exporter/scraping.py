"""The exporter as a server of this process, until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from sparktxn.exporter.storemetrics import StoreMetrics
from sparktxn.process.listening import address_of, listening
from sparktxn.store import Store

__all__ = ["serve"]

_IDLE_S: Final = 10.0
"""So long may a client take to send its request, or to take the answer."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request on a thread of its own: a client that sends nothing keeps no other waiting."""

    daemon_threads = True
    block_on_close = False


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: scrapes are frequent."""


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
        server = _Server(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        server.socket.close()
        server.socket = listener
        server.server_name, server.server_port = host, listener.getsockname()[1]
        server.setup_environ()
        server.set_app(metrics.wsgi())
        on_start(f"{address_of(host, listener)}/metrics")
        server.serve_forever()
