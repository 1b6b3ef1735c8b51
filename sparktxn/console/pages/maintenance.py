"""What maintenance would do now: each job is run dry, and writes nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from sparktxn.console.asked import Asked
from sparktxn.console.source import Page, Source
from sparktxn.maintenance import maintain

__all__ = ["maintenance"]

_NAMES_MAX = 100


def maintenance(source: Source, asked: Asked) -> Page:
    """Return what `maintain` would do, if `run` is 1: it lists the store's objects, which may take a while."""
    report: dict[str, Any] | None = None
    if asked.flag("run"):
        report = msgspec.to_builtins(maintain(source.store, dry_run=True))
        vacuum = report["vacuum"]
        if vacuum is not None:
            vacuum["names_left_out"] = max(0, len(vacuum["names"]) - _NAMES_MAX)
            vacuum["names"] = vacuum["names"][:_NAMES_MAX]
    jobs = [] if report is None else [(name, job) for name, job in report.items() if isinstance(job, dict)]
    content = {
        "ran": report is not None,
        "jobs": [{"job": name, "would": job} for name, job in jobs],
        "failed": [] if report is None else report["failed"],
    }
    return Page("maintenance.html", "Maintenance", content)
