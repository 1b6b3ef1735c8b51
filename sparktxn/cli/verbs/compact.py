"""`txnlog compact`: leave the newest record of each key."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from sparktxn.cli.address import settings_of
from sparktxn.cli.session import Session
from sparktxn.cli.verb import Apply, argument, set_option, verb
from sparktxn.maintenance import compact as run_compact

__all__ = ["app"]

app = typer.Typer()


@verb(
    app,
    "compact",
    examples=[
        "txnlog compact",
        "txnlog compact --apply",
        "txnlog compact --set compact.dedupe.buffer.bytes=268435456 --apply",
    ],
)
def compact(
    session: Session,
    topics: Annotated[
        list[str] | None, argument(metavar="[TOPIC]…", help="Names of topics; all that are compacted without any.")
    ] = None,
    settings: Annotated[list[str] | None, set_option("the compaction")] = None,
    apply: Apply = False,
) -> None:
    """Leave only the newest record of each key in topics whose cleanup.policy has compact.

    Without --apply it prints what would be compacted. Offsets stay as they are, and so do views from before. It may run
    alongside writers, readers, rewrites and other compactions.
    """
    given = settings_of(settings)
    if topics:
        given["compact.topics"] = ",".join(topics)
    store = session.store()
    with session.out.progress("compact: reading keys …" if apply else "compact: finding partitions …"):
        report = run_compact(store, given, dry_run=not apply, run=session.run, timeout_s=session.job_timeout_s)
    session.out.row(msgspec.to_builtins(report))
    if not apply:
        session.out.remark("nothing was compacted: add --apply to compact these partitions")
    elif report.lost or report.unresolved:
        session.out.remark("some partitions were not compacted in time, or others came first: run it again")
