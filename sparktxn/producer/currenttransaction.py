"""What a transactional id has open: records and offsets that it has published, or is to publish, and how they end.

Calls are checked before (`producer/transactionalcalls.py`). A list whose outcome is not known is resolved before
anything else is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sparktxn._engine.format.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Command,
    CommandResult,
    ExpectEndOffset,
    OffsetToCommit,
    PrepareTxn,
    TxnOffsetCommit,
)
from sparktxn._foundation.process.clock import is_time_up
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import NO_PRODUCER_ID, NO_TRANSACTION, ProducerIdAndEpoch
from sparktxn._kafka.message import ConsumerGroupMetadata
from sparktxn._rows.stage.pendingsegment import PendingSegment, purged
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY, TransactionIdentity, begun_by
from sparktxn.errors import (
    CommandRefused,
    ErrorCode,
    OutcomeLost,
    OutcomeUnknown,
    StoreUnavailable,
)
from sparktxn.producer.outbox import Outbox
from sparktxn.producer.transactionerrors import BUMPING_CODES, Failure, TransactionOperation, failure_of

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log

_GroupOffsets = dict[ConsumerGroupMetadata, dict[TopicIdPartition, OffsetToCommit]]
_INIT_RETRY_S: Final = 0.02
_ABORTED: Final = "the transaction was aborted before the record was published"


class CurrentTransaction:
    """The transaction that is open under a transactional id, or comes next, over the outbox of its producer.

    It is made by init. Its callers hold the outbox's `exclusive`.
    """

    def __init__(
        self, log: Log, outbox: Outbox, transactional_id: str, timeout_ms: int, *, delivery_timeout_s: float
    ) -> None:
        self.log = log
        self.outbox = outbox
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._delivery_timeout_s = delivery_timeout_s
        self.number = NO_TRANSACTION
        self.clear()

    def clear(self) -> None:
        """Forget what was published and asked for: the next transaction begins with nothing."""
        self.published = False
        self.needs_bump = False
        self._is_opening = False
        self._offsets: _GroupOffsets = {}
        self._sent_offsets: _GroupOffsets = {}
        self._expected: dict[TopicIdPartition, int] = {}

    def begin(self) -> None:
        """Open the next transaction. Nothing is written."""
        self.clear()
        self.outbox.dropped_records = 0
        self.outbox.published_records = {}

    def ended(self) -> None:
        """Note that the transaction has ended: the next one has the next number, if this one was ever written."""
        if self.published:
            self.number += 1
        self.clear()

    def initialise(self, *, previous: ProducerIdAndEpoch = NO_IDENTITY, keep_prepared: bool = False) -> CommandResult:
        """Take the transactional id over, or bump its epoch; wait for what may pass."""
        while True:
            try:
                return self.outbox.initialise(
                    transactional_id=self._transactional_id,
                    timeout_ms=self._timeout_ms,
                    previous=previous,
                    keep_prepared=keep_prepared,
                )
            except CommandRefused as refused:
                if failure_of(refused, TransactionOperation.INIT)[0] is not Failure.RETRY or is_time_up():
                    raise
                self.log.clock.sleep(_INIT_RETRY_S)
            except OutcomeLost:
                # Whatever that one has done, this one takes over from it.
                continue

    def add_offsets(self, group: ConsumerGroupMetadata, offsets: Mapping[TopicIdPartition, OffsetToCommit]) -> None:
        """Add offsets of a consumer of a group, by (topic id, partition); they leave with what is published next."""
        self._offsets = _with_offsets(self._offsets, group, offsets)

    def forget_offsets(self) -> None:
        """Drop the offsets that no list has named yet."""
        self._offsets = {}

    def register(self, partitions: Collection[TopicIdPartition], group_id: str = "", *, opens: bool) -> None:
        """Publish that the transaction is open, with `partitions`, and offsets of a group, to come.

        Raises:
            CommandRefused: INVALID_PRODUCER_ID_MAPPING, it `opens` one that another process has opened: what that one
                has taken would be missing from a commit.
        """
        identity = self.identity()
        commands: list[Command] = []
        if partitions and opens:
            # Alone it is a duplicate if the transaction was open: partitions that are new would hide that.
            commands.append(AddPartitionsToTxn(*identity.names(), partitions=()))
        if partitions:
            commands.append(AddPartitionsToTxn(*identity.names(), partitions=tuple(sorted(partitions))))
        if group_id:
            commands.append(AddOffsetsToTxn(*identity.names(), group_id))
        with self._in_delivery_time():
            self._resolve_before(None)
            self.outbox.publish(TransactionOperation.PUBLISH, (), commands, identity)
            self._is_opening = opens
            self._resolve_published()

    def expect(self, where: TopicIdPartition, log_end_offset: int) -> int:
        """Return where the partition must end when the transaction commits: `log_end_offset`, or what was said first.

        The transaction's own records do not count.
        """
        return self._expected.setdefault(where, log_end_offset)

    def commit(self, *, takes_epoch: bool = False) -> None:
        """Publish what waits and commit, in one list; call it again while its outcome is not known.

        With `takes_epoch` the same list gives the producer its next epoch.
        """
        outbox = self.outbox
        with self._in_delivery_time():
            self._resolve_before(TransactionOperation.END)
            if outbox.under_way is None:
                self._send_end(outbox.stage(), takes_epoch=takes_epoch)
            results = outbox.resolve()
        if results:
            self.published = True
            self._take_next_identity(results)

    def prepare(self) -> None:
        """Publish what waits and prepare, in one list; call it again while its outcome is not known."""
        outbox = self.outbox
        with self._in_delivery_time():
            self._resolve_before(TransactionOperation.PREPARE)
            if outbox.under_way is None:
                self._send_prepare(outbox.stage())
            outbox.resolve()
        self.published = True
        self._offsets = {}

    def abort(self) -> None:
        """Drop what was not published, and end what was; call it again while its outcome is not known."""
        outbox = self.outbox
        outbox.discard(purged(_ABORTED))
        self._abort_published()
        if self.needs_bump:
            initialised = self.initialise(previous=outbox.identity)
            # It has ended what was published; of a transactional id that had expired it knows no transaction.
            self.number = initialised.transaction
            self.published = False

    def publish(self) -> None:
        """Publish what waits, offsets too; the transaction stays open. Rows of keyed topics are uploaded."""
        outbox = self.outbox
        with self._in_delivery_time():
            self._resolve_before(None)
            segments = outbox.stage_open()
            identity = self.identity()
            offsets = self._offset_commands(identity)
            if segments or offsets:
                outbox.publish(TransactionOperation.PUBLISH, segments, offsets, identity)
                # Sent once: of two commits of a group the one sent later stands, so these keep their place (K108).
                self._sent_offsets, self._offsets = self._offsets, {}
                self._resolve_published()

    def identity(self) -> TransactionIdentity:
        """Return what commands of this transaction name."""
        identity = self.outbox.identity
        return TransactionIdentity(
            self._transactional_id, identity.producer_id, identity.producer_epoch, self.number + 1
        )

    def _resolve_before(self, operation: TransactionOperation | None) -> None:
        """Learn what has become of the list that is under way, unless it was sent for `operation`."""
        if self.outbox.under_way not in (None, operation):
            self._resolve_published()

    def upload(self) -> None:
        """Make all that waits durable, unpublished."""
        with self._in_delivery_time():
            self.outbox.upload()

    @contextmanager
    def _in_delivery_time(self) -> Iterator[None]:
        """Let what the body stores fail for good, once it was tried for delivery.timeout.ms and never will be stored.

        Raises:
            CommandRefused: _MSG_TIMED_OUT (K116).
            OutcomeUnknown, StoreUnavailable: call again.
        """
        try:
            yield
        except OutcomeLost:
            raise
        except (OutcomeUnknown, StoreUnavailable) as error:
            waited_s = self.outbox.waited_s()
            if waited_s < self._delivery_timeout_s or not self.outbox.withdraw():
                raise
            limit = f"{self._delivery_timeout_s:g} s, the smaller of delivery.timeout.ms and transaction.timeout.ms"
            reason = f"not stored within {limit}, tried for {waited_s:.0f} s: {error.error.str()}"
            raise CommandRefused(ErrorCode.LOCAL_MSG_TIMED_OUT, reason) from error

    def _resolve_published(self) -> None:
        try:
            results = self.outbox.resolve()
        except CommandRefused:
            later, self._offsets = self._offsets, self._sent_offsets
            for group, offsets in later.items():
                self._offsets = _with_offsets(self._offsets, group, offsets)
            self._sent_offsets = {}
            raise
        self._sent_offsets = {}
        self.published = self.published or bool(results)
        is_opening, self._is_opening = self._is_opening, False
        if is_opening and results and results[0].duplicate:
            reason = f"transaction {self.number + 1} of {self._transactional_id!r} was opened by another process"
            raise CommandRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, reason)

    def _check_whole(self) -> None:
        """Refuse to commit or prepare a transaction some of whose records were dropped: librdkafka's rule.

        Raises:
            CommandRefused: _INCONSISTENT.
        """
        dropped = self.outbox.dropped_records
        if dropped:
            reason = f"the transaction has lost {counted(dropped, 'record')}, as delivery reports say: abort it"
            raise CommandRefused(ErrorCode.LOCAL_INCONSISTENT, reason)

    def _send_end(self, segments: list[PendingSegment], *, takes_epoch: bool) -> None:
        """Send the fused commit; nothing at all for a transaction without records and offsets (K119)."""
        self._check_whole()
        if not segments and not self._offsets and not self.published and not self._expected:
            return
        identity = self.identity()
        offsets = self._offset_commands(identity)
        after = [*offsets, identity.end(committed=True)]
        if takes_epoch:
            after.append(identity.next_epoch(self.log.ids.token(), self._timeout_ms))
        before = self._expectations(identity)
        if not self.published and segments and segments[0].topic.primary_key:
            keyed = (bool(segment.topic.primary_key) for segment in segments)
            before = [*begun_by(identity, keyed, [*before, *offsets]), *before]
        self.outbox.publish(TransactionOperation.END, segments, after, identity, before=before)

    def _send_prepare(self, segments: list[PendingSegment]) -> None:
        """Send everything and the preparation; a transaction without anything is begun by registering no partition."""
        self._check_whole()
        identity = self.identity()
        others = self._offset_commands(identity)
        if not segments and not others and not self.published:
            others.append(AddPartitionsToTxn(*identity.names(), partitions=()))
        others.append(PrepareTxn(*identity.names()))
        self.outbox.publish(
            TransactionOperation.PREPARE, segments, others, identity, before=self._expectations(identity)
        )

    def _expectations(self, identity: TransactionIdentity) -> list[Command]:
        published = self.outbox.published_records
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
        outbox = self.outbox
        if outbox.under_way is TransactionOperation.PUBLISH and not outbox.withdraw():
            self._resolve_flush_before_abort()
        outbox.discard(purged(_ABORTED))
        if outbox.under_way is None and self.published and not self.needs_bump:
            outbox.publish(TransactionOperation.ABORT, (), [self.identity().end(committed=False)])
        try:
            self._take_next_identity(outbox.resolve())
        except CommandRefused as refused:
            # The log has forgotten this producer: the init that follows makes it known again, and nothing is open.
            if refused.error.code() not in (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID):
                raise
            self.needs_bump = True

    def _resolve_flush_before_abort(self) -> None:
        """Learn whether the flush that was under way has published; a refusal has not, and hinders no abort."""
        try:
            self._resolve_published()
        except CommandRefused as refused:
            self.needs_bump = self.needs_bump or refused.error.code() in BUMPING_CODES

    def _take_next_identity(self, results: list[CommandResult]) -> None:
        """Take the next epoch, which the end of a prepared transaction gives, and one that asks for it."""
        if results and results[-1].producer_id != NO_PRODUCER_ID:
            self.outbox.take_identity(ProducerIdAndEpoch(results[-1].producer_id, results[-1].producer_epoch))


def _with_offsets(
    known: _GroupOffsets, group: ConsumerGroupMetadata, offsets: Mapping[TopicIdPartition, OffsetToCommit]
) -> _GroupOffsets:
    """Return `known` with more offsets of one consumer of a group, which speaks with its newest metadata.

    What it has read in different generations stays apart: each is committed as of its own.
    """
    same = next((other for other in known if _consumer_of(other) == _consumer_of(group)), group)
    others = {other: found for other, found in known.items() if other is not same}
    return {**others, group: {**known.get(same, {}), **offsets}}


def _consumer_of(group: ConsumerGroupMetadata) -> tuple[str, str, str, int]:
    return group.group_id, group.owner, group.member_id, group.generation_id
