"""Conditional commits under faults: they commit and are refused, and a build that does not check them is found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktxn._engine.format.commands import CommandResult, ExpectEndOffset
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.rules import RULES
from tests.handlers import handle
from tests.simulation.history import Outcome
from tests.simulation.scenarios import record_clients, simulate

pytestmark = pytest.mark.simulation

SEEDS = range(16)


def test_deciders_commit_and_are_refused() -> None:
    committed = refused = 0
    for seed in SEEDS:
        _, history = record_clients(seed, "conditional")
        for transaction in history.transactions:
            committed += bool(transaction.expected) and transaction.outcome is Outcome.COMMITTED
            # A transaction that was to commit has ended otherwise.
            refused += bool(transaction.expected) and transaction.ending >= 0 and transaction.outcome is Outcome.ABORTED
        if committed > 10 and refused > 2:
            return
    raise AssertionError(f"{committed} committed, {refused} refused")


def simulate_all() -> None:
    for seed in SEEDS:
        simulate(seed, "conditional")


def test_a_build_that_does_not_check_expectations_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = RULES[ExpectEndOffset].handler

    def unchecked(delta: Delta, command: ExpectEndOffset, context: Context) -> CommandResult | Refusal:
        end = delta.get(("partition", command.topic_id, command.partition)).log_end_offset
        return handler(delta, replace(command, log_end_offset=end), context)

    handle(monkeypatch, ExpectEndOffset, unchecked)
    with pytest.raises(AssertionError, match="it expected"):
        simulate_all()
