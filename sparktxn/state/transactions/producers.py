"""Producers in a partition: epochs, sequences, the last five batches (kafka ProducerStateManager)."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sparktxn.errors import ErrorCode
from sparktxn.state.delta import Refusal
from sparktxn.values.structs import NO_TRANSACTION, BatchMetadata, ProducerState

__all__ = ["BATCHES_TO_RETAIN", "SEQUENCE_MAX", "check_append", "is_past", "next_sequence", "with_batch", "with_marker"]

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
