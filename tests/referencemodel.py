"""A plain model of topics, transactions and offsets, written independently of the engine: what the engine must equal.

It knows neither entries nor states, only lists of records, each with the transaction that it belongs to, and what has
become of each transaction. Refusals are Kafka's error codes.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from sparktxn.errors import ErrorCode

__all__ = ["STORE", "ModelPartition", "ModelProducer", "ReferenceModel"]

Place = tuple[int, int]
Identity = tuple[int, int]
TransactionKey = tuple[int, int]
"""A transaction: the producer id under which it was begun, and its number."""

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
PENDING, DISCARDED, DELETED = "pending", "discarded", "deleted"
REJECT_SETTING_VALUES = ("true", "false", None)
STORE = 0
"""No topic has this id: it says that a setting is the store's."""
_SEQUENCES = 2**31
_BATCHES_REMEMBERED = 5


class _Batch(Struct):
    first: int
    count: int
    base_offset: int
    transaction: TransactionKey | None
    segment: str


class _Sequences(Struct):
    """What a partition knows of a producer; `epoch` -1: nothing."""

    epoch: int = -1
    batches: list[_Batch] = field(default_factory=list)


class ModelPartition(Struct):
    """Every offset from 0: (segment, transaction or None for none), or None for a control record."""

    offsets: list[tuple[str, TransactionKey | None] | None] = field(default_factory=list)
    sequences: dict[int, _Sequences] = field(default_factory=dict)


class ModelProducer(Struct):
    """A transactional id: its identity, its last transaction, and what that has collected."""

    producer_id: int
    epoch: int
    transaction: int = 0
    places: set[Place] = field(default_factory=set)
    offsets: dict[tuple[str, Place], tuple[int, int]] = field(default_factory=dict)


class ModelHalf(Struct):
    """A half transaction: the places and names of its segments, and what has become of it."""

    segments: list[tuple[Place, str, int]]
    checks: int = 0
    checker: str = ""
    fate: str = PENDING


