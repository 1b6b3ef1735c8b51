"""`txnlog verify`: read a whole store, and say what is not as it must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from sparktxn.cli.failures import FAILED
from sparktxn.cli.session import Session
from sparktxn.cli.verb import verb
from sparktxn.maintenance import verify as run_verify
from sparktxn.maintenance.segmentcheck import CheckedSegments
from sparktxn.maintenance.verify import SegmentsToCheck

__all__ = ["app"]

app = typer.Typer()

_CheckTask = Callable[[SegmentsToCheck], CheckedSegments]


@verb(app, "verify", examples=["txnlog verify", "txnlog verify orders --no-records --json"])
def verify(
    session: Session,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC…]", help="Topics whose segments to read; none: all.", show_default=False),
    ] = None,
    no_records: Annotated[
        bool, typer.Option("--no-records", help="Only check that segments exist with their sizes.")
    ] = False,
) -> None:
    """Read a store, and print what is not as the protocol says. It writes and repairs nothing.

    The exit code is 1 if there is a problem. It may run alongside all other processes.
    """
    store = session.store()
    with session.out.progress("verify: replaying the log …") as shown:
        report = run_verify(
            store,
            topics or None,
            read_records=not no_records,
            run=session.run or (lambda check, tasks: _run(shown, check, tasks)),
            timeout_s=session.job_timeout_s,
        )
    row = {
        "horizon": report.horizon,
        "entry": report.entry,
        "entries": report.entries,
        "checkpoints": report.checkpoints,
        "segments": report.segments,
        "records": report.records,
        "size_bytes": report.size_bytes,
        "unreferenced": report.unreferenced,
        "unreferenced_bytes": report.unreferenced_bytes,
        "problems": [
            {"object": one.object_name, "problem": one.problem, "fix": one.fix, "missing": one.is_missing}
            for one in report.problems
        ],
    }
    session.out.row(row)
    if report.problems:
        raise typer.Exit(FAILED)


def _run(
    shown: Callable[[str], None], check: _CheckTask, tasks: Sequence[SegmentsToCheck]
) -> Iterator[CheckedSegments]:
    for number, task in enumerate(tasks):
        shown(f"verify: reading segments, {100 * number // len(tasks)} % …")
        yield check(task)
