"""Kafka's TransactionCoordinator as pure functions: ids and epochs, registering, ending, expiry, expectations."""

from __future__ import annotations

from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    CommandResult,
    EndTxn,
    ExpectEndOffset,
    ExpireOffsets,
    ExpireProducers,
    ExpireTransactionalId,
    InitProducerId,
)
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.groups.groups import end_offset, pending_offsets
from sparktxn._engine.state.internal import partition_exists
from sparktxn._engine.state.limits import TRANSACTION_TIMEOUT_MS_MAX
from sparktxn._engine.state.requests import remember, remembered
from sparktxn._engine.state.transactions.partitions import end_partition
from sparktxn._engine.state.transactions.producerfencing import (
    bumped,
    check_identity,
    fenced_because,
    is_identity_before,
    marker_epoch,
    next_producer_id,
)
from sparktxn._engine.state.transactions.transactions import (
    is_valid_transition,
    join_transaction,
    published_as,
    repeated_end,
    transition,
    with_outcome,
)
from sparktxn._foundation.values.structs import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    CommittedOffset,
    EmptyGroup,
    PartitionState,
    ProducerState,
    TransactionState,
    TransactionStatus,
)
from sparktxn.errors import ErrorCode


def init_producer_id(delta: Delta, command: InitProducerId, context: Context) -> CommandResult | Refusal:
    """Give a producer its id and epoch, and end what an earlier producer of the id has left open (K01 to K15)."""
    if known := remembered(delta, context, command.request_id):
        return known
    if command.keep_prepared and (command.transactional_id is None or command.producer_id != NO_PRODUCER_ID):
        return Refusal(
            ErrorCode.INVALID_REQUEST, "keep_prepared is for the first init of a transactional id: name no identity"
        )
    if command.transactional_id is None:
        result = CommandResult(producer_id=next_producer_id(delta), producer_epoch=0)
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
    prepared = initialised.prepared
    result = CommandResult(
        producer_id=initialised.producer_id,
        producer_epoch=initialised.producer_epoch,
        transaction=initialised.transaction,
        committed=initialised.committed,
        prepared_producer_id=prepared.producer_id if prepared is not None else NO_PRODUCER_ID,
        prepared_producer_epoch=prepared.producer_epoch if prepared is not None else NO_PRODUCER_EPOCH,
    )
    return remember(delta, context, command.request_id, result)


