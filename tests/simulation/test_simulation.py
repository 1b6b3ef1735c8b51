"""Histories of many processes, one seed each: a few fixed ones, and new ones each night.

`python -m tests.simulation.simulate --scenario clients --seed 7` replays one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from sparktxn._engine.log.follow.follower import Follower
from sparktxn.maintenance.reachable import Marks
from sparktxn.maintenance.vacuuming import garbage
from sparktxn.maintenance.vacuuming.garbage import Garbage
from sparktxn.testing.faultystore import Fault
from tests.seeds import seed_of, share
from tests.simulation import simulate as command
from tests.simulation.scenarios import (
    SCENARIOS,
    Told,
    record_clients,
    simulate,
)

pytestmark = pytest.mark.simulation

BY_DAY, BY_NIGHT = 3, 100
"""How many histories of a scenario are run."""
TRACES = """
import logging
import sys
from tests.simulation.scenarios import simulate
logging.getLogger("sparktxn").setLevel(logging.CRITICAL + 1)
for scenario in sys.argv[1:]:
    print(scenario, simulate(3, scenario).trace)
"""


@pytest.mark.kafka("K138")
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("count", [BY_DAY, pytest.param(BY_NIGHT, marks=pytest.mark.nightly)])
def test_all_guarantees_hold(scenario: str, count: int) -> None:
    # The scenarios draw from their seeds alike, so that each has other ones.
    first = seed_of(f"{count} histories of {scenario}", fixed=10_000 * SCENARIOS.index(scenario))
    failures = command.run_seeds(scenario, range(first, first + count)).failures
    replays = [f"python -m tests.simulation.simulate --scenario {scenario} --seed {seed}" for _, seed, _ in failures]
    assert not failures, f"{failures}\nreplay: {replays}"


@pytest.mark.parametrize("scenario", share(SCENARIOS, 1, 4))
def test_one_seed_is_one_history(scenario: str) -> None:
    trace = simulate(0, scenario).trace
    assert simulate(0, scenario).trace == trace
    assert simulate(1, scenario).trace != trace


def test_one_seed_is_one_history_in_every_process() -> None:
    scenarios = share(SCENARIOS, 0, 4)
    told = [
        subprocess.run(
            [sys.executable, "-c", TRACES, *scenarios],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    ]
    assert told[0] == told[1]
    assert told[0].count("\n") == len(scenarios)


def test_every_kind_of_fault_is_met() -> None:
    drawn = set(Fault) - {Fault.NONE, Fault.DENIED}
    missing = {fault.value for fault in drawn} | {"pause", "burst", "clock skew"}
    for seed in range(40):
        missing -= {kind for kind, times in simulate(seed, "commit").faults.items() if times}
        if not missing:
            return
    raise AssertionError(f"no history meets {missing}")


def test_a_history_in_a_hundred_has_parquet_segments() -> None:
    formats = {
        seed: {name.rpartition(".")[2] for name in _segments(record_clients(seed, inline_bytes=0)[0].shared.history)}
        for seed in (98, 99)
    }
    assert formats == {98: {"arrow"}, 99: {"parquet"}}


def _segments(names: dict[str, bytes]) -> list[str]:
    return [name for name in names if name.startswith("topics/") and name.count("/") == 3]


def _first_failure(scenario: str, seeds: Iterable[int], says: str = "") -> str | None:
    """Return the first failure that `says` so; a build that is wrong may fail in other ways before, or have no end."""
    for seed in seeds:
        try:
            simulate(seed, scenario)
        except Exception as error:
            if says in str(error):
                return f"seed {seed}: {error}"
    return None


def test_without_confirming_a_history_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Follower, "is_confirmed", lambda self, slot=None: True)
    # Seed 51 finds it; others do if histories have changed.
    assert _first_failure("vacuum", (51, *range(100)))


def test_without_kept_entries_a_history_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vacuum that deletes each entry below the horizon deletes inline records that readers need."""

    def find_garbage(objects: Any, checkpoints: Any, marks: Marks, *rest: Any) -> Garbage:
        marks.entries.clear()
        return garbage.find_garbage(objects, checkpoints, marks, *rest)

    monkeypatch.setattr(sys.modules["sparktxn.maintenance.vacuuming.vacuum"], "find_garbage", find_garbage)
    assert _first_failure("overtaken", range(90_000, 90_040), "does not exist")
    assert _first_failure("maintained", range(20_006, 20_030), "is missing")


def test_the_command_names_the_seeds_that_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def odd_seeds_fail(seed: int, scenario: str, *, traced: bool) -> Told:
        assert seed % 2 == 0, "odd"
        return Told("trace", 10, 5, Counter({"late": 2}))

    monkeypatch.setattr(command, "simulate", odd_seeds_fail)
    assert command.main(["--start", "2", "--seeds", "4", "--scenario", "commit", "--processes", "1"]) == 1
    told = capsys.readouterr().out
    assert "4 histories in" in told
    assert "20 client operations" in told
    assert "10 log entries" in told
    assert "faults injected: 4 late" in told
    assert "seed 3 of commit fails: AssertionError: odd" in told
    assert "--scenario commit --seed 3" in told
    assert "2 failed" in told


def test_the_command_runs_in_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "4", "--scenario", "commit"]) == 0
    assert "4 histories in" in capsys.readouterr().out
