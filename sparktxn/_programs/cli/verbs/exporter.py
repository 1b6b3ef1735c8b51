"""`txnlog exporter`: the figures of a store for Prometheus."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from sparktxn._programs.cli.servers import AllowHost, Port, listen_endpoint, listen_option, server_of
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import verb

app = typer.Typer()

_PORT: Final = 9308
_SCRAPE_TIMEOUT_S = 10.0
"""Prometheus' own time-out of a scrape, where none is set."""


@verb(app, "exporter", examples=["txnlog exporter", "txnlog exporter --listen 0.0.0.0:9308"])
def exporter(
    session: Session,
    listen: Annotated[str | None, listen_option(_PORT)] = None,
    port: Port = None,
    allow_host: AllowHost = None,
) -> None:
    """Serve the figures of a store to Prometheus, until it is ended.

    Each scrape reads the newest state: offsets, last stable offsets, lags, open transactions and small files. It also
    says how old the last entry and the last vacuum are. Nothing is written. Names are those of Kafka's exporters where
    one exists, else they begin with txnlog_.

    There is no authentication: whatever reaches the address reads the names of topics, groups and transactional ids.
    --timeout is how long the store may take for a scrape. Default: 10s.
    """
    host, chosen = listen_endpoint(listen, port, _PORT)
    serve = server_of("sparktxn._programs.exporter", "the exporter", "metrics")
    store = session.store()
    timeout_s = _SCRAPE_TIMEOUT_S if session.given.timeout_s is None else session.given.timeout_s

    def started(address: str) -> None:
        session.out.row({"address": address, "store": store.uri})
        session.out.remark("serving until Ctrl-C; there is no authentication")

    serve(store, host, chosen, timeout_s=timeout_s, on_start=started, allowed_hosts=allow_host or ())