class ReferenceModel:
    """All of it. Every method returns what the engine must answer, or the error code with which it must refuse."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.partitions = {place: ModelPartition() for place in places}
        self.producers: dict[str, ModelProducer] = {}
        self.fates: dict[TransactionKey, str] = {}
        self.committed_offsets: dict[tuple[str, Place], tuple[int, int]] = {}
        self.halves: dict[str, ModelHalf] = {}
        self.rejecting: dict[int, str | None] = {}
        self._epochs: dict[TransactionKey, int] = {}
        self._next_producer_id = 0
        self._time = 0

    def initialise(self, name: str) -> tuple[int, int]:
        """A newer producer takes over: (producer id, epoch)."""
        known = self.producers.get(name)
        if known is None:
            known = self.producers[name] = ModelProducer(self._next_producer_id, 0)
            self._next_producer_id += 1
            return known.producer_id, known.epoch
        if self._status(name) == OPEN:
            self._fence(name)
        known.epoch += 1
        return known.producer_id, known.epoch

    def append(
        self, name: str, identity: Identity, transaction: int, place: Place, sequence: int, count: int, segment: str
    ) -> int | ErrorCode:
        """The base offset."""
        producer = self._owner(name, identity, ErrorCode.INVALID_PRODUCER_EPOCH)
        if isinstance(producer, ErrorCode):
            return producer
        epoch = producer.epoch
        partition = self.partitions[place]
        known = partition.sequences.get(producer.producer_id, _Sequences())
        key = (producer.producer_id, transaction)
        if transaction == producer.transaction and self._status(name) == COMMITTED:
            return self._append_after_commit(known, epoch, key, sequence, count, segment)
        if not self._may_join(name, transaction):
            return ErrorCode.INVALID_TXN_STATE
        repeated = self._repeated(known, epoch, sequence, count)
        if repeated is not None:
            is_same = (repeated.transaction, repeated.segment) == (key, segment)
            return repeated.base_offset if is_same else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if known.epoch >= 0 and sequence != self._expected(known, epoch):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._join(name, transaction)
        producer.places.add(place)
        base_offset = len(partition.offsets)
        partition.offsets += [(segment, key)] * count
        batches = known.batches if known.epoch == epoch else []
        batches = [*batches, _Batch(sequence, count, base_offset, key, segment)][-_BATCHES_REMEMBERED:]
        partition.sequences[producer.producer_id] = _Sequences(epoch, batches)
        return base_offset

    def send_offset(
        self, name: str, identity: Identity, transaction: int, group: str, place: Place, offset: int
    ) -> ErrorCode | None:
        """A group's offset inside a transaction."""
        producer = self._adds(name, identity, transaction)
        if not isinstance(producer, ModelProducer):
            return producer
        self._join(name, transaction)
        self._time += 1
        producer.offsets[group, place] = (self._time, offset)
        return None

    def expect(
        self, name: str, identity: Identity, transaction: int, place: Place, log_end_offset: int
    ) -> ErrorCode | None:
        """An expectation of where a partition ends."""
        producer = self._adds(name, identity, transaction)
        if not isinstance(producer, ModelProducer):
            return producer
        if len(self.partitions[place].offsets) != log_end_offset:
            return ErrorCode.UNEXPECTED_END_OFFSET
        self._join(name, transaction)
        return None

    def commit_offset(self, group: str, place: Place, offset: int) -> None:
        """A group's offset outside transactions."""
        self._time += 1
        self.committed_offsets[group, place] = (self._time, offset)

    def end(
        self, name: str, identity: Identity, transaction: int, *, committed: bool, fences: bool = False
    ) -> ErrorCode | None:
        """Commits or aborts; an abort by another process, such as by a time-out, `fences` the producer."""
        producer = self._owner(name, identity)
        if isinstance(producer, ErrorCode):
            return producer
        status = self._status(name)
        if transaction != producer.transaction or status is None:
            return ErrorCode.INVALID_TXN_STATE
        if status != OPEN:
            return None if (status == COMMITTED) is committed else ErrorCode.INVALID_TXN_STATE
        if fences:
            self._fence(name)
        else:
            self._end(name, COMMITTED if committed else ABORTED)
        return None

    def forget(self, name: str, identity: Identity, transaction: int) -> ErrorCode | None:
        """A transactional id expires."""
        producer = self.producers.get(name)
        if producer is None:
            return None
        seen = (producer.producer_id, producer.epoch, producer.transaction)
        if seen != (*identity, transaction) or self.is_open(name):
            return ErrorCode.INVALID_TXN_STATE
        del self.producers[name]
        return None

    def forget_producer(self, place: Place, producer_id: int) -> None:
        """A producer expires in a partition, unless it has an open transaction there."""
        held = self.partitions[place].offsets
        if not any(at and at[1] and at[1][0] == producer_id and self.fates[at[1]] == OPEN for at in held):
            self.partitions[place].sequences.pop(producer_id, None)

    def reject_half_messages(self, owner: int, value: str | None) -> ErrorCode | None:
        """A topic, by its id, or the store sets or removes reject.transaction.message."""
        if value not in REJECT_SETTING_VALUES:
            return ErrorCode.INVALID_CONFIG
        self.rejecting[owner] = value
        return None

    def prepare_half(self, name: str, segments: list[tuple[Place, str, int]]) -> ErrorCode | None:
        """A half transaction, new or once more: pending messages are for topics that take them."""
        return self._prepare_half(name, segments, {place[0] for place, *_ in segments})

    def send_half(self, name: str, segments: list[tuple[Place, str, int]], *, committed: bool) -> ErrorCode | None:
        """A half transaction that its own list settles: an ordinary message, for any topic."""
        return self._prepare_half(name, segments, set()) or self.end_half(name, committed=committed)

    def _prepare_half(
        self, name: str, segments: list[tuple[Place, str, int]], asked_topics: set[int]
    ) -> ErrorCode | None:
        known = self.halves.get(name)
        if known is not None and known.fate in (COMMITTED, ABORTED, DELETED):
            return None if known.segments[-1] == segments[-1] else ErrorCode.INVALID_TXN_STATE
        if known is not None and known.segments[: len(segments)] == segments:
            return None
        if known is not None and known.fate == DISCARDED:
            return ErrorCode.INVALID_TXN_STATE
        if known is not None and segments[: len(known.segments)] != known.segments:
            return ErrorCode.INVALID_REQUEST
        if any((self.rejecting.get(topic_id) or self.rejecting.get(STORE)) == "true" for topic_id in asked_topics):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if known is None:
            self.halves[name] = ModelHalf(segments)
        else:
            known.segments = segments
        return None

    def check_half(self, name: str, checks: int, checker: str) -> ErrorCode | None:
        """A claim of one check."""
        half = self.halves.get(name)
        if half is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if half.fate == PENDING and (half.checks, half.checker) == (checks + 1, checker):
            return None
        if half.fate != PENDING or half.checks != checks:
            return ErrorCode.INVALID_TXN_STATE
        half.checks, half.checker = checks + 1, checker
        return None

    def end_half(self, name: str, *, committed: bool) -> ErrorCode | None:
        """A settlement: the first one decides."""
        half, fate = self.halves.get(name), COMMITTED if committed else ABORTED
        if half is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if half.fate != PENDING:
            return None if half.fate == fate else ErrorCode.INVALID_TXN_STATE
        half.fate = fate
        for place, segment, count in half.segments if committed else ():
            self.partitions[place].offsets += [(segment, None)] * count
        return None

    def discard_half(self, name: str, checks: int) -> ErrorCode | None:
        """It is checked no more."""
        half = self.halves.get(name)
        if half is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if half.fate == DISCARDED:
            return None
        if half.fate != PENDING or half.checks != checks:
            return ErrorCode.INVALID_TXN_STATE
        half.fate = DISCARDED
        return None

    def resume_half(self, name: str) -> ErrorCode | None:
        """A discarded one is pending again."""
        half = self.halves.get(name)
        if half is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if half.fate == DISCARDED:
            half.fate, half.checks, half.checker = PENDING, 0, ""
        return None if half.fate == PENDING else ErrorCode.INVALID_TXN_STATE

    def delete_half(self, name: str) -> ErrorCode | None:
        """A discarded one never takes effect."""
        half = self.halves.get(name)
        if half is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if half.fate == DISCARDED:
            half.fate = DELETED
        return None if half.fate == DELETED else ErrorCode.INVALID_TXN_STATE

    def is_open(self, name: str) -> bool:
        """True if the id has an open transaction."""
        return name in self.producers and self._status(name) == OPEN

    def last_stable_offset(self, place: Place) -> int:
        """The first offset of an open transaction, else the end."""
        offsets = self.partitions[place].offsets
        unstable = (at for at, held in enumerate(offsets) if held and held[1] and self.fates[held[1]] == OPEN)
        return next(unstable, len(offsets))

    def visible(self, place: Place) -> list[tuple[int, str]]:
        """What read_committed returns: (offset, segment) of each record."""
        stable = self.partitions[place].offsets[: self.last_stable_offset(place)]
        return [
            (offset, held[0])
            for offset, held in enumerate(stable)
            if held is not None and (held[1] is None or self.fates[held[1]] == COMMITTED)
        ]

    def _owner(
        self, name: str, identity: Identity, fenced: ErrorCode = ErrorCode.PRODUCER_FENCED
    ) -> ModelProducer | ErrorCode:
        """The id's producer, if it has this identity."""
        producer = self.producers.get(name)
        if producer is None or producer.producer_id != identity[0]:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return producer if producer.epoch == identity[1] else fenced

    def _adds(self, name: str, identity: Identity, transaction: int) -> ModelProducer | ErrorCode | None:
        """The producer, if its command adds to the transaction; None if it repeats one of a committed transaction."""
        producer = self._owner(name, identity)
        if isinstance(producer, ErrorCode):
            return producer
        if transaction == producer.transaction and self._status(name) == COMMITTED:
            return None
        return producer if self._may_join(name, transaction) else ErrorCode.INVALID_TXN_STATE

    def _status(self, name: str) -> str | None:
        """What has become of the last transaction; None if there is none that this producer knows."""
        producer = self.producers[name]
        if not producer.transaction or producer.epoch != self._epoch_of(name):
            return None
        return self.fates[producer.producer_id, producer.transaction]

    def _epoch_of(self, name: str) -> int:
        """The epoch under which the last transaction was begun, or ended by its own producer."""
        producer = self.producers[name]
        return self._epochs.get((producer.producer_id, producer.transaction), -1)

    def _may_join(self, name: str, transaction: int) -> bool:
        last = self.producers[name].transaction
        return transaction == (last if self._status(name) == OPEN else last + 1)

    def _join(self, name: str, transaction: int) -> None:
        producer = self.producers[name]
        producer.transaction = transaction
        self._epochs[producer.producer_id, transaction] = producer.epoch
        self.fates[producer.producer_id, transaction] = OPEN

    def _fence(self, name: str) -> None:
        producer = self.producers[name]
        places = set(producer.places)
        producer.epoch += 1
        self._end(name, ABORTED)
        for place in places:
            self.partitions[place].sequences[producer.producer_id] = _Sequences(producer.epoch)

    def _end(self, name: str, fate: str) -> None:
        producer = self.producers[name]
        self.fates[producer.producer_id, producer.transaction] = fate
        for place in producer.places:
            self.partitions[place].offsets.append(None)
        if fate == COMMITTED:
            for key, sent in producer.offsets.items():
                self.committed_offsets[key] = max(sent, self.committed_offsets.get(key, sent))
        producer.places = set()
        producer.offsets = {}

    def _append_after_commit(
        self, known: _Sequences, epoch: int, key: TransactionKey, sequence: int, count: int, segment: str
    ) -> int | ErrorCode:
        repeated = self._repeated(known, epoch, sequence, count)
        if repeated is not None and (repeated.transaction, repeated.segment) == (key, segment):
            return repeated.base_offset
        return ErrorCode.INVALID_TXN_STATE

    def _repeated(self, known: _Sequences, epoch: int, sequence: int, count: int) -> _Batch | None:
        for batch in known.batches if known.epoch == epoch else ():
            aborted = batch.transaction is not None and self.fates[batch.transaction] == ABORTED
            if (batch.first, batch.count) == (sequence, count) and not aborted:
                return batch
        return None

    def _expected(self, known: _Sequences, epoch: int) -> int:
        if known.epoch != epoch or not known.batches:
            return 0
        return (known.batches[-1].first + known.batches[-1].count) % _SEQUENCES