def _first(delta: Delta, command: InitProducerId) -> TransactionState:
    assert command.transactional_id is not None
    return TransactionState(
        transactional_id=command.transactional_id,
        producer_id=next_producer_id(delta),
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
    """Return the identity after one more init: Kafka's epoch arithmetic (K05, K10 to K15, K132)."""
    expected = command.producer_id != NO_PRODUCER_ID
    if expected:
        if is_identity_before(transaction, command):
            return transaction
        if (command.producer_id, command.producer_epoch) != (transaction.producer_id, transaction.producer_epoch):
            return Refusal(
                ErrorCode.PRODUCER_FENCED,
                f"producer {command.producer_id} with epoch {command.producer_epoch} of transactional id "
                f"{command.transactional_id!r} is fenced: {fenced_because(transaction)}",
            )
    if command.keep_prepared and transaction.prepared is not None:
        kept = bumped(delta, transaction, last_epoch=-1)
        return transition(kept, TransactionStatus.ONGOING, fence_reason=command.fence_reason)
    if transaction.status is TransactionStatus.ONGOING:
        reason = command.fence_reason or "a newer producer has initialised it"
        transaction = _fence(delta, transaction, context, reason)
    return transition(
        bumped(delta, transaction, last_epoch=command.producer_epoch if expected else -1),
        TransactionStatus.EMPTY,
        partitions=(),
        offsets=(),
        start_timestamp_ms=-1,
        fence_reason=command.fence_reason,
    )


def _fence(delta: Delta, transaction: TransactionState, context: Context, reason: str) -> TransactionState:
    """Abort an ongoing transaction under the next epoch, which no producer gets (K07, K11, K44)."""
    fenced = transition(
        transaction,
        TransactionStatus.PREPARE_EPOCH_FENCE,
        producer_epoch=marker_epoch(transaction.producer_epoch),
        last_producer_epoch=-1,
        fence_reason=reason,
    )
    return _end(delta, fenced, False, context)


def _end(delta: Delta, transaction: TransactionState, committed: bool, context: Context) -> TransactionState:
    """Pass PREPARE_x and COMPLETE_x, and end the transaction in every partition and group that it touched."""
    prepare = TransactionStatus.PREPARE_COMMIT if committed else TransactionStatus.PREPARE_ABORT
    complete = TransactionStatus.COMPLETE_COMMIT if committed else TransactionStatus.COMPLETE_ABORT
    prepared = transition(transaction, prepare)
    # No reader sees it before COMPLETE_x takes its place; it is what the history shows (state/internal.py).
    delta.put(prepared)
    published = ended = prepared
    if prepared.prepared is not None:
        published = published_as(prepared, prepared.prepared)
        ended = with_outcome(prepared, prepared.prepared, committed)
    for where in prepared.partitions:
        end_partition(delta, where, published, committed, context)
    for offset in prepared.offsets:
        end_offset(delta, offset, published.producer_id, committed, context)
    completed = transition(
        ended,
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
    """Register partitions in the ongoing or next transaction; known ones change nothing (K19 to K23)."""
    begun = join_transaction(delta, command, context, ErrorCode.PRODUCER_FENCED)
    if isinstance(begun, Refusal):
        return begun
    known = begun.transaction.partitions
    if begun.ended:
        if begun.transaction.prepared is not None and set(command.partitions) <= set(known):
            return CommandResult(duplicate=True)
        if begun.transaction.prepared is None and not command.partitions:
            return CommandResult(duplicate=True)  # it began a transaction of keyed rows, whose list is repeated
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction {command.transaction} has ended, or is prepared: it takes no more partitions",
        )
    for topic_id, partition in command.partitions:
        if delta.get(("partition", topic_id, partition)) is None:
            return Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} of topic id {topic_id} does not exist"
            )
    added = tuple(where for where in dict.fromkeys(command.partitions) if where not in known)
    if not added and not begun.changed:
        return CommandResult(duplicate=True)
    delta.put(replace(begun.transaction, partitions=(*known, *added)))
    return CommandResult()


def add_offsets_to_txn(delta: Delta, command: AddOffsetsToTxn, context: Context) -> CommandResult | Refusal:
    """Begin the next transaction, if none is ongoing: the group's offsets follow in txn_offset_commit."""
    begun = join_transaction(delta, command, context, ErrorCode.PRODUCER_FENCED)
    if isinstance(begun, Refusal):
        return begun
    prepared = begun.transaction.prepared is not None
    if prepared and all(group_id != command.group_id for group_id, _, _ in begun.transaction.offsets):
        return Refusal(
            ErrorCode.INVALID_TXN_STATE, f"transaction {command.transaction} is prepared: it takes no more offsets"
        )
    if begun.ended or not begun.changed:
        return CommandResult(duplicate=True)
    delta.put(begun.transaction)
    return CommandResult()


def end_txn(delta: Delta, command: EndTxn, context: Context) -> CommandResult | Refusal:
    """Commit or abort the transaction that the command names, and no other (K30 to K35, K44)."""
    transaction = check_identity(delta, command)
    if isinstance(transaction, Refusal):
        return repeated_end(delta, command) or transaction
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
    fence_reason = command.fence_reason
    if command.timed_out_after_ms > 0:
        fence_reason = f"transaction timed out after {command.timed_out_after_ms} ms"
    if fence_reason and command.committed:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{named} cannot commit and fence its producer ({fence_reason})")
    if fence_reason:
        if transaction.prepared is not None and command.timed_out_after_ms > 0:
            return Refusal(ErrorCode.INVALID_TXN_STATE, f"{named} is prepared: it never times out")
        _fence(delta, transaction, context, fence_reason)
        return CommandResult()
    ended = _end(delta, transaction, command.committed, context)
    if transaction.prepared is None:
        return CommandResult(committed=command.committed)
    ended = bumped(delta, ended, last_epoch=ended.producer_epoch)
    delta.put(ended)
    return CommandResult(
        producer_id=ended.producer_id, producer_epoch=ended.producer_epoch, committed=command.committed
    )


# Conditional commits: a transaction takes effect only if partitions end where its producer expects.
#
# Kafka has no such command. KurrentDB calls it the expected revision of a stream.


