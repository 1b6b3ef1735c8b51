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
from typing import Final

from msgspec.structs import replace

from sparktxn.errors import CommandRefused, ErrorCode, KafkaException, OutcomeLost
from sparktxn.format.commands import AddPartitionsToTxn, Command, InitProducerId, OffsetToCommit
from sparktxn.gateway.gatewaysettings import GatewaySettings
from sparktxn.gateway.storecalls import StoreCalls
from sparktxn.gateway.transactions.transactionmemory import TransactionMemory, TransactionShare
from sparktxn.gateway.wire.recordbatches import ProducedBatch
from sparktxn.kafka.message import ConsumerGroupMetadata
from sparktxn.kafka.settings.producer import ProducerSettings
from sparktxn.log.log import Log
from sparktxn.process.clock import acquired_in_time
from sparktxn.producer.currenttransaction import CurrentTransaction
from sparktxn.producer.outbox import Outbox, buffers_of
from sparktxn.producer.reports import Reports
from sparktxn.stage.buffers import Buffers, TopicBuffer
from sparktxn.stage.stagedsegment import StageTopic
from sparktxn.stage.transaction import TransactionIdentity
from sparktxn.state.transactions.producerfencing import is_identity_before
from sparktxn.state.transactions.producers import next_sequence
from sparktxn.store.memberexpiry import expire_overdue
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import ProducerIdAndEpoch, TransactionState, TransactionStatus

__all__ = ["HeldTransactions"]

_OPEN_MAX: Final = 10_000
_PASSED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
"""How an identity is refused that its own client has left behind."""


class _Held:
    """One transactional id at this gateway. Its `lock` is held by the request that works on it."""

    def __init__(
        self,
        log: Log,
        settings: ProducerSettings,
        identity: ProducerIdAndEpoch,
        number: int,
        timeout_ms: int,
        memory: TransactionShare,
    ) -> None:
        assert settings.transactional_id is not None
        self.lock = threading.Lock()
        self.identity = identity
        self.is_adopted = False
        self.is_open = False
        self.is_dropped = False
        self.failure: KafkaException | None = None
        """Why the open transaction cannot be committed any more."""
        self.expected: dict[TopicIdPartition, tuple[int, list[tuple[int, int]]]] = {}
        """By partition, the client's next sequence, and its newest batches as (first sequence, count)."""
        self.partitions: set[TopicIdPartition] = set()
        self.groups: set[str] = set()
        self.memory = memory
        self.topics: dict[int, TopicBuffer] = {}
        self.buffers: Buffers = buffers_of(log, settings, on_waiting=_nothing, served=_none)
        self.outbox = Outbox(log, self.buffers, Reports())
        self.outbox.take_identity(identity)
        self.open = CurrentTransaction(
            log, self.outbox, settings.transactional_id, timeout_ms, delivery_timeout_s=timeout_ms / 1000
        )
        self.open.number = number

    def begin(self) -> None:
        """Open the next transaction, with nothing in it."""
        self.open.begin()
        self.is_open, self.failure = True, None
        self.partitions, self.groups = set(), set()

    def end(self) -> None:
        """Note that the transaction has ended."""
        self.open.ended()
        self.is_open, self.failure = False, None
        self.memory.clear()
        if self.outbox.identity != self.identity:
            self.identity = self.outbox.identity
            self.expected.clear()
            self.is_adopted = False

    def drop(self) -> None:
        """Drop its records: another takes its place, or nothing does."""
        self.is_dropped = True
        self.outbox.let_go()
        self.memory.close()


def _nothing() -> None:
    return None


def _none() -> int:
    return 0


