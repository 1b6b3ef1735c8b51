"""The pages of a change: its form, its preview, and its result; and of what maintenance would do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sparktxn._programs.console.changes.change import Change, Row
from sparktxn._programs.console.changes.jobs import JOBS, job_row
from sparktxn._programs.console.changes.previews import Preview, PreviewOutcome, Previews
from sparktxn._programs.console.pagesource import Page, Source
from sparktxn._programs.console.pagetext import query, row_lines
from sparktxn._programs.console.requestparameters import RequestParameters
from sparktxn.maintenance import MaintenanceReport, maintain

_ROWS: Final = 500


def form(source: Source, previews: Previews, kind: type[Change], asked: RequestParameters, error: str = "") -> Page:
    """Return the form of a change with what was entered; `error` says what is wrong with that."""
    title = kind.title(asked)
    content = {
        "kind": kind.kind,
        "title": title,
        "address": _address(kind, asked),
        "fields": msgspec.to_builtins(kind.fields(source, asked)),
        "form_token": previews.form_token,
        "error": {"message": error} if error else None,
    }
    return Page("change.html", title, content)


def preview(source: Source, previews: Previews, kind: type[Change], asked: RequestParameters) -> Page:
    """Return what a change would do, and keep it, so that it can be applied once.

    Raises:
        WrongRequest, ConfigurationError: what was entered is wrong.
        KafkaException: the store would refuse it, or does not answer.
    """
    change = kind.asked(source, asked)
    title = kind.title(asked)
    planned = change.planned(source)
    content = {
        "kind": kind.kind,
        "title": title,
        "back": _address(kind, asked),
        **_rows(planned.rows, is_job=kind.is_job),
        "notes": planned.notes,
        "applied": False,
        "verb": kind.verb,
        "form_token": previews.form_token,
        "plan": previews.keep(Preview(change, title, planned)),
    }
    return Page("preview.html", f"{title}: preview", content)


def result(number: str, found: Preview, outcome: PreviewOutcome | None) -> Page:
    """Return what came of a preview; None while it is being applied."""
    is_done = outcome is not None and outcome.code == 200
    error = None
    if outcome is not None and not is_done:
        error = {"code": outcome.code, "title": _word(outcome).capitalize(), "message": outcome.message}
    content: dict[str, Any] = {
        "kind": found.change.kind,
        "title": found.title,
        "plan": number,
        **_rows(outcome.rows if outcome is not None else (), is_job=found.change.is_job),
        "applied": is_done,
        "error": error,
        "address": found.change.address(),
        "follow": outcome is None,
    }
    return Page("result.html", f"{found.title}: {_word(outcome)}", content)


def _word(outcome: PreviewOutcome | None) -> str:
    if outcome is None:
        return "being done"
    if not outcome.is_known:
        return "not known whether it was done"
    return "done" if outcome.code == 200 else "not done"


def _rows(rows: Sequence[Row], *, is_job: bool) -> dict[str, Any]:
    """Return rows for a table; the one row of a single thing is also shown line by line."""
    shown = list(rows[:_ROWS])
    return {
        "rows": shown,
        "rows_left_out": len(rows) - len(shown),
        "lines": list(row_lines(shown[0], empty=not is_job)) if len(shown) == 1 else None,
    }


def _address(kind: type[Change], asked: RequestParameters) -> str:
    return query(f"/change/{kind.kind}", **{name: asked.entered(name) or None for name in kind.subject})


# What maintenance would do now: each job is run dry, and writes nothing.


def maintenance(source: Source, asked: RequestParameters) -> Page:
    """Return what `maintain` would do, if `run` is 1: it lists the store's objects, which may take a while."""
    report: MaintenanceReport | None = None
    if asked.flag("run"):
        report = maintain(source.store, dry_run=True)
    jobs = [] if report is None else [(name, job_row(job)) for name in JOBS if (job := getattr(report, name))]
    content = {
        "ran": report is not None,
        "jobs": [{"job": name, "would": job, "lines": list(row_lines(job, empty=False))} for name, job in jobs],
        "failed": [] if report is None else msgspec.to_builtins(report.failed),
    }
    return Page("maintenance.html", "Maintenance", content)
