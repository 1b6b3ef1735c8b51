"""Commits of staged segments: each is one entry, and a batch that its sink knows takes effect once.

A handle has at most one list of a transactional id under way. While its outcome is not known the same call asks for it
again, and any other one cancels it first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import (
    Append,
    Command,
    EndTxn,
    ExpectEndOffset,
    ExpireProducers,
    ExpireTransactionalId,
    InitProducerId,
    OffsetToCommit,
    SinkBatchCommit,
    TxnOffsetCommit,
)
from sparktxn._engine.format.segment import InlineSegment, decode_inline, stored_schema, timestamp_range_ms
from sparktxn._engine.state.transactions.partitions import inline_problem
from sparktxn._engine.state.transactions.producerfencing import fenced_because, next_sequence
from sparktxn._engine.state.transactions.sinks import check_batch, fingerprint, is_same_size, remembered_batch
from sparktxn._foundation.config.topic import topic_setting
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import (
    NO_TRANSACTION,
    ProducerIdAndEpoch,
    SinkBatch,
    TopicState,
    TransactionState,
    TransactionStatus,
)
from sparktxn._rows.stage.pendingsegment import PendingSegment, Uploads, stage_inline, upload_missing
from sparktxn._rows.stage.stagedsegment import (
    INLINE_LIST_BYTES_MAX,
    RowsDigest,
    StagedSegment,
    StageTopic,
    may_be_carried,
)
from sparktxn._rows.stage.transactionwriter import NO_IDENTITY, TransactionIdentity, TransactionWriter, begun_by
from sparktxn.errors import (
    BatchRefused,
    CommandRefused,
    ConfigurationError,
    DamagedObject,
    ErrorCode,
    ExpectationFailed,
    KafkaError,
    KafkaException,
    OutcomeLost,
    OutcomeUnknown,
    ProducerFenced,
    SegmentExpired,
    StoreError,
    StoreUnavailable,
    ViewExpired,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from sparktxn._engine.log.log import Log


# How many rows a sink's batch has committed: the log's entry says it, the batch's fingerprint does not.


def committed_rows(log: Log, transactional_id: str, batch: SinkBatch) -> dict[str, int] | None:
    """Return the number of rows that `batch` has committed, by topic; None if a vacuum has passed its entry.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    # Imported late: the tasks that stage rows for Spark read no log, and each of their processes would import it.
    from sparktxn._engine.log.follow.tail import commands_of
    from sparktxn._engine.log.views.entrysummary import read_entries

    try:
        (entry,) = read_entries(log.objects, batch.entry, batch.entry)
        commands = commands_of(log.objects, entry)
    except (ViewExpired, DamagedObject):
        return None
    own = {
        (command.producer_id, number)
        for command in commands
        if isinstance(command, SinkBatchCommit)
        and (command.transactional_id, command.batch_id) == (transactional_id, batch.batch_id)
        # Rows of keyed topics are appended outside of the transaction.
        for number in (command.transaction, NO_TRANSACTION)
    }
    appended = (command for command in commands if isinstance(command, Append))
    return rows_by_topic((each for each in appended if (each.producer_id, each.transaction) in own), log)


def rows_by_topic(segments: Iterable[Append | StagedSegment], log: Log) -> dict[str, int]:
    """Return the number of rows of `segments`, by topic; a topic that `log` does not know has its id for a name."""
    names, rows = log.topic_names(), dict[str, int]()
    for segment in segments:
        name = names.get(segment.topic_id, f"topic id {segment.topic_id}")
        rows[name] = rows.get(name, 0) + segment.record_count
    return rows


# Segments of many stagers in one list: what they left to the entry is brought within what an entry carries.
#
# Each task of a Spark job stages alone, and does not know what the others leave to the entry.

_STAGE_AGAIN: Final = "Expected segments as a stager returned them; nothing was written: stage the rows again"


def checked(staged: Sequence[StagedSegment]) -> list[StagedSegment]:
    """Return the segments of a caller in plain values, checked as the state checks an append.

    Later would be too late for what they carry: a merged segment has a checksum of its own.

    Raises:
        TypeError, ConfigurationError: a field of a segment is not what a log can hold, or its `data` is not what it
            says of itself.
    """
    found = [segment.checked() for segment in staged]
    for place, segment in enumerate(found):
        problem = inline_problem(segment, segment.data)
        if problem is not None:
            raise ConfigurationError(f"staged[{place}], segment {segment.segment!r}, has {problem}: {_STAGE_AGAIN}")
    return found