class HeldTransactions:
    """All transactional ids that clients use at this gateway. Safe for several threads."""

    def __init__(self, log: Log, settings: GatewaySettings) -> None:
        self._log = log
        self._memory = TransactionMemory(settings.transactions_bytes_max)
        self._timeout_ms_max = settings.transaction_timeout_ms_max
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

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
        if not 0 < timeout_ms <= self._timeout_ms_max:
            raise CommandRefused(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms is {timeout_ms}: expected 1 to {self._timeout_ms_max}",
            )
        command = InitProducerId(
            self._log.ids.token(), transactional_id, timeout_ms, previous.producer_id, previous.producer_epoch
        )
        (result,) = self._log.submit([command])
        identity = ProducerIdAndEpoch(result.producer_id, result.producer_epoch)
        self._hold(transactional_id, self._made(transactional_id, identity, result.transaction, timeout_ms))
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
            self._check_usable(held)
            begins = not held.is_open
            if begins:
                held.begin()
            missing = partitions - held.partitions
            if not missing and (not group or group in held.groups):
                return
            # Not for what was initialised here: a read of the log would wait for the entry that others write.
            for where in missing if held.is_adopted else ():
                held.outbox.continue_at(where, self._next_sequence(where, identity))
            try:
                held.open.register(missing, group, opens=begins)
            except CommandRefused as refused:
                self._note_passed(held, transactional_id, refused)
                if begins:
                    held.is_open = False
                raise
            held.partitions |= missing
            held.groups |= {group} - {""}

    @staticmethod
    def _note_passed(held: _Held, transactional_id: str, refused: CommandRefused) -> None:
        """Ask the client to abort if the log has ended its transaction since, but not its producer.

        Raises:
            CommandRefused: TRANSACTION_ABORTABLE.
        """
        if refused.error.code() == ErrorCode.INVALID_PRODUCER_ID_MAPPING and held.open.published:
            held.failure = _lost(transactional_id)
            raise held.failure from refused

    def _next_sequence(self, where: TopicIdPartition, identity: ProducerIdAndEpoch) -> int:
        known = self._log.producer(*where, identity.producer_id)
        if known is None or known.producer_epoch != identity.producer_epoch or not known.batches:
            return 0
        return next_sequence(known.last_sequence, 1)

    def identify(
        self, transactional_id: str, topic: StageTopic, partition: int, identity: ProducerIdAndEpoch
    ) -> TransactionIdentity:
        """Return the transaction that is open, and takes records for a partition.

        Raises:
            CommandRefused: as `produce`, but for batches that are missing: the log knows these.
        """
        with self._working(transactional_id, identity) as held:
            self._check_added(held, transactional_id, topic, partition)
            return held.open.identity()

    def _check_added(self, held: _Held, transactional_id: str, topic: StageTopic, partition: int) -> None:
        self._check_usable(held)
        if not held.is_open or (topic.topic_id, partition) not in held.partitions:
            raise self._not_added(held, transactional_id, f"{topic.name!r} [{partition}]")

    async def produce(
        self, transactional_id: str | None, topic: StageTopic, partition: int, batch: ProducedBatch, calls: StoreCalls
    ) -> None:
        """Take a batch into the open transaction's memory; full segments are uploaded meanwhile.

        Raises:
            CommandRefused: the producer is fenced, a batch is missing before it, the partition was not added, or the
                transaction was opened at another gateway.
        """
        await calls.run(self._produce, transactional_id or "", topic, partition, batch)

    def _produce(self, transactional_id: str, topic: StageTopic, partition: int, batch: ProducedBatch) -> None:
        identity = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
        where = (topic.topic_id, partition)
        with self._working(transactional_id, identity) as held:
            self._check_added(held, transactional_id, topic, partition)
            if _is_repeated(held, where, batch):
                return
            buffer = held.topics.get(topic.topic_id)
            if buffer is None or buffer.partition_count <= partition:
                buffer = held.topics[topic.topic_id] = TopicBuffer(topic)
            held.buffers.add_table(buffer.partitions[partition], batch.records)
            held.memory.add(batch.records.nbytes)
            if self._memory.is_above:
                self._drop_ended()
            if self._memory.is_above:
                held.open.upload()
                held.memory.clear()

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

    def _is_ongoing(self, transactional_id: str, held: _Held) -> bool:
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
            self._check_usable(held)
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

    def _commit(self, held: _Held, transactional_id: str, *, takes_epoch: bool = False) -> None:
        self._check_usable(held)
        if not held.is_open:
            known = self._known(transactional_id, held.identity)
            if known.status is TransactionStatus.ONGOING:
                raise _lost(transactional_id)
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
        held.end()

    def _not_added(self, held: _Held, transactional_id: str, what: str) -> CommandRefused:
        """Return why a transaction takes nothing: it may be open, but elsewhere."""
        if not held.is_open and self._known(transactional_id, held.identity).status is TransactionStatus.ONGOING:
            return _lost(transactional_id)
        return CommandRefused(ErrorCode.INVALID_TXN_STATE, f"{what} was not added to the transaction")

    def _failed(self, held: _Held, refused: CommandRefused) -> CommandRefused:
        """Note that the transaction cannot be committed; say so with a code that asks the client to abort it."""
        if refused.error.code() in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            return refused
        held.failure = CommandRefused(ErrorCode.TRANSACTION_ABORTABLE, refused.error.str())
        return held.failure

    def _abort(self, held: _Held, transactional_id: str) -> None:
        if held.is_open:
            held.open.abort()
            held.end()
            held.expected.clear()
            return
        known = self._known(transactional_id, held.identity)
        if known.status is TransactionStatus.ONGOING:
            self._log.submit([_named(known, known.transaction).end(committed=False)])
            self._forget(transactional_id)
        elif known.status is not TransactionStatus.COMPLETE_ABORT:
            raise CommandRefused(ErrorCode.INVALID_TXN_STATE, f"{transactional_id!r} has no transaction to abort")

    def _abort_and_renew(self, held: _Held, transactional_id: str) -> ProducerIdAndEpoch:
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
        self._hold(transactional_id, self._made(transactional_id, identity, renewed.transaction, known.timeout_ms))
        return identity

    def _check_usable(self, held: _Held) -> None:
        if held.failure is not None:
            raise held.failure

    @contextmanager
    def _working(self, transactional_id: str, identity: ProducerIdAndEpoch) -> Iterator[_Held]:
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

    def _held_for(self, transactional_id: str, identity: ProducerIdAndEpoch) -> _Held:
        with self._lock:
            held = self._held.get(transactional_id)
        if held is None or held.identity != identity:
            known = self._known(transactional_id, identity)
            number = known.transaction
            made = self._made(transactional_id, identity, number, known.timeout_ms)
            made.is_adopted = True
            if known.status is TransactionStatus.ONGOING:
                made.failure = _lost(transactional_id)
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

    def _made(self, transactional_id: str, identity: ProducerIdAndEpoch, number: int, timeout_ms: int) -> _Held:
        settings = ProducerSettings.parse(
            {"bootstrap.servers": self._log.objects.uri, "transactional.id": transactional_id}
        )
        return _Held(self._log, settings, identity, number, timeout_ms, self._memory.share())

    def _hold(self, transactional_id: str, held: _Held, *, replaces: _Held | None = None) -> _Held:
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

    def _forget(self, transactional_id: str, expected: _Held | None = None) -> None:
        with self._lock:
            before = self._held.get(transactional_id)
            if before is None or expected not in (None, before):
                return
            del self._held[transactional_id]
        before.drop()


def _lost(transactional_id: str) -> CommandRefused:
    return CommandRefused(
        ErrorCode.TRANSACTION_ABORTABLE, f"the transaction of {transactional_id!r} was opened elsewhere: abort it"
    )


def _named(known: TransactionState, number: int) -> TransactionIdentity:
    return TransactionIdentity(known.transactional_id, known.producer_id, known.producer_epoch, number)


_BATCHES_KEPT: Final = 5


def _is_repeated(held: _Held, where: TopicIdPartition, batch: ProducedBatch) -> bool:
    """Return True if a batch was taken before; else note it.

    Raises:
        CommandRefused: OUT_OF_ORDER_SEQUENCE_NUMBER, one before it is missing.
    """
    count = batch.records.num_rows
    expected, newest = held.expected.get(where, (batch.base_sequence, []))
    if (batch.base_sequence, count) in newest:
        return True
    if batch.base_sequence != expected:
        raise CommandRefused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {batch.base_sequence} came, {expected} is next"
        )
    kept = [*newest, (batch.base_sequence, count)][-_BATCHES_KEPT:]
    held.expected[where] = (next_sequence(batch.base_sequence, count), kept)
    return False
