"""The sequences that a transactional client counts, and how they go on in the log.

The log has the client's own sequences, whichever gateway writes them. So each gateway finds in the log what a client
sends again. But a gateway that keeps transactions in memory writes no record of one that is aborted. The client has
counted those records, and the log has not. A broker that has lost a producer's state takes any sequence, and so does
the log. So where it lacks records, the list that goes on has it forget the producer in the partition first.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.format.commands import ExpireProducers
from sparktxn.log.log import Log
from sparktxn.state.transactions.producers import SEQUENCE_MAX, next_sequence
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import BatchMetadata, ProducerIdAndEpoch, ProducerState

__all__ = ["NO_OFFSET", "ClientBatch", "ClientSequences", "SequenceStart"]

NO_OFFSET: Final = -1
_BATCHES_KEPT: Final = 5


class ClientBatch(NamedTuple):
    """Which batch a client sends: where to, its first sequence, and how many records it has."""

    where: TopicIdPartition
    first: int
    record_count: int


class SequenceStart(NamedTuple):
    """With which sequence the log goes on in a partition, and what the list that goes on has to forget before."""

    sequence: int
    forgets: ExpireProducers | None = None


class _Place:
    """Where a client is in one partition."""

    def __init__(self, start: SequenceStart) -> None:
        self.start = start
        self.expected = start.sequence
        self.newest: list[ClientBatch] = []


class ClientSequences:
    """Owns what a gateway knows of one producer id and epoch, by partition. One thread at a time uses it.

    Args:
        log: has the producer as it was when its transaction was opened, or later.
        identity: the producer.
        is_new: whether no gateway has had records of this epoch yet.
    """

    def __init__(self, log: Log, identity: ProducerIdAndEpoch, *, is_new: bool) -> None:
        self._log = log
        self._identity = identity
        self._is_new = is_new
        self._places: dict[TopicIdPartition, _Place] = {}

    def ended(self, *, committed: bool) -> None:
        """Note that a transaction has ended: after an abort only the log says where the next one begins."""
        if committed:
            for place in self._places.values():
                place.start = SequenceStart(place.start.sequence)
        else:
            self._is_new = False
            self._places.clear()

    def stored_at(self, batch: ClientBatch) -> int | None:
        """Return the offset of a batch that an ended transaction has stored; None of any other one.

        The first other batch in a partition is where it begins.

        Raises:
            CommandRefused: OUT_OF_ORDER_SEQUENCE_NUMBER, the log has later ones, and does not remember this one.
        """
        if batch.where in self._places:
            return None
        if self._is_new and batch.first == 0:
            self._places[batch.where] = _Place(SequenceStart(0))
            return None
        known = self._log.producer(*batch.where, self._identity.producer_id)
        is_same = known is not None and known.producer_epoch == self._identity.producer_epoch
        if known is not None and is_same and (stored := _stored(known, batch)) is not None:
            return stored.base_offset + _distance(stored.first_sequence, batch.first)
        self._places[batch.where] = _Place(_start(known, self._identity, batch))
        return None

    def start_of(self, where: TopicIdPartition) -> SequenceStart:
        """Return where a partition has begun, for the writer of its first list."""
        return self._places[where].start

    def is_taken(self, batch: ClientBatch) -> bool:
        """Return whether a batch was taken into memory before; False if it is the next one.

        Raises:
            CommandRefused: OUT_OF_ORDER_SEQUENCE_NUMBER, one before it is missing.
        """
        place = self._places[batch.where]
        if batch in place.newest:
            return True
        if batch.first != place.expected:
            raise CommandRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {batch.first} came, {place.expected} is next"
            )
        return False

    def take(self, batch: ClientBatch) -> None:
        """Note that a batch was taken into memory."""
        place = self._places[batch.where]
        place.newest = [*place.newest, batch][-_BATCHES_KEPT:]
        place.expected = next_sequence(batch.first, batch.record_count)


def _start(known: ProducerState | None, identity: ProducerIdAndEpoch, batch: ClientBatch) -> SequenceStart:
    """Return where a partition begins with `batch`; the log takes it as it is, or once it has forgotten the producer.

    Raises:
        CommandRefused: OUT_OF_ORDER_SEQUENCE_NUMBER, it is before what the log has.
    """
    if known is None or known.producer_epoch > identity.producer_epoch:  # in the latter case the log fences it
        return SequenceStart(batch.first)
    is_same = known.producer_epoch == identity.producer_epoch and bool(known.batches)
    if batch.first == (next_sequence(known.last_sequence, 1) if is_same else 0):
        return SequenceStart(batch.first)
    if is_same and _is_before(batch.first, floor := _floor(known)):
        raise CommandRefused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {batch.first} came, the log has all before {floor}"
        )
    seen = (known.producer_id, known.producer_epoch, known.last_sequence, known.coordinator_epoch)
    return SequenceStart(batch.first, ExpireProducers(*batch.where, (seen,)))


def _floor(known: ProducerState) -> int:
    """Return the sequence after all that were stored for good: those of aborted transactions may come again."""
    kept = [batch for batch in known.batches if not batch.aborted]
    return next_sequence(kept[-1].last_sequence, 1) if kept else known.batches[0].first_sequence


def _stored(known: ProducerState, batch: ClientBatch) -> BatchMetadata | None:
    """Return what the log remembers that has all of a batch: a gateway may have stored it together with others."""
    for stored in known.batches:
        size = _distance(stored.first_sequence, stored.last_sequence) + 1
        if not stored.aborted and _distance(stored.first_sequence, batch.first) + batch.record_count <= size:
            return stored
    return None


def _distance(first: int, later: int) -> int:
    return (later - first) % (SEQUENCE_MAX + 1)


def _is_before(sequence: int, other: int) -> bool:
    return 0 < _distance(sequence, other) <= SEQUENCE_MAX // 2
