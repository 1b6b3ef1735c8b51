"""`txnlog rewrite`: merge small segments."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from sparktxn.cli.address import settings_of
from sparktxn.cli.session import Session
from sparktxn.cli.verb import Apply, argument, set_option, verb
from sparktxn.maintenance import rewrite as run_rewrite

__all__ = ["app"]

app = typer.Typer()


@verb(
    app,
    "rewrite",
    examples=[
        "txnlog rewrite",
        "txnlog rewrite orders trips --apply",
        "txnlog rewrite orders --set rewrite.min.age.ms=3600000 --apply",
    ],
)
def rewrite(
    session: Session,
    topics: Annotated[
        list[str] | None, argument(metavar="[TOPIC]…", help="Names of topics; all topics without any.")
    ] = None,
    settings: Annotated[list[str] | None, set_option("the rewrite")] = None,
    apply: Apply = False,
) -> None:
    """Merge small segments into large Parquet files, without aborted records.

    Without --apply it prints what would be merged. Records and offsets stay as they are. It may run alongside writers,
    readers and other rewrites.
    """
    given = settings_of(settings)
    if topics:
        given["rewrite.topics"] = ",".join(topics)
    store = session.store()
    with session.out.progress("rewrite: merging small segments …" if apply else "rewrite: finding small segments …"):
        report = run_rewrite(store, given, dry_run=not apply, run=session.run, timeout_s=session.job_timeout_s)
    session.out.row(msgspec.to_builtins(report))
    if not apply:
        session.out.remark("nothing was merged: add --apply to merge these files")
    elif report.lost or report.unresolved:
        session.out.remark("some ranges were not merged in time, or others came first: run it again")
