"""The ranges of offsets that ended transactions have in a partition, by producer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from sparktxn.values.structs import AbortedTransaction, CommittedTransaction

__all__ = ["Ended", "by_producer", "last_offset_of"]

Ended = TypeVar("Ended", AbortedTransaction, CommittedTransaction)


def by_producer(ended: Iterable[Ended]) -> dict[int, list[Ended]]:
    """Return each producer's transactions in their order.

    They follow one another in a partition, so both ends of their ranges grow together.
    """
    found: dict[int, list[Ended]] = {}
    for transaction in ended:
        found.setdefault(transaction.producer_id, []).append(transaction)
    for transactions in found.values():
        transactions.sort(key=last_offset_of)
    return found


def last_offset_of(transaction: AbortedTransaction | CommittedTransaction) -> int:
    """Return the offset of a transaction's control record."""
    return transaction.last_offset
