"""`txnlog verify`: read a whole store, and say what is not as it must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from sparktxn._programs.cli import completion
from sparktxn._programs.cli.failures import FAILED, WrongUsage
from sparktxn._programs.cli.output import Meter
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import argument, verb
from sparktxn.maintenance import Problem
from sparktxn.maintenance import repair as run_repair
from sparktxn.maintenance import verify as run_verify
from sparktxn.maintenance.checking.segmentcheck import CheckedSegments
from sparktxn.maintenance.checking.verify import SegmentsToCheck
from sparktxn.store import Store

app = typer.Typer()

_CheckTask = Callable[[SegmentsToCheck], CheckedSegments]


@verb(
    app,
    "verify",
    examples=["txnlog verify", "txnlog verify orders --no-records --json", "txnlog verify --repair --apply"],
)
def verify(
    session: Session,
    topics: Annotated[
        list[str] | None,
        argument(
            metavar="[TOPIC…]", help="Topics whose segments to read; none: all.", autocompletion=completion.topics
        ),
    ] = None,
    no_records: Annotated[
        bool, typer.Option("--no-records", help="Only check that segments exist with their sizes.")
    ] = False,
    repairs: Annotated[
        bool, typer.Option("--repair", help="Instead, print which damaged objects follow from the log, and how.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="With --repair: write these objects.")] = False,
) -> None:
    """Read a store, and print what is not as the protocol says. Without --repair --apply it writes nothing.

    The exit code is 1 if there is a problem, or if a repair leaves one. It may run alongside all other processes.
    """
    if apply and not repairs:
        raise WrongUsage("--apply belongs to --repair: add it")
    if repairs and (topics or no_records):
        raise WrongUsage("--repair reads the log and checkpoints of the whole store: leave out topics and --no-records")
    store = session.store()
    if repairs:
        _repair(session, store, apply=apply)
        return
    with session.out.measured("verify: replaying the log", store.log.clock) as meter:
        report = run_verify(
            store,
            topics or None,
            read_records=not no_records,
            run=session.run or (lambda check, tasks: _run(meter, check, tasks)),
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
        "problems": _rows(report.problems),
    }
    session.out.row(row)
    if report.problems:
        raise typer.Exit(FAILED)


def _repair(session: Session, store: Store, *, apply: bool) -> None:
    with session.out.progress("verify: replaying the log …"):
        report = run_repair(store, dry_run=not apply, timeout_s=session.job_timeout_s)
    session.out.row(
        {
            "dry_run": report.dry_run,
            "repaired": [
                {"object": one.object_name, "kind": one.kind, "problem": one.problem, "size_bytes": one.size_bytes}
                for one in report.repaired
            ],
            "left": _rows(report.left),
        }
    )
    if report.dry_run and report.repaired:
        session.out.remark("nothing was written: add --apply to write these objects")
    if report.left or (report.dry_run and report.repaired):
        raise typer.Exit(FAILED)


def _rows(problems: Sequence[Problem]) -> list[dict[str, object]]:
    return [
        {"object": one.object_name, "problem": one.problem, "fix": one.fix, "missing": one.is_missing}
        for one in problems
    ]


def _run(meter: Meter, check: _CheckTask, tasks: Sequence[SegmentsToCheck]) -> Iterator[CheckedSegments]:
    sizes = [
        sum(one.size_bytes for one in task.segments) + sum(max(0, one.size_bytes) for one in task.older)
        for task in tasks
    ]
    meter.begin(sum(sizes))
    done_bytes = 0
    for task, size_bytes in zip(tasks, sizes, strict=True):
        meter.at(done_bytes)
        yield check(task)
        done_bytes += size_bytes