def expect_end_offset(delta: Delta, command: ExpectEndOffset, context: Context) -> CommandResult | Refusal:
    """Pass if the partition ends at the offset that the command names; the transaction begins with it if it is new.

    In a transaction that has committed, or is prepared, it was checked before: the list is repeated.
    """
    begun = join_transaction(delta, command, context, ErrorCode.PRODUCER_FENCED)
    if isinstance(begun, Refusal):
        return begun
    if begun.ended:
        return CommandResult(duplicate=True)
    partition: PartitionState | None = delta.get(("partition", command.topic_id, command.partition))
    where = f"partition {command.partition} of topic id {command.topic_id}"
    if partition is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} does not exist, or no longer")
    if partition.log_end_offset != command.log_end_offset:
        return Refusal(
            ErrorCode.UNEXPECTED_END_OFFSET,
            f"{where} ends at offset {partition.log_end_offset}, and the transaction expects {command.log_end_offset}: "
            "abort it, read the records that were appended meanwhile, and begin again",
        )
    if begun.changed:
        delta.put(begun.transaction)
    return CommandResult()


# Forgetting what is idle: transactional ids, producers, offsets, and what deleted topics have left behind.
#
# The proposer has measured, and may be late: each command names what the proposer saw, and nothing that has changed
# since is forgotten. Time takes no part here.


def expire_transactional_id(delta: Delta, command: ExpireTransactionalId, context: Context) -> CommandResult | Refusal:
    """Pass DEAD and forget the id: its next producer gets a new producer id (K46, K48)."""
    transaction: TransactionState | None = delta.get(("transaction", command.transactional_id))
    if transaction is None:
        return CommandResult(duplicate=True)
    seen = (command.producer_id, command.producer_epoch, command.transaction)
    if seen != (transaction.producer_id, transaction.producer_epoch, transaction.transaction):
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"transactional id {command.transactional_id!r} has been used since it was found idle",
        )
    if not is_valid_transition(transaction.status, TransactionStatus.DEAD):
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"transactional id {command.transactional_id!r} has an open transaction ({transaction.status.name}): "
            "it does not expire",
        )
    dead = transition(transaction, TransactionStatus.DEAD)
    delta.remove(dead.key)
    return CommandResult()


def expire_producers(delta: Delta, command: ExpireProducers, context: Context) -> CommandResult | Refusal:
    """Forget those that are as the proposer saw them: of a partition that exists, none with an open transaction."""
    where = (command.topic_id, command.partition)
    exists = delta.get(("partition", *where)) is not None
    forgotten = False
    for producer_id, *seen in command.producers:
        known: ProducerState | None = delta.get(("producer", *where, producer_id))
        if known is None or seen != [known.producer_epoch, known.last_sequence, known.coordinator_epoch]:
            continue
        if exists and known.current_transaction_first_offset >= 0:
            continue
        delta.remove(known.key)
        forgotten = True
    return CommandResult(duplicate=not forgotten)


def expire_offsets(delta: Delta, command: ExpireOffsets, context: Context) -> CommandResult | Refusal:
    """Forget a group's committed offsets in partitions that do not exist: topic ids are never used again.

    Those that are idle are forgotten if the group has had no members since what the proposer saw (KIP-211).
    """
    forgotten = False
    for where in command.partitions:
        key = ("offset", command.group_id, *where)
        if not partition_exists(delta.get, *where) and delta.get(key) is not None:
            delta.remove(key)
            forgotten = True
    if _is_empty_since(delta, command):
        for topic_id, partition, entry in command.idle:
            offset: CommittedOffset | None = delta.get(("offset", command.group_id, topic_id, partition))
            if offset is None or offset.effective_entry != entry:
                continue
            if not pending_offsets(delta, command.group_id, topic_id, partition):
                delta.remove(offset.key)
                forgotten = True
        if command.empty_entry and not command.partitions and not command.idle:
            delta.remove(("empty_group", command.group_id))
            forgotten = True
    return CommandResult(duplicate=not forgotten)


def _is_empty_since(delta: Delta, command: ExpireOffsets) -> bool:
    """Return True if the group has no members, and has had none since the entry that the command names."""
    if delta.get(("group", command.group_id)) is not None:
        return False
    empty: EmptyGroup | None = delta.get(("empty_group", command.group_id))
    return command.empty_entry == (0 if empty is None else empty.entry)