def gathered(log: Log, staged: Sequence[StagedSegment]) -> list[StagedSegment]:
    """Return segments with the records of `staged`, of which one list can carry those that are not uploaded.

    Neighbours of one partition whose records are not in the store become one segment. It is carried if it is small
    enough and the list has room for it; else it is uploaded. The order within each partition stays. Its name is new: a
    caller may commit the same segments again.

    Raises:
        ConfigurationError: the `data` of a segment that `checked` passed does not hold records of its topic.
        OutcomeUnknown, StoreUnavailable: a segment is not uploaded; call again.
    """
    if not any(segment.data for segment in staged):
        return list(staged)
    parts: list[StagedSegment | PendingSegment] = []
    pending: list[PendingSegment] = []
    left_bytes = INLINE_LIST_BYTES_MAX
    # The sort is stable: the order within each partition stays.
    for (is_carried, _), run in groupby(sorted(staged, key=_place), key=_run):
        some = list(run)
        topic = log.topic(some[0].topic) if is_carried else None
        # The state refuses what names a topic that was deleted since.
        if topic is None or topic.topic_id != some[0].topic_id:
            parts += some
            continue
        records = _records(topic, some)
        if len(some) == 1 and some[0].size_bytes <= left_bytes and _is_as_carried(log, topic, some[0], records):
            parts.append(replace(some[0], segment=names.inline_segment(log.ids.token())))
            left_bytes -= some[0].size_bytes
        else:
            payload_bytes = sum(segment.payload_bytes for segment in some)
            own = Uploads.of(log), StageTopic.of(topic), some[0].partition
            pending.append(PendingSegment(*own, records, payload_bytes))
            parts.append(pending[-1])
    if pending:
        stage_inline(pending, left_bytes)
        upload_missing(pending)
    return [part.finish() if isinstance(part, PendingSegment) else part for part in parts]


_place: Final = attrgetter("topic", "topic_id", "partition")


def _run(segment: StagedSegment) -> tuple[bool, Any]:
    return bool(segment.data), _place(segment)


def _records(topic: TopicState, carried: Sequence[StagedSegment]) -> pa.Table:
    """Return the records of segments of one partition whose `data` they are, one after the other."""
    schema = stored_schema(topic.schema)
    found = [InlineSegment(segment.segment, segment.data, segment.record_count) for segment in carried]
    try:
        return decode_inline(found, schema=schema, columns=schema.names)
    except DamagedObject as error:
        # No object of the store has these bytes: the caller does.
        reason = (
            f"staged has data that cannot be read, of segment {error.object_name!r}: {error.reason}. {_STAGE_AGAIN}"
        )
        raise ConfigurationError(reason) from error


def _is_as_carried(log: Log, topic: TopicState, segment: StagedSegment, records: pa.Table) -> bool:
    """Return whether the list can carry a segment as its stager has made it, by the settings of this process, too."""
    limit_bytes = topic_setting(topic.settings, "append.inline.bytes")
    return may_be_carried(segment.payload_bytes, limit_bytes, log.settings.inline_bytes) and (
        segment.timestamp_min_ms,
        segment.timestamp_max_ms,
    ) == timestamp_range_ms(records, records.schema)


# What a handle's commit has sent and does not know the outcome of.
#
# The same call asks for the outcome again; a call with other contents cancels what has not taken effect.


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


Expectations = tuple[tuple[int, int, int], ...]
"""Where partitions must end for a commit to pass: (topic id, partition, log end offset) of each."""


