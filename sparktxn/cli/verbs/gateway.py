"""`txnlog gateway`: Kafka's protocol in front of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from sparktxn.cli.servers import server_of
from sparktxn.cli.session import Session
from sparktxn.cli.verb import verb

__all__ = ["app"]

app = typer.Typer()


@verb(
    app,
    "gateway",
    examples=["txnlog gateway", "txnlog gateway --listen 0.0.0.0:9092 --advertise kafka.example.com:9092"],
)
def gateway(
    session: Session,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 is any that is free.")
    ] = "127.0.0.1:9092",
    advertise: Annotated[
        str | None, typer.Option("--advertise", metavar="HOST:PORT", help="Where clients reach it, if elsewhere.")
    ] = None,
    peers: Annotated[
        str | None, typer.Option("--peers", metavar="HOST:PORT,…", help="All gateways of the store.")
    ] = None,
) -> None:
    """Serve Kafka's clients from a store, until it is ended.

    Any number of gateways serve one store. Nothing is kept in them: what they have acknowledged outside transactions
    is stored, and a transaction is stored with its commit.
    """
    serve = server_of("sparktxn.gateway.server", "the gateway", "gateway")
    store = session.store()

    def started(address: str) -> None:
        session.out.row({"address": address, "store": store.uri})
        session.out.remark("serving until Ctrl-C")

    serve(store, listen, advertise, peers, on_start=started)
