"""Spark's queries write each row once, whatever is killed and whenever: a run with all points, and a nightly one.

`tests/kills/checker.py` judges by PROTOCOL.md alone. Builds without a rule of the sink must fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.kills.blows import POINTS, Blow
from tests.kills.broken import BUILDS
from tests.kills.plan import CLOUDS, MASTERS, STORES, choose_blows, choose_query, every_point
from tests.kills.queries import Query
from tests.kills.stores import under_kills
from tests.kills.supervisor import Report
from tests.seeds import seed_of

pytestmark = [pytest.mark.spark, pytest.mark.crash]

NIGHTLY_BATCHES = 200
CLOUD_BATCHES = 16
BROKEN_BLOWS = {
    "identity-ignored": Blow("commit-end", "raise", 1),
    "topic-by-topic": Blow("entry-after", "raise", 1),
    "segment-lost": Blow("entry-after", "raise", 1),
}


def short(folder: Path, batches: int) -> Query:
    """Return a query whose micro-batches have other rows when they run again."""
    return Query(f"{folder}/store", {}, f"{folder}/run", "file", "sink", False, True, batches, MASTERS[0])


@pytest.mark.kafka("K138")
def test_errors_and_kills_at_every_point_leave_each_row_once(tmp_path: Path) -> None:
    query = short(tmp_path, 9)
    blows = every_point(query)
    with under_kills("local", tmp_path) as place:
        report = place.run(query, blows, seed=1)
    assert not report.findings.problems, report
    assert report.findings.batches == 9
    assert sum(report.dealt.values()) == len(blows), report
    assert {name.split()[0] for name in report.dealt} == set(POINTS), report


def broken_run(folder: Path, build: str) -> Report:
    with under_kills("local", folder) as place:
        return place.run(short(folder, 3), [BROKEN_BLOWS[build]], seed=1, broken=build)


@pytest.mark.nightly
@pytest.mark.parametrize("build", sorted(BUILDS))
def test_a_build_without_a_rule_is_caught(tmp_path: Path, build: str) -> None:
    problems = "\n".join(broken_run(tmp_path, build).findings.problems)
    assert problems
    if build == "identity-ignored":
        assert "10 numbers are there more than once" in problems


def long_run(folder: Path, seed: int, store: str, batches: int) -> Report:
    with under_kills(store, folder) as place:
        query = choose_query(seed, batches, store, place.uri, place.options, folder / "run")
        report = place.run(query, choose_blows(query, seed), seed)
    print(report)
    assert not report.findings.problems, report
    return report


@pytest.mark.nightly
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("number", range(2))
def test_a_long_query_under_all_blows_writes_each_row_once(tmp_path: Path, number: int, store: str) -> None:
    long_run(tmp_path, seed_of(f"{store} {number}", 1 + number), store, NIGHTLY_BATCHES)


@pytest.mark.clouds
@pytest.mark.nightly
@pytest.mark.parametrize("store", CLOUDS)
def test_a_query_on_an_emulator_of_a_cloud_writes_each_row_once(tmp_path: Path, store: str) -> None:
    report = long_run(tmp_path, 1, store, CLOUD_BATCHES)
    assert {name.split()[0] for name in report.dealt} >= set(POINTS), report
