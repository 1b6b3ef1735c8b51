"""Commits of staged segments: each is one entry, and a batch that its sink knows takes effect once.

A handle has at most one list of a transactional id under way. While its outcome is not known the same call asks for it
again, and any other one cancels it first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from sparktxn.errors import (
    BatchRefused,
    CommandRefused,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    ProducerFenced,
)
from sparktxn.format.commands import (
    Command,
    ExpireProducers,
    ExpireTransactionalId,
    InitProducerId,
    SinkBatchCommit,
    TxnOffsetCommit,
)
from sparktxn.process.events import log_event
from sparktxn.stage.committedrows import committed_rows, rows_by_topic
from sparktxn.stage.pendingcommits import (
    Contents,
    Expectations,
    PendingCommit,
    SinkCommit,
    TransactionOffsets,
    prescriptive,
)
from sparktxn.stage.stagedsegment import RowsDigest, StagedSegment
from sparktxn.stage.transaction import NO_IDENTITY, TransactionIdentity, TransactionWriter
from sparktxn.state.fingerprints import fingerprint, is_same_size
from sparktxn.state.transactions.producerfencing import fenced_because
from sparktxn.state.transactions.producers import next_sequence
from sparktxn.state.transactions.sinks import check_batch, remembered_batch
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import ProducerIdAndEpoch, SinkBatch, TransactionState, TransactionStatus

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = [
    "SHARED_ID",
    "BatchCommits",
    "CommitResult",
    "OnReplayMismatch",
    "ReplayMismatch",
    "SinkCommit",
    "TransactionOffsets",
    "fingerprint_of",
]

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


OnReplayMismatch = Literal["fail", "skip"]


class ReplayMismatch(Struct, frozen=True):
    """How a batch that was committed before differs: the fingerprints of its rows now, and of the committed ones.

    `committed` is None for a batch id below the last one that the log does not remember. `is_last` says whether it is
    the writer's last batch: a writer that crashed and goes on repeats no other. `reason` says it in words.

    `rows` are the numbers of its rows by topic now, and `committed_rows` of those that are committed. None means that
    a vacuum has passed the entry, or that the batch is not remembered.
    """

    fingerprint: str
    committed: str | None
    is_last: bool
    reason: str = ""
    rows: dict[str, int] = {}
    committed_rows: dict[str, int] | None = None


class CommitResult(Struct, frozen=True):
    """A committed batch: its entry, or one from which on a batch that was committed before is visible (`replayed`).

    `mismatch` is set where such a batch is not known to have had the same rows: they were not written again.
    """

    entry: int
    replayed: bool
    mismatch: ReplayMismatch | None = None


class BatchCommits:
    """Commit staged segments for one handle of a store; one thread at a time uses it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._writers: dict[str, PendingCommit] = {}
        self._shared = _SharedCommits(log)

    def let_go(self) -> None:
        """Give up what is under way: this process puts it no more."""
        self._shared.let_go()
        for writer in self._writers.values():
            writer.transactions.let_go()

    def commit(
        self,
        staged: Sequence[StagedSegment],
        transactional_id: str | None,
        sink: SinkCommit | None,
        on_replay_mismatch: OnReplayMismatch = "fail",
        group: TransactionOffsets | None = None,
        expected: Expectations = (),
    ) -> CommitResult:
        """Commit the segments as one transaction; see `Store.commit`."""
        if transactional_id is None:
            return CommitResult(*self._shared.commit(staged, expected))
        contents = Contents.of(staged, sink, group, expected)
        writer = self._writers.get(transactional_id)
        if writer is None:
            writer = self._writers[transactional_id] = PendingCommit(self.log)
        writer.settle(contents)
        with self.log.known() as known:
            entry, state = known.entry, known.transaction(transactional_id)
        if sink is not None:
            replayed = self._replayed(staged, state, sink, on_replay_mismatch)
            if replayed is not None:
                return replayed
        if contents.is_empty():
            return CommitResult(entry, replayed=False)
        stored = writer.stored_entry(contents)
        if stored is not None:
            return CommitResult(stored, replayed=True)
        state = self._initialised(writer.transactions, transactional_id, state)
        try:
            self._submit(writer, staged, state, contents)
        except CommandRefused as refused:
            if sink is not None:
                # Another driver may have committed the very batch since the last refresh.
                state_now = self.log.transaction(transactional_id)
                replayed = self._replayed(staged, state_now, sink, on_replay_mismatch)
                if replayed is not None:
                    return replayed
            raise prescriptive(refused) from None
        return CommitResult(self.log.entry, replayed=False)

    def _replayed(
        self,
        staged: Sequence[StagedSegment],
        state: TransactionState | None,
        sink: SinkCommit,
        on_replay_mismatch: OnReplayMismatch,
    ) -> CommitResult | None:
        """Return how the batch was committed before, as its transactional id's state says; None if it is new.

        Raises:
            BatchRefused: its run or writer was superseded, or it has other rows and `on_replay_mismatch` is "fail".
        """
        if state is None or state.sink is None:
            return None
        batch = _batch(staged, state, sink)
        found = check_batch(state.sink, batch)
        if found is None:
            return None
        if isinstance(found, SinkBatch):
            return CommitResult(found.entry, replayed=True)
        if found.code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER or on_replay_mismatch == "fail":
            raise BatchRefused(found.reason)
        known, last = remembered_batch(state.sink, sink.batch_id), state.sink.batches[-1]
        rows = rows_by_topic(staged, self.log)
        if known is None:
            committed = None
        elif is_same_size(known.fingerprint, batch.fingerprint):
            committed = rows
        else:
            committed = committed_rows(self.log, state.transactional_id, known)
        before = None if known is None else known.fingerprint
        mismatch = ReplayMismatch(batch.fingerprint, before, known is last, found.reason, rows, committed)
        return CommitResult((known or last).entry, replayed=True, mismatch=mismatch)

    def _submit(
        self,
        writer: PendingCommit,
        staged: Sequence[StagedSegment],
        state: TransactionState,
        contents: Contents,
    ) -> None:
        identity = TransactionIdentity(
            state.transactional_id, state.producer_id, state.producer_epoch, state.transaction + 1
        )
        before = [] if contents.sink is None else [_batch(staged, state, contents.sink)]
        after: list[Command] = [identity.end(committed=True)]
        if contents.group is not None:
            group = contents.group
            after.insert(0, TxnOffsetCommit(*identity.names(), group_id=group.group_id, offsets=group.offsets))
        writer.send(contents, staged, identity, before=before, after=after)

    def _initialised(
        self, transactions: TransactionWriter, transactional_id: str, state: TransactionState | None
    ) -> TransactionState:
        """Return the transactional id's state under this handle's own epoch; it is initialised once per handle.

        `state` is the one that was read last.
        """
        if state is None or transactions.identity == NO_IDENTITY:
            transactions.initialise(transactional_id=transactional_id)
            state = self.log.transaction(transactional_id)
        if state is None:
            raise OutcomeUnknown(f"transactional id {transactional_id!r} expired at once")
        if transactions.identity != ProducerIdAndEpoch(state.producer_id, state.producer_epoch):
            reason = f"this writer of transactional id {transactional_id!r} is fenced: {fenced_because(state)}"
            raise ProducerFenced(KafkaError(ErrorCode.PRODUCER_FENCED, reason, fatal=True))
        return state