class TransactionOffsets(Struct, frozen=True):
    """The offsets that a transaction commits for a consumer group."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]


class Contents(Struct, frozen=True):
    """What a commit asks for: a segment is named by one transaction only."""

    segments: tuple[str, ...]
    sink: SinkCommit | None
    group: TransactionOffsets | None = None
    expected: Expectations = ()

    @classmethod
    def of(
        cls,
        staged: Sequence[StagedSegment],
        sink: SinkCommit | None = None,
        group: TransactionOffsets | None = None,
        expected: Expectations = (),
    ) -> Contents:
        """Return the contents of a commit of these segments, in whatever order."""
        return cls(tuple(sorted(segment.segment for segment in staged)), sink, group, expected)

    def is_empty(self) -> bool:
        """Return True if the commit would change and check nothing."""
        return self == Contents((), None)


class PendingCommit:
    """Own a writer of transactions and at most one list of it; one thread at a time uses it."""

    def __init__(self, log: Log) -> None:
        self.transactions = TransactionWriter(log)
        self._log = log
        self._sent: Contents | None = None
        self._stored: tuple[Contents, int] | None = None
        self._lost: tuple[Contents, OutcomeLost] | None = None

    def stored_entry(self, contents: Contents) -> int | None:
        """Return an entry from which on the contents are visible, if a caller got an error and they were stored."""
        return self._stored[1] if self._stored is not None and self._stored[0] == contents else None

    def send(
        self,
        contents: Contents,
        staged: Sequence[StagedSegment],
        identity: TransactionIdentity,
        *,
        before: Sequence[Command],
        after: Sequence[Command],
    ) -> None:
        """Send a transaction and wait; while its outcome is unknown this handle keeps it, and begins no other.

        Raises:
            CommandRefused: nothing was written.
            OutcomeUnknown, StoreUnavailable: not known by the deadline.
        """
        expectations = [ExpectEndOffset(*identity.names(), *expected) for expected in contents.expected]
        named = gathered(self._log, staged)
        others = [*expectations, *before]
        if named and named[0].is_keyed:
            ends = [command for command in after if not isinstance(command, EndTxn | ExpireTransactionalId)]
            others = [*begun_by(identity, (each.is_keyed for each in named), [*others, *ends]), *others]
        self.transactions.send(named, before=others, after=after, transaction=identity)
        self._sent = contents
        try:
            self.transactions.resolve()
        except OutcomeLost as lost:
            self._lost = (contents, lost)
            raise
        except StoreUnavailable as error:
            raise self._if_withdrawn(error) from None
        finally:
            self.transactions.withdraw()

    def settle(self, contents: Contents) -> None:
        """Learn what has become of the list whose outcome is unknown; one with other contents is cancelled.

        Two transactions would have one number and the same sequences: the second could be taken for the first.

        Raises:
            OutcomeLost: it never will be known whether these contents are stored. A sink's batch is looked up instead.
            OutcomeUnknown, StoreUnavailable: it is not known by the deadline, and nothing else has begun.
        """
        if self._lost is not None:
            self._raise_if_lost(contents)
        sent = self._sent
        if not self.transactions.is_busy or sent is None:
            return
        try:
            self.transactions.resolve(cancel=sent != contents)
        except (OutcomeUnknown, StoreUnavailable) as error:
            if isinstance(error, OutcomeLost):
                self._lost = (sent, error)
                self._raise_if_lost(contents)
            if not self.transactions.is_busy:
                return
            if sent == contents and isinstance(error, StoreUnavailable):
                raise self._if_withdrawn(error) from None
            if sent == contents:
                raise
            raise StoreUnavailable(
                f"nothing was written: what became of the commit before is not known by the deadline ({error}); call "
                "again"
            ) from error
        except CommandRefused:
            return
        self._stored = (sent, self._log.entry)

    def _if_withdrawn(self, error: StoreUnavailable) -> StoreError:
        """Return the error for a list that was not sent by the deadline: another thread may be about to send it."""
        if self.transactions.withdraw():
            return error
        return OutcomeUnknown(f"{error}: another call of this process may send it; call again, which resolves it")

    def _raise_if_lost(self, contents: Contents) -> None:
        if self._lost is not None and self._lost[0] == contents and contents.sink is None:
            raise self._lost[1]


def prescriptive(refused: CommandRefused) -> KafkaException:
    """Return a refusal as the class that says what to do about it."""
    code, reason = refused.error.code(), refused.error.str()
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        return SegmentExpired(reason)
    if code == ErrorCode.UNEXPECTED_END_OFFSET:
        return ExpectationFailed(KafkaError(code, reason))
    if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        return ProducerFenced(KafkaError(ErrorCode.PRODUCER_FENCED, reason, fatal=True))
    return refused


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
        printed = "" if sink is None else fingerprint_of(staged)
        if sink is not None:
            replayed = self._replayed(staged, printed, state, sink, on_replay_mismatch)
            if replayed is not None:
                return replayed
        if contents.is_empty():
            return CommitResult(entry, replayed=False)
        stored = writer.stored_entry(contents)
        if stored is not None:
            return CommitResult(stored, replayed=True)
        state = self._initialised(writer.transactions, transactional_id, state)
        try:
            self._submit(writer, staged, printed, state, contents)
        except CommandRefused as refused:
            if sink is not None:
                # Another driver may have committed the very batch since the last refresh.
                state_now = self.log.transaction(transactional_id)
                replayed = self._replayed(staged, printed, state_now, sink, on_replay_mismatch)
                if replayed is not None:
                    return replayed
            raise prescriptive(refused) from None
        return CommitResult(self.log.entry, replayed=False)

    def _replayed(
        self,
        staged: Sequence[StagedSegment],
        printed: str,
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
        batch = _batch(printed, state, sink)
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
        printed: str,
        state: TransactionState,
        contents: Contents,
    ) -> None:
        identity = TransactionIdentity(
            state.transactional_id, state.producer_id, state.producer_epoch, state.transaction + 1
        )
        before = [] if contents.sink is None else [_batch(printed, state, contents.sink)]
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
        # A keyed partition has none.
        entry = self._log.entry + 1
        keyed = {(segment.topic_id, segment.partition) for segment in staged if segment.is_keyed}
        for where, count in rows.items():
            control = -1 if where in keyed else entry
            forgotten.append(ExpireProducers(*where, ((producer_id, epoch, next_sequence(0, count - 1), control),)))
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


def _batch(printed: str, state: TransactionState, sink: SinkCommit) -> SinkBatchCommit:
    return SinkBatchCommit(
        transactional_id=state.transactional_id,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        transaction=state.transaction + 1,
        writer_id=sink.writer_id,
        run_id=sink.run_id,
        batch_id=sink.batch_id,
        fingerprint=printed,
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
            digest = segment.digest if digest is None else digest.plus(segment.digest)
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
