"""The commands of one producer, with its identity filled in: for tests that work below the clients."""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct

from sparktxn._engine.format.commands import (
    AddPartitionsToTxn,
    Append,
    CommandResult,
    EndTxn,
    ExpectEndOffset,
    OffsetToCommit,
    PrepareTxn,
    SinkBatchCommit,
    TxnOffsetCommit,
)
from sparktxn._engine.format.names import inline_segment, segment_file
from sparktxn._engine.format.segment import checksum
from sparktxn._foundation.values.structs import NO_TRANSACTION

__all__ = ["ProducerCommands"]


class ProducerCommands(Struct, frozen=True):
    """Builds the commands of a producer; without a transactional id those of an idempotent one."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int

    @classmethod
    def of(cls, transactional_id: str | None, initialised: CommandResult) -> ProducerCommands:
        """The producer that an `init_producer_id` has answered."""
        return cls(transactional_id, initialised.producer_id, initialised.producer_epoch)

    def append(
        self,
        where: tuple[int, int],
        sequence: int,
        count: int = 1,
        *,
        transaction: int = NO_TRANSACTION,
        segment: str = "",
        born: int = 0,
        data: bytes = b"",
    ) -> Append:
        """`count` records from `sequence` on, for (topic id, partition), in a segment that this sequence names.

        With `data` that is the segment itself.
        """
        named_by = f"{where} {self.producer_id} {self.producer_epoch} {sequence}"
        token = sha256(named_by.encode()).hexdigest()[:20]
        return Append(
            topic_id=where[0],
            partition=where[1],
            segment=segment or (inline_segment(token) if data else segment_file(born, token, "arrow")),
            record_count=count,
            size_bytes=len(data) or 100,
            checksum=checksum(data) if data else "00000000",
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            timestamp_min_ms=1,
            timestamp_max_ms=2,
            transactional_id=None if transaction == NO_TRANSACTION else self.transactional_id,
            transaction=transaction,
            data=data,
        )

    def begin(self, transaction: int) -> AddPartitionsToTxn:
        """Begins a transaction that has no partitions yet."""
        return AddPartitionsToTxn(*self._identity(transaction), partitions=())

    def end(self, transaction: int, *, committed: bool = True, timed_out_after_ms: int = 0) -> EndTxn:
        """Commits or aborts."""
        return EndTxn(*self._identity(transaction), committed, timed_out_after_ms)

    def prepare(self, transaction: int) -> PrepareTxn:
        """Prepares."""
        return PrepareTxn(*self._identity(transaction))

    def expect(self, transaction: int, where: tuple[int, int], log_end_offset: int) -> ExpectEndOffset:
        """Passes if the partition ends there."""
        return ExpectEndOffset(*self._identity(transaction), *where, log_end_offset)

    def offset(self, transaction: int, group_id: str, where: tuple[int, int], offset: int) -> TxnOffsetCommit:
        """One offset of a group, inside the transaction."""
        return TxnOffsetCommit(*self._identity(transaction), group_id, (OffsetToCommit(*where, offset),))

    def batch(
        self, transaction: int, batch_id: int, *, writer_id: str = "query", run_id: str = "run", fingerprint: str = "f"
    ) -> SinkBatchCommit:
        """The mark of a micro-batch."""
        return SinkBatchCommit(*self._identity(transaction), writer_id, run_id, batch_id, fingerprint)

    def _identity(self, transaction: int) -> tuple[str, int, int, int]:
        return (self.transactional_id or "", self.producer_id, self.producer_epoch, transaction)
