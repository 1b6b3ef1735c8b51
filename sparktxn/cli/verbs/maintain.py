"""`txnlog maintain`: all jobs of a store, once or again and again."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from sparktxn.cli.address import settings_of
from sparktxn.cli.failures import FAILED, WrongUsage, duration_ms
from sparktxn.cli.session import Session
from sparktxn.cli.verb import Apply, option, set_option, verb
from sparktxn.maintenance import MaintenanceReport
from sparktxn.maintenance import maintain as run_maintain

__all__ = ["app"]

app = typer.Typer()


@verb(
    app,
    "maintain",
    examples=[
        "txnlog maintain",
        "txnlog maintain --apply",
        "txnlog maintain --apply --set vacuum.retention.ms=86400000",
    ],
)
def maintain(
    session: Session,
    settings: Annotated[list[str] | None, set_option("any job")] = None,
    every: Annotated[
        str | None, option("--every", metavar="TIME", help="Again after so long, such as 30m or 1h, until it is ended.")
    ] = None,
    apply: Apply = False,
) -> None:
    """Run all jobs, as the settings of topics say: sweep, retention, compact, rewrite, tables, vacuum.

    Without --apply it prints what each would do. It may be killed at any moment, and run alongside all other
    processes. A job that fails stops no other. The exit code is 1 if one has failed. With --every it goes on.
    """
    given = settings_of(settings)
    pause_s = None if every is None else duration_ms("--every", every) / 1000
    if pause_s is not None and not apply:
        raise WrongUsage("--every without --apply would print the same again and again: add --apply")
    store = session.store()
    while True:
        with session.out.progress("maintain: sweep, retention, compact, rewrite, tables, vacuum …"):
            report = run_maintain(store, given, dry_run=not apply, run=session.run, timeout_s=session.job_timeout_s)
        _print(session, report)
        if pause_s is None:
            break
        store.log.clock.sleep(pause_s)
    if not apply:
        session.out.remark("nothing was changed: add --apply to do it")
    if report.failed:
        raise typer.Exit(FAILED)


def _print(session: Session, report: MaintenanceReport) -> None:
    """Print one object for programs; for people the jobs one after the other, without what is nothing."""
    row = msgspec.to_builtins(report)
    if session.out.json:
        session.out.row(row)
        return
    rows = [
        {"job": job, "what": name.replace("_", " "), "count": len(value) if isinstance(value, list | tuple) else value}
        for job in ("sweep", "retention", "compact", "rewrite", "tables", "vacuum")
        for name, value in (row[job] or {}).items()
        if value and name not in ("dry_run", "horizon", "segment_floor", "names", "entry", "unchanged")
    ]
    session.out.rows(rows, none="sweep, retention, compact, rewrite, tables and vacuum have found nothing to do")
    for job in report.failed:
        session.out.remark(f"{job.job} has failed: {job.error}")
