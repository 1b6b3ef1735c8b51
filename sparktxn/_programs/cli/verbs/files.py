"""`txnlog files`: the files of topics that another engine may read, with their base offsets."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from sparktxn._foundation.values.quantities import counted
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.failures import WrongUsage, time_ms
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import Order, OrderOption, argument, option, verb
from sparktxn.store.options import SystemClock

app = typer.Typer()


@verb(
    app,
    "files",
    examples=["txnlog files orders", "txnlog files orders --paths", "txnlog files orders --time 0s --json"],
)
def files(
    session: Session,
    topics: Annotated[list[str], argument(metavar="TOPIC…", help="Names of topics.", autocompletion=completion.topics)],
    entry: Annotated[int | None, option("--entry", min=0, help="As of this entry of the log.")] = None,
    time: Annotated[str | None, option("--time", metavar="TIME", help="As of this time.")] = None,
    paths: Annotated[
        bool, typer.Option("--paths", help="Print only paths, of Parquet files of which all rows are committed.")
    ] = False,
    order: OrderOption = Order.COMMIT,
) -> None:
    """List the committed files of a read view, in the order of offsets.

    A file that is whole is a Parquet file of which every row belongs to the view. Its rows have the offsets of the
    column that is named; in a file without one, row N has the offset base offset + N. The rows of a file that is not
    whole must be filtered, as sparktxn does: those outside of the offsets, and of aborted transactions. Spark's scan()
    reads files that are whole, and all with a column of offsets, with Spark's own reader. An internal topic has no
    files: its rows are computed from the log.
    """
    if entry is not None and time is not None:
        raise WrongUsage("--entry and --time exclude each other: leave one of them out")
    store = session.store()
    at_ms = None if time is None else time_ms("--time", time, SystemClock().wall_ms())
    view = store.view(topics, entry=entry, timestamp_ms=at_ms, timeout_s=session.timeout_s)
    found = store.files(view, order=order.value)
    if not paths:
        rows = ({**msgspec.to_builtins(file), "view_entry": view.entry} for file in found)
        session.out.rows(rows, none="no files")
        return
    for file in found:
        if file.is_whole:
            session.out.line(file.path)
    left = sum(not file.is_whole for file in found)
    if left:
        session.out.remark(
            f"{counted(left, 'file')} left out, not being whole: txnlog files without --paths shows them"
        )
