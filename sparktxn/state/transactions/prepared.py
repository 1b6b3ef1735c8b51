"""Prepared transactions (KIP-939): open until a coordinator, such as a database, has decided how they end.

A prepared transaction keeps the identity that published it: its records and offsets lie under that producer id. The
producer that ends it may have another one, because every init takes the next epoch and the last epoch takes a new
producer id. Ending it takes the next epoch as well, so that no two prepared transactions have one identity. What a
database has stored for one never decides another.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sparktxn.errors import ErrorCode
from sparktxn.format.commands import CommandResult, EndTxn, PrepareTxn
from sparktxn.state.delta import Context, Delta, Refusal
from sparktxn.state.transactions.producerfencing import (
    check_identity,
    is_identity_before,
    marker_epoch,
)
from sparktxn.state.transactions.transactions import transition
from sparktxn.values.structs import PreparedOutcome, ProducerIdAndEpoch, TransactionState, TransactionStatus

__all__ = ["prepare_txn", "published_as", "repeated_end", "with_outcome"]

_ENDED: Final = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)


def prepare_txn(delta: Delta, command: PrepareTxn, context: Context) -> CommandResult | Refusal:
    """Prepare the ongoing transaction: it takes nothing more, and never times out (K129)."""
    transaction = check_identity(delta, command)
    if isinstance(transaction, Refusal):
        return transaction
    if transaction.status is not TransactionStatus.ONGOING or command.transaction != transaction.transaction:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction {command.transaction} of {command.transactional_id!r} cannot be prepared: the last one is "
            f"{transaction.transaction} ({transaction.status.name})",
        )
    identity = ProducerIdAndEpoch(command.producer_id, command.producer_epoch)
    if transaction.prepared is not None:
        if transaction.prepared == identity:
            return _prepared_result(identity, duplicate=True)
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction {command.transaction} of {command.transactional_id!r} was prepared by producer "
            f"{transaction.prepared.producer_id}, epoch {transaction.prepared.producer_epoch}: it can only be ended",
        )
    delta.put(
        transition(
            transaction,
            TransactionStatus.ONGOING,
            prepared=identity,
            last_update_timestamp_ms=context.timestamp_ms,
        )
    )
    return _prepared_result(identity)


def _prepared_result(identity: ProducerIdAndEpoch, *, duplicate: bool = False) -> CommandResult:
    return CommandResult(
        duplicate=duplicate,
        prepared_producer_id=identity.producer_id,
        prepared_producer_epoch=identity.producer_epoch,
    )


def published_as(transaction: TransactionState, identity: ProducerIdAndEpoch) -> TransactionState:
    """Return a transaction that `identity` has prepared, under the identity of its control records."""
    return replace(transaction, producer_id=identity.producer_id, producer_epoch=marker_epoch(identity.producer_epoch))


def with_outcome(transaction: TransactionState, identity: ProducerIdAndEpoch, committed: bool) -> TransactionState:
    """Return a transaction that `identity` has prepared, with its end noted for a coordinator that comes back."""
    outcome = PreparedOutcome(identity.producer_id, identity.producer_epoch, transaction.transaction, committed)
    return replace(transaction, prepared=None, last_prepared=outcome)


def repeated_end(delta: Delta, command: EndTxn) -> CommandResult | None:
    """Return the answer to a producer that ends its prepared transaction again, under the epoch before that end (K37).

    None if that is not what the command is.
    """
    transaction: TransactionState | None = delta.get(("transaction", command.transactional_id))
    if transaction is None or transaction.last_prepared is None or transaction.status not in _ENDED:
        return None
    outcome = transaction.last_prepared
    if outcome.transaction != command.transaction or transaction.transaction != command.transaction:
        return None
    if outcome.committed != command.committed or not is_identity_before(transaction, command):
        return None
    return CommandResult(
        duplicate=True,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=command.committed,
    )
