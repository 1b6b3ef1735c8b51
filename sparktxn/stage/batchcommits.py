"""Commits of staged segments: each is one entry, and a batch that its sink knows takes effect once.

A handle has at most one list of a transactional id under way. While its outcome is not known the same call asks for it
again, and any other one cancels it first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from sparktxn.errors import (
    BatchRefused,
    CommandRefused,
    ErrorCode,
    KafkaError,
    OutcomeUnknown,
    ProducerFenced,
)
from sparktxn.format.commands import Command, SinkBatchCommit, TxnOffsetCommit
from sparktxn.stage.committedrows import committed_rows, rows_by_topic
from sparktxn.stage.pendingcommits import (
    Contents,
    Expectations,
    PendingCommit,
    SinkCommit,
    TransactionOffsets,
    prescriptive,
)
from sparktxn.stage.sharedcommits import SharedCommits
from sparktxn.stage.stagedsegment import RowsDigest, StagedSegment
from sparktxn.stage.transaction import NO_IDENTITY, TransactionIdentity, TransactionWriter
from sparktxn.state.fingerprints import fingerprint, is_same_size
from sparktxn.state.transactions.producerfencing import fenced_because
from sparktxn.state.transactions.sinks import check_batch, remembered_batch
from sparktxn.values.structs import ProducerIdAndEpoch, SinkBatch, TransactionState

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = [
    "BatchCommits",
    "CommitResult",
    "OnReplayMismatch",
    "ReplayMismatch",
    "SinkCommit",
    "TransactionOffsets",
    "fingerprint_of",
]

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
        self._shared = SharedCommits(log)

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
