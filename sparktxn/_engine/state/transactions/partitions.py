"""Partitions: appending segments, ending transactions, offsets (kafka UnifiedLog, in pure form)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from sparktxn._engine.format.commands import Append, CommandResult
from sparktxn._engine.format.decodeguard import DECODED_BYTES_MAX, ROWS_MAX
from sparktxn._engine.format.names import carrier, has_offsets, parse_segment_born, segment_token
from sparktxn._engine.format.segment import INLINE_BYTES_MAX, checksum
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.limits import LOG_END_OFFSET_MAX, TIMESTAMP_MS_MAX
from sparktxn._engine.state.transactions import producerfencing
from sparktxn._engine.state.transactions.producerfencing import PRODUCER_EPOCH_MAX, is_epoch
from sparktxn._engine.state.transactions.transactions import Begun, join_transaction
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import (
    NO_TRANSACTION,
    AbortedTransaction,
    BatchMetadata,
    CommittedTransaction,
    HalfSegment,
    OpenTransaction,
    PartitionSegments,
    PartitionState,
    ProducerState,
    SegmentRef,
    TransactionState,
)
from sparktxn.errors import ErrorCode

# The last stable offset: up to where a read_committed reader reads (kafka: K71 to K74).


def last_stable_offset(partition: PartitionState) -> int:
    """Return the first offset of an open transaction, not below the log start; the log end if none is open."""
    return max(partition.log_start_offset, stable_end(partition.open_transactions, partition.log_end_offset))


def stable_end(open_transactions: Iterable[OpenTransaction], end_offset: int) -> int:
    """Return the first offset of an open transaction; `end_offset` if none is open."""
    return min((open_.first_offset for open_ in open_transactions), default=end_offset)


FORGOTTEN: Final = CommandResult(duplicate=True)
"""The result of a batch that looks like one of those that are no longer remembered, whose names are not known."""


_CHECKSUM_DIGITS: Final = 8
_HEXADECIMAL: Final = frozenset("0123456789abcdef")
_NOT_NAMED: Final = -1
"""What `carrier` returns for a segment whose name does not say the entry that carries it."""


def append(delta: Delta, command: Append, context: Context) -> CommandResult | Refusal:
    """Name a segment at the partition's end, or return the original offset of a batch that was stored before."""
    partition: PartitionState | None = delta.get(("partition", command.topic_id, command.partition))
    if partition is None:
        where = f"partition {command.partition} of topic id {command.topic_id}"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} does not exist, or no longer")
    if problem := _producer_problem(command) or segment_problem(command) or inline_problem(command, command.data):
        return Refusal(ErrorCode.INVALID_RECORD, f"segment {command.segment!r} has {problem}")
    if partition.log_end_offset + command.record_count > LOG_END_OFFSET_MAX:
        return Refusal(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"partition {command.partition} of topic id {command.topic_id} has no more offsets for "
            f"{command.record_count} records: its log end is {partition.log_end_offset}",
        )
    known: ProducerState | None = delta.get(("producer", command.topic_id, command.partition, command.producer_id))
    if command.transaction != NO_TRANSACTION:
        if partition.keyed is True:
            return Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"partition {command.partition} of topic id {command.topic_id} is keyed (primary.key): its rows are "
                "appended outside of the transaction, in the list that ends it",
            )
        begun = join_transaction(delta, command, context)
        if isinstance(begun, Refusal):
            return begun
        if begun.ended:
            return _after_the_end(known, command)
        _register(delta, begun, command)
    elif known is not None and known.current_transaction_first_offset >= 0:
        return Refusal(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {command.producer_id} appends outside its open transaction in this partition",
        )
    repeated = producerfencing.check_append(known, command.producer_epoch, command.base_sequence, command.record_count)
    if isinstance(repeated, Refusal):
        if partition.keyed is True and producerfencing.is_past(known, command.producer_epoch, command.base_sequence):
            # Of more appends than are remembered: the list of a transaction may have so many. `apply_list` decides.
            return FORGOTTEN
        return repeated
    if repeated is not None and (refusal := _not_repeated(repeated, command)):
        return refusal
    if repeated is not None:
        return CommandResult(duplicate=True, base_offset=repeated.base_offset, timestamp_ms=repeated.timestamp_ms)
    # No vacuum deletes the entry that is about to carry the records.
    refusal = None if command.data else check_born(delta, command.segment, context)
    return refusal or _store(delta, command, context, partition, known)


def _not_repeated(stored: BatchMetadata, command: Append) -> Refusal | None:
    """Return the refusal of a batch with stored sequences, but another segment or transaction."""
    if stored.transaction != command.transaction:
        return Refusal(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {command.producer_id} sends sequence {command.base_sequence} in transaction "
            f"{command.transaction}: it was stored in transaction {stored.transaction}",
        )
    if stored.token != segment_token(command.segment):
        return Refusal(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {command.producer_id} sends sequence {command.base_sequence} with segment {command.segment!r}: "
            "it was stored with another one",
        )
    return None


