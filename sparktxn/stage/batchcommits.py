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
from msgspec.structs import force_setattr

from sparktxn import arguments
from sparktxn.clock import Deadline
from sparktxn.errors import (
    BatchRefused,
    CommandRefused,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    ProducerFenced,
    SegmentExpired,
    StoreUnavailable,
)
from sparktxn.format.commands import SinkBatchCommit
from sparktxn.stage.staged import StagedSegment
from sparktxn.stage.transaction import NO_IDENTITY, TransactionIdentity, TransactionWriter
from sparktxn.state.sinks import check_batch, remembered_batch
from sparktxn.state.transactions import fenced_because
from sparktxn.structs import ProducerIdAndEpoch, SinkBatch, TransactionState

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["BatchCommits", "CommitResult", "OnReplayMismatch", "ReplayMismatch", "SinkCommit"]

OnReplayMismatch = Literal["fail", "skip"]


class SinkCommit(Struct, frozen=True):
    """A micro-batch's identity: `writer_id` is a query or an application, `run_id` is empty where there are no runs.

    Raises:
        TypeError: an id is not a str, or `batch_id` is not a whole number.
        ConfigurationError: an id is too long or not UTF-8, or `batch_id` is not from 0 to 2**63 - 1.
    """

    writer_id: str
    run_id: str
    batch_id: int

    def __post_init__(self) -> None:
        force_setattr(self, "writer_id", arguments.identifier("writer_id", self.writer_id))
        force_setattr(self, "run_id", arguments.identifier("run_id", self.run_id, may_be_empty=True))
        force_setattr(self, "batch_id", arguments.integer("batch_id", self.batch_id, 0))


class ReplayMismatch(Struct, frozen=True):
    """How a batch that was committed before differs: the fingerprints of its rows now, and of the committed ones.

    `committed` is None for a batch id below the last one that the log does not remember. `is_last` says whether it is
    the writer's last batch: a writer that crashed and goes on repeats no other.
    """

    fingerprint: str
    committed: str | None
    is_last: bool


class CommitResult(Struct, frozen=True):
    """A committed batch: its entry, or one from which on a batch that was committed before is visible (`replayed`).

    `mismatch` is set where such a batch is not known to have had the same rows: they were not written again.
    """

    entry: int
    replayed: bool
    mismatch: ReplayMismatch | None = None


class _Contents(Struct, frozen=True):
    """What a commit asks for: a segment is named by one transaction only."""

    segments: tuple[str, ...]
    sink: SinkCommit | None


class _Writer(Struct):
    """A transactional id's writer in this handle.

    `sent` is what it has sent and does not know the outcome of. `stored` is what turned out to be committed after a
    caller had got an error, with its entry.
    """

    transactions: TransactionWriter
    sent: _Contents | None = None
    stored: tuple[_Contents, int] | None = None


