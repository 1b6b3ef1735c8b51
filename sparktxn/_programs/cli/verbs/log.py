"""`txnlog log`: what each entry committed, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from sparktxn._programs.cli.output import Row
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import option, verb
from sparktxn.store import TableSelection, read_table_task

app = typer.Typer()


@verb(app, "log", examples=["txnlog log", "txnlog log -n 5 --json", "txnlog log --from 2 --to 3"])
def log(
    session: Session,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Only the newest so many entries.")] = 20,
    first: Annotated[int | None, option("--from", metavar="ENTRY", min=1, help="The first entry.")] = None,
    last: Annotated[int | None, option("--to", metavar="ENTRY", min=1, help="The last entry.")] = None,
) -> None:
    """Print entries of the log: what each one committed, appended and changed.

    With --from all entries from there on are printed. A transaction is named by its transactional id, its producer id
    and its number.
    """
    store = session.store()
    limit = None if first is not None else count
    selection = TableSelection(first_entry=first, last_entry=last, limit=limit)
    tasks = store.plan_table("entries", selection, timeout_s=session.timeout_s)
    rows = (row for task in tasks for batch in read_table_task(task, store.options) for row in _rows(batch))
    session.out.rows(rows if session.out.json else map(_short, rows), none="no entries")


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    for row in batch.to_pylist():
        timestamp = row.pop("timestamp")
        yield {"entry": row.pop("entry"), "timestamp_ms": round(timestamp.timestamp() * 1000), **row}


def _short(row: Row) -> Row:
    ended = [f"{'commit' if one['committed'] else 'abort'} {one['transaction']}" for one in row["transactions"]]
    return {
        "entry": row["entry"],
        "timestamp_ms": row["timestamp_ms"],
        "operations": row["operations"],
        "transactions": ended,
        "records": {one["topic"]: one["record_count"] for one in row["records"]},
        "groups": row["groups"],
    }
