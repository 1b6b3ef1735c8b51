"""`txnlog retention`: remove the records that the topics' settings no longer keep."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from sparktxn.cli.session import Session
from sparktxn.cli.verb import Apply, argument, verb
from sparktxn.maintenance import apply_retention

__all__ = ["app"]

app = typer.Typer()


@verb(app, "retention", examples=["txnlog retention", "txnlog retention orders --apply"])
def retention(
    session: Session,
    topics: Annotated[list[str] | None, argument(metavar="[TOPIC…]", help="Names of topics; none: all.")] = None,
    apply: Apply = False,
) -> None:
    """Remove the oldest records of topics, as their settings retention.ms and retention.bytes say.

    Without --apply it prints the new log starts. The vacuum deletes the files later.
    """
    store = session.store()
    with session.out.progress("retention: finding old segments …"):
        report = apply_retention(store, topics or None, dry_run=not apply, timeout_s=session.job_timeout_s)
    session.out.row(msgspec.to_builtins(report))
    if not apply:
        session.out.remark("nothing was removed: add --apply to remove these records")