def segment_problem(segment: Append | HalfSegment) -> str | None:
    """Return what no segment can have: a manifest would not take it, and without manifests there are no checkpoints."""
    if not (1 <= segment.record_count <= ROWS_MAX and 1 <= segment.size_bytes <= DECODED_BYTES_MAX):
        return (
            f"{segment.record_count} records in {segment.size_bytes} bytes: expected 1 to {ROWS_MAX} records and 1 to "
            f"{DECODED_BYTES_MAX} bytes"
        )
    if not segment.timestamp_min_ms <= segment.timestamp_max_ms <= TIMESTAMP_MS_MAX:
        return (
            f"timestamps from {segment.timestamp_min_ms} to {segment.timestamp_max_ms}: expected them to grow, up to "
            f"{TIMESTAMP_MS_MAX}"
        )
    if len(segment.checksum) != _CHECKSUM_DIGITS or not _HEXADECIMAL.issuperset(segment.checksum):
        return f"the checksum {segment.checksum!r}: expected {_CHECKSUM_DIGITS} lower-case hexadecimal digits"
    if has_offsets(segment.segment):
        return "a name of files that rewrites make, whose rows have offsets: expected one of a file without them"
    return None


class _Described(Protocol):
    """What a command or a stager says of a segment."""

    @property
    def segment(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def checksum(self) -> str: ...


def inline_problem(segment: _Described, data: bytes) -> str | None:
    """Return what is wrong with the records that a command carries of a segment, or should; None if nothing is."""
    name = segment.segment
    carried_by = carrier(name, _NOT_NAMED)
    if not data and carried_by is None:
        return None
    # Only the state gives names that say which entry carries the records.
    if not data or carried_by != _NOT_NAMED:
        return "a name that ends with .inline without inline records, or such records under another name"
    if not len(data) == segment.size_bytes <= INLINE_BYTES_MAX:
        return f"{len(data)} bytes of inline records: expected {segment.size_bytes}, {INLINE_BYTES_MAX} at most"
    if checksum(data) != segment.checksum:
        return "inline records with another checksum than it says"
    return None


def _producer_problem(command: Append) -> str | None:
    """Return what is wrong with the producer or sequence of an append; None if nothing is."""
    if not 0 <= command.base_sequence <= producerfencing.SEQUENCE_MAX:
        return f"the sequence {command.base_sequence}: expected 0 to {producerfencing.SEQUENCE_MAX}"
    if command.producer_id < 0 or not is_epoch(command.producer_epoch):
        return (
            f"the producer {command.producer_id} with epoch {command.producer_epoch}: expected a producer id from 0 "
            f"on, and an epoch up to {PRODUCER_EPOCH_MAX}"
        )
    return None


def check_born(delta: Delta, segment: str, context: Context) -> Refusal | None:
    """Refuse a segment that vacuum may already have deleted, or that knows entries which are not there."""
    born = parse_segment_born(segment)
    floor = delta.store().segment_floor
    if born is None or not floor <= born < context.entry:
        return Refusal(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"segment {segment!r} has expired (born {born}, expected {floor} to {context.entry - 1}): "
            "upload its records again",
        )
    return None


def _after_the_end(known: ProducerState | None, command: Append) -> CommandResult | Refusal:
    """Return the answer to a batch of an ended or prepared transaction: stored before, or never.

    Of one that is not remembered nothing says which segment it named: `apply_list` checks the rest of its list.
    """
    repeated = producerfencing.check_append(known, command.producer_epoch, command.base_sequence, command.record_count)
    if isinstance(repeated, BatchMetadata):
        if _not_repeated(repeated, command) is None:
            return CommandResult(duplicate=True, base_offset=repeated.base_offset, timestamp_ms=repeated.timestamp_ms)
    elif producerfencing.is_past(known, command.producer_epoch, command.base_sequence):
        return FORGOTTEN
    return Refusal(
        ErrorCode.INVALID_TXN_STATE,
        f"transaction {command.transaction} of {command.transactional_id!r} has ended, or is prepared, without segment "
        f"{command.segment!r}: it takes no more records",
    )


def _register(delta: Delta, begun: Begun, command: Append) -> None:
    where = (command.topic_id, command.partition)
    partitions = begun.transaction.partitions
    # A transaction that begins has no partitions, so this puts its record too.
    if where not in partitions:
        delta.put(replace(begun.transaction, partitions=(*partitions, where)))


def _store(
    delta: Delta, command: Append, context: Context, partition: PartitionState, known: ProducerState | None
) -> CommandResult:
    base_offset = partition.log_end_offset
    by_entry = command.timestamp_max_ms < 0
    timestamp_min_ms = context.timestamp_ms if by_entry else command.timestamp_min_ms
    timestamp_max_ms = context.timestamp_ms if by_entry else command.timestamp_max_ms
    batch = BatchMetadata(
        command.base_sequence,
        producerfencing.next_sequence(command.base_sequence, command.record_count - 1),
        base_offset,
        timestamp_max_ms,
        command.transaction,
        token=segment_token(command.segment),
    )
    identity = (command.topic_id, command.partition, command.producer_id, command.producer_epoch)
    producer = producerfencing.with_batch(known, identity, batch)
    delta.put(producer)
    open_transactions = partition.open_transactions
    if command.transaction != NO_TRANSACTION and producer.current_transaction_first_offset == base_offset:
        opened = OpenTransaction(command.producer_id, base_offset, command.transactional_id or "")
        open_transactions = (*open_transactions, opened)
    delta.put(
        PartitionState(
            partition.topic_id,
            partition.partition,
            partition.log_start_offset,
            base_offset + command.record_count,
            open_transactions,
            partition.keyed,
        )
    )
    segment = SegmentRef(
        command.segment,
        base_offset,
        command.record_count,
        command.size_bytes,
        command.checksum,
        context.entry,
        command.producer_id,
        command.producer_epoch,
        command.base_sequence,
        command.transaction,
        timestamp_min_ms,
        timestamp_max_ms,
        context.entry if command.transaction == NO_TRANSACTION else 0,
    )
    located: PartitionSegments = delta.get(("segments", command.topic_id, command.partition))
    delta.put(
        PartitionSegments(
            located.topic_id,
            located.partition,
            located.sealed,
            (*located.segments, segment),
            located.aborted,
            located.committed,
            located.rewritten,
            located.compacted,
        )
    )
    return CommandResult(base_offset=base_offset, timestamp_ms=timestamp_max_ms if by_entry else -1)


def end_partition(
    delta: Delta, where: TopicIdPartition, transaction: TransactionState, committed: bool, context: Context
) -> None:
    """End a transaction in one partition: one offset for the control record, and a committed or an aborted range.

    A partition that was registered and got no records, or whose topic has been deleted, is left as it is.
    """
    topic_id, number = where
    producer: ProducerState | None = delta.get(("producer", topic_id, number, transaction.producer_id))
    partition: PartitionState | None = delta.get(("partition", topic_id, number))
    if partition is None or producer is None or producer.current_transaction_first_offset < 0:
        return
    first_offset = producer.current_transaction_first_offset
    control_offset = partition.log_end_offset
    still_open = tuple(o for o in partition.open_transactions if o.producer_id != transaction.producer_id)
    delta.put(replace(partition, log_end_offset=control_offset + 1, open_transactions=still_open))
    delta.put(
        producerfencing.with_marker(
            producer,
            transaction.producer_epoch,
            transaction.transaction,
            committed,
            context.entry,
            context.timestamp_ms,
        )
    )
    located: PartitionSegments = delta.get(("segments", topic_id, number))
    if committed:
        found = CommittedTransaction(transaction.producer_id, first_offset, control_offset, context.entry)
        delta.put(replace(located, committed=(*located.committed, found)))
        return
    last_stable_offset = stable_end(still_open, control_offset + 1)
    aborted = AbortedTransaction(transaction.producer_id, first_offset, control_offset, last_stable_offset)
    delta.put(replace(located, aborted=(*located.aborted, aborted)))


# The ranges of offsets that ended transactions have in a partition, by producer.

Ended = TypeVar("Ended", AbortedTransaction, CommittedTransaction)


def by_producer(ended: Iterable[Ended]) -> dict[int, list[Ended]]:
    """Return each producer's transactions in their order.

    They follow one another in a partition, so both ends of their ranges grow together.
    """
    found: dict[int, list[Ended]] = {}
    for transaction in ended:
        found.setdefault(transaction.producer_id, []).append(transaction)
    for transactions in found.values():
        transactions.sort(key=last_offset_of)
    return found


last_offset_of: Final[Callable[[AbortedTransaction | CommittedTransaction], int]] = attrgetter("last_offset")
"""Returns the offset of a transaction's control record."""


# The entry that committed a segment, which commit order goes by (PROTOCOL.md, "Commit order").
#
# A segment holds records of one transaction, or of none. One outside a transaction is committed by the entry that
# names it. One inside a transaction is committed by the entry that ends the transaction, if that commits it.


class CommittedRanges:
    """Which entry committed a partition's segments, by the ranges of its committed transactions."""

    def __init__(self, committed: Iterable[CommittedTransaction]) -> None:
        self._by_producer = by_producer(committed)

    def entry_of(self, segment: SegmentRef) -> int:
        """Return the entry that committed `segment`; 0 if its transaction is open, or was aborted."""
        if segment.committed_entry:
            return segment.committed_entry
        ranges = self._by_producer.get(segment.producer_id, [])
        index = bisect_right(ranges, segment.base_offset, key=last_offset_of)
        if index < len(ranges) and ranges[index].first_offset <= segment.base_offset:
            return ranges[index].entry
        return 0

    def noted(self, segments: Iterable[SegmentRef]) -> list[SegmentRef]:
        """Return `segments`, each with the entry that committed it."""
        noted = []
        for segment in segments:
            entry = self.entry_of(segment)
            noted.append(segment if entry == segment.committed_entry else replace(segment, committed_entry=entry))
        return noted
