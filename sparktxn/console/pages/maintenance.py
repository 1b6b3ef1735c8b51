"""What maintenance would do now: each job is run dry, and writes nothing."""

from __future__ import annotations

import msgspec

from sparktxn.console.changes.jobs import JOBS, job_row
from sparktxn.console.requestparameters import RequestParameters
from sparktxn.console.shown import row_lines
from sparktxn.console.shownstore import Page, Source
from sparktxn.maintenance import MaintenanceReport, maintain

__all__ = ["maintenance"]


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
