"""The transactional calls: init, begin, offsets, publish, prepare, complete, commit, abort.

A transaction writes nothing before it publishes. `commit` puts appends, offsets and the end into one list of commands,
so a producer that dies before it leaves nothing to repair (PROTOCOL.md, "Fused commit"). `prepare` puts everything but
the end into one list: the transaction then waits for it, through any number of inits that keep it (KIP-939).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sparktxn.errors import (
    CommandRefused,
    ConfigurationError,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeLost,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TransactionAborted,
)
from sparktxn.format.commands import (
    AddPartitionsToTxn,
    Command,
    CommandResult,
    ExpectEndOffset,
    OffsetToCommit,
    PrepareTxn,
    TxnOffsetCommit,
)
from sparktxn.kafka.message import ConsumerGroupMetadata, TopicPartition
from sparktxn.process.clock import is_time_up
from sparktxn.producer.outbox import Outbox
from sparktxn.producer.preparedstate import PreparedTransaction
from sparktxn.producer.states import ProducerStates, TransactionalCalls, TransactionState
from sparktxn.producer.transactionerrors import BUMPING_CODES, Failure, Operation, failure_of
from sparktxn.stage.pendingsegment import PendingSegment, purged
from sparktxn.stage.transaction import NO_IDENTITY, TransactionIdentity
from sparktxn.store.internaltopics import refuse_change
from sparktxn.store.memberexpiry import expire_overdue
from sparktxn.values import arguments
from sparktxn.values.structs import NO_PRODUCER_ID, NO_TRANSACTION, ProducerIdAndEpoch

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["Transactions"]

_S: Final = TransactionState
_GroupOffsets = dict[ConsumerGroupMetadata, dict[tuple[int, int], OffsetToCommit]]
_INIT_RETRY_S: Final = 0.02


class Transactions:
    """One transactional id's transactions, one after the other."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        delivery_timeout_s: float,
        on_fatal: Callable[[KafkaError], None],
        on_change: Callable[[], None],
    ) -> None:
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._delivery_timeout_s = delivery_timeout_s
        self._on_fatal = on_fatal
        self._on_change = on_change
        self._states = ProducerStates()
        self._calls = TransactionalCalls()
        self._log: Log | None = None
        self._outbox: Outbox | None = None
        self._number = NO_TRANSACTION
        self._prepared: PreparedTransaction | None = None
        self._published = False
        self._needs_bump = False
        self._offsets: _GroupOffsets = {}
        self._sent_offsets: _GroupOffsets = {}
        self._expected: dict[tuple[int, int], int] = {}

    @property
    def state(self) -> TransactionState:
        """The state."""
        return self._states.current

    def require_open(self, call: str) -> None:
        """Pass inside a transaction.

        Raises:
            KafkaException: _STATE outside one, or the error of an error state.
        """
        self._states.require(call, _S.IN_TRANSACTION)

    # --- the calls -----------------------------------------------------------------------------------------------

    def init(self, connect: Callable[[], tuple[Log, Outbox]], *, keep_prepared: bool = False) -> None:
        """Take the transactional id over: fence older producers and abort what they left open.

        With `keep_prepared` a prepared transaction stays, and is this producer's to end.
        """
        with self._calls.call("init_transactions"):
            self._states.require("init_transactions", _S.UNINITIALIZED, _S.INITIALIZING)
            if self.state is _S.UNINITIALIZED:
                self._states.move(_S.INITIALIZING)
            self._log, self._outbox = connect()
            with self._outbox.exclusive(), self._classified(Operation.INIT):
                result = self._initialise(keep_prepared=keep_prepared)
            self._number = result.transaction
            if result.prepared_producer_id == NO_PRODUCER_ID:
                self._move(_S.READY)
                return
            self._number -= 1
            self._published = True
            self._prepared = PreparedTransaction(result.prepared_producer_id, result.prepared_producer_epoch)
            self._move(_S.PREPARED_TRANSACTION)

    def begin(self) -> None:
        """Open a transaction. Nothing is written."""
        with self._calls.call("begin_transaction"):
            self._states.require("begin_transaction", _S.READY)
            self._published = False
            self._needs_bump = False
            self._offsets = {}
            self._sent_offsets = {}
            self._expected = {}
            self._opened().dropped_records = 0
            self._opened().published_records = {}
            self._move(_S.IN_TRANSACTION)

    def add_offsets(self, positions: Iterable[TopicPartition], group: ConsumerGroupMetadata) -> None:
        """Add a group's offsets: they take effect with the commit, or not at all. Logical offsets are left out."""
        with self._calls.call("send_offsets_to_transaction"):
            self._states.require("send_offsets_to_transaction", _S.IN_TRANSACTION)
            started_from = {(topic_id, partition): entry for _, partition, topic_id, entry in group.started_from}
            found = {}
            for position in positions:
                if position.offset >= 0:
                    offset = self._offset(position, started_from)
                    found[offset.topic_id, offset.partition] = offset
            if found:
                if not group.member_id:
                    # A group with members refuses these offsets: those that are overdue are not to be in the way.
                    assert self._log is not None  # narrows the type: a transaction is open
                    expire_overdue(self._log, [group.group_id])
                self._offsets = _with_offsets(self._offsets, replace(group, started_from=()), found)

    def expect(self, topic: str, partition: int, log_end_offset: int) -> None:
        """Let the commit pass only if the partition ends at `log_end_offset`, this transaction's records aside."""
        with self._calls.call("expect"):
            self._states.require("expect", _S.IN_TRANSACTION)
            refuse_change(arguments.identifier("topic", topic))
            partition = arguments.integer("partition", partition, 0, arguments.INT32_MAX)
            log_end_offset = arguments.integer("log_end_offset", log_end_offset, 0)
            where = (self._existing(topic, partition, "expect() names"), partition)
            known = self._expected.setdefault(where, log_end_offset)
            if known != log_end_offset:
                raise ConfigurationError(
                    f"log_end_offset is {log_end_offset} for partition {partition} of topic {topic!r}, of which this "
                    f"transaction expects {known}: expected one value in a transaction"
                )

    def prepare(self) -> PreparedTransaction:
        """Publish what waits and prepare, in one list; return what the end is decided by."""
        with self._calls.call("prepare_transaction"):
            self._states.require("prepare_transaction", _S.IN_TRANSACTION, _S.PREPARING_TRANSACTION)
            if self.state is _S.IN_TRANSACTION:
                self._move(_S.PREPARING_TRANSACTION)
            outbox = self._opened()
            with outbox.exclusive(), self._classified(Operation.PREPARE):
                if outbox.under_way is not Operation.PREPARE:
                    self._resolve_published()
                    self._send_prepare(self._stage())
                self._resolved()
            self._published = True
            self._offsets = {}
            self._prepared = PreparedTransaction(outbox.identity.producer_id, outbox.identity.producer_epoch)
            self._move(_S.PREPARED_TRANSACTION)
            return self._prepared

    def complete(self, prepared: PreparedTransaction) -> None:
        """Commit the prepared transaction if it is `prepared`, else abort it; with none open there is nothing to do.

        Raises:
            KafkaException: INVALID_TXN_STATE: `prepared` has been aborted.
        """
        with self._calls.call("complete_transaction"):
            allowed = (_S.READY, _S.PREPARED_TRANSACTION, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION)
            self._states.require("complete_transaction", *allowed)
            if self.state is _S.READY:
                self._check_completed(prepared)
                return
            commits = prepared == self._prepared
            if self.state is (_S.ABORTING_TRANSACTION if commits else _S.COMMITTING_TRANSACTION):
                reason = "the outcome of complete_transaction() with another value is not known: call it with that one"
                raise KafkaException(KafkaError(ErrorCode.LOCAL_CONFLICT, reason, retriable=True))
            if commits:
                self._commit()
            else:
                self._abort()

    def commit(self) -> None:
        """Publish what waits and commit, in one list."""
        with self._calls.call("commit_transaction"):
            allowed = (_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION, _S.COMMITTING_TRANSACTION)
            self._states.require("commit_transaction", *allowed)
            self._commit()

    def abort(self) -> None:
        """Drop what was not published, and end what was."""
        with self._calls.call("abort_transaction"):
            allowed = (_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION, _S.ABORTABLE_ERROR, _S.ABORTING_TRANSACTION)
            self._states.require("abort_transaction", *allowed)
            self._abort()

    def publish(self) -> None:
        """Publish what waits, offsets too, under the open transaction: flush(). Errors are kept for the next call."""
        self._settle(self._publish)

    def upload(self) -> None:
        """Make what waits durable, unpublished: flush() with transaction.publish=commit."""
        self._settle(self._upload)

    # --- steps ---------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        if self.state is not _S.COMMITTING_TRANSACTION:
            self._move(_S.COMMITTING_TRANSACTION)
        outbox = self._opened()
        with outbox.exclusive(), self._classified(Operation.END):
            if outbox.under_way is not Operation.END:
                self._resolve_published()
                self._send_end(self._stage())
            results = self._resolved()
            if results:
                self._published = True
                self._take_next_identity(results)
        self._ended()

    def _abort(self) -> None:
        if self.state is not _S.ABORTING_TRANSACTION:
            self._move(_S.ABORTING_TRANSACTION)
        outbox = self._opened()
        with outbox.exclusive(), self._classified(Operation.ABORT):
            outbox.discard(purged("the transaction was aborted before the record was published"))
            self._abort_published()
            if self._needs_bump:
                initialised = self._initialise(previous=outbox.identity)
                # It has ended what was published; of a transactional id that had expired it knows no transaction.
                self._number = initialised.transaction
                self._published = False
        self._ended()

    def _take_next_identity(self, results: list[CommandResult]) -> None:
        """Take the next epoch, as the end of a prepared transaction does."""
        if results and results[-1].producer_id != NO_PRODUCER_ID:
            self._opened().take_identity(ProducerIdAndEpoch(results[-1].producer_id, results[-1].producer_epoch))

    def _check_completed(self, prepared: PreparedTransaction) -> None:
        """Pass if what `prepared` names was committed before, not aborted; nothing is open."""
        log = self._log
        assert log is not None  # narrows the type: this producer is initialised
        log.refresh()
        known = log.transaction(self._transactional_id)
        outcome = known.last_prepared if known is not None else None
        if outcome is None or outcome.committed:
            return
        if (outcome.producer_id, outcome.producer_epoch) == (prepared.producer_id, prepared.producer_epoch):
            reason = (
                f"transaction {outcome.transaction} of {self._transactional_id!r}, prepared as {prepared}, has been "
            )
            reason += (
                "aborted, by an init without keep_prepared or by an administrator: it cannot be committed any more"
            )
            raise KafkaException(KafkaError(ErrorCode.INVALID_TXN_STATE, reason))

    def _settle(self, work: Callable[[], object]) -> None:
        if self.state is not _S.IN_TRANSACTION:
            return
        try:
            with self._opened().exclusive(), self._classified(Operation.PUBLISH):
                if self.state is _S.IN_TRANSACTION:
                    work()
        except KafkaException:
            # flush() and poll() return how much is left, never an error: reports carry it, and the state keeps it.
            return

    def _publish(self) -> None:
        outbox = self._opened()
        self._resolve_published()
        segments = self._stage()
        identity = self._identity()
        offsets = self._offset_commands(identity)
        if segments or offsets:
            outbox.publish(Operation.PUBLISH, segments, offsets, identity)
            # Sent once: of two commits of a group the one sent later stands, so these keep their place (K108).
            self._sent_offsets, self._offsets = self._offsets, {}
            self._resolve_published()

    def _stage(self) -> list[PendingSegment]:
        """Return all that waits, ready for a list that is sent next; errors are those of `_upload`."""
        return self._in_delivery_time(lambda: self._opened().stage())

    def _upload(self) -> list[PendingSegment]:
        """Return all that waits, uploaded.

        Raises:
            CommandRefused: _MSG_TIMED_OUT: some of it could not be uploaded within delivery.timeout.ms (K116).
            OutcomeUnknown, StoreUnavailable: call again.
        """
        return self._in_delivery_time(lambda: self._opened().upload())

    def _in_delivery_time(self, work: Callable[[], list[PendingSegment]]) -> list[PendingSegment]:
        try:
            return work()
        except (OutcomeUnknown, StoreUnavailable) as error:
            self._check_delivery_time(error)
            raise

    def _resolved(self) -> list[CommandResult]:
        """Return the results of the list that is under way.

        Raises:
            CommandRefused: it is refused; or _MSG_TIMED_OUT, it carries records, and no entry could be put within
                delivery.timeout.ms.
            OutcomeUnknown, StoreUnavailable: call again.
        """
        outbox = self._opened()
        try:
            return outbox.resolve()
        except StoreUnavailable as error:
            if outbox.waited_s() >= self._delivery_timeout_s and outbox.withdraw():
                self._check_delivery_time(error)
            raise

    def _check_delivery_time(self, error: StoreError) -> None:
        waited_s = self._opened().waited_s()
        if waited_s >= self._delivery_timeout_s:
            reason = f"not stored within delivery.timeout.ms, tried for {waited_s:.0f} s: {error.error.str()}"
            raise CommandRefused(ErrorCode.LOCAL_MSG_TIMED_OUT, reason) from error

    def _resolve_published(self) -> None:
        try:
            if self._resolved():
                self._published = True
        except CommandRefused:
            later, self._offsets = self._offsets, self._sent_offsets
            for group, offsets in later.items():
                self._offsets = _with_offsets(self._offsets, group, offsets)
            self._sent_offsets = {}
            raise
        self._sent_offsets = {}

    def _check_whole(self) -> None:
        """Refuse to commit or prepare a transaction some of whose records were dropped: librdkafka's rule.

        Raises:
            CommandRefused: _INCONSISTENT.
        """
        dropped = self._opened().dropped_records
        if dropped:
            reason = f"{dropped} records of the transaction were dropped, as their delivery reports say: abort it"
            raise CommandRefused(ErrorCode.LOCAL_INCONSISTENT, reason)

    def _send_end(self, segments: list[PendingSegment]) -> None:
        """Send the fused commit; nothing at all for a transaction without records and offsets (K119)."""
        self._check_whole()
        if not segments and not self._offsets and not self._published and not self._expected:
            return
        identity = self._identity()
        after = [*self._offset_commands(identity), identity.end(committed=True)]
        self._opened().publish(Operation.END, segments, after, identity, before=self._expectations(identity))

    def _send_prepare(self, segments: list[PendingSegment]) -> None:
        """Send everything and the preparation; a transaction without anything is begun by registering no partition."""
        self._check_whole()
        identity = self._identity()
        others = self._offset_commands(identity)
        if not segments and not others and not self._published:
            others.append(AddPartitionsToTxn(*identity.names(), partitions=()))
        others.append(PrepareTxn(*identity.names()))
        self._opened().publish(Operation.PREPARE, segments, others, identity, before=self._expectations(identity))

    def _expectations(self, identity: TransactionIdentity) -> list[Command]:
        published = self._opened().published_records
        return [
            ExpectEndOffset(*identity.names(), *where, log_end_offset + published.get(where, 0))
            for where, log_end_offset in self._expected.items()
        ]

    def _offset_commands(self, identity: TransactionIdentity) -> list[Command]:
        return [
            TxnOffsetCommit(
                *identity.names(),
                group_id=group.group_id,
                offsets=tuple(offsets.values()),
                generation_id=group.generation_id,
                member_id=group.member_id,
                owner=group.owner,
                instance_id=group.group_instance_id or "",
            )
            for group, offsets in self._offsets.items()
        ]

    def _abort_published(self) -> None:
        outbox = self._opened()
        if outbox.under_way is Operation.PUBLISH and not outbox.withdraw():
            self._resolve_flush_before_abort()
        outbox.discard(purged("the transaction was aborted before the record was published"))
        if outbox.under_way is None and self._published and not self._needs_bump:
            outbox.publish(Operation.ABORT, (), [self._identity().end(committed=False)])
        try:
            self._take_next_identity(outbox.resolve())
        except CommandRefused as refused:
            # The log has forgotten this producer: the init that follows makes it known again, and nothing is open.
            if refused.error.code() not in (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID):
                raise
            self._needs_bump = True

    def _resolve_flush_before_abort(self) -> None:
        """Learn whether the flush that was under way has published; a refusal has not, and hinders no abort."""
        try:
            self._resolve_published()
        except CommandRefused as refused:
            self._needs_bump = self._needs_bump or refused.error.code() in BUMPING_CODES

    def _initialise(self, *, previous: ProducerIdAndEpoch = NO_IDENTITY, keep_prepared: bool = False) -> CommandResult:
        """Take the transactional id over, or bump its epoch; wait for what may pass."""
        log, outbox = self._log, self._opened()
        assert log is not None  # narrows the type: set together with the outbox
        while True:
            try:
                return outbox.initialise(
                    transactional_id=self._transactional_id,
                    timeout_ms=self._timeout_ms,
                    previous=previous,
                    keep_prepared=keep_prepared,
                )
            except CommandRefused as refused:
                if failure_of(refused, Operation.INIT)[0] is not Failure.RETRY or is_time_up():
                    raise
                log.clock.sleep(_INIT_RETRY_S)
            except OutcomeLost:
                # Whatever that one has done, this one takes over from it.
                continue

    def _offset(self, position: TopicPartition, started_from: Mapping[tuple[int, int], int]) -> OffsetToCommit:
        leader_epoch = -1 if position.leader_epoch is None else position.leader_epoch
        where = (self._existing(position.topic, position.partition, "offsets name"), position.partition)
        return OffsetToCommit(*where, position.offset, position.metadata, leader_epoch, started_from.get(where, -1))

    def _existing(self, name: str, partition: int, who: str) -> int:
        """Return the id of a topic that has the partition; `who` begins the sentence that says it does not.

        Raises:
            TransactionAborted: UNKNOWN_TOPIC_OR_PARTITION.
        """
        log = self._log
        assert log is not None  # narrows the type: a transaction is open
        topic = log.topic(name)
        if topic is None or partition >= topic.partition_count:
            log.refresh()
            topic = log.topic(name)
        if topic is None or not 0 <= partition < topic.partition_count:
            reason = f"{who} topic {name!r}, partition {partition}, which does not exist"
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason, txn_requires_abort=True)
            raised = TransactionAborted(error)
            self._move(_S.ABORTABLE_ERROR, raised)
            raise raised
        return topic.topic_id

    def _ended(self) -> None:
        if self._published:
            self._number += 1
        self._published = False
        self._prepared = None
        self._needs_bump = False
        self._offsets = {}
        self._sent_offsets = {}
        self._expected = {}
        self._move(_S.READY)

    def _identity(self) -> TransactionIdentity:
        identity = self._opened().identity
        return TransactionIdentity(
            self._transactional_id, identity.producer_id, identity.producer_epoch, self._number + 1
        )

    def _opened(self) -> Outbox:
        if self._outbox is None:
            raise AssertionError("a transactional call before init_transactions() has passed its state check")
        return self._outbox

    def _move(self, state: TransactionState, error: KafkaException | None = None) -> None:
        self._states.move(state, error)
        self._on_change()

    def _classified(self, operation: Operation) -> _Classified:
        return _Classified(self, operation)

    def fail(self, failure: Failure, error: KafkaException) -> None:
        """Enter the error state that `failure` asks for."""
        if failure is Failure.ABORT:
            if self.state is not _S.ABORTING_TRANSACTION:
                self._move(_S.ABORTABLE_ERROR, error)
        elif failure in (Failure.FATAL, Failure.FENCED):
            self._move(_S.FATAL_ERROR, error)
            self._on_fatal(error.error)

    def refused(self, refused: CommandRefused, operation: Operation) -> KafkaException:
        """Return the exception that reports a refusal to the caller; the state and the waiting reports follow it."""
        failure, error = failure_of(refused, operation)
        self._needs_bump = self._needs_bump or refused.error.code() in BUMPING_CODES
        # An init that is to be aborted has taken no identity: the abort takes one.
        self._needs_bump = self._needs_bump or (operation is Operation.INIT and failure is Failure.ABORT)
        self.fail(failure, error)
        if failure is not Failure.RETRY and self._outbox is not None and operation is not Operation.INIT:
            self._outbox.discard(error.error)
        return error