class _SharedCommits:
    """Commit segments for callers without a transactional id: any number of them leave no more in the state than one.

    They share one transactional id. A transaction is one list, which names the number and the sequences that come next
    in the state as the caller knows it. Of two lists with one number the first takes effect. The state refuses the
    other one as a whole, for its segments are others, and it is made again with what the state says then. A caller that
    others outrun too often takes an id of its own for this one transaction, and forgets it.

    One thread at a time uses it.
    """

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


def _batch(staged: Sequence[StagedSegment], state: TransactionState, sink: SinkCommit) -> SinkBatchCommit:
    return SinkBatchCommit(
        transactional_id=state.transactional_id,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transaction=state.transaction + 1,
        writer_id=sink.writer_id,
        run_id=sink.run_id,
        batch_id=sink.batch_id,
        fingerprint=fingerprint_of(staged),
    )


def fingerprint_of(staged: Sequence[StagedSegment]) -> str:
    """Return what a repetition must have again: rows and bytes per topic, and the rows' digest if all have one.

    Not per partition: rows without a key take partitions in turn, so another order puts them elsewhere.
    """
    totals: dict[str, list[int]] = {}
    digest: RowsDigest | None = None
    for segment in staged:
        topic = str(segment.topic_id)
        total = totals.setdefault(topic, [0, 0])
        total[0] += segment.record_count
        total[1] += segment.payload_bytes
        if segment.digest is not None:
            digest = segment.digest.plus(digest)
    sizes = hashlib.sha256(json.dumps(totals, sort_keys=True).encode()).hexdigest()[:32]
    # Segments may have been staged without digests, or be given without those that have them.
    if digest is None or digest.row_count != sum(rows for rows, _ in totals.values()):
        return fingerprint(sizes)
    return fingerprint(sizes, digest.kind, f"{digest.low:016x}{digest.high:016x}")


def _rows_by_partition(staged: Sequence[StagedSegment]) -> dict[TopicIdPartition, int]:
    rows: dict[TopicIdPartition, int] = {}
    for segment in staged:
        where = (segment.topic_id, segment.partition)
        rows[where] = rows.get(where, 0) + segment.record_count
    return rows
