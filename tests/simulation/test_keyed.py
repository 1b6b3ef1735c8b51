"""Keyed topics under faults: histories meet what they are for, and a build without rule K is found."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from sparktxn._engine.format.commands import CommandResult, CreateTopic
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.rules import RULES
from sparktxn._rows.stage.stagedsegment import StagedSegment
from sparktxn._rows.stage.transactionwriter import TransactionWriter
from sparktxn.producer.outbox import Outbox
from tests.handlers import handle
from tests.simulation.clientcheckers import check_keyed_order
from tests.simulation.clienthistory import Batch
from tests.simulation.history import Outcome
from tests.simulation.scenarios import record_clients, simulate

pytestmark = pytest.mark.simulation

SEEDS = range(16)


def test_transactions_of_keyed_topics_commit_abort_and_flush() -> None:
    met = {(outcome, fused): 0 for outcome in (Outcome.COMMITTED, Outcome.ABORTED) for fused in (True, False)}
    mixed = 0
    for seed in SEEDS:
        _, history = record_clients(seed, "keyed")
        for transaction in history.transactions:
            topics = {topic for topic, _, _ in transaction.sent}
            if topics & history.keyed_topics:
                what = (transaction.outcome, transaction.fused)
                met[what] = met.get(what, 0) + 1
                mixed += transaction.outcome is Outcome.COMMITTED and bool(topics - history.keyed_topics)
    assert min(met.values()) > 2, met
    assert mixed > 2


def without_rule_k(patch: pytest.MonkeyPatch) -> None:
    """Rows with a key are appended inside of their transaction, as other records are."""
    create = RULES[CreateTopic].handler
    append = TransactionWriter._append

    def created(delta: Delta, command: CreateTopic, context: Context) -> CommandResult | Refusal:
        answer = create(delta, command, context)
        if isinstance(answer, CommandResult):
            for number in range(command.partition_count):
                delta.put(replace(delta.get(("partition", answer.topic_id, number)), keyed=UNSET))
        return answer

    def appended(self: TransactionWriter, staged: StagedSegment, *rest: object) -> object:
        return append(self, replace(staged, is_keyed=False), *rest)  # type: ignore[arg-type]

    handle(patch, CreateTopic, created)
    patch.setattr(TransactionWriter, "_append", appended)
    patch.setattr(Outbox, "stage_open", Outbox.stage)


def test_a_build_that_appends_keyed_rows_inside_transactions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    without_rule_k(monkeypatch)
    with pytest.raises(AssertionError, match="open rows"):
        simulate_all()
    # Rows whose transactions commit in another order than their offsets are found without that, too.
    with pytest.raises(AssertionError, match="was committed after"):
        check_the_order()


def simulate_all() -> None:
    for seed in SEEDS:
        simulate(seed, "keyed")


def check_the_order() -> None:
    # The first ones find it; others do if histories have changed.
    for seed in dict.fromkeys((22, 21, *range(150))):
        _, history = record_clients(seed, "keyed")
        history.batches = [without_ranges(batch) for batch in history.batches]
        check_keyed_order(history)


def without_ranges(batch: Batch) -> Batch:
    return replace(batch, ranges={})
