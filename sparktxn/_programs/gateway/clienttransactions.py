"""Transactions that clients have open at this gateway: their records in memory, until a commit names them.

With `stores_transactions` their records are appended like others (`appending`), and only offsets are in memory.

The list that ends a transaction of version 2 (KIP-890) gives its producer the next epoch, too. So the log knows which
epoch is current, and each gateway fences what is late.

The first request of a transaction writes an entry that opens it. So every gateway sees that it is open. Only the one
that has opened it can commit it: what another one has in memory would be missing. What a gateway loses with its
memory is never committed, and the client is asked to abort.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from msgspec.structs import replace

from sparktxn import ConsumerGroupMetadata
from sparktxn._engine.format.commands import (
    AddPartitionsToTxn,
    Command,
    ExpireProducers,
    InitProducerId,
    OffsetToCommit,
)
from sparktxn._engine.log.log import Log
from sparktxn._engine.state.limits import TRANSACTION_TIMEOUT_MS_MAX
from sparktxn._engine.state.transactions.producerfencing import SEQUENCE_MAX, is_identity_before, next_sequence
from sparktxn._foundation.process.clock import acquired_in_time
from sparktxn._foundation.values.structs import (
    BatchMetadata,
    ProducerIdAndEpoch,
    ProducerState,
    TransactionState,
    TransactionStatus,
)
from sparktxn._programs.gateway.appending import TransactionOfBatch
from sparktxn._programs.gateway.gatewaysettings import GatewayLimits
from sparktxn._programs.gateway.storecalls import StoreCalls
from sparktxn._programs.gateway.wire.recordbatches import ProducedBatch
from sparktxn._rows.stage.buffers import Buffers, Limits, TopicBuffer
from sparktxn._rows.stage.pendingsegment import PendingSegment, Uploads
from sparktxn._rows.stage.transactionwriter import TransactionIdentity
from sparktxn.errors import CommandRefused, ErrorCode, OutcomeLost
from sparktxn.producer.currenttransaction import CurrentTransaction
from sparktxn.producer.outbox import MEMORY_BYTES_MAX, Outbox
from sparktxn.producer.reports import Reports
from sparktxn.store.memberexpiry import expire_overdue
from sparktxn.store.options import TopicIdPartition
from sparktxn.store.staging import StageTopic

# How many bytes of records all open transactions have in this gateway's memory.


class TransactionMemory:
    """Owns the total of all shares, which alone change it: asking for it costs the same for any number of them."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of all shares."""
        return self._held_bytes

    @property
    def is_above(self) -> bool:
        """Whether the shares have more than they may have together."""
        return self._held_bytes > self._bytes_max

    def share(self) -> TransactionShare:
        """Return a share of nothing."""
        return TransactionShare(self)

    def change(self, size_bytes: int) -> None:
        """Count bytes that a share has got, or has given back."""
        with self._lock:
            self._held_bytes += size_bytes


