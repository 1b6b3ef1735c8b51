"""Clients of two gateways go on after each kill and each restart, and nothing is lost, doubled or torn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.peers import CannotInstallError
from tests.liveness.judged import faults_of
from tests.liveness.judging import Outcomes, lost_to_the_group, outcomes, stood_still, wrong_in_the_store
from tests.liveness.plans import all_clients, only_aiokafka
from tests.liveness.program import BATCH, value_of
from tests.liveness.run import Kind, Plan, Said
from tests.seeds import seed_of

LIMIT_S = 15.0
PATIENT_S = 60.0
"""What a test by day allows: the machine has other work."""


def test_clients_go_on_after_a_kill_and_a_restart(tmp_path: Path) -> None:
    plan = only_aiokafka(blows=2, every_s=3.0, limit_s=PATIENT_S, member_s=12.0, seed=seed_of("restarts"))
    assert faults_of(plan, tmp_path) == []


@pytest.mark.nightly
def test_clients_of_three_libraries_go_on(tmp_path: Path) -> None:
    """The same for 20 minutes: `python -m tests.liveness`."""
    try:
        plan = all_clients(blows=5, every_s=30.0, limit_s=LIMIT_S, seed=seed_of("restarts"))
    except (CannotInstallError, OSError, AssertionError) as error:
        pytest.skip(f"Java, its jars or confluent-kafka cannot be had here: {error}")
    assert faults_of(plan, tmp_path) == []


KIND = Kind("java", True)
PLAN = Plan((KIND,), (), blows=0, every_s=1.0, limit_s=LIMIT_S)
COMMITTED = Said(1.0, KIND.name, "committed 1")


def values(number: int, *missing: int) -> list[bytes]:
    return [value_of(KIND.name, number, place).encode() for place in range(BATCH) if place not in missing]


@pytest.mark.parametrize(
    ("said", "stored", "word"),
    [
        (COMMITTED, values(1, 3), "lost"),
        (COMMITTED, [*values(1), *values(1)[:1]], "2 times"),
        (Said(1.0, KIND.name, "aborted 1"), values(1), "which was aborted"),
        (Said(1.0, KIND.name, "unknown 1"), values(1, 0), "torn"),
        (COMMITTED, values(1)[::-1], "changed places"),
    ],
)
def test_what_is_wrong_in_a_store_is_found(said: Said, stored: list[bytes], word: str) -> None:
    assert wrong_in_the_store(PLAN, [COMMITTED], [values(1)]) == []
    assert word in str(wrong_in_the_store(PLAN, [said], [stored]))


def test_what_members_have_not_read_or_read_of_an_aborted_transaction_is_found() -> None:
    read = Said(2.0, "member-1", f"read 0 {' '.join(value.decode() for value in values(1, 0))}")
    assert lost_to_the_group([read], [values(1, 0)]) == []
    assert lost_to_the_group([read], [values(1)]) == [f"{value_of(KIND.name, 1, 0)} was never read"]
    assert "is not there" in str(lost_to_the_group([read], [values(1, 0, 1)]))


def test_who_has_stood_still_is_found() -> None:
    said = [COMMITTED, Said(4.0, KIND.name, "committed 2"), Said(5.0, "member-1", "read 3 a"), Said(6.0, "x", "closed")]
    expected = [KIND.name, "partition 3", "partition 4"]
    still = stood_still(expected, said, 0.5, 10.0)
    assert still == {KIND.name: (6.0, 4.0), "partition 3": (5.0, 5.0), "partition 4": (9.5, 0.5)}
    assert outcomes(said) == {KIND.name: Outcomes({1, 2}, set(), set())}