class BatchCommits:
    """Commit staged segments for one handle of a store; one thread at a time uses it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._writers: dict[str, _Writer] = {}

    def let_go(self) -> None:
        """Give up what is under way: this process puts it no more."""
        for writer in self._writers.values():
            writer.transactions.let_go()

    def commit(
        self,
        staged: Sequence[StagedSegment],
        transactional_id: str,
        sink: SinkCommit | None,
        deadline: Deadline,
        on_replay_mismatch: OnReplayMismatch = "fail",
    ) -> CommitResult:
        """Commit the segments as one transaction; see `Store.commit`."""
        contents = _Contents(tuple(sorted(segment.segment for segment in staged)), sink)
        writer = self._writers.get(transactional_id)
        if writer is None:
            writer = self._writers[transactional_id] = _Writer(TransactionWriter(self.log))
        self._resolve(writer, transactional_id, contents, deadline)
        self.log.refresh(deadline)
        if sink is not None:
            replayed = self._replayed(staged, transactional_id, sink, on_replay_mismatch)
            if replayed is not None:
                return replayed
        if not staged and sink is None:
            return CommitResult(self.log.entry, replayed=False)
        if writer.stored is not None and writer.stored[0] == contents:
            return CommitResult(writer.stored[1], replayed=True)
        state = self._initialised(writer.transactions, transactional_id, deadline)
        try:
            self._submit(writer, staged, state, contents, deadline)
        except CommandRefused as refused:
            # Another driver may have committed the very batch since the last refresh.
            replayed = None if sink is None else self._replayed(staged, transactional_id, sink, on_replay_mismatch)
            if replayed is not None:
                return replayed
            raise _prescriptive(refused) from None
        return CommitResult(self.log.entry, replayed=False)

    def _submit(
        self,
        writer: _Writer,
        staged: Sequence[StagedSegment],
        state: TransactionState,
        contents: _Contents,
        deadline: Deadline,
    ) -> None:
        """Send a transaction and wait; while its outcome is unknown this handle keeps it, and begins no other."""
        identity = TransactionIdentity(
            state.transactional_id, state.producer_id, state.producer_epoch, state.transaction + 1
        )
        before = [] if contents.sink is None else [_batch(staged, state, contents.sink)]
        writer.transactions.send(staged, before=before, after=[identity.end(committed=True)], transaction=identity)
        writer.sent = contents
        try:
            writer.transactions.resolve(deadline)
        finally:
            writer.transactions.withdraw()

    def _resolve(self, writer: _Writer, transactional_id: str, contents: _Contents, deadline: Deadline) -> None:
        """Learn what has become of the transaction whose outcome is unknown; one with other contents is cancelled.

        Two transactions would have one number and the same sequences: the second could be taken for the first.

        Raises:
            OutcomeUnknown, StoreUnavailable: it is not known by the deadline, and nothing else has begun.
        """
        transactions, sent = writer.transactions, writer.sent
        if not transactions.is_busy or sent is None:
            return
        try:
            transactions.resolve(deadline, cancel=sent != contents)
        except (OutcomeUnknown, StoreUnavailable) as error:
            if not transactions.is_busy:
                return
            if sent == contents:
                raise
            raise StoreUnavailable(
                f"nothing was written: what became of the commit before under {transactional_id!r} is not known "
                f"by the deadline ({error}); call again"
            ) from error
        except CommandRefused:
            return
        writer.stored = (sent, self.log.entry)

    def _replayed(
        self,
        staged: Sequence[StagedSegment],
        transactional_id: str,
        sink: SinkCommit,
        on_replay_mismatch: OnReplayMismatch,
    ) -> CommitResult | None:
        """Return how the batch was committed before; None if it is new.

        Raises:
            BatchRefused: its run or writer was superseded, or it has other rows and `on_replay_mismatch` is "fail".
        """
        state = self.log.transaction(transactional_id)
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
        known = remembered_batch(state.sink, sink.batch_id)
        last = state.sink.batches[-1]
        mismatch = ReplayMismatch(batch.fingerprint, None if known is None else known.fingerprint, known is last)
        return CommitResult((known or last).entry, replayed=True, mismatch=mismatch)

    def _initialised(
        self, transactions: TransactionWriter, transactional_id: str, deadline: Deadline
    ) -> TransactionState:
        """Return the transactional id's state under this handle's own epoch; it is initialised once per handle."""
        state = self.log.transaction(transactional_id)
        if state is None or transactions.identity == NO_IDENTITY:
            transactions.initialise(deadline, transactional_id=transactional_id)
            state = self.log.transaction(transactional_id)
        if state is None:
            raise OutcomeUnknown(f"transactional id {transactional_id!r} expired at once")
        if transactions.identity != ProducerIdAndEpoch(state.producer_id, state.producer_epoch):
            reason = f"this writer of transactional id {transactional_id!r} is fenced: {fenced_because(state)}"
            raise ProducerFenced(KafkaError(ErrorCode.PRODUCER_FENCED, reason, fatal=True))
        return state


def _prescriptive(refused: CommandRefused) -> KafkaException:
    """A refusal as the class that says what to do about it."""
    code, reason = refused.error.code(), refused.error.str()
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        return SegmentExpired(reason)
    if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        return ProducerFenced(KafkaError(ErrorCode.PRODUCER_FENCED, reason, fatal=True))
    return refused


def _batch(staged: Sequence[StagedSegment], state: TransactionState, sink: SinkCommit) -> SinkBatchCommit:
    return SinkBatchCommit(
        transactional_id=state.transactional_id,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transaction=state.transaction + 1,
        writer_id=sink.writer_id,
        run_id=sink.run_id,
        batch_id=sink.batch_id,
        fingerprint=_fingerprint(staged),
    )


def _fingerprint(staged: Sequence[StagedSegment]) -> str:
    """Rows and bytes per topic, whatever the order of rows, tasks and segments: what a replay must repeat.

    Not per partition: rows without a key take partitions in turn, so another order puts them elsewhere.
    """
    totals: dict[str, list[int]] = {}
    for segment in staged:
        total = totals.setdefault(str(segment.topic_id), [0, 0])
        total[0] += segment.record_count
        total[1] += segment.payload_bytes
    return hashlib.sha256(json.dumps(totals, sort_keys=True).encode()).hexdigest()[:32]
