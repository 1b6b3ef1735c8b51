"""`txnlog files`: the files of topics that another engine may read, with their base offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from sparktxn.cli.failures import WrongUsage
from sparktxn.cli.session import Session
from sparktxn.cli.text import parse_time_ms
from sparktxn.cli.verb import verb
from sparktxn.clock import SystemClock
from sparktxn.scan.plan import ReadTask, by_file
from sparktxn.state.internal import INTERNAL_TOPICS

__all__ = ["app"]

app = typer.Typer()

_PARQUET = ".parquet"


@verb(
    app,
    "files",
    examples=["txnlog files orders", "txnlog files orders --paths", "txnlog files orders --time 0s --json"],
)
def files(
    session: Session,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Names of topics.", show_default=False)],
    entry: Annotated[
        int | None, typer.Option("--entry", min=0, help="As of this entry of the log.", show_default=False)
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="As of this time.", show_default=False)
    ] = None,
    paths: Annotated[
        bool, typer.Option("--paths", help="Print only paths, of Parquet files of which all rows are committed.")
    ] = False,
) -> None:
    """List the committed files of a read view, in the order of offsets.

    A file that is whole is a Parquet file of which every row belongs to the view: row N has the offset base offset + N.
    In a file that a rewrite has made offsets grow too, with gaps. The rows of another file must be filtered, as
    sparktxn does: those outside of the offsets, and of aborted transactions.
    """
    if entry is not None and time is not None:
        raise WrongUsage("--entry and --time exclude each other: leave one of them out")
    internal = [topic for topic in topics if topic in INTERNAL_TOPICS]
    if internal:
        raise WrongUsage(f"topic {internal[0]!r} is internal: it has no files, its rows are computed from the log")
    store = session.store()
    at_ms = None if time is None else _time_ms(time)
    view = store.view(topics, entry=entry, timestamp_ms=at_ms, timeout_s=session.timeout_s)
    tasks = store.plan(view, store.ranges(view))
    rows = sorted(_rows(tasks), key=lambda row: (row["topic"], row["partition"], row["base_offset"]))
    if not paths:
        session.out.rows(({**row, "view_entry": view.entry} for row in rows), none="no files")
        return
    for row in rows:
        if row["whole"]:
            session.out.line(row["path"])
    left = sum(not row["whole"] for row in rows)
    if left:
        session.out.remark(f"{left} files are left out: they are not whole, txnlog files without --paths shows them")


def _time_ms(text: str) -> int:
    try:
        return parse_time_ms(text, SystemClock().wall_ms())
    except ValueError as error:
        raise WrongUsage(f"--time: {error}") from None


def _rows(tasks: list[ReadTask]) -> Iterator[dict[str, Any]]:
    for task in tasks:
        kept = list(task.kept_offsets())
        for segments in by_file(task.segments):
            first, last = segments[0], segments[-1]
            read = sum(end - start for start, end in kept if first.base_offset <= start < last.end_offset)
            yield {
                "topic": task.topic,
                "partition": task.partition,
                "base_offset": first.base_offset,
                "record_count": sum(segment.record_count for segment in segments),
                "size_bytes": first.size_bytes,
                "whole": read == first.file_records and first.name.endswith(_PARQUET),
                "path": f"{task.store_uri.rstrip('/')}/{task.segment_name(first)}",
            }
