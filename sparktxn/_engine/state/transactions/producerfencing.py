"""Producers: which one of a transactional id is current, so that every other is fenced, and their sequences.

Also which identity the next one gets, and under which epoch a transaction is ended.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec.structs import replace

from sparktxn._engine.state.delta import Delta, Refusal
from sparktxn._foundation.values.structs import NO_TRANSACTION, BatchMetadata, ProducerState, TransactionState
from sparktxn.errors import ErrorCode

PRODUCER_EPOCH_MAX: Final = 32_767
"""The greatest epoch. No producer gets it: it is left for the control records that end the transaction of the last
one."""


class ProducerCommand(Protocol):
    """What names a producer."""

    @property
    def producer_id(self) -> int:
        """The producer id."""

    @property
    def producer_epoch(self) -> int:
        """The producer epoch."""


class TransactionCommand(ProducerCommand, Protocol):
    """What every command inside a transaction names."""

    @property
    def transactional_id(self) -> str | None:
        """The transactional id."""

    @property
    def transaction(self) -> int:
        """The transaction's number."""


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


def check_identity(
    delta: Delta, command: TransactionCommand, fenced_code: ErrorCode = ErrorCode.PRODUCER_FENCED
) -> TransactionState | Refusal:
    """Return the transactional id's record, if its current producer sent the command (K19, K20, K30, K31, K59)."""
    if not command.transactional_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    transaction: TransactionState | None = delta.get(("transaction", command.transactional_id))
    if transaction is None:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"transactional id {command.transactional_id!r} is not known, or has expired",
        )
    if transaction.producer_id != command.producer_id and transaction.previous_producer_id != command.producer_id:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"transactional id {command.transactional_id!r} belongs to producer {transaction.producer_id}, "
            f"not {command.producer_id}",
        )
    if transaction.producer_id != command.producer_id or transaction.producer_epoch != command.producer_epoch:
        return Refusal(
            fenced_code,
            f"producer {command.producer_id} with epoch {command.producer_epoch} of transactional id "
            f"{command.transactional_id!r} is fenced: {fenced_because(transaction)}",
        )
    return transaction


def fenced_because(transaction: TransactionState) -> str:
    """Return the reason to show a fenced producer."""
    reason = transaction.fence_reason or "a newer producer has initialised it"
    return f"{reason} (now {transaction.producer_id}, epoch {transaction.producer_epoch})"


def is_identity_before(transaction: TransactionState, command: ProducerCommand) -> bool:
    """Return True for a retry by the producer that made the last bump (K12, K15, K37)."""
    if command.producer_epoch != transaction.last_producer_epoch or transaction.last_producer_epoch < 0:
        return False
    rotated = transaction.producer_epoch == 0 and transaction.previous_producer_id >= 0
    return command.producer_id == (transaction.previous_producer_id if rotated else transaction.producer_id)


# Producers in a partition: epochs, sequences, the last five batches (kafka ProducerStateManager).

BATCHES_TO_RETAIN: Final = 5
SEQUENCE_MAX: Final = 2**31 - 1


def next_sequence(sequence: int, count: int) -> int:
    """Return the sequence `count` after `sequence`; 0 follows 2147483647 (K61)."""
    return (sequence + count) % (SEQUENCE_MAX + 1)


def check_append(
    known: ProducerState | None, producer_epoch: int, base_sequence: int, record_count: int
) -> BatchMetadata | Refusal | None:
    """Return None if the batch is next, the remembered batch that it repeats, or the refusal (K56 to K62)."""
    if known is None:
        return None
    if producer_epoch < known.producer_epoch:
        return Refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {known.producer_id} has epoch {producer_epoch}, the partition has seen {known.producer_epoch}",
        )
    if producer_epoch > known.producer_epoch or not known.batches:
        expected = 0
    else:
        last_sequence = next_sequence(base_sequence, record_count - 1)
        for batch in known.batches:
            if batch.first_sequence == base_sequence and batch.last_sequence == last_sequence and not batch.aborted:
                return batch
        expected = next_sequence(known.last_sequence, 1)
    if base_sequence == expected:
        return None
    return Refusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {known.producer_id} sends sequence {base_sequence}, {expected} is next",
    )


def is_past(known: ProducerState | None, producer_epoch: int, base_sequence: int) -> bool:
    """Return True if this epoch has already stored the sequence, whether or not its batch is still remembered."""
    if known is None or producer_epoch != known.producer_epoch or not known.batches:
        return False
    behind = (known.last_sequence - base_sequence) % (SEQUENCE_MAX + 1)
    return behind <= SEQUENCE_MAX // 2


def with_batch(
    known: ProducerState | None,
    identity: tuple[int, int, int, int],
    batch: BatchMetadata,
) -> ProducerState:
    """Return the producer after a batch; `identity` is (topic id, partition, producer id, producer epoch)."""
    topic_id, partition, producer_id, producer_epoch = identity
    same_epoch = known is not None and known.producer_epoch == producer_epoch
    batches = (*known.batches[-(BATCHES_TO_RETAIN - 1) :], batch) if known is not None and same_epoch else (batch,)
    first_offset = known.current_transaction_first_offset if known is not None else -1
    if batch.transaction != NO_TRANSACTION and first_offset < 0:
        first_offset = batch.base_offset
    return ProducerState(
        topic_id,
        partition,
        producer_id,
        producer_epoch,
        batches,
        batch.timestamp_ms,
        known.coordinator_epoch if known is not None else -1,
        first_offset,
    )


def with_marker(
    known: ProducerState, producer_epoch: int, transaction: int, committed: bool, entry: int, timestamp_ms: int
) -> ProducerState:
    """Return the producer after a control record; later batches are not duplicates of an aborted transaction's."""
    batches = known.batches
    if not committed:
        batches = tuple(
            replace(batch, aborted=True) if batch.transaction == transaction else batch for batch in batches
        )
    if producer_epoch > known.producer_epoch:
        batches = ()
    return replace(
        known,
        producer_epoch=producer_epoch,
        batches=batches,
        timestamp_ms=timestamp_ms,
        coordinator_epoch=entry,
        current_transaction_first_offset=-1,
    )
