"""The jobs of maintenance: `txnlog maintain`, which runs all of them, and each job alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from sparktxn import maintenance
from sparktxn._foundation.config.maintenance import COMPACT_SETTINGS, REWRITE_SETTINGS, SWEEP_SETTINGS, VACUUM_SETTINGS
from sparktxn._foundation.values.quantities import time_text
from sparktxn._programs.cli import completion
from sparktxn._programs.cli.address import settings_of
from sparktxn._programs.cli.failures import FAILED, WrongUsage, quantity
from sparktxn._programs.cli.session import Session
from sparktxn._programs.cli.verb import Apply, argument, option, set_option, verb
from sparktxn.store.options import MILLISECONDS

app = typer.Typer()


@verb(
    app,
    "maintain",
    examples=[
        "txnlog maintain",
        "txnlog maintain --apply",
        "txnlog maintain --apply --set vacuum.retention.ms=1d",
    ],
)
def maintain(
    session: Session,
    settings: Annotated[
        list[str] | None, set_option("any job", SWEEP_SETTINGS, COMPACT_SETTINGS, REWRITE_SETTINGS, VACUUM_SETTINGS)
    ] = None,
    every: Annotated[
        str | None,
        option("--every", metavar="DURATION", help="Again after so long, such as 30m or 1h, until it is ended."),
    ] = None,
    apply: Apply = False,
) -> None:
    """Run all jobs, as the settings of topics say: sweep, retention, compact, rewrite, tables, vacuum.

    Without --apply it prints what each would do. It may be killed at any moment, and run alongside all other
    processes. A job that fails stops no other. The exit code is 1 if one has failed. With --every it goes on.
    """
    given = settings_of(settings)
    pause_s = None if every is None else quantity("--every", every, MILLISECONDS) / 1000
    if pause_s is not None and not apply:
        raise WrongUsage("--every without --apply would print the same again and again: add --apply")
    store = session.store()
    while True:
        with session.out.progress("maintain: sweep, retention, compact, rewrite, tables, vacuum …"):
            report = maintenance.maintain(
                store, given, dry_run=not apply, run=session.run, timeout_s=session.job_timeout_s
            )
        _print(session, report)
        if pause_s is None:
            break
        store.log.clock.sleep(pause_s)
    if not apply:
        session.out.remark("nothing was changed: add --apply to do it")
    if report.failed:
        raise typer.Exit(FAILED)


def _print(session: Session, report: maintenance.MaintenanceReport) -> None:
    """Print one object for programs; for people the jobs one after the other, without what is nothing."""
    row = msgspec.to_builtins(report)
    if session.out.json:
        session.out.row(row)
        return
    rows = [
        {"job": job, "what": name.replace("_", " "), "count": len(value) if isinstance(value, list | tuple) else value}
        for job in ("sweep", "retention", "compact", "rewrite", "tables", "vacuum")
        for name, value in (row[job] or {}).items()
        if value and name not in ("dry_run", "horizon", "segment_floor", "names", "limits", "entry", "unchanged")
    ]
    if rows or not report.failed:
        session.out.rows(rows, none="sweep, retention, compact, rewrite, tables and vacuum have found nothing to do")
    for job in report.failed:
        session.out.remark(f"{job.job} has failed: {job.error}")


@verb(app, "retention", examples=["txnlog retention", "txnlog retention orders --apply"])
def retention(
    session: Session,
    topics: Annotated[
        list[str] | None,
        argument(metavar="[TOPIC…]", help="Names of topics; none: all.", autocompletion=completion.topics),
    ] = None,
    apply: Apply = False,
) -> None:
    """Remove the oldest records of topics, as their settings retention.ms and retention.bytes say.

    Without --apply it prints the new log starts. The vacuum deletes the files later.
    """
    _done(session, maintenance.apply_retention, topics or None, apply, "retention: finding old segments")
    if not apply:
        session.out.remark("nothing was removed: add --apply to remove these records")


@verb(
    app,
    "compact",
    examples=[
        "txnlog compact",
        "txnlog compact --apply",
        "txnlog compact --set compact.dedupe.buffer.bytes=256MiB --apply",
    ],
)
def compact(
    session: Session,
    topics: Annotated[
        list[str] | None,
        argument(
            metavar="[TOPIC]…",
            help="Names of topics; all that are compacted without any.",
            autocompletion=completion.topics,
        ),
    ] = None,
    settings: Annotated[list[str] | None, set_option("the compaction", COMPACT_SETTINGS)] = None,
    apply: Apply = False,
) -> None:
    """Leave only the newest record of each key in topics whose cleanup.policy has compact.

    Without --apply it prints what would be compacted. Offsets stay as they are, and so do views from before. It may run
    alongside writers, readers, rewrites and other compactions.
    """
    given = settings_of(settings) | ({"compact.topics": ",".join(topics)} if topics else {})
    doing = "compact: reading keys" if apply else "compact: finding partitions"
    report = _done(session, maintenance.compact, given, apply, doing, run=session.run)
    if not apply:
        session.out.remark("nothing was compacted: add --apply to compact these partitions")
    elif report.lost or report.unresolved:
        session.out.remark("some partitions were not compacted in time, or others came first: run it again")


@verb(
    app,
    "rewrite",
    examples=[
        "txnlog rewrite",
        "txnlog rewrite orders trips --apply",
        "txnlog rewrite orders --set rewrite.min.age.ms=1h --apply",
    ],
)
def rewrite(
    session: Session,
    topics: Annotated[
        list[str] | None,
        argument(metavar="[TOPIC]…", help="Names of topics; all topics without any.", autocompletion=completion.topics),
    ] = None,
    settings: Annotated[list[str] | None, set_option("the rewrite", REWRITE_SETTINGS)] = None,
    apply: Apply = False,
) -> None:
    """Merge small segments into large Parquet files, without aborted records.

    Without --apply it prints what would be merged. Records and offsets stay as they are. It may run alongside writers,
    readers and other rewrites.
    """
    given = settings_of(settings) | ({"rewrite.topics": ",".join(topics)} if topics else {})
    store = session.store()
    run = partial(maintenance.rewrite, store, given, run=session.run, timeout_s=session.job_timeout_s)
    report = session.measured("rewrite: finding small segments", store, run, apply=apply)
    session.out.row(msgspec.to_builtins(report))
    if not apply:
        session.out.remark("nothing was merged: add --apply to merge these files")
    elif report.lost or report.unresolved:
        session.out.remark("some ranges were not merged in time, or others came first: run it again")


@verb(
    app,
    "vacuum",
    examples=[
        "txnlog vacuum",
        "txnlog vacuum --apply",
        "txnlog vacuum --set vacuum.retention.ms=1d --names",
        "txnlog vacuum --set vacuum.retention.ms=0 --now --apply",
    ],
)
def vacuum(
    session: Session,
    settings: Annotated[list[str] | None, set_option("the vacuum", VACUUM_SETTINGS)] = None,
    names: Annotated[bool, typer.Option("--names", help="Print what would be deleted, by name.")] = False,
    now: Annotated[
        bool,
        typer.Option("--now", help="First write the two checkpoints that the vacuum goes by, if they are not there."),
    ] = False,
    apply: Apply = False,
) -> None:
    """Delete entries, checkpoints, segments and left-overs that retention does not keep.

    Without --apply it prints what would be deleted. It says what keeps the rest, and until when. With --now what the
    settings allow is deleted at once. It may run alongside writers, readers and other vacuums.
    """
    doing = "vacuum: verifying checkpoints, finding what is not needed"
    report = _done(session, maintenance.vacuum, settings_of(settings), apply, doing, lists_names=names, now=now)
    if names and not session.out.json:
        for name in report.names:
            session.out.line(name)
    for limit in () if session.out.json else report.limits:
        until = "" if limit.until_ms is None else f"; until {time_text(limit.until_ms)}"
        session.out.line(f"kept ({limit.reason}): {limit.text}{until}")
    if report.overtaken:
        session.out.remark("other vacuums were ahead of this one: it has deleted nothing")
    elif not apply:
        session.out.remark("nothing was deleted: add --apply to delete these objects")


@verb(
    app,
    "sweep",
    examples=[
        "txnlog sweep",
        "txnlog sweep --apply",
        "txnlog sweep --set transactional.id.expiration.ms=1d --json",
    ],
)
def sweep(
    session: Session,
    settings: Annotated[list[str] | None, set_option("the sweep", SWEEP_SETTINGS)] = None,
    apply: Apply = False,
) -> None:
    """End transactions and memberships of groups that have timed out; forget what is idle.

    Idle are transactional ids, producers, offsets of groups without members, and those for deleted topics.

    Without --apply it prints what would be done. It may run alongside all other processes, and other sweeps.
    """
    _done(session, maintenance.sweep, settings_of(settings), apply, "sweep: reading the state")
    if not apply:
        session.out.remark("nothing was changed: add --apply to do it")


def _done(
    session: Session,
    job: Callable[..., Any],
    given: object,
    apply: bool,
    doing: str,
    lists_names: bool = False,
    **more: Any,
) -> Any:
    """Run a job of the store, print its report, and return it; names of objects are printed only if asked for."""
    store = session.store()
    with session.out.progress(f"{doing} …"):
        report = job(store, given, dry_run=not apply, timeout_s=session.job_timeout_s, **more)
    row = msgspec.to_builtins(report)
    names = row.pop("names", ())
    if not session.out.json:
        row.pop("limits", None)
    session.out.row(row | ({"names": list(names)} if lists_names and session.out.json else {}))
    return report
