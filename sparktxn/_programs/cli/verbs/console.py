"""`txnlog console`: pages over a store, in the browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated, Final

import typer

from sparktxn._programs.cli.servers import AllowHost, Port, listen_endpoint, listen_option, server_of
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import option, verb
from sparktxn.store.options import ThreadBackground

app = typer.Typer()

_PORT: Final = 8477


@verb(app, "console", examples=["txnlog console", "txnlog console --listen :9000 --no-browser --hide-values"])
def console(
    session: Session,
    listen: Annotated[str | None, listen_option(_PORT)] = None,
    port: Port = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the first page in a browser.")] = True,
    token: Annotated[
        str | None,
        option(
            "--token",
            metavar="TEXT",
            envvar="TXNLOG_CONSOLE_TOKEN",
            help="What callers have to show; needed for other addresses than this machine's.",
        ),
    ] = None,
    hide_values: Annotated[
        bool, typer.Option("--hide-values", help="Show no keys, values and headers of records.")
    ] = False,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Offer changes: topics, offsets, transactions, jobs of maintenance."),
    ] = False,
    allow_host: AllowHost = None,
) -> None:
    """Show the store in the browser: topics and records, transactions, groups, the log and files.

    Without --allow-changes it changes nothing. Each page is JSON, too, for callers that accept application/json. A
    token belongs into the environment variable, as other users of this machine may see options. --timeout is how long
    the store may take for a page.
    """
    host, chosen = listen_endpoint(listen, port, _PORT)
    serve = server_of("sparktxn._programs.console.serving", "the console", "console")
    store = session.store()

    def started(address: str) -> None:
        session.out.row({"address": address, "store": store.uri})
        session.out.remark("serving until Ctrl-C")
        if browser:
            _open(address)

    serve(
        store,
        host,
        chosen,
        token=token,
        hide_values=hide_values,
        allow_changes=allow_changes,
        timeout_s=session.timeout_s,
        on_start=started,
        allowed_hosts=allow_host or (),
    )


def _open(address: str) -> None:
    """Open the browser; a machine without one is not an error."""
    # Some browsers answer only once they are closed.
    ThreadBackground("txnlog-browser", 1).submit(lambda: webbrowser.open(address))