class TransactionShare:
    """What one transactional id has in memory. Safe for several threads."""

    def __init__(self, memory: TransactionMemory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._closed = False

    def add(self, size_bytes: int) -> None:
        """Count records, unless this is closed: a request that is under way may still bring some."""
        with self._lock:
            if not self._closed:
                self._held_bytes += size_bytes
                self._memory.change(size_bytes)

    def clear(self) -> None:
        """Count no records: they are uploaded, committed or dropped."""
        with self._lock:
            self._memory.change(-self._held_bytes)
            self._held_bytes = 0

    def close(self) -> None:
        """Count nothing from now on: nothing names these records any more."""
        with self._lock:
            self._closed = True
        self.clear()


# The sequences that a transactional client counts, and how they go on in the log.
#
# The log has the client's own sequences, whichever gateway writes them. So each gateway finds in the log what a
# client sends again. But a gateway that keeps transactions in memory writes no record of one that is aborted. The
# client has counted those records, and the log has not. A broker that has lost a producer's state takes any sequence,
# and so does the log. So where it lacks records, the list that goes on has it forget the producer in the partition
# first.

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


# One transactional id at a gateway: its open transaction, and what that has in memory.

_LIMITS: Final = Limits(records_max=100_000, batch_records_max=10_000, bytes_max=MEMORY_BYTES_MAX)
"""As much may wait as in a producer of this package with its defaults; the gateway bounds the sum of all."""


class HeldTransaction:
    """One transactional id at this gateway. Its `lock` is held by the request that works on it."""

    def __init__(
        self,
        log: Log,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        number: int,
        timeout_ms: int,
        memory: TransactionShare,
        *,
        is_new: bool,
    ) -> None:
        self.lock = threading.Lock()
        self.identity = identity
        self.is_open = False
        self.is_dropped = False
        self._failure: str | None = None
        self.sequences = ClientSequences(log, identity, is_new=is_new)
        self.partitions: set[TopicIdPartition] = set()
        self.groups: set[str] = set()
        self.memory = memory
        self.topics: dict[int, TopicBuffer] = {}
        self.buffers: Buffers = Buffers(
            Uploads.of(log), _LIMITS, on_waiting=lambda: None, served=lambda: 0, waiting_in=_waiting_in
        )
        self.outbox = Outbox(log, self.buffers, Reports())
        self.outbox.take_identity(identity)
        self.open = CurrentTransaction(
            log, self.outbox, transactional_id, timeout_ms, delivery_timeout_s=timeout_ms / 1000
        )
        self.open.number = number

    def begin(self) -> None:
        """Open the next transaction, with nothing in it."""
        self.open.begin()
        self.is_open, self._failure = True, None
        self.partitions, self.groups = set(), set()

    def end(self, *, committed: bool) -> None:
        """Note that the transaction has ended."""
        self.open.ended()
        self.sequences.ended(committed=committed)
        self.is_open, self._failure = False, None
        self.memory.clear()
        if self.outbox.identity != self.identity:
            self.identity = self.outbox.identity
            self.sequences = ClientSequences(self.open.log, self.identity, is_new=True)

    def fail(self, reason: str) -> CommandRefused:
        """Note that the transaction cannot be committed any more, and return the error that has its client abort it.

        The text is kept, and no error: that would grow by the frames of each request that it refuses.
        """
        self._failure = reason
        return CommandRefused(ErrorCode.TRANSACTION_ABORTABLE, reason)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the transaction was open at another gateway when this one was asked: it may have ended since."""
        return self._failure is not None and not self.is_open

    def check_usable(self) -> None:
        """Raise the error that has a client abort the transaction, if it has failed.

        Raises:
            CommandRefused: TRANSACTION_ABORTABLE.
        """
        if self._failure is not None:
            raise self.fail(self._failure)

    def drop(self) -> None:
        """Drop its records: another takes its place, or nothing does."""
        self.is_dropped = True
        self.outbox.let_go()
        self.memory.close()


def _waiting_in(segment: PendingSegment) -> int:
    """Return how many records of a segment wait: none once they are durable."""
    return segment.record_count if segment.staged is None or segment.staged.data else 0


_OPEN_MAX: Final = 10_000
_PASSED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
"""How an identity is refused that its own client has left behind."""


class HeldTransactions:
    """All transactional ids that clients use at this gateway. Safe for several threads."""

    def __init__(self, log: Log, limits: GatewayLimits) -> None:
        self._log = log
        self._memory = TransactionMemory(limits.transactions_bytes_max)
        self._lock = threading.Lock()
        self._held: dict[str, HeldTransaction] = {}

    @property
    def open_count(self) -> int:
        """How many transactions are open here."""
        return sum(held.is_open for held in list(self._held.values()))

    @property
    def memory_bytes(self) -> int:
        """How many bytes of records the open transactions have in memory."""
        return self._memory.held_bytes

    def initialise(
        self, transactional_id: str | None, timeout_ms: int, previous: ProducerIdAndEpoch
    ) -> ProducerIdAndEpoch:
        """Give a producer its id and epoch; for a transactional id, fence earlier ones and abort what is open.

        Raises:
            CommandRefused: the log refuses it, or a time-out is too long (INVALID_TRANSACTION_TIMEOUT).
            StoreError: call again.
        """
        if transactional_id is None:
            (result,) = self._log.submit([InitProducerId(self._log.ids.token())])
            return ProducerIdAndEpoch(result.producer_id, result.producer_epoch)
        if not transactional_id:
            raise CommandRefused(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= TRANSACTION_TIMEOUT_MS_MAX:
            raise CommandRefused(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms is {timeout_ms}: expected 1 to {TRANSACTION_TIMEOUT_MS_MAX}",
            )
        command = InitProducerId(
            self._log.ids.token(), transactional_id, timeout_ms, previous.producer_id, previous.producer_epoch
        )
        (result,) = self._log.submit([command])
        identity = ProducerIdAndEpoch(result.producer_id, result.producer_epoch)
        made = self._made(transactional_id, identity, result.transaction, timeout_ms, is_new=True)
        self._hold(transactional_id, made)
        return identity

    def holds(self, transactional_id: str) -> bool:
        """Return whether a transaction of it is open here, so that no other gateway can commit it."""
        held = self._held.get(transactional_id)
        return held is not None and held.is_open

    def register(
        self, transactional_id: str, identity: ProducerIdAndEpoch, partitions: set[TopicIdPartition], group: str = ""
    ) -> None:
        """Open the transaction that a client has begun, and note what it will contain.

        Raises:
            CommandRefused: the producer is fenced, or the transaction was opened at another gateway.
            StoreError: call again.
        """
        try:
            self._register(transactional_id, identity, partitions, group)
        except CommandRefused as refused:
            if refused.error.code() != ErrorCode.INVALID_TXN_STATE:
                raise
            # Another gateway has served the transactional id since: this one goes on from what the log says.
            self._forget(transactional_id)
            self._register(transactional_id, identity, partitions, group)

    def takes(
        self, transactional_id: str, identity: ProducerIdAndEpoch, partitions: Iterable[TopicIdPartition]
    ) -> bool:
        """Return whether the open transaction has these partitions already; False where a request works on it."""
        held = self._held.get(transactional_id)
        is_same = held is not None and held.is_open and held.identity == identity
        return held is not None and is_same and held.partitions.issuperset(partitions)

    def _register(
        self, transactional_id: str, identity: ProducerIdAndEpoch, partitions: set[TopicIdPartition], group: str
    ) -> None:
        with self._working(transactional_id, identity) as held:
            held.check_usable()
            begins = not held.is_open
            if begins:
                held.begin()
            missing = partitions - held.partitions
            if not missing and (not group or group in held.groups):
                # A client asks twice, or for its next transaction: another gateway may have ended this one.
                if not self._is_open_still(transactional_id, held):
                    raise CommandRefused(ErrorCode.INVALID_TXN_STATE, f"{transactional_id!r} has ended its transaction")
                return
            try:
                held.open.register(missing, group, opens=begins)
            except CommandRefused as refused:
                self._note_passed(held, transactional_id, refused)
                if begins:
                    held.is_open = False
                raise
            held.partitions |= missing
            held.groups |= {group} - {""}

    def _is_open_still(self, transactional_id: str, held: HeldTransaction) -> bool:
        """Read the log to its end, and return whether no other gateway has ended the transaction."""
        with self._log.known():
            pass
        return self._is_ongoing(transactional_id, held)

    @staticmethod
    def _note_passed(held: HeldTransaction, transactional_id: str, refused: CommandRefused) -> None:
        """Ask the client to abort if the log has ended its transaction since, but not its producer.

        Raises:
            CommandRefused: TRANSACTION_ABORTABLE.
        """
        if refused.error.code() == ErrorCode.INVALID_PRODUCER_ID_MAPPING and held.open.published:
            raise held.fail(_elsewhere(transactional_id)) from refused

    def identify(
        self, transactional_id: str, topic: StageTopic, partition: int, batch: ProducedBatch
    ) -> TransactionOfBatch | int:
        """Return the transaction that is open, for a batch that is to be stored; of one that is the offset.

        Raises:
            CommandRefused: as `produce`, but for batches that are missing: the log knows these.
        """
        with self._working(transactional_id, ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)) as held:
            self._check_added(held, transactional_id, topic, partition)
            sent = _sent(topic, partition, batch)
            offset = held.sequences.stored_at(sent)
            if offset is not None:
                return offset
            start = held.sequences.start_of(sent.where)
            return TransactionOfBatch(held.open.identity(), start.forgets if start.sequence == sent.first else None)

    def _check_added(self, held: HeldTransaction, transactional_id: str, topic: StageTopic, partition: int) -> None:
        held.check_usable()
        if not held.is_open or (topic.topic_id, partition) not in held.partitions:
            raise self._not_added(held, transactional_id, f"{topic.name!r} [{partition}]")

    async def produce(
        self, transactional_id: str | None, topic: StageTopic, partition: int, batch: ProducedBatch, calls: StoreCalls
    ) -> int:
        """Take a batch into the open transaction's memory; full segments are uploaded meanwhile.

        Return its offset if an earlier transaction has stored it, else -1.

        Raises:
            CommandRefused: the producer is fenced, a batch is missing before it, the partition was not added, or the
                transaction was opened at another gateway.
        """
        return await calls.run(self._produce, transactional_id or "", topic, partition, batch)

    def _produce(self, transactional_id: str, topic: StageTopic, partition: int, batch: ProducedBatch) -> int:
        identity = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
        with self._working(transactional_id, identity) as held:
            self._check_added(held, transactional_id, topic, partition)
            sent = _sent(topic, partition, batch)
            offset = held.sequences.stored_at(sent)
            if offset is not None:
                return offset
            try:
                if held.sequences.is_taken(sent):
                    return NO_OFFSET
            except CommandRefused:
                if not self._is_open_still(transactional_id, held):
                    raise held.fail(_elsewhere(transactional_id)) from None
                raise
            start = held.sequences.start_of(sent.where)
            if start.sequence == sent.first:
                held.outbox.continue_at(sent.where, *start)
            buffer = held.topics.get(topic.topic_id)
            if buffer is None or buffer.partition_count <= partition:
                buffer = held.topics[topic.topic_id] = TopicBuffer(topic)
            held.buffers.add_table(buffer.partitions[partition], batch.records)
            held.sequences.take(sent)
            held.memory.add(batch.records.nbytes)
            if self._memory.is_above:
                self._drop_ended()
            if self._memory.is_above:
                held.open.upload()
                held.memory.clear()
            return NO_OFFSET

    def _drop_ended(self) -> None:
        """Drop the records of transactions that have ended without their client, which nothing else would do.

        One on which a request works is left for the next time.
        """
        with self._lock:
            others = [(name, held) for name, held in self._held.items() if held.is_open]
        for transactional_id, held in others:
            if held.lock.acquire(blocking=False):
                try:
                    if held.is_open and not self._is_ongoing(transactional_id, held):
                        self._forget(transactional_id, held)
                finally:
                    held.lock.release()

    def _is_ongoing(self, transactional_id: str, held: HeldTransaction) -> bool:
        """Return whether a transaction was open as last known: this process has written the entry that opens it."""
        known = self._log.transaction(transactional_id)
        if known is None or known.status is not TransactionStatus.ONGOING:
            return False
        named = (transactional_id, known.producer_id, known.producer_epoch, known.transaction)
        return named == held.open.identity().names()

    def add_offsets(
        self,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        group: ConsumerGroupMetadata,
        offsets: Mapping[TopicIdPartition, OffsetToCommit],
        member: ConsumerGroupMetadata | None = None,
    ) -> None:
        """Add a group's offsets to the open transaction, and have the log check them against the group.

        With `member` the log checks in the same list that its group has it.

        Raises:
            CommandRefused: as `register`; the group has another generation (ILLEGAL_GENERATION), or other members.
            StoreError: call again.
        """
        with self._working(transactional_id, identity) as held:
            held.check_usable()
            if not held.is_open or group.group_id not in held.groups:
                raise self._not_added(held, transactional_id, f"group {group.group_id!r}")
            if member is not None:
                held.open.add_offsets(member, {})
            for speaker, own in self._by_speaker(group, offsets):
                held.open.add_offsets(speaker, own)
            try:
                held.open.publish()
            except CommandRefused as refused:
                held.open.forget_offsets()
                self._note_passed(held, transactional_id, refused)
                raise

    def _by_speaker(
        self, group: ConsumerGroupMetadata, offsets: Mapping[TopicIdPartition, OffsetToCommit]
    ) -> Iterator[tuple[ConsumerGroupMetadata, Mapping[TopicIdPartition, OffsetToCommit]]]:
        """Yield offsets with the member that commits them.

        A client from before KIP-447 names none, and a broker takes what it says. Here the member speaks for it that
        holds the partition: the log refuses what names none where a group has members.
        """
        if group.member_id or group.owner:
            yield group, offsets
            return
        expire_overdue(self._log, [group.group_id])
        left = dict(offsets)
        for member in self._log.group_members(group.group_id):
            holds = {(held.topic_id, held.partition) for held in (*member.assigned, *member.revoking)}
            own = {where: left.pop(where) for where in holds & left.keys()}
            if own:
                yield replace(group, member_id=member.member_id, generation_id=member.member_epoch), own
        if left:
            yield group, left

    def end(self, transactional_id: str, identity: ProducerIdAndEpoch, *, committed: bool) -> None:
        """Commit or abort the transaction; what has ended so before is not an error, as a client may ask twice.

        Raises:
            CommandRefused: it cannot end so, or the producer is fenced.
            StoreError: call again.
        """
        with self._working(transactional_id, identity) as held:
            if committed:
                self._commit(held, transactional_id)
            else:
                self._abort(held, transactional_id)

    def end_and_renew(
        self, transactional_id: str, identity: ProducerIdAndEpoch, *, committed: bool
    ) -> ProducerIdAndEpoch:
        """End a transaction of version 2, and return the next identity: the same one to a client that asks twice.

        Raises:
            CommandRefused: as `end`. An abort of nothing is none: it gives the next epoch, as at a broker.
            StoreError: call again.
        """
        try:
            with self._working(transactional_id, identity) as held:
                if not committed:
                    return self._abort_and_renew(held, transactional_id)
                try:
                    self._commit(held, transactional_id, takes_epoch=True)
                except CommandRefused as refused:
                    if refused.error.code() == ErrorCode.TRANSACTION_ABORTABLE:
                        # The gateway that has its records might still commit it. Its client is about to abort it.
                        self._abort_and_renew(held, transactional_id)
                    raise
                return held.identity
        except CommandRefused as refused:
            renewed = self._renewed_before(transactional_id, identity, committed)
            if renewed is None or refused.error.code() not in _PASSED:
                raise
            return renewed

    def _renewed_before(
        self, transactional_id: str, identity: ProducerIdAndEpoch, committed: bool
    ) -> ProducerIdAndEpoch | None:
        """Return the identity that this producer has got at the same end; None if it has not ended one so."""
        with self._log.known() as state:
            known = state.transaction(transactional_id)
        if known is None or known.status is not TransactionStatus.EMPTY:
            return None
        if known.committed != committed or not is_identity_before(known, identity):
            return None
        return ProducerIdAndEpoch(known.producer_id, known.producer_epoch)

    def _commit(self, held: HeldTransaction, transactional_id: str, *, takes_epoch: bool = False) -> None:
        held.check_usable()
        if not held.is_open:
            known = self._known(transactional_id, held.identity)
            if known.status is TransactionStatus.ONGOING:
                raise opened_elsewhere(transactional_id)
            if known.status is not TransactionStatus.COMPLETE_COMMIT or takes_epoch:
                raise CommandRefused(ErrorCode.INVALID_TXN_STATE, f"{transactional_id!r} has no transaction to commit")
            return
        try:
            held.open.commit(takes_epoch=takes_epoch)
        except CommandRefused as refused:
            raise self._failed(held, refused) from refused
        except OutcomeLost:
            self._forget(transactional_id, held)  # to a client that asks again the log says how it has ended
            raise
        held.end(committed=True)

    def _not_added(self, held: HeldTransaction, transactional_id: str, what: str) -> CommandRefused:
        """Return why a transaction takes nothing: it may be open, but elsewhere."""
        if not held.is_open and self._known(transactional_id, held.identity).status is TransactionStatus.ONGOING:
            return opened_elsewhere(transactional_id)
        return CommandRefused(ErrorCode.INVALID_TXN_STATE, f"{what} was not added to the transaction")

    def _failed(self, held: HeldTransaction, refused: CommandRefused) -> CommandRefused:
        """Note that the transaction cannot be committed; say so with a code that asks the client to abort it."""
        if refused.error.code() in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            return refused
        return held.fail(refused.error.str())

    def _abort(self, held: HeldTransaction, transactional_id: str) -> None:
        if held.is_open and self._aborts(held):
            held.end(committed=False)
            return
        known = self._known(transactional_id, held.identity)
        if known.status is TransactionStatus.ONGOING:
            self._log.submit([_named(known, known.transaction).end(committed=False)])
            self._forget(transactional_id)
        elif held.is_open:
            self._forget(transactional_id)
        elif known.status is not TransactionStatus.COMPLETE_ABORT:
            raise CommandRefused(ErrorCode.INVALID_TXN_STATE, f"{transactional_id!r} has no transaction to abort")

    @staticmethod
    def _aborts(held: HeldTransaction) -> bool:
        """Abort what is open here; return False if another gateway has ended it, and may have begun the next one."""
        try:
            held.open.abort()
        except CommandRefused as refused:
            if refused.error.code() != ErrorCode.INVALID_TXN_STATE:
                raise
            return False
        return True

    def _abort_and_renew(self, held: HeldTransaction, transactional_id: str) -> ProducerIdAndEpoch:
        """Abort what is open, at whichever gateway, in the list that gives the next epoch.

        Where nothing is open a transaction begins first: the state then says how the last one has ended.
        """
        known = self._known(transactional_id, held.identity)
        is_open = known.status is TransactionStatus.ONGOING
        named = _named(known, known.transaction if is_open else known.transaction + 1)
        begins: list[Command] = [] if is_open else [AddPartitionsToTxn(*named.names(), partitions=())]
        renews = named.next_epoch(self._log.ids.token(), known.timeout_ms)
        *_, renewed = self._log.submit([*begins, named.end(committed=False), renews])
        identity = ProducerIdAndEpoch(renewed.producer_id, renewed.producer_epoch)
        made = self._made(transactional_id, identity, renewed.transaction, known.timeout_ms, is_new=True)
        self._hold(transactional_id, made)
        return identity

    @contextmanager
    def _working(self, transactional_id: str, identity: ProducerIdAndEpoch) -> Iterator[HeldTransaction]:
        """Have the body work on a transactional id alone; an epoch that is too old is a fence, as at a coordinator.

        Raises:
            CommandRefused: CONCURRENT_TRANSACTIONS, another request works on it until the deadline.
        """
        held = self._held_for(transactional_id, identity)
        if not acquired_in_time(held.lock):
            raise CommandRefused(ErrorCode.CONCURRENT_TRANSACTIONS, f"{transactional_id!r} is busy")
        try:
            if held.identity != identity or held.is_dropped:  # the request before has ended the transaction
                self._known(transactional_id, identity)
                raise CommandRefused(ErrorCode.CONCURRENT_TRANSACTIONS, f"{transactional_id!r} has just changed")
            yield held
        except CommandRefused as refused:
            if refused.error.code() == ErrorCode.INVALID_PRODUCER_EPOCH:
                raise CommandRefused(ErrorCode.PRODUCER_FENCED, refused.error.str()) from refused
            raise
        finally:
            held.lock.release()

    def _held_for(self, transactional_id: str, identity: ProducerIdAndEpoch) -> HeldTransaction:
        with self._lock:
            held = self._held.get(transactional_id)
        if held is None or held.identity != identity or held.is_elsewhere:
            known = self._known(transactional_id, identity)
            number = known.transaction
            made = self._made(transactional_id, identity, number, known.timeout_ms, is_new=False)
            if known.status is TransactionStatus.ONGOING:
                made.fail(_elsewhere(transactional_id))
            held = self._hold(transactional_id, made, replaces=held)
        return held

    def _known(self, transactional_id: str, identity: ProducerIdAndEpoch) -> TransactionState:
        """Return what the log says of a transactional id, if this producer has it.

        Raises:
            CommandRefused: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
        """
        with self._log.known() as state:
            known = state.transaction(transactional_id)
        if known is None or known.producer_id != identity.producer_id:
            raise CommandRefused(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{transactional_id!r} has no producer {identity.producer_id}"
            )
        if known.producer_epoch != identity.producer_epoch:
            raise CommandRefused(
                ErrorCode.PRODUCER_FENCED,
                f"{transactional_id!r} has epoch {known.producer_epoch}, not {identity.producer_epoch}",
            )
        return known

    def _made(
        self, transactional_id: str, identity: ProducerIdAndEpoch, number: int, timeout_ms: int, *, is_new: bool
    ) -> HeldTransaction:
        share = self._memory.share()
        return HeldTransaction(self._log, transactional_id, identity, number, timeout_ms, share, is_new=is_new)

    def _hold(
        self, transactional_id: str, held: HeldTransaction, *, replaces: HeldTransaction | None = None
    ) -> HeldTransaction:
        """Keep what is held of a transactional id, and return it, or what another thread has just made.

        The records of what it takes the place of are dropped.
        """
        with self._lock:
            before = self._held.pop(transactional_id, None)
            if replaces is not None and before not in (None, replaces):
                held = before
            self._held[transactional_id] = held
            idle = [name for name, other in self._held.items() if not other.is_open and other is not held]
            for name in idle[: max(0, len(self._held) - _OPEN_MAX)]:
                self._held.pop(name).memory.close()
        if before is not None and before is not held:
            before.drop()
        return held

    def _forget(self, transactional_id: str, expected: HeldTransaction | None = None) -> None:
        with self._lock:
            before = self._held.get(transactional_id)
            if before is None or expected not in (None, before):
                return
            del self._held[transactional_id]
        before.drop()


def opened_elsewhere(transactional_id: str) -> CommandRefused:
    """Return the error of a transaction that this gateway does not commit: its client aborts it."""
    return CommandRefused(ErrorCode.TRANSACTION_ABORTABLE, _elsewhere(transactional_id))


def _elsewhere(transactional_id: str) -> str:
    return f"the transaction of {transactional_id!r} was opened elsewhere: abort it"


def _named(known: TransactionState, number: int) -> TransactionIdentity:
    return TransactionIdentity(known.transactional_id, known.producer_id, known.producer_epoch, number)


def _sent(topic: StageTopic, partition: int, batch: ProducedBatch) -> ClientBatch:
    return ClientBatch((topic.topic_id, partition), batch.base_sequence, batch.records.num_rows)


# Open transactions that have registered a partition and have no records there yet, for administrators.
#
# Their records are in the memory of a gateway, or of another client. So they have no first offset, by which `kafka-
# transactions.sh` names what it aborts. They are shown with a number in its place. It is above all offsets, and no
# other transaction has it. It stays the same while the transaction is open, so an abort by it ends what was shown.

_ABOVE_ALL: Final = 2**62
_ENTRY: Final = 2**20
"""As many transactions may begin in one entry before two of them could have the same number."""


class Unstored(NamedTuple):
    """Such a transaction, and the number in place of its first offset."""

    state: TransactionState
    start_offset: int


def unstored_transactions(log: Log, where: TopicIdPartition) -> list[Unstored]:
    """Return those of a partition, as last known, by the numbers."""
    located = log.partition(*where)
    stored = set() if located is None else {opened.producer_id for opened in located[0].open_transactions}
    found = [
        Unstored(state, _ABOVE_ALL + state.start_entry * _ENTRY + state.producer_id % _ENTRY)
        for state in log.transactions()
        if state.status is TransactionStatus.ONGOING
        and state.prepared is None
        and where in state.partitions
        and state.producer_id not in stored
    ]
    return sorted(found, key=lambda each: each.start_offset)
