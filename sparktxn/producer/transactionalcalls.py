"""The transactional calls: init, begin, offsets, publish, prepare, complete, commit, abort.

A transaction writes nothing before it publishes. `commit` puts appends, offsets and the end into one list of commands,
so a producer that dies before it leaves nothing to repair (PROTOCOL.md, "Fused commit"). `prepare` puts everything but
the end into one list: the transaction then waits for it, through any number of inits that keep it (KIP-939).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    OffsetToCommit,
)
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import NO_PRODUCER_ID
from sparktxn._kafka.message import ConsumerGroupMetadata, TopicPartition
from sparktxn.errors import (
    CommandRefused,
    ConfigurationError,
    ErrorCode,
    KafkaError,
    KafkaException,
    StoreError,
    TransactionAborted,
)
from sparktxn.producer.currenttransaction import CurrentTransaction
from sparktxn.producer.outbox import Outbox
from sparktxn.producer.transactionerrors import BUMPING_CODES, Failure, TransactionOperation, failure_of
from sparktxn.producer.transactionstates import PreparedTransaction, ProducerStates, TransactionPhase
from sparktxn.store.memberexpiry import expire_overdue

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log

_S: Final = TransactionPhase


class Transactions:
    """One transactional id's transactions, one after the other."""

    _open: CurrentTransaction
    """Made by `init`: the states let no other call come before it."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        delivery_timeout_s: float,
        on_error: Callable[[KafkaError], None],
        refuse_records: Callable[[], None],
    ) -> None:
        """`on_error` gets errors of the store, and a fatal one.

        `refuse_records` is called when records may no longer be produced.
        """
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._delivery_timeout_s = delivery_timeout_s
        self._on_error = on_error
        self._refuse_records = refuse_records
        self._states = ProducerStates()
        self._prepared: PreparedTransaction | None = None

    @property
    def state(self) -> TransactionPhase:
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
        with self._states.call("init_transactions", _S.UNINITIALIZED, _S.INITIALIZING):
            if self.state is _S.UNINITIALIZED:
                self._states.move(_S.INITIALIZING)
            self._open = CurrentTransaction(
                *connect(), self._transactional_id, self._timeout_ms, delivery_timeout_s=self._delivery_timeout_s
            )
            with self._alone(TransactionOperation.INIT) as open_:
                result = open_.initialise(keep_prepared=keep_prepared)
            open_.number = result.transaction
            if result.prepared_producer_id == NO_PRODUCER_ID:
                self._move(_S.READY)
                return
            open_.number -= 1
            open_.published = True
            self._prepared = PreparedTransaction(result.prepared_producer_id, result.prepared_producer_epoch)
            self._move(_S.PREPARED_TRANSACTION)

    def begin(self, accept_records: Callable[[], None]) -> None:
        """Open a transaction, and call `accept_records`. Nothing is written."""
        with self._states.call("begin_transaction", _S.READY):
            self._open.begin()
            self._move(_S.IN_TRANSACTION)
            accept_records()

    def add_offsets(self, positions: Iterable[TopicPartition], group: ConsumerGroupMetadata) -> None:
        """Add a group's offsets: they take effect with the commit, or not at all. Logical offsets are left out."""
        with self._states.call("send_offsets_to_transaction", _S.IN_TRANSACTION):
            started_from = {(topic_id, partition): entry for _, partition, topic_id, entry in group.started_from}
            found = {}
            for position in positions:
                if position.offset >= 0:
                    offset = self._offset(position, started_from)
                    found[offset.topic_id, offset.partition] = offset
            if found:
                open_ = self._open
                if not group.member_id:
                    # A group with members refuses these offsets: those that are overdue are not to be in the way.
                    expire_overdue(open_.log, [group.group_id])
                open_.add_offsets(replace(group, started_from=()), found)

    def expect(self, topic: str, partition: int, log_end_offset: int) -> None:
        """Let the commit pass only if the partition ends at `log_end_offset`, this transaction's records aside."""
        with self._states.call("expect", _S.IN_TRANSACTION):
            self._open.log.changeable_topic(arguments.identifier("topic", topic))
            partition = arguments.integer("partition", partition, 0, arguments.INT32_MAX)
            log_end_offset = arguments.integer("log_end_offset", log_end_offset, 0)
            where = (self._existing(topic, partition, "expect() names"), partition)
            known = self._open.expect(where, log_end_offset)
            if known != log_end_offset:
                raise ConfigurationError(
                    f"log_end_offset is {log_end_offset} for partition {partition} of topic {topic!r}, of which this "
                    f"transaction expects {known}: expected one value in a transaction"
                )

    def prepare(self) -> PreparedTransaction:
        """Publish what waits and prepare, in one list; return what the end is decided by."""
        with self._states.call("prepare_transaction", _S.IN_TRANSACTION, _S.PREPARING_TRANSACTION):
            if self.state is _S.IN_TRANSACTION:
                self._check_preparable()
                self._move(_S.PREPARING_TRANSACTION)
            with self._alone(TransactionOperation.PREPARE) as open_:
                open_.prepare()
            identity = open_.outbox.identity
            self._prepared = PreparedTransaction(identity.producer_id, identity.producer_epoch)
            self._move(_S.PREPARED_TRANSACTION)
            return self._prepared

    def _check_preparable(self) -> None:
        """Refuse to prepare a transaction with rows of a keyed topic: they are named in the list that commits.

        Raises:
            KafkaException: INVALID_TXN_STATE; the transaction stays open.
        """
        name = self._open.outbox.keyed_topic()
        if name is not None:
            reason = (
                f"prepare_transaction() with rows for topic {name!r}, which has a key (primary.key): they are appended "
                "when the transaction commits, so it cannot be prepared; call commit_transaction(), or abort it"
            )
            raise KafkaException(KafkaError(ErrorCode.INVALID_TXN_STATE, reason))

    def complete(self, prepared: PreparedTransaction) -> None:
        """Commit the prepared transaction if it is `prepared`, else abort it; with none open there is nothing to do.

        Raises:
            KafkaException: INVALID_TXN_STATE: `prepared` has been aborted.
        """
        allowed = (_S.READY, _S.PREPARED_TRANSACTION, _S.COMMITTING_TRANSACTION, _S.ABORTING_TRANSACTION)
        with self._states.call("complete_transaction", *allowed):
            if self.state is _S.READY:
                self._check_completed(prepared)
                return
            commits = prepared == self._prepared
            if self.state is (_S.ABORTING_TRANSACTION if commits else _S.COMMITTING_TRANSACTION):
                reason = "the outcome of complete_transaction() with another value is not known: call it with that one"
                raise KafkaException(KafkaError(ErrorCode.LOCAL_CONFLICT, reason, retriable=True))
            if commits:
                with self._ending(_S.COMMITTING_TRANSACTION, TransactionOperation.END) as open_:
                    open_.commit()
            else:
                with self._ending(_S.ABORTING_TRANSACTION, TransactionOperation.ABORT) as open_:
                    open_.abort()

    def commit(self) -> None:
        """Publish what waits and commit, in one list."""
        allowed = (_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION, _S.COMMITTING_TRANSACTION)
        with (
            self._states.call("commit_transaction", *allowed),
            self._ending(_S.COMMITTING_TRANSACTION, TransactionOperation.END) as open_,
        ):
            open_.commit()

    def abort(self) -> None:
        """Drop what was not published, and end what was."""
        allowed = (_S.IN_TRANSACTION, _S.PREPARED_TRANSACTION, _S.ABORTABLE_ERROR, _S.ABORTING_TRANSACTION)
        with (
            self._states.call("abort_transaction", *allowed),
            self._ending(_S.ABORTING_TRANSACTION, TransactionOperation.ABORT) as open_,
        ):
            open_.abort()

    def publish(self) -> None:
        """Publish what waits, offsets too, under the open transaction: flush(). Errors are kept for the next call."""
        self._settle(CurrentTransaction.publish)

    def upload(self) -> None:
        """Make what waits durable, unpublished: flush() with transaction.publish=commit."""
        self._settle(CurrentTransaction.upload)

    # --- steps ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _ending(self, state: TransactionPhase, operation: TransactionOperation) -> Iterator[CurrentTransaction]:
        """Have the body end the transaction, in `state`; then the next one may begin."""
        if self._states.current is not state:
            self._move(state)
        with self._alone(operation) as open_:
            yield open_
        open_.ended()
        self._prepared = None
        self._move(_S.READY)

    @contextmanager
    def _alone(self, operation: TransactionOperation) -> Iterator[CurrentTransaction]:
        """Have the body work while no other thread publishes; raise what the log raises with the flags of `operation`.

        Raises:
            OutcomeUnknown: another thread published until the caller's deadline.
        """
        open_ = self._open
        with open_.outbox.exclusive():
            try:
                yield open_
            except CommandRefused as refused:
                raise self._refused(refused, operation) from None
            except StoreError as error:
                if error.error.retriable() or operation is TransactionOperation.INIT:
                    self._on_error(error.error)
                    raise
                failure = KafkaException(KafkaError(error.error.code(), error.error.str(), fatal=True))
                self._fail(Failure.FATAL, failure)
                raise failure from error

    def _check_completed(self, prepared: PreparedTransaction) -> None:
        """Pass if what `prepared` names was committed before, not aborted; nothing is open."""
        with self._open.log.known() as state:
            known = state.transaction(self._transactional_id)
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

    def _settle(self, work: Callable[[CurrentTransaction], object]) -> None:
        if self.state is not _S.IN_TRANSACTION:
            return
        try:
            with self._alone(TransactionOperation.PUBLISH) as open_:
                if self.state is _S.IN_TRANSACTION:
                    work(open_)
        except KafkaException:
            # flush() and poll() return how much is left, never an error: reports carry it, and the state keeps it.
            return

    def _offset(self, position: TopicPartition, started_from: Mapping[TopicIdPartition, int]) -> OffsetToCommit:
        leader_epoch = -1 if position.leader_epoch is None else position.leader_epoch
        where = (self._existing(position.topic, position.partition, "offsets name"), position.partition)
        return OffsetToCommit(*where, position.offset, position.metadata, leader_epoch, started_from.get(where, -1))

    def _existing(self, name: str, partition: int, who: str) -> int:
        """Return the id of a topic that has the partition; `who` begins the sentence that says it does not.

        Raises:
            TransactionAborted: UNKNOWN_TOPIC_OR_PARTITION.
        """
        log = self._open.log

        def existing() -> int:
            topic = log.topic(name)
            if topic is not None and 0 <= partition < topic.partition_count:
                return topic.topic_id
            reason = f"{who} topic {name!r}, partition {partition}, which does not exist"
            raise TransactionAborted(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason, txn_requires_abort=True))

        try:
            return log.decide(existing)
        except TransactionAborted as error:
            self._move(_S.ABORTABLE_ERROR, error)
            raise

    def _move(self, state: TransactionPhase, error: KafkaException | None = None) -> None:
        self._states.move(state, error)
        if state is not _S.IN_TRANSACTION:
            self._refuse_records()

    def _fail(self, failure: Failure, error: KafkaException) -> None:
        """Enter the error state that `failure` asks for."""
        if failure is Failure.ABORT:
            if self.state is not _S.ABORTING_TRANSACTION:
                self._move(_S.ABORTABLE_ERROR, error)
        elif failure in (Failure.FATAL, Failure.FENCED):
            self._move(_S.FATAL_ERROR, error)
            self._on_error(error.error)

    def _refused(self, refused: CommandRefused, operation: TransactionOperation) -> KafkaException:
        """Return the exception that reports a refusal to the caller; the state and the waiting reports follow it."""
        failure, error = failure_of(refused, operation)
        open_ = self._open
        if refused.error.code() in BUMPING_CODES or (
            operation is TransactionOperation.INIT and failure is Failure.ABORT
        ):
            # An init that is to be aborted has taken no identity: the abort takes one.
            open_.needs_bump = True
        self._fail(failure, error)
        if failure is not Failure.RETRY and operation is not TransactionOperation.INIT:
            open_.outbox.discard(error.error)
        return error
