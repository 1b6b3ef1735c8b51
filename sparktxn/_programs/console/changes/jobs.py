"""Running one job of maintenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar, Final, Self

import msgspec

from sparktxn import maintenance
from sparktxn._programs.console.changes.change import Change, Field, Planned, Row
from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.requestparameters import RequestParameters, WrongRequest

JOBS: Final[Mapping[str, Callable[..., Any]]] = {
    "sweep": maintenance.sweep,
    "retention": maintenance.apply_retention,
    "compact": maintenance.compact,
    "rewrite": maintenance.rewrite,
    "tables": maintenance.publish_tables,
    "vacuum": maintenance.vacuum,
}
"""The jobs of `maintain`, in its order."""

_WITH_SETTINGS: Final = ("sweep", "compact", "rewrite", "vacuum")
_NAMES_MAX: Final = 100
_LISTED: Final = ", ".join(_WITH_SETTINGS)
_GROWING: Final = ("compact", "rewrite", "tables")
"""These change no record that a reader finds: what is committed until they run is a reason for no other preview."""
_GROWING_NOTE: Final = "It does what is due when it runs: records that are committed until then may be taken in, too."


def job_row(report: Any) -> dict[str, Any]:
    """Return the report of a job as data, with some of the names that it lists."""
    row: dict[str, Any] = msgspec.to_builtins(report)
    if "names" in row:
        row["names_left_out"] = max(0, len(row["names"]) - _NAMES_MAX)
        row["names"] = row["names"][:_NAMES_MAX]
    return row


class RunJob(Change, frozen=True):
    """One run of a job."""

    kind: ClassVar = "job"
    verb: ClassVar = "Run the job"
    is_job: ClassVar = True

    job: str
    settings: Mapping[str, str]

    @classmethod
    def title(cls, asked: RequestParameters) -> str:
        """Return the heading."""
        return f"Run {asked.choice('job', JOBS, 'sweep')}"

    @classmethod
    def fields(cls, source: Source, asked: RequestParameters) -> list[Field]:
        """Return the fields of its form."""
        jobs = tuple((job, job) for job in JOBS)
        return [
            Field(name="job", label="Job", kind="choice", value=asked.entered("job"), choices=jobs),
            Field(
                name="settings",
                label="Settings",
                kind="lines",
                value=asked.entered("settings"),
                help=f"One setting a line: name=value, such as vacuum.retention.ms=1d. For {_LISTED} only.",
            ),
        ]

    @classmethod
    def asked(cls, source: Source, asked: RequestParameters) -> Self:
        """Return the job that a form asks for."""
        job, settings = asked.choice("job", JOBS, "sweep"), asked.settings("settings")
        if settings and job not in _WITH_SETTINGS:
            raise WrongRequest(f"settings are given: {job} takes none, expected one of {_LISTED} with them")
        return cls(job, settings)

    def planned(self, source: Source) -> Planned:
        """Return what the job would do."""
        report = self._run(source, dry_run=True)
        return Planned(
            rows=[job_row(report)],
            notes=(_GROWING_NOTE,) if self.job in _GROWING else (),
            basis=None if self.job in _GROWING else _digest(report),
        )

    def still_holds(self, source: Source, planned: Planned) -> bool:
        """Return whether the job would end, remove and delete what the plan says, and nothing else."""
        return planned.basis is None or super().still_holds(source, planned)

    def apply(self, source: Source, planned: Planned) -> Sequence[Row]:
        """Run the job."""
        return [job_row(self._run(source, dry_run=False))]

    def address(self) -> str:
        """Return the page of all jobs."""
        return "/maintenance"

    def _run(self, source: Source, *, dry_run: bool) -> Any:
        given = [self.settings] if self.settings else []
        return JOBS[self.job](source.store, *given, dry_run=dry_run)


def _digest(report: Any) -> bytes:
    """Return a digest of what a report says, without the ages in it, which grow; names may be very many."""
    return sha256(msgspec.json.encode(_without_ages(msgspec.to_builtins(report)))).digest()


def _without_ages(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_ages(item) for name, item in value.items() if not name.endswith("after_ms")}
    if isinstance(value, list | tuple):
        return [_without_ages(item) for item in value]
    return value
