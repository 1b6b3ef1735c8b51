"""`txnlog gateway`: Kafka's protocol in front of a store."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated, Final

import typer

from sparktxn._foundation.process.clock import RandomIds
from sparktxn._programs.cli.failures import quantity
from sparktxn._programs.cli.servers import AllowHost, Port, listen_endpoint, listen_option, server_of
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.standardstreams import standard_input
from sparktxn._programs.cli.verb import option, verb
from sparktxn._programs.gateway.gatewaysettings import GatewaySettings
from sparktxn._programs.gateway.security.access import AccessOptions
from sparktxn._programs.gateway.security.users import user_lines
from sparktxn.store.options import MILLISECONDS

app = typer.Typer()


_PORT: Final = 9092
_Advertise = Annotated[
    str | None, typer.Option("--advertise", metavar="HOST:PORT", help="Where clients reach it, if elsewhere.")
]
_Peers = Annotated[str | None, typer.Option("--peers", metavar="HOST:PORT,…", help="All gateways of the store.")]
_CreateTopics = Annotated[
    bool, typer.Option("--create-topics/--no-create-topics", help="Create a topic that a client asks for.")
]
_Partitions = Annotated[int, typer.Option("--partitions", min=1, help="How many partitions such a topic gets.")]
_Linger = Annotated[
    str, typer.Option("--linger", metavar="DURATION", help="How far entries with records are apart, at least.")
]
_StoreTransactions = Annotated[
    bool,
    option("--store-transactions", help="Store records of open transactions at once; else they are in memory."),
]
_MaxConnections = Annotated[int, typer.Option("--max-connections", min=1, help="How many clients may be connected.")]
_SaslUsers = Annotated[
    Path | None, option("--sasl-users", metavar="FILE", help="Users, one of whom a client has to be.")
]
_SaslLine = Annotated[
    str | None,
    option("--sasl-line", metavar="NAME", help="Only print a user's lines for that file; asks for the password."),
]
_TlsCertificate = Annotated[
    Path | None, option("--tls-certificate", metavar="FILE", help="Serve over TLS, with this certificate (PEM).")
]
_TlsKey = Annotated[
    Path | None, option("--tls-key", metavar="FILE", help="Its key (PEM), if the certificate's file has none.")
]
_TlsClientCa = Annotated[
    Path | None,
    option("--tls-client-ca", metavar="FILE", help="Ask clients for a certificate that one of these has signed."),
]
_AllowPlaintext = Annotated[bool, typer.Option("--allow-plaintext", help="Serve other machines without TLS and users.")]
_Http = Annotated[
    str | None,
    option("--http", metavar="HOST:PORT", help="Where to answer /healthz and /metrics, without authentication."),
]


@verb(
    app,
    "gateway",
    examples=[
        "txnlog gateway",
        "txnlog gateway --listen 0.0.0.0:9092 --advertise kafka.example.com:9092 --sasl-users users",
        "cat password | txnlog gateway --sasl-line alice",
    ],
)
def gateway(
    session: Session,
    listen: Annotated[str | None, listen_option(_PORT)] = None,
    port: Port = None,
    advertise: _Advertise = None,
    peers: _Peers = None,
    create_topics: _CreateTopics = True,
    partitions: _Partitions = 1,
    linger: _Linger = "5ms",
    store_transactions: _StoreTransactions = False,
    max_connections: _MaxConnections = 10000,
    sasl_users: _SaslUsers = None,
    sasl_line: _SaslLine = None,
    tls_certificate: _TlsCertificate = None,
    tls_key: _TlsKey = None,
    tls_client_ca: _TlsClientCa = None,
    allow_plaintext: _AllowPlaintext = False,
    http: _Http = None,
    allow_host: AllowHost = None,
) -> None:
    """Serve Kafka's clients from a store, until it is ended.

    Any number of gateways serve one store. Nothing is kept in them: what they have acknowledged outside transactions
    is stored, and a transaction is stored with its commit.

    Other machines are served over TLS, or if they are users of --sasl-users, which may have PLAIN and SCRAM. The file
    has no passwords: --sasl-line makes its lines, of a password from a terminal or a line of standard input.
    """
    if sasl_line is not None:
        for line in user_lines(sasl_line, _password(), RandomIds()):
            session.out.line(line)
        return
    served = listen_endpoint(listen, port, _PORT)
    serve = server_of("sparktxn._programs.gateway.gatewayserver", "the gateway", "gateway")
    store = session.store()

    def started(address: str, pages: str | None) -> None:
        session.out.row({"address": address, "store": store.uri} | ({} if pages is None else {"http": pages}))
        session.out.remark("serving until Ctrl-C")

    access = AccessOptions(
        sasl_users=sasl_users,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        allows_plaintext=allow_plaintext,
    )
    settings = GatewaySettings(
        linger_ms=quantity("--linger", linger, MILLISECONDS, 0, 10_000),
        stores_transactions=store_transactions,
        creates_topics=create_topics,
        partition_count=partitions,
        connections_max=max_connections,
    )
    serve(
        store,
        str(served),
        advertise,
        peers,
        settings=settings,
        access=access,
        http=http,
        on_start=started,
        allowed_hosts=allow_host or (),
    )


def _password() -> str:
    given = standard_input()
    if given.isatty():
        return getpass.getpass("Password: ")
    return given.readline().rstrip("\r\n")