def _with_offsets(
    known: _GroupOffsets, group: ConsumerGroupMetadata, offsets: Mapping[tuple[int, int], OffsetToCommit]
) -> _GroupOffsets:
    """Return `known` with more offsets of one consumer of a group, which speaks with its newest metadata.

    What it has read in different generations stays apart: each is committed as of its own.
    """
    same = next((other for other in known if _consumer_of(other) == _consumer_of(group)), group)
    others = {other: found for other, found in known.items() if other is not same}
    return {**others, group: {**known.get(same, {}), **offsets}}


def _consumer_of(group: ConsumerGroupMetadata) -> tuple[str, str, str, int]:
    return group.group_id, group.owner, group.member_id, group.generation_id


class _Classified:
    """Turns what the log raises into what the call must raise, with the flags of its operation."""

    __slots__ = ("_operation", "_transactions")

    def __init__(self, transactions: Transactions, operation: Operation) -> None:
        self._transactions = transactions
        self._operation = operation

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, CommandRefused):
            raise self._transactions.refused(error, self._operation) from None
        if isinstance(error, StoreError) and not error.error.retriable() and self._operation is not Operation.INIT:
            failure = KafkaException(KafkaError(error.error.code(), error.error.str(), fatal=True))
            self._transactions.fail(Failure.FATAL, failure)
            raise failure from error
