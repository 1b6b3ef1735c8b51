"""Transactional ids: Kafka's states, who may change them, prepared ones, and which transaction a command belongs to.

::

    EMPTY ──► ONGOING ──► PREPARE_COMMIT ──► COMPLETE_COMMIT ──► ONGOING …
                 ├──────► PREPARE_ABORT ───► COMPLETE_ABORT ───► ONGOING …
                 └─ fence ► PREPARE_EPOCH_FENCE ► PREPARE_ABORT …
    EMPTY, COMPLETE_* ──► EMPTY (init_producer_id), DEAD (expiry)

One entry passes PREPARE_x and COMPLETE_x, so no reader of a state between two entries ever sees the first.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sparktxn._engine.format.commands import CommandResult, EndTxn, PrepareTxn
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.transactions.producerfencing import (
    TransactionCommand,
    check_identity,
    is_identity_before,
    marker_epoch,
)
from sparktxn._foundation.values.structs import PreparedOutcome, ProducerIdAndEpoch, TransactionState, TransactionStatus
from sparktxn.errors import ErrorCode

_S: Final = TransactionStatus

VALID_PREVIOUS_STATES: Final[dict[TransactionStatus, frozenset[TransactionStatus]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""From which states each state may be entered (kafka TransactionState.validPreviousStates, classic protocol)."""

_BETWEEN: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})


class Begun(NamedTuple):
    """The transaction that a command belongs to.

    `changed` if the command begins it: the caller puts the record. `ended` if it has committed, or is prepared: only a
    repetition of what it did before is in order.
    """

    transaction: TransactionState
    changed: bool
    ended: bool


def is_valid_transition(previous: TransactionStatus, status: TransactionStatus) -> bool:
    """Return True if `status` may follow `previous`."""
    return previous in VALID_PREVIOUS_STATES[status]


def transition(current: TransactionState, status: TransactionStatus, /, **changes: Any) -> TransactionState:
    """Return the transaction in another state: the only place that changes one.

    Raises:
        AssertionError: the table forbids it; a caller has not checked what it should have.
    """
    if not is_valid_transition(current.status, status):
        raise AssertionError(f"transaction state {current.status.name} cannot become {status.name}")
    return replace(current, status=status, **changes)


def join_transaction(
    delta: Delta,
    command: TransactionCommand,
    context: Context,
    fenced_code: ErrorCode = ErrorCode.INVALID_PRODUCER_EPOCH,
) -> Begun | Refusal:
    """Return the transaction that a command adds to: the ongoing one, or the next one, which it begins."""
    transaction = check_identity(delta, command, fenced_code)
    if isinstance(transaction, Refusal):
        return transaction
    if transaction.status is TransactionStatus.ONGOING and command.transaction == transaction.transaction:
        return Begun(transaction, changed=False, ended=transaction.prepared is not None)
    if transaction.status in _BETWEEN and command.transaction == transaction.transaction + 1:
        begun = transition(
            transaction,
            TransactionStatus.ONGOING,
            transaction=command.transaction,
            committed=False,
            partitions=(),
            offsets=(),
            start_timestamp_ms=context.timestamp_ms,
            start_entry=context.entry,
            last_update_timestamp_ms=context.timestamp_ms,
        )
        return Begun(begun, changed=True, ended=False)
    if transaction.status is TransactionStatus.COMPLETE_COMMIT and command.transaction == transaction.transaction:
        return Begun(transaction, changed=False, ended=True)
    return Refusal(
        ErrorCode.INVALID_TXN_STATE,
        f"transactional id {command.transactional_id!r} is in transaction {transaction.transaction} "
        f"({transaction.status.name}): transaction {command.transaction} takes nothing now",
    )


# Prepared transactions (KIP-939): open until a coordinator, such as a database, has decided how they end.
#
# A prepared transaction keeps the identity that published it: its records and offsets lie under that producer id. The
# producer that ends it may have another one, because every init takes the next epoch and the last epoch takes a new
# producer id. Ending it takes the next epoch as well, so that no two prepared transactions have one identity. What a
# database has stored for one never decides another.

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
