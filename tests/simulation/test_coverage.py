"""The scenarios do what they are for: a checker says nothing about what never happens."""

from __future__ import annotations

from collections import Counter

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, EndTxn, Rewrite
from sparktxn._engine.log.follow.confirm import read_horizon
from tests.simulation.scenarios import record, record_clients
from tests.simulation.simulator import Simulator
from tests.simulation.truth import replay

pytestmark = pytest.mark.simulation

SEEDS = range(40, 64)
"""As many are run as it takes to meet everything."""
FIRST = {"shared": (46,)}
"""Those that meet everything; others do if histories have changed."""


def happened(simulator: Simulator) -> Counter[str]:
    """What the log's commands say, and what is gone."""
    found: Counter[str] = Counter()
    horizon, carrying = read_horizon(simulator.shared), set()
    for truth in replay(simulator.shared, ()):
        for command in truth.commands:
            found[type(command).__name__] += 1
            found["compaction"] += isinstance(command, Rewrite) and command.compaction is not None
            if isinstance(command, Append):
                found["inline append" if command.data else "file append"] += 1
                carrying |= {names.entry(truth.entry)} if command.data and truth.entry < horizon else set()
            if isinstance(command, EndTxn):
                found["commit" if command.committed else "time-out" if command.timed_out_after_ms else "abort"] += 1
    for name in simulator.shared.history:
        gone = name not in simulator.shared.objects
        found["entry deleted"] += gone and names.parse_entry(name) is not None
        found["segment deleted"] += gone and name.startswith("topics/") and name.count("/") == 3
        found["sealed"] += name.endswith("/manifest")
        found["checkpoint"] += names.parse_checkpoint_head(name) is not None
    found["entry kept"] += len(carrying & simulator.shared.objects.keys())
    return found


OUTCOMES = {("committed", True), ("committed", False), ("aborted", False)}


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (
            "clients",
            {"inline append", "file append", "commit", "abort", "TxnOffsetCommit", "SettleIntent", "checkpoint"},
        ),
        (
            "maintained",
            {
                "time-out",
                "Vacuum",
                "entry deleted",
                "entry kept",
                "segment deleted",
                "sealed",
                "TxnOffsetCommit",
                "Rewrite",
                "compaction",
            },
        ),
        (
            "administered",
            {
                "DeleteTopic",
                "CreatePartitions",
                "DeleteRecords",
                "entry deleted",
                "SettleIntent",
                "Rewrite",
                "compaction",
            },
        ),
        ("prepared", {"PrepareTxn", "commit", "abort", "Vacuum"}),
        ("shared", {"commit", "abort", "time-out", "TxnOffsetCommit"}),
    ],
)
def test_clients_do_what_a_scenario_is_for(scenario: str, expected: set[str]) -> None:
    found: Counter[str] = Counter()
    outcomes: set[tuple[str, bool]] = set()
    for seed in dict.fromkeys((*FIRST.get(scenario, ()), *SEEDS)):
        simulator, history = record_clients(seed, scenario)
        found += happened(simulator)
        outcomes |= {(transaction.outcome.value, transaction.fused) for transaction in history.transactions}
        if expected <= set(found) and outcomes >= OUTCOMES:
            return
    assert expected <= set(found)
    assert outcomes >= OUTCOMES


def test_commands_do_what_a_scenario_is_for() -> None:
    found: Counter[str] = Counter()
    expected = {"commit", "abort", "OffsetCommit", "SettleIntent", "entry deleted", "sealed", "checkpoint"}
    expected |= {"inline append", "file append"}
    for seed in SEEDS:
        found += happened(record(seed, "vacuum")[0])
        if expected <= set(found):
            return
    raise AssertionError(f"none of the histories has {expected - set(found)}")


def test_clients_that_do_not_wait_meet_every_answer() -> None:
    """What they ask for is acknowledged, reported as failed, and given up while nothing is known."""
    met: set[str] = set()
    expected = {"SinkBatchCommit", "InitProducerId", "Append", "commit", "committed", "refused", "unknown"}
    expected |= {"delivery", "silence", "interrupt"}
    for seed in range(40, 80):
        simulator, history = record_clients(seed, "abandoned")
        met |= {what for what, times in (happened(simulator) + simulator.injected).items() if times}
        met |= {noted.outcome.value for noted in history.transactions}
        met |= {"delivery"} if history.deliveries else set()
        if expected <= met:
            return
    raise AssertionError(f"none of the histories has {expected - met}")
