"""Compares what killed jobs, historians and pricers noted with what the store and its copy hold in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.crash.jobs_workload import newest_prices
from tests.crash.journal_checker import Note

__all__ = ["JobsEvidence", "check_jobs"]

PUT_OFF = ("call again", "time-out of")
"""What the errors of jobs say that did not come to their end, alongside vacuums or on a busy machine."""


class JobsEvidence(NamedTuple):
    """The notes by worker and incarnation, and the prices as (key, value) in the order of offsets by partition.

    `batches` are those that each pricer has committed, by its group's offset; `seed` says what they hold.
    """

    notes: Mapping[tuple[str, int], Sequence[Note]]
    prices: Mapping[int, Sequence[tuple[str, str | None]]]
    batches: Mapping[str, int]
    seed: int


def check_jobs(evidence: JobsEvidence) -> list[str]:
    """What is broken."""
    return [*_jobs(evidence), *_old_views(evidence), *_acknowledged(evidence), *_newest(evidence)]


def _notes(evidence: JobsEvidence, *whats: str) -> Iterator[tuple[str, Note]]:
    for (name, incarnation), notes in evidence.notes.items():
        for note in notes:
            if note["what"] in whats:
                yield f"{name}.{incarnation}", note


def _jobs(evidence: JobsEvidence) -> Iterator[str]:
    """No job fails but for lack of time or by vacuums that came first, and no verification finds anything."""
    for name, note in _notes(evidence, "job ends"):
        for failed in note.get("failed", ()):
            if not any(put_off in failed for put_off in PUT_OFF):
                yield f"failed job: {name}: {failed}"
    for name, note in _notes(evidence, "verified", "copied"):
        for problem in note["problems"]:
            yield f"damage: {name} has found at entry {note['entry']}: {problem}"


def _old_views(evidence: JobsEvidence) -> Iterator[str]:
    """A view that has not expired shows what it showed before."""
    for name, note in _notes(evidence, "read again"):
        if not note["same"]:
            yield f"views that change: {name} reads otherwise at entry {note['entry']}: {note['ranges']}"


def _acknowledged(evidence: JobsEvidence) -> Iterator[str]:
    """A batch that was acknowledged to a pricer counts among those of its offset."""
    for name, note in _notes(evidence, "priced"):
        if note["batches"] > evidence.batches[name.rpartition(".")[0]]:
            yield f"lost write: {name} has committed {note['batches']} batches, and its offset is lower"


def _newest(evidence: JobsEvidence) -> Iterator[str]:
    """The newest record of each key is that of the last batch which changed it, and no key has a batch twice."""
    found: dict[str, str | None] = {}
    seen = set()
    for rows in evidence.prices.values():
        for key, value in rows:
            if value is not None and (key, value) in seen:
                yield f"exactly once: batch {value} of key {key} is there twice"
            seen.add((key, value))
            found[key] = value
    for name, batches in evidence.batches.items():
        for key, expected in newest_prices(evidence.seed, name, batches).items():
            # A tombstone may be gone, together with all older records of its key.
            if found.pop(key, None) != expected:
                yield f"lost or old price: key {key} is not {expected} after {batches} batches"
    for key, value in found.items():
        yield f"a price from nowhere: {key} is {value}"
