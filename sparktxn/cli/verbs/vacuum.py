"""`txnlog vacuum`: delete what no reader may ask for any more."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from sparktxn.cli.address import settings_of
from sparktxn.cli.session import Session
from sparktxn.cli.verb import Apply, set_option, verb
from sparktxn.maintenance import vacuum as run_vacuum

__all__ = ["app"]

app = typer.Typer()


@verb(
    app,
    "vacuum",
    examples=[
        "txnlog vacuum",
        "txnlog vacuum --apply",
        "txnlog vacuum --set vacuum.retention.ms=86400000 --names",
    ],
)
def vacuum(
    session: Session,
    settings: Annotated[list[str] | None, set_option("the vacuum")] = None,
    names: Annotated[bool, typer.Option("--names", help="Print what would be deleted, by name.")] = False,
    apply: Apply = False,
) -> None:
    """Delete entries, checkpoints, segments and left-overs that retention does not keep.

    Without --apply it prints what would be deleted. It may run alongside writers, readers and other vacuums.
    """
    given = settings_of(settings)
    store = session.store()
    with session.out.progress("vacuum: verifying checkpoints, finding what is not needed …"):
        report = run_vacuum(store, given, dry_run=not apply, timeout_s=session.job_timeout_s)
    row = msgspec.to_builtins(report)
    objects = row.pop("names")
    session.out.row(row | ({"names": list(objects)} if names and session.out.json else {}))
    if names and not session.out.json:
        for name in objects:
            session.out.line(name)
    if report.overtaken:
        session.out.remark("other vacuums were ahead of this one: it has deleted nothing")
    elif not apply:
        session.out.remark("nothing was deleted: add --apply to delete these objects")
