"""`txnlog tables`: publish, list and serve the tables that topics are for other engines."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from sparktxn._programs.cli import completion
from sparktxn._programs.cli.output import Row
from sparktxn._programs.cli.servers import AllowHost, Port, listen_endpoint, listen_option, server_of
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import Apply, argument, option, verb
from sparktxn.maintenance import TableInfo, list_tables, publish_tables

app = typer.Typer(no_args_is_help=True)

_PORT: Final = 8181
_Topics = Annotated[
    list[str] | None,
    argument(
        metavar="[TOPIC]…", help="Names of topics; all that are tables without any.", autocompletion=completion.topics
    ),
]


@verb(app, "list", examples=["txnlog tables list", "txnlog tables list trips --json"])
def list_(session: Session, topics: _Topics = None) -> None:
    """List the topics that are tables, with the newest version of each, and what it does not show yet.

    "waiting records" counts the records that were committed after the entry which the version shows. "waiting" is how
    long ago the oldest of them was committed. Records of open transactions do not count.

    A topic without a version was never published. The table of a deleted topic becomes empty when it is published.
    """
    store = session.store()
    with store.log.within(session.timeout_s):
        found = list_tables(store, topics or None)
    none = "no topic is a table: txnlog topics alter NAME --set table.formats=delta makes it one"
    session.out.rows(map(_row, found), none=none)


@verb(
    app,
    "publish",
    examples=[
        "txnlog tables publish",
        "txnlog tables publish trips --apply",
        "txnlog tables publish --location s3a://bucket/shop --apply",
    ],
)
def publish(
    session: Session,
    topics: _Topics = None,
    location: Annotated[
        str | None,
        option(
            "--location",
            metavar="ADDRESS",
            help="The store's address for other engines, for tables without a version. Default: that of --store.",
        ),
    ] = None,
    apply: Apply = False,
) -> None:
    """Publish what is committed as the next version of tables, all with one entry.

    Without --apply it prints what would be published. It may be killed at any moment, and run alongside all other
    processes. A table that shows everything gets no version.
    """
    store = session.store()
    with session.out.progress("tables: publishing …" if apply else "tables: finding what is not published …"):
        report = publish_tables(
            store, topics or None, location=location, dry_run=not apply, timeout_s=session.job_timeout_s
        )
    row = msgspec.to_builtins(report)
    session.out.row(row | {"tables": list(row["tables"]), "refused": list(row["refused"])})
    for each in report.refused:
        session.out.remark(f"not published here: {each.reason}")
    if not apply:
        session.out.remark("nothing was published: add --apply to publish these versions")
    elif report.overtaken:
        session.out.remark("others have changed the topics each time: run it again")


@verb(app, "serve", examples=["txnlog tables serve", "txnlog tables serve --listen 0.0.0.0:8080"])
def serve(
    session: Session,
    listen: Annotated[str | None, listen_option(_PORT)] = None,
    port: Port = None,
    allow_host: AllowHost = None,
) -> None:
    """Serve the Iceberg tables by a read-only REST catalog, until it is ended.

    The tables are those of topics with iceberg in their table.formats, once they are published. Each request finds the
    newest version. It has the namespace topics, and the names of the topics.

    There is no authentication: whatever reaches the address reads the metadata of all tables. Readers need access of
    their own to the files. --timeout is how long the store may take for a request.
    """
    host, chosen = listen_endpoint(listen, port, _PORT)
    run = server_of("sparktxn._programs.catalog.application", "the catalog", "catalog")
    store = session.store()

    def started(address: str) -> None:
        session.out.row({"address": address, "namespace": "topics", "store": store.uri})
        session.out.remark("serving until Ctrl-C; there is no authentication")

    run(store, host, chosen, timeout_s=session.timeout_s, on_start=started, allowed_hosts=allow_host or ())


def _row(info: TableInfo) -> Row:
    """Return a table's row; its location names the topic's id."""
    return {name: value for name, value in msgspec.to_builtins(info).items() if name != "topic_id"}
