"""The exporter as a server of this process, until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

from sparktxn._foundation.process.listening import AnsweredHosts, Application, address_of, listening, wsgi_server
from sparktxn.store import Store
from sparktxn.store.storemetrics import StoreMetrics


def serve(
    store: Store,
    host: str,
    port: int,
    *,
    timeout_s: float | None,
    on_start: Callable[[str], None],
    allowed_hosts: Iterable[str] = (),
) -> None:
    """Serve the figures of an open store at ``/metrics``, and ``/healthz``, until this process is interrupted.

    Args:
        store: the store.
        host: the name or address to listen at.
        port: the port; 0 is any that is free.
        timeout_s: how long the store may take for a scrape; None means no limit.
        on_start: called with the page's address once the server listens.
        allowed_hosts: more hosts that requests may name, see `AnsweredHosts`.

    Raises:
        ConfigurationError: it cannot listen there, or one of `allowed_hosts` is not a host.
        KeyboardInterrupt: it was interrupted.
    """
    hosts = AnsweredHosts(host, allowed_hosts)
    metrics = StoreMetrics(store, timeout_s)
    with closing(listening(host, port, "--listen")) as listener:
        server = wsgi_server(_pages(metrics), host, listener, hosts)
        on_start(f"{address_of(host, listener)}/metrics")
        server.serve_forever()


def _pages(metrics: StoreMetrics) -> Application:
    figures: Application = metrics.wsgi()

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/healthz":
            return figures(environ, start_response)
        problem = metrics.problem()
        head = [("Content-Type", "text/plain; charset=utf-8")]
        start_response("200 OK" if problem is None else "503 Service Unavailable", head)
        return [f"{problem or 'ok'}\n".encode()]

    return application
