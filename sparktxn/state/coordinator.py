"""Kafka's TransactionCoordinator as pure functions: producer ids and epochs, registering, ending."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sparktxn.errors import ErrorCode
from sparktxn.format.commands import AddOffsetsToTxn, AddPartitionsToTxn, CommandResult, EndTxn, InitProducerId
from sparktxn.state.delta import Context, Delta, Refusal
from sparktxn.state.groups import end_offsets
from sparktxn.state.partitions import end_partition
from sparktxn.state.requests import remember, remembered
from sparktxn.state.transactions import check_identity, join_transaction, transition
from sparktxn.structs import NO_PRODUCER_ID, TransactionState, TransactionStatus

__all__ = ["PRODUCER_EPOCH_MAX", "TRANSACTION_TIMEOUT_MS_MAX", "add_offsets_to_txn", "add_partitions_to_txn"]
__all__ += ["end_txn", "init_producer_id"]

PRODUCER_EPOCH_MAX: Final = 32_767
TRANSACTION_TIMEOUT_MS_MAX: Final = 900_000


def init_producer_id(delta: Delta, command: InitProducerId, context: Context) -> CommandResult | Refusal:
    """Gives a producer its id and epoch, and ends what an earlier producer of the id has left open (K01 to K15)."""
    if known := remembered(delta, command.request_id):
        return known
    if command.transactional_id is None:
        result = CommandResult(producer_id=_next_producer_id(delta), producer_epoch=0)
        return remember(delta, context, command.request_id, result)
    if not command.transactional_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if not 0 < command.timeout_ms <= TRANSACTION_TIMEOUT_MS_MAX:
        return Refusal(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction.timeout.ms is {command.timeout_ms}: expected 1 to {TRANSACTION_TIMEOUT_MS_MAX}",
        )
    transaction: TransactionState | None = delta.get(("transaction", command.transactional_id))
    if transaction is None:
        initialised: TransactionState | Refusal = _first(delta, command)
    else:
        initialised = _next_epoch(delta, command, transaction, context)
    if isinstance(initialised, Refusal):
        return initialised
    initialised = replace(
        initialised,
        timeout_ms=command.timeout_ms,
        last_update_timestamp_ms=context.timestamp_ms,
        request_id=command.request_id,
    )
    delta.put(initialised)
    result = CommandResult(
        producer_id=initialised.producer_id,
        producer_epoch=initialised.producer_epoch,
        transaction=initialised.transaction,
        committed=initialised.committed,
    )
    return remember(delta, context, command.request_id, result)


def _next_producer_id(delta: Delta) -> int:
    store = delta.store()
    delta.put(replace(store, next_producer_id=store.next_producer_id + 1))
    return store.next_producer_id


def _first(delta: Delta, command: InitProducerId) -> TransactionState:
    assert command.transactional_id is not None
    return TransactionState(
        transactional_id=command.transactional_id,
        producer_id=_next_producer_id(delta),
        producer_epoch=0,
        last_producer_epoch=-1,
        previous_producer_id=NO_PRODUCER_ID,
        timeout_ms=command.timeout_ms,
        status=TransactionStatus.EMPTY,
        transaction=0,
        committed=False,
    )


def _next_epoch(
    delta: Delta, command: InitProducerId, transaction: TransactionState, context: Context
) -> TransactionState | Refusal:
    """The identity after one more init: Kafka's epoch arithmetic (K05, K10 to K15)."""
    expected = command.producer_id != NO_PRODUCER_ID
    if expected:
        if _is_retry(command, transaction):
            return transaction
        if (command.producer_id, command.producer_epoch) != (transaction.producer_id, transaction.producer_epoch):
            return Refusal(
                ErrorCode.PRODUCER_FENCED,
                f"transactional id {command.transactional_id!r} belongs to producer {transaction.producer_id}, epoch "
                f"{transaction.producer_epoch}, not {command.producer_id}, epoch {command.producer_epoch}",
            )
    if transaction.status is TransactionStatus.ONGOING:
        transaction = _fence(delta, transaction, context, "a newer producer has initialised it")
    last_epoch = command.producer_epoch if expected else -1
    if transaction.producer_epoch >= PRODUCER_EPOCH_MAX - 1:
        identity = (_next_producer_id(delta), 0, transaction.producer_id)
    else:
        identity = (transaction.producer_id, transaction.producer_epoch + 1, transaction.previous_producer_id)
    return transition(
        transaction,
        TransactionStatus.EMPTY,
        producer_id=identity[0],
        producer_epoch=identity[1],
        previous_producer_id=identity[2],
        last_producer_epoch=last_epoch,
        partitions=(),
        offsets=(),
        start_timestamp_ms=-1,
        fence_reason="",
    )


