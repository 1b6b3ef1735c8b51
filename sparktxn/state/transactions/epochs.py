"""Producer ids and epochs: which identity the next producer gets, and under which epoch a transaction is ended."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sparktxn.state.delta import Delta
from sparktxn.values.structs import TransactionState

__all__ = ["PRODUCER_EPOCH_MAX", "bumped", "is_epoch", "marker_epoch", "next_producer_id"]

PRODUCER_EPOCH_MAX: Final = 32_767
"""The greatest epoch. No producer gets it: it is left for the control records that end the transaction of the last
one."""


def is_epoch(epoch: int) -> bool:
    """Return True for an epoch that a producer may have, or a control record."""
    return 0 <= epoch <= PRODUCER_EPOCH_MAX


def marker_epoch(producer_epoch: int) -> int:
    """Return the epoch of the control records of a transaction that is ended for its producer: the next one."""
    return min(producer_epoch + 1, PRODUCER_EPOCH_MAX)


def next_producer_id(delta: Delta) -> int:
    """Return a producer id that has not been given before, and note that it has been."""
    store = delta.store()
    delta.put(replace(store, next_producer_id=store.next_producer_id + 1))
    return store.next_producer_id


def bumped(delta: Delta, transaction: TransactionState, *, last_epoch: int) -> TransactionState:
    """Return the transaction under the next epoch, or where the epochs are used up under a new producer id (K10)."""
    if transaction.producer_epoch >= PRODUCER_EPOCH_MAX - 1:
        producer_id, epoch, previous = next_producer_id(delta), 0, transaction.producer_id
    else:
        producer_id, epoch = transaction.producer_id, transaction.producer_epoch + 1
        previous = transaction.previous_producer_id
    return replace(
        transaction,
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=previous,
        last_producer_epoch=last_epoch,
    )
