"""Open transactions that have registered a partition and have no records there yet, for administrators.

Their records are in the memory of a gateway, or of another client. So they have no first offset, by which
`kafka-transactions.sh` names what it aborts. They are shown with a number in its place. It is above all offsets, and no
other transaction has it. It stays the same while the transaction is open, so an abort by it ends what was shown.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sparktxn.log.log import Log
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import TransactionState, TransactionStatus

__all__ = ["Unstored", "unstored_transactions"]

_ABOVE_ALL: Final = 2**62
_ENTRY: Final = 2**20
"""As many transactions may begin in one entry before two of them could have the same number."""


class Unstored(NamedTuple):
    """Such a transaction, and the number in place of its first offset."""

    state: TransactionState
    start_offset: int


def unstored_transactions(log: Log, where: TopicIdPartition) -> list[Unstored]:
    """Return those of a partition, as last known, by the numbers."""
    located = log.partition(*where)
    stored = set() if located is None else {opened.producer_id for opened in located[0].open_transactions}
    found = [
        Unstored(state, _ABOVE_ALL + state.start_entry * _ENTRY + state.producer_id % _ENTRY)
        for state in log.transactions()
        if state.status is TransactionStatus.ONGOING
        and state.prepared is None
        and where in state.partitions
        and state.producer_id not in stored
    ]
    return sorted(found, key=lambda each: each.start_offset)
