"""What must have become of half messages: delivered exactly once if their local transactions have committed."""

from __future__ import annotations

from collections import Counter

from tests.simulation.clienthistory import ClientHistory

__all__ = ["check_half_messages"]


def check_half_messages(history: ClientHistory) -> None:
    """Every message whose local transaction has committed is delivered exactly once, and no other one is."""
    if not history.halves:
        return
    delivered = Counter(record.value for record in history.final_view(committed=True).records)
    for transaction in history.transactions:
        if transaction.transactional_id not in history.halves:
            continue
        decided = history.decisions.get(transaction.transactional_id, False)
        for topic, partition, value in transaction.sent:
            times = delivered[value]
            assert times == decided, f"{value} of {topic} {partition} was decided {decided}, delivered {times} times"
