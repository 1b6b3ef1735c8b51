"""Writers, readers at old views and all jobs of maintenance as processes that are killed, and the verdict over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.jobs import under_kills
from tests.crash.jobs_checker import JobsEvidence, check_jobs
from tests.crash.jobs_workload import newest_prices, prices_of

pytestmark = pytest.mark.crash

SEED = 5
NAME = "pricer-0"


def checked(folder: Path, seed: int, kills: int, gap_s: float) -> None:
    outcome = under_kills(folder, seed, kills, gap_s)
    print(outcome.report)
    assert outcome.problems == []
    assert outcome.report.kills == kills
    for what in ("priced", "job ends", "read again", "committed", "saw", "folds"):
        assert outcome.report.notes[what], f"no process has noted {what!r}: the test shows nothing"


def test_jobs_writers_and_readers_under_a_few_kills(tmp_path: Path, seed: int) -> None:
    checked(tmp_path, seed, kills=3, gap_s=0.3)


@pytest.mark.nightly
@pytest.mark.parametrize("run", range(4))
def test_jobs_writers_and_readers_under_many_kills(tmp_path: Path, seed: int, run: int) -> None:
    """Twenty minutes in four stores; `python -m tests.crash.jobs --seconds 3600` is an hour in one store."""
    checked(tmp_path, seed, kills=500, gap_s=0.6)


def good() -> JobsEvidence:
    """Thirty batches of a pricer, all its records, and a journal for each kind of note."""
    rows: dict[int, list[tuple[str, str | None]]] = {0: [], 1: []}
    for batch in range(30):
        for key, value in prices_of(SEED, NAME, batch):
            rows[int(key.rpartition("/")[2]) % 2].append((key, value))
    notes: dict[tuple[str, int], list[dict[str, Any]]] = {
        (NAME, 0): [{"what": "priced", "batches": 30}],
        ("verifier-0", 0): [{"what": "verified", "entry": 9, "problems": []}],
        ("copier-0", 1): [{"what": "copied", "entry": 9, "problems": []}],
        ("historian-0", 2): [{"what": "read again", "entry": 4, "same": True, "ranges": []}],
        ("maintainer-0", 0): [{"what": "job ends", "failed": ["FailedJob(job='vacuum', error='… call again')"]}],
    }
    return JobsEvidence(notes, rows, {NAME: 30}, SEED)


def test_what_is_right_is_not_accused() -> None:
    assert check_jobs(good()) == []


def test_only_the_newest_may_be_left() -> None:
    evidence = good()
    newest = newest_prices(SEED, NAME, 30)
    left = {place: [row for row in rows if newest[row[0]] == row[1]] for place, rows in evidence.prices.items()}
    assert sum(map(len, left.values())) < sum(map(len, evidence.prices.values()))
    assert check_jobs(evidence._replace(prices=left)) == []
    alive = {place: [row for row in rows if row[1] is not None] for place, rows in left.items()}
    assert check_jobs(evidence._replace(prices=alive)) == [], "a tombstone may be gone with what it removed"


def without_the_newest(evidence: JobsEvidence) -> JobsEvidence:
    rows = list(evidence.prices[0])
    key = rows[-1][0]
    return evidence._replace(prices={**evidence.prices, 0: [row for row in rows if row[0] != key]})


def with_an_old_one_behind(evidence: JobsEvidence) -> JobsEvidence:
    rows = list(evidence.prices[0])
    key, value = rows[-1]
    return evidence._replace(prices={**evidence.prices, 0: [*rows, (key, "0" if value != "0" else "1")]})


def twice(evidence: JobsEvidence) -> JobsEvidence:
    rows = list(evidence.prices[1])
    row = next(row for row in rows if row[1] is not None)
    return evidence._replace(prices={**evidence.prices, 1: [row, *rows]})


def aborted(evidence: JobsEvidence) -> JobsEvidence:
    return evidence._replace(prices={**evidence.prices, 0: [*evidence.prices[0], ("pricer-0/99", "aborted")]})


def fewer_batches(evidence: JobsEvidence) -> JobsEvidence:
    return evidence._replace(batches={NAME: 29})


def noted(name: str, **members: Any) -> Any:
    def change(evidence: JobsEvidence) -> JobsEvidence:
        notes = {
            key: [{**note, **members} for note in some] if key[0] == name else some
            for key, some in evidence.notes.items()
        }
        return evidence._replace(notes=notes)

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (without_the_newest, "lost or old price"),
        (with_an_old_one_behind, "lost or old price"),
        (twice, "exactly once"),
        (aborted, "a price from nowhere"),
        (fewer_batches, "lost write"),
        (noted("verifier-0", problems=["a segment is damaged"]), "damage"),
        (noted("copier-0", problems=["a segment is damaged"]), "damage"),
        (noted("historian-0", same=False), "views that change"),
        (noted("maintainer-0", failed=["FailedJob(job='rewrite', error='a segment is damaged')"]), "failed job"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_breaks_a_guarantee_is_found(change: Any, expected: str) -> None:
    assert any(found.startswith(expected) for found in check_jobs(change(good())))
