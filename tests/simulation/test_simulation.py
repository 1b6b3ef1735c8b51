"""Histories of many clients, one seed each; SPARKTXN_SIM_SEEDS=7,8 replays some."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from sparktxn.log.follower import Follower
from sparktxn.testing import simulate as command
from sparktxn.testing.scenarios import SCENARIOS, simulate

pytestmark = pytest.mark.simulation

SEEDS = {"commit": range(60), "vacuum": range(1_000, 1_040)}


def seeds(scenario: str) -> list[int]:
    given = os.environ.get("SPARKTXN_SIM_SEEDS")
    return [int(seed) for seed in given.split(",")] if given else list(SEEDS[scenario])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Faults are what is wanted here: formatting a warning for each would cost more than the histories."""
    logger = logging.getLogger("sparktxn")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


@pytest.mark.kafka("K138")
@pytest.mark.parametrize(
    ("scenario", "seed"), [(scenario, seed) for scenario in sorted(SCENARIOS) for seed in seeds(scenario)]
)
def test_all_guarantees_hold_in_history(scenario: str, seed: int) -> None:
    try:
        simulate(seed, scenario)
    except Exception as error:
        error.add_note(f"replay: python -m sparktxn.testing.simulate --scenario {scenario} --seed {seed}")
        raise


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_one_seed_is_one_history(scenario: str) -> None:
    traces = {seed: simulate(seed, scenario) for seed in range(5)}
    assert {seed: simulate(seed, scenario) for seed in range(5)} == traces
    assert len(set(traces.values())) == len(traces)


def _first_failure(scenario: str, seeds: range) -> str | None:
    for seed in seeds:
        try:
            simulate(seed, scenario)
        except Exception as error:
            return f"seed {seed}: {error}"
    return None


def test_without_confirming_a_history_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Follower, "is_confirmed", lambda self, slot=None: True)
    assert _first_failure("vacuum", range(100))


def test_the_command_names_the_seeds_that_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def odd_seeds_fail(seed: int, scenario: str) -> str:
        assert seed % 2 == 0, "odd"
        return "trace"

    monkeypatch.setattr(command, "simulate", odd_seeds_fail)
    assert command.main(["--start", "2", "--seeds", "4"]) == 1
    told = capsys.readouterr().out
    assert "seed 3 of commit fails: AssertionError: odd" in told
    assert "4 histories of commit" in told
    assert "--seed 3" in told
