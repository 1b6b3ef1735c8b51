"""What maintenance would do now: each job is run dry, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sparktxn.console.asked import Asked
from sparktxn.console.shown import cell, duration, number, size
from sparktxn.console.shownstore import Page, Source
from sparktxn.maintenance import maintain

__all__ = ["maintenance"]

_NAMES_MAX: Final = 100
_ITEMS_MAX: Final = 20
_LEFT_OUT: Final = ("dry_run", "names", "names_left_out")


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
        "jobs": [{"job": name, "would": job, "lines": list(_lines(job))} for name, job in jobs],
        "failed": [] if report is None else report["failed"],
    }
    return Page("maintenance.html", "Maintenance", content)


def _lines(job: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield what a job would do as it is read: names, and the items of lists on lines of their own."""
    for name, value in job.items():
        if not value or name in _LEFT_OUT:
            continue
        items = value if isinstance(value, list | tuple) else [value]
        is_size = name.endswith("size_bytes")
        shown_items = [size(item) if is_size else _item(item) for item in items[:_ITEMS_MAX]]
        if len(items) > _ITEMS_MAX:
            shown_items.append(f"and {number(len(items) - _ITEMS_MAX)} more")
        yield name.replace("_", " "), shown_items


def _item(item: Any) -> str:
    if not isinstance(item, dict):
        return cell(item)
    shown = {name: duration(value) if name.endswith("after_ms") else cell(value) for name, value in item.items()}
    return ", ".join(f"{name.removesuffix('_ms').replace('_', ' ')} {value}" for name, value in shown.items())
