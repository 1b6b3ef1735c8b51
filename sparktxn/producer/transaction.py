"""The transactional calls: init, begin, offsets, publish, commit, abort.

A transaction writes nothing before it publishes. `commit` puts appends, offsets and the end into one list of commands,
so a producer that dies before it leaves nothing to repair (PROTOCOL.md, "Fused commit").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from sparktxn.clock import Deadline
from sparktxn.errors import (
    CommandRefused,
    ErrorCode,
    KafkaError,
    KafkaException,
    StoreError,
    TransactionAborted,
)
from sparktxn.format.commands import Command, CommandResult, EndTxn, InitProducerId, OffsetToCommit, TxnOffsetCommit
from sparktxn.message import ConsumerGroupMetadata, TopicPartition
from sparktxn.producer.calls import TransactionalCalls
from sparktxn.producer.failures import BUMPING_CODES, Failure, Operation, failure_of
from sparktxn.producer.publisher import Publisher, TransactionIdentity
from sparktxn.producer.segments import PendingSegment, purged
from sparktxn.producer.states import ProducerStates, TransactionState
from sparktxn.structs import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TRANSACTION, ProducerIdAndEpoch

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["Transactions"]

_S: Final = TransactionState
_INIT_RETRY_S: Final = 0.02


class Transactions:
    """One transactional id's transactions, one after the other."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        on_fatal: Callable[[KafkaError], None],
        on_change: Callable[[], None],
    ) -> None:
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._on_fatal = on_fatal
        self._on_change = on_change
        self._states = ProducerStates()
        self._calls = TransactionalCalls()
        self._log: Log | None = None
        self._publisher: Publisher | None = None
        self._request_id = ""
        self._number = NO_TRANSACTION
        self._published = False
        self._needs_bump = False
        self._offsets: dict[ConsumerGroupMetadata, dict[tuple[int, int], OffsetToCommit]] = {}

    @property
    def state(self) -> TransactionState:
        """The state."""
        return self._states.current

    def require_open(self, call: str) -> None:
        """Passes inside a transaction.

        Raises:
            KafkaException: _STATE outside one, or the error of an error state.
        """
        self._states.require(call, _S.IN_TRANSACTION)

    # --- the calls -----------------------------------------------------------------------------------------------

    def init(self, connect: Callable[[], tuple[Log, Publisher]], timeout_s: float) -> None:
        """Takes the transactional id over: fences older producers and aborts what they left open."""
        with self._calls.call("init_transactions"):
            self._states.require("init_transactions", _S.UNINITIALIZED, _S.INITIALIZING)
            if self.state is _S.UNINITIALIZED:
                self._states.move(_S.INITIALIZING)
            self._log, self._publisher = connect()
            deadline = self._deadline(timeout_s)
            with self._publisher.exclusive(deadline), self._classified(Operation.INIT):
                self._number = self._initialise(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, deadline).transaction
            self._move(_S.READY)

    def begin(self) -> None:
        """Opens a transaction. Nothing is written."""
        with self._calls.call("begin_transaction"):
            self._states.require("begin_transaction", _S.READY)
            self._published = False
            self._needs_bump = False
            self._offsets = {}
            self._move(_S.IN_TRANSACTION)

    def add_offsets(self, positions: Iterable[TopicPartition], group: ConsumerGroupMetadata, timeout_s: float) -> None:
        """Adds a group's offsets: they take effect with the commit, or not at all. Logical offsets are left out."""
        with self._calls.call("send_offsets_to_transaction"):
            self._states.require("send_offsets_to_transaction", _S.IN_TRANSACTION)
            deadline = self._deadline(timeout_s)
            found = {}
            for position in positions:
                if position.offset >= 0:
                    offset = self._offset(position, deadline)
                    found[offset.topic_id, offset.partition] = offset
            if found:
                self._offsets = {
                    known: offsets for known, offsets in self._offsets.items() if known.group_id != group.group_id
                } | {group: {**self._offsets_of(group.group_id), **found}}

    def commit(self, timeout_s: float) -> None:
        """Publishes what waits and commits, in one list."""
        with self._calls.call("commit_transaction"):
            self._states.require("commit_transaction", _S.IN_TRANSACTION, _S.COMMITTING_TRANSACTION)
            if self.state is _S.IN_TRANSACTION:
                self._move(_S.COMMITTING_TRANSACTION)
            deadline = self._deadline(timeout_s)
            publisher = self._opened()
            with publisher.exclusive(deadline), self._classified(Operation.END):
                if publisher.under_way is not Operation.END:
                    self._resolve_published(deadline)
                    segments = publisher.upload(deadline)
                    self._send_end(segments)
                if publisher.resolve(deadline):
                    self._published = True
            self._ended()

    def abort(self, timeout_s: float) -> None:
        """Drops what was not published, and ends what was."""
        with self._calls.call("abort_transaction"):
            self._states.require("abort_transaction", _S.IN_TRANSACTION, _S.ABORTABLE_ERROR, _S.ABORTING_TRANSACTION)
            if self.state is not _S.ABORTING_TRANSACTION:
                self._move(_S.ABORTING_TRANSACTION)
            deadline = self._deadline(timeout_s)
            publisher = self._opened()
            with publisher.exclusive(deadline), self._classified(Operation.ABORT):
                publisher.discard(purged("the transaction was aborted before the record was published"))
                self._abort_published(deadline)
                if self._needs_bump:
                    identity = publisher.identity
                    self._initialise(identity.producer_id, identity.producer_epoch, deadline)
            self._ended()

    def publish(self, timeout_s: float) -> None:
        """Publishes what waits under the open transaction: flush(). Errors are kept for the next call."""
        self._settle(timeout_s, self._publish)

    def upload(self, timeout_s: float) -> None:
        """Makes what waits durable, unpublished: flush() with transaction.publish=commit."""
        self._settle(timeout_s, lambda deadline: self._opened().upload(deadline))

    # --- steps ---------------------------------------------------------------------------------------------------

    def _settle(self, timeout_s: float, work: Callable[[Deadline], object]) -> None:
        if self.state is not _S.IN_TRANSACTION:
            return
        deadline = self._deadline(timeout_s)
        try:
            with self._opened().exclusive(deadline), self._classified(Operation.PUBLISH):
                if self.state is _S.IN_TRANSACTION:
                    work(deadline)
        except KafkaException:
            # flush() and poll() tell how much is left, never an error: reports carry it, and the state keeps it.
            return

    def _publish(self, deadline: Deadline) -> None:
        publisher = self._opened()
        self._resolve_published(deadline)
        segments = publisher.upload(deadline)
        if segments:
            publisher.send(Operation.PUBLISH, segments, transaction=self._identity())
            self._resolve_published(deadline)

    def _resolve_published(self, deadline: Deadline) -> None:
        if self._opened().resolve(deadline):
            self._published = True

    def _send_end(self, segments: list[PendingSegment]) -> None:
        """Sends the fused commit; nothing at all for a transaction without records and offsets (K119)."""
        if not segments and not self._offsets and not self._published:
            return
        identity = self._identity()
        names = (identity.transactional_id, identity.producer_id, identity.producer_epoch, identity.transaction)
        others: list[Command] = [
            TxnOffsetCommit(
                *names,
                group_id=group.group_id,
                offsets=tuple(offsets.values()),
                generation_id=group.generation_id,
                member_id=group.member_id,
            )
            for group, offsets in self._offsets.items()
        ]
        others.append(EndTxn(*names, committed=True))
        self._opened().send(Operation.END, segments, others, identity)

    def _abort_published(self, deadline: Deadline) -> None:
        publisher = self._opened()
        if publisher.under_way is Operation.PUBLISH and not publisher.withdraw():
            self._resolve_flush_before_abort(deadline)
        publisher.discard(purged("the transaction was aborted before the record was published"))
        if publisher.under_way is None and self._published and not self._needs_bump:
            identity = self._identity()
            end = EndTxn(
                identity.transactional_id,
                identity.producer_id,
                identity.producer_epoch,
                identity.transaction,
                committed=False,
            )
            publisher.send(Operation.ABORT, (), [end])
        try:
            publisher.resolve(deadline)
        except CommandRefused as refused:
            # The log has forgotten this producer: the init that follows makes it known again, and nothing is open.
            if refused.error.code() not in (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID):
                raise
            self._needs_bump = True

    def _resolve_flush_before_abort(self, deadline: Deadline) -> None:
        """Learns whether the flush that was under way has published; a refusal has not, and hinders no abort."""
        try:
            self._resolve_published(deadline)
        except CommandRefused as refused:
            self._needs_bump = self._needs_bump or refused.error.code() in BUMPING_CODES

    def _initialise(self, producer_id: int, producer_epoch: int, deadline: Deadline) -> CommandResult:
        """Allocates or bumps the identity. The request id is kept until it is answered, so a repetition bumps once."""
        log, publisher = self._log, self._opened()
        assert log is not None  # narrows the type: set together with the publisher
        self._request_id = self._request_id or log.ids.token()
        command = InitProducerId(
            self._request_id, self._transactional_id, self._timeout_ms, producer_id, producer_epoch
        )
        while True:
            try:
                result = log.submit([command], deadline)[0]
            except CommandRefused as refused:
                if failure_of(refused, Operation.INIT)[0] is not Failure.RETRY or deadline.passed():
                    self._request_id = ""
                    raise
                log.clock.sleep(_INIT_RETRY_S)
                continue
            self._request_id = ""
            publisher.take_identity(ProducerIdAndEpoch(result.producer_id, result.producer_epoch))
            return result

    def _offset(self, position: TopicPartition, deadline: Deadline) -> OffsetToCommit:
        log = self._log
        assert log is not None  # narrows the type: a transaction is open
        topic = log.topic(position.topic)
        if topic is None:
            log.refresh(deadline)
            topic = log.topic(position.topic)
        if topic is None or not 0 <= position.partition < topic.partition_count:
            reason = f"offsets name topic {position.topic!r}, partition {position.partition}, which does not exist"
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason, txn_requires_abort=True)
            raised = TransactionAborted(error)
            self._move(_S.ABORTABLE_ERROR, raised)
            raise raised
        leader_epoch = -1 if position.leader_epoch is None else position.leader_epoch
        return OffsetToCommit(topic.topic_id, position.partition, position.offset, position.metadata, leader_epoch)

    def _offsets_of(self, group_id: str) -> dict[tuple[int, int], OffsetToCommit]:
        return next((offsets for group, offsets in self._offsets.items() if group.group_id == group_id), {})

    def _ended(self) -> None:
        if self._published:
            self._number += 1
        self._published = False
        self._needs_bump = False
        self._offsets = {}
        self._move(_S.READY)

    def _identity(self) -> TransactionIdentity:
        identity = self._opened().identity
        return TransactionIdentity(
            self._transactional_id, identity.producer_id, identity.producer_epoch, self._number + 1
        )

    def _opened(self) -> Publisher:
        if self._publisher is None:
            raise AssertionError("a transactional call before init_transactions() has passed its state check")
        return self._publisher

    def _deadline(self, timeout_s: float) -> Deadline:
        """The call's deadline; below 0 the transaction's own time."""
        assert self._log is not None  # narrows the type: connected before any deadline is made
        return self._log.deadline(self._timeout_ms / 1000 if timeout_s < 0 else timeout_s)

    def _move(self, state: TransactionState, error: KafkaException | None = None) -> None:
        self._states.move(state, error)
        self._on_change()

    def _classified(self, operation: Operation) -> _Classified:
        return _Classified(self, operation)

    def fail(self, failure: Failure, error: KafkaException) -> None:
        """Enters the error state that `failure` asks for."""
        if failure is Failure.ABORT:
            if self.state is not _S.ABORTING_TRANSACTION:
                self._move(_S.ABORTABLE_ERROR, error)
        elif failure in (Failure.FATAL, Failure.FENCED):
            self._move(_S.FATAL_ERROR, error)
            self._on_fatal(error.error)

    def refused(self, refused: CommandRefused, operation: Operation) -> KafkaException:
        """The exception that tells a refusal to the caller; the state and the waiting reports follow it."""
        failure, error = failure_of(refused, operation)
        self._needs_bump = self._needs_bump or refused.error.code() in BUMPING_CODES
        self.fail(failure, error)
        if failure is not Failure.RETRY and self._publisher is not None and operation is not Operation.INIT:
            self._publisher.discard(error.error)
        return error


class _Classified:
    """Turns what the log raises into what the call must raise, with the flags of its operation."""

    __slots__ = ("_operation", "_transactions")

    def __init__(self, transactions: Transactions, operation: Operation) -> None:
        self._transactions = transactions
        self._operation = operation

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, CommandRefused):
            raise self._transactions.refused(error, self._operation) from None
        if isinstance(error, StoreError) and not error.error.retriable() and self._operation is not Operation.INIT:
            told = KafkaException(KafkaError(error.error.code(), error.error.str(), fatal=True))
            self._transactions.fail(Failure.FATAL, told)
            raise told from error