def _is_retry(command: InitProducerId, transaction: TransactionState) -> bool:
    """True for an init whose answer was lost: it names the identity before the last bump (K12, K15)."""
    if command.producer_epoch != transaction.last_producer_epoch or transaction.last_producer_epoch < 0:
        return False
    rotated = transaction.producer_epoch == 0 and transaction.previous_producer_id >= 0
    return command.producer_id == (transaction.previous_producer_id if rotated else transaction.producer_id)


def _fence(delta: Delta, transaction: TransactionState, context: Context, reason: str) -> TransactionState:
    """Aborts an ongoing transaction under the next epoch, which is given to nobody (K07, K11, K44)."""
    fenced = transition(
        transaction,
        TransactionStatus.PREPARE_EPOCH_FENCE,
        producer_epoch=min(transaction.producer_epoch + 1, PRODUCER_EPOCH_MAX),
        last_producer_epoch=-1,
        fence_reason=reason,
    )
    return _end(delta, fenced, False, context)


def _end(delta: Delta, transaction: TransactionState, committed: bool, context: Context) -> TransactionState:
    """Passes PREPARE_x and COMPLETE_x, and ends the transaction in every partition and group that it touched."""
    prepare = TransactionStatus.PREPARE_COMMIT if committed else TransactionStatus.PREPARE_ABORT
    complete = TransactionStatus.COMPLETE_COMMIT if committed else TransactionStatus.COMPLETE_ABORT
    prepared = transition(transaction, prepare)
    for where in prepared.partitions:
        end_partition(delta, where, prepared, committed, context)
    end_offsets(delta, prepared, committed, context)
    completed = transition(
        prepared,
        complete,
        committed=committed,
        partitions=(),
        offsets=(),
        last_update_timestamp_ms=context.timestamp_ms,
        sink=(prepared.pending_sink or prepared.sink) if committed else prepared.sink,
        pending_sink=None,
    )
    delta.put(completed)
    return completed


def add_partitions_to_txn(delta: Delta, command: AddPartitionsToTxn, context: Context) -> CommandResult | Refusal:
    """Registers partitions in the ongoing or next transaction; known ones are no change (K19 to K23)."""
    begun = join_transaction(delta, command, context, ErrorCode.PRODUCER_FENCED)
    if isinstance(begun, Refusal):
        return begun
    if begun.ended:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE, f"transaction {command.transaction} has ended: it takes no more partitions"
        )
    for topic_id, partition in command.partitions:
        if delta.get(("partition", topic_id, partition)) is None:
            return Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} of topic id {topic_id} does not exist"
            )
    known = begun.transaction.partitions
    added = tuple(where for where in dict.fromkeys(command.partitions) if where not in known)
    if not added and not begun.changed:
        return CommandResult(duplicate=True)
    delta.put(replace(begun.transaction, partitions=(*known, *added)))
    return CommandResult()


def add_offsets_to_txn(delta: Delta, command: AddOffsetsToTxn, context: Context) -> CommandResult | Refusal:
    """Begins the next transaction, if none is ongoing: the group's offsets follow in txn_offset_commit."""
    begun = join_transaction(delta, command, context, ErrorCode.PRODUCER_FENCED)
    if isinstance(begun, Refusal):
        return begun
    if begun.ended or not begun.changed:
        return CommandResult(duplicate=True)
    delta.put(begun.transaction)
    return CommandResult()


def end_txn(delta: Delta, command: EndTxn, context: Context) -> CommandResult | Refusal:
    """Commits or aborts the transaction that the command names, and no other (K30 to K35, K44)."""
    transaction = check_identity(delta, command)
    if isinstance(transaction, Refusal):
        return transaction
    named = f"transaction {command.transaction} of {command.transactional_id!r}"
    if command.transaction != transaction.transaction:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE, f"{named} cannot be ended: the last one is {transaction.transaction}"
        )
    if transaction.status is not TransactionStatus.ONGOING:
        if transaction.status is not TransactionStatus.EMPTY and transaction.committed == command.committed:
            return CommandResult(duplicate=True, committed=command.committed)
        outcome = "committed" if transaction.committed else "aborted"
        return Refusal(ErrorCode.INVALID_TXN_STATE, f"{named} has been {outcome}")
    if command.timed_out_after_ms > 0 and not command.committed:
        _fence(delta, transaction, context, f"transaction timed out after {command.timed_out_after_ms} ms")
    else:
        _end(delta, transaction, command.committed, context)
    return CommandResult(committed=command.committed)
