"""Transactional ids: Kafka's states, who may change them, and which transaction a command belongs to.

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

from sparktxn.errors import ErrorCode
from sparktxn.state.delta import Context, Delta, Refusal
from sparktxn.state.transactions.producerfencing import TransactionCommand, check_identity
from sparktxn.values.structs import TransactionState, TransactionStatus

__all__ = [
    "VALID_PREVIOUS_STATES",
    "Begun",
    "is_valid_transition",
    "join_transaction",
    "transition",
]

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
