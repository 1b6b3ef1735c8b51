"""Commits of callers without a transactional id: any number of them leave no more in the state than one.

They share one transactional id. A transaction is one list, which names the number and the sequences that come next in
the state as the caller knows it. Of two lists with one number the first takes effect. The state refuses the other one
as a whole, for its segments are others, and it is made again with what the state says then. A caller that others
outrun too often takes an id of its own for this one transaction, and forgets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sparktxn.errors import CommandRefused, ErrorCode, KafkaException
from sparktxn.format.commands import Command, ExpireProducers, ExpireTransactionalId, InitProducerId
from sparktxn.process.events import log_event
from sparktxn.stage.pendingcommits import Contents, Expectations, PendingCommit, prescriptive
from sparktxn.stage.stagedsegment import StagedSegment
from sparktxn.stage.transaction import TransactionIdentity
from sparktxn.state.transactions.producers import next_sequence
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import ProducerIdAndEpoch, TransactionStatus

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["SHARED_ID", "SharedCommits"]

SHARED_ID: Final = "sparktxn.commit"
"""The transactional id of all commits whose callers name none."""
_SHARED_ATTEMPTS: Final = 3

_OUTRUN: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""How the state refuses a list that was made for an earlier state of the id."""


class SharedCommits:
    """Commit staged segments, each time as one whole transaction; one thread at a time uses it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._pending = PendingCommit(log)
        self._own: tuple[int, list[TopicIdPartition]] | None = None

    def let_go(self) -> None:
        """Give up what is under way: this process puts it no more."""
        self._pending.transactions.let_go()

    def commit(self, staged: Sequence[StagedSegment], expected: Expectations = ()) -> tuple[int, bool]:
        """Commit the segments; return an entry from which on they are visible, and whether an earlier call did it.

        Raises:
            SegmentExpired, CommandRefused: the state refuses a segment; nothing was written.
            ExpectationFailed: a partition does not end where it is expected to; nothing was written.
            OutcomeUnknown, StoreUnavailable: see `Store.commit`.
        """
        contents = Contents.of(staged, expected=expected)
        self._pending.settle(contents)
        self._log.refresh()
        self._forget_own_producers()
        if contents.is_empty():
            return self._log.entry, False
        stored = self._pending.stored_entry(contents)
        if stored is not None:
            return stored, True
        # Two lists with one number differ by their segments. Without any each caller needs a number of its own.
        for _ in range(_SHARED_ATTEMPTS if staged else 0):
            identity = self._next_shared(staged)
            if identity is None:
                break
            try:
                self._send(contents, staged, identity, [])
            except CommandRefused as refused:
                if refused.error.code() not in _OUTRUN:
                    raise prescriptive(refused) from None
            else:
                return self._log.entry, False
        return self._commit_as_own(contents, staged), False

    def _next_shared(self, staged: Sequence[StagedSegment]) -> TransactionIdentity | None:
        """Return what the next transaction of the shared id must name; None if a transaction is open in it."""
        state = self._log.transaction(SHARED_ID)
        if state is None:
            self._log.submit([InitProducerId(self._log.ids.token(), SHARED_ID)])
            state = self._log.transaction(SHARED_ID)
        if state is None or state.status is TransactionStatus.ONGOING:
            return None
        identity = ProducerIdAndEpoch(state.producer_id, state.producer_epoch)
        self._pending.transactions.take_identity(identity, self._sequences(staged, identity))
        return TransactionIdentity(SHARED_ID, state.producer_id, state.producer_epoch, state.transaction + 1)

    def _sequences(self, staged: Sequence[StagedSegment], identity: ProducerIdAndEpoch) -> dict[TopicIdPartition, int]:
        """Return the next sequence of each partition in which the producer is known under its current epoch."""
        known = [self._log.producer(*where, identity.producer_id) for where in _rows_by_partition(staged)]
        return {
            (producer.topic_id, producer.partition): next_sequence(producer.last_sequence, 1)
            for producer in known
            if producer is not None and producer.batches and producer.producer_epoch == identity.producer_epoch
        }

    def _commit_as_own(self, contents: Contents, staged: Sequence[StagedSegment]) -> int:
        """Commit under an id that the same entry forgets; return the entry."""
        transactional_id = f"{SHARED_ID}-{self._log.ids.token()}"
        self._pending.transactions.initialise(transactional_id=transactional_id)
        taken = self._pending.transactions.identity
        producer_id, epoch = taken.producer_id, taken.producer_epoch
        identity = TransactionIdentity(transactional_id, producer_id, epoch, 1)
        rows = _rows_by_partition(staged)
        self._own = (producer_id, sorted(rows))
        forgotten: list[Command] = [ExpireTransactionalId(*identity.names())]
        # The last control record is that of this entry: if others come first, `_forget_own_producers` comes afterwards.
        entry = self._log.entry + 1
        for where, count in rows.items():
            forgotten.append(ExpireProducers(*where, ((producer_id, epoch, next_sequence(0, count - 1), entry),)))
        try:
            self._send(contents, staged, identity, forgotten)
        except CommandRefused as refused:
            raise prescriptive(refused) from None
        entry = self._log.entry
        self._forget_own_producers()
        return entry

    def _send(
        self,
        contents: Contents,
        staged: Sequence[StagedSegment],
        identity: TransactionIdentity,
        forgotten: Sequence[Command],
    ) -> None:
        after = [identity.end(committed=True), *forgotten]
        self._pending.send(contents, staged, identity, before=[], after=after)

    def _forget_own_producers(self) -> None:
        """Forget the producers of an id of its own that its entry has left.

        The rows are stored whether or not this succeeds; a sweep forgets what stays.
        """
        if self._own is None or self._pending.transactions.is_busy:
            return
        (producer_id, partitions), self._own = self._own, None
        commands: list[Command] = []
        for where in partitions:
            known = self._log.producer(*where, producer_id)
            if known is not None:
                seen = (producer_id, known.producer_epoch, known.last_sequence, known.coordinator_epoch)
                commands.append(ExpireProducers(*where, (seen,)))
        if not commands:
            return
        try:
            with self._log.within(self._log.settings.request_timeout_ms / 1000):
                self._log.submit(commands)
        except KafkaException as error:
            log_event("producer_not_forgotten", producer_id=producer_id, error=error)


def _rows_by_partition(staged: Sequence[StagedSegment]) -> dict[TopicIdPartition, int]:
    rows: dict[TopicIdPartition, int] = {}
    for segment in staged:
        where = (segment.topic_id, segment.partition)
        rows[where] = rows.get(where, 0) + segment.record_count
    return rows
