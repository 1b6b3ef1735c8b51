"""The public surface below the clients: for engines that read and write a store in many processes at once.

The process that opens a `Store` plans and commits; others get picklable values and never open the log::

    store = Store.open("/data/log")
    view = store.view(["flights"])
    tasks = store.plan(view, store.ranges(view))            # → executors: read_task(task, store.options)
    plan = store.stage_plan(["delays", "late"])             # → executors: plan.open().write(batch) … finish()
    store.commit(staged, transactional_id="job-7")          # one transaction, one entry
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import force_setattr

from sparktxn import arguments
from sparktxn.clock import Clock, Deadline, RandomIds, SystemClock, acquired_in_time, in_time
from sparktxn.config.store import StoreOptions
from sparktxn.config.topic import check_topic_settings
from sparktxn.dropped import give_back_later
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
from sparktxn.fork import ForkGuard
from sparktxn.format.commands import CreateTopic, SinkBatchCommit
from sparktxn.format.names import check_topic_name
from sparktxn.format.schema import check_schema
from sparktxn.internaltopics import refuse_change
from sparktxn.log.log import Log
from sparktxn.log.look.views import PartitionView, ReadView
from sparktxn.registry import acquire_log, objects_of, release_dropped, release_log
from sparktxn.scan.alignment import Alignment, Cut, aligned_cut
from sparktxn.scan.offsets import offset_for_time
from sparktxn.scan.plan import Isolation, ReadTask, by_partition, checked_ranges, end_of, plan_ranges
from sparktxn.scan.reader import read
from sparktxn.stage.stager import SegmentStager, StagedSegment, StageTopic
from sparktxn.stage.transaction import NO_IDENTITY, TransactionIdentity, TransactionWriter
from sparktxn.state.limits import PARTITION_COUNT_MAX
from sparktxn.state.sinks import check_batch
from sparktxn.state.transactions import fenced_because
from sparktxn.structs import ProducerIdAndEpoch, TopicState, TransactionState

__all__ = ["PARTITION_COUNT_MAX", "CommitResult", "SinkCommit", "StagePlan", "Store", "read_task"]

TopicPartitionKey = tuple[str, int]
_ISOLATIONS: Final = ("read_committed", "read_uncommitted")


class StagePlan(Struct, frozen=True):
    """All that a process needs to stage records: picklable, no secrets in its `repr`."""

    store_uri: str
    options: dict[str, Any]
    born: int
    topics: dict[str, StageTopic]

    def open(
        self, *, seed: int, default_topic: str | None = None, partitioner: str = "consistent_random"
    ) -> SegmentStager:
        """A stager in this process; equal rows under an equal `seed` go to equal partitions."""
        seed = arguments.integer("seed", seed)
        default_topic = arguments.text_or_none("default_topic", default_topic)
        partitioner = arguments.text("partitioner", partitioner)
        objects = objects_of(self.store_uri, self.options)
        return SegmentStager(
            objects,
            RandomIds(),
            self.born,
            self.topics,
            seed=seed,
            default_topic=default_topic,
            partitioner=partitioner,
            clock=SystemClock(),
        )

    def __repr__(self) -> str:
        return f"StagePlan(store_uri={self.store_uri!r}, born={self.born}, topics={sorted(self.topics)})"


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


class CommitResult(Struct, frozen=True):
    """A committed transaction: its entry, or the one that had committed the same batch before (`replayed`)."""

    entry: int
    replayed: bool


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


def _clock_of(store: Store) -> Clock:
    return store.log.clock


class Store:
    """A store, opened for planning and committing. Handles of one process and address share one log."""

    def __init__(self, uri: str, options: Mapping[str, Any], log: Log) -> None:
        self.uri = uri
        self.options = StoreOptions(options)
        self.log = log
        self._fork = ForkGuard()
        self._closed = False
        # For a store that is dropped without close(): the log must not stay open for it.
        self._dropped = weakref.finalize(self, give_back_later, partial(release_dropped, log, self._fork))
        self._dropped.atexit = False
        self._committing = threading.Lock()
        self._writers: dict[str, _Writer] = {}

    @classmethod
    def open(cls, uri: str, *, options: Mapping[str, Any] | None = None, create: bool = False) -> Store:
        """Opens the store at `uri` (a folder, ``file://``, ``s3://``, ``memory://``).

        Args:
            uri: the store's root.
            options: ``store.*`` and ``checkpoint.*`` settings, and ``storage.*`` for fsspec.
            create: make the store if there is none.

        Raises:
            ConfigurationError: the URI or an option is wrong.
            StoreNotFound: there is no store, and `create` is False.
        """
        address = _address(uri)
        options = arguments.mapping("options", options)
        return cls(address, options, acquire_log(address, options, create=arguments.boolean("create", create)))

    def __repr__(self) -> str:
        return f"Store({self.log.objects.uri!r})"

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the log back; calling twice is harmless."""
        if not self._closed:
            self._closed = True
            if self._dropped.detach() and not self._fork.forked():
                for writer in self._writers.values():
                    writer.transactions.let_go()
                release_log(self.log)

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("this store is closed")
        self._fork.check("store")

    def _deadline(self, timeout_s: object) -> Deadline:
        return self.log.deadline(arguments.timeout_s("timeout_s", timeout_s))

    @in_time("timeout_s", _clock_of)
    def create_topic(
        self,
        name: str,
        partition_count: int = 1,
        *,
        settings: Mapping[str, Any] | None = None,
        schema: pa.Schema | None = None,
        timeout_s: float | None = None,
    ) -> TopicState:
        """Creates a topic of Kafka's record, or with `schema` a typed one.

        Raises:
            ConfigurationError: the name, a setting or the schema is wrong.
            KafkaException: the topic is internal (INVALID_TOPIC).
            CommandRefused: it exists (TOPIC_ALREADY_EXISTS), or the partition count is wrong.
        """
        self._check()
        name = check_topic_name(arguments.text("name", name))
        refuse_change(name)
        partition_count = arguments.integer("partition_count", partition_count)
        deadline = self._deadline(timeout_s)
        checked = check_topic_settings(arguments.mapping("settings", settings))
        columns = check_schema(schema) if schema is not None else None
        command = CreateTopic(self.log.ids.token(), name, partition_count, checked, columns)
        self.log.submit([command], deadline)
        topic = self.log.topic(name)
        if topic is None:
            raise CommandRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} was deleted at once")
        return topic

    @in_time("timeout_s", _clock_of)
    def topics(self, timeout_s: float | None = None) -> list[TopicState]:
        """All topics, by name."""
        self._check()
        self.log.refresh(self._deadline(timeout_s))
        return self.log.topics()

    @in_time("timeout_s", _clock_of)
    def view(
        self,
        topics: Iterable[str] | None = None,
        *,
        entry: int | None = None,
        timestamp_ms: int | None = None,
        at_least_entry: int | None = None,
        timeout_s: float | None = None,
    ) -> ReadView:
        """A frozen view of the named topics (None: all), now, at an entry, or at a time.

        `at_least_entry` is an entry that the log must already hold, such as the one of an earlier view.

        Raises:
            CommandRefused: a topic does not exist, or the entry is not in the log.
            ViewExpired: vacuum has passed the entry.
        """
        self._check()
        names = None if topics is None else arguments.identifiers("topics", topics)
        entry = arguments.integer_or_none("entry", entry, 0)
        timestamp_ms = arguments.integer_or_none("timestamp_ms", timestamp_ms, 0)
        at_least_entry = arguments.integer_or_none("at_least_entry", at_least_entry, 0)
        view = self.log.view(names, self._deadline(timeout_s), entry=entry, timestamp_ms=timestamp_ms)
        if at_least_entry is not None and view.entry < at_least_entry:
            raise CommandRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the log of {self.uri!r} ends at entry {view.entry}, before entry {at_least_entry}: "
                "is it another store?",
            )
        return view

    def ranges(
        self, view: ReadView, *, isolation: Isolation = "read_committed"
    ) -> dict[TopicPartitionKey, tuple[int, int]]:
        """All records of a view: from each partition's log start to its last stable, or last, offset."""
        arguments.instance("view", view, ReadView)
        arguments.choice("isolation", isolation, _ISOLATIONS)
        return {
            key: (partition.log_start_offset, end_of(partition, isolation))
            for key, partition in view.partitions.items()
        }

    def plan(
        self,
        view: ReadView,
        ranges: Mapping[TopicPartitionKey, tuple[int, int]],
        *,
        isolation: Isolation = "read_committed",
        columns: Sequence[str] | None = None,
        rows_per_task: int | None = None,
    ) -> list[ReadTask]:
        """Self-contained tasks that read the ranges; any process runs them with `read_task`.

        Raises:
            RetentionPassed: a range starts below a partition's log start.
        """
        self._check()
        arguments.instance("view", view, ReadView)
        arguments.choice("isolation", isolation, _ISOLATIONS)
        columns = None if columns is None else arguments.identifiers("columns", columns)
        rows_per_task = arguments.integer_or_none("rows_per_task", rows_per_task, 1)
        ranges = checked_ranges(view, ranges)
        # The address as resolved here: a relative path may mean another folder where a task runs.
        return plan_ranges(
            self.log.objects,
            self.log.objects.uri,
            view,
            ranges,
            isolation=isolation,
            columns=columns,
            rows_per_task=rows_per_task,
        )

    def cut(
        self,
        view: ReadView,
        starts: Mapping[TopicPartitionKey, int],
        *,
        rows_max: int | None = None,
        alignment: Alignment = "transaction",
    ) -> Cut:
        """Where a micro-batch that starts at `starts` may end so that it holds whole transactions only."""
        self._check()
        arguments.instance("view", view, ReadView)
        arguments.choice("alignment", alignment, ("transaction", "lso"))
        rows_max = arguments.integer_or_none("rows_max", rows_max, 1)
        given = by_partition("starts", starts)
        starts = {key: arguments.integer(f"starts[{key}]", start, 0) for key, start in given.items()}
        return aligned_cut(self.log.objects, view, starts, rows_max=rows_max, alignment=alignment)

    def offset_for_time(
        self, partition: PartitionView, timestamp_ms: int, *, isolation: Isolation = "read_committed"
    ) -> int | None:
        """The first offset whose record is not older than `timestamp_ms`; None if there is none."""
        self._check()
        arguments.instance("partition", partition, PartitionView)
        arguments.choice("isolation", isolation, _ISOLATIONS)
        timestamp_ms = arguments.integer("timestamp_ms", timestamp_ms)
        return offset_for_time(self.log.objects, partition, timestamp_ms, isolation)

    @in_time("timeout_s", _clock_of)
    def stage_plan(self, topics: Iterable[str], *, timeout_s: float | None = None) -> StagePlan:
        """What other processes need to stage records for these topics.

        Raises:
            CommandRefused: a topic does not exist.
            KafkaException: a topic is internal (INVALID_TOPIC).
        """
        self._check()
        topics = arguments.identifiers("topics", topics)
        for topic in topics:
            refuse_change(topic)
        view = self.view(topics, timeout_s=timeout_s)
        return StagePlan(
            self.log.objects.uri,
            self.options,
            view.entry,
            {name: StageTopic.of(topic) for name, topic in view.topics.items()},
        )

    @in_time("timeout_s", _clock_of)
    def commit(
        self,
        staged: Sequence[StagedSegment],
        *,
        transactional_id: str,
        sink: SinkCommit | None = None,
        timeout_s: float | None = None,
    ) -> CommitResult:
        """Commits staged segments as one transaction: all are visible from one entry on, or none ever.

        With `sink`, a batch that was committed before takes effect no second time, and claims nothing.

        Raises:
            BatchRefused: a newer run or query has committed, or the batch was committed with other rows.
            SegmentExpired: vacuum has passed a segment: stage it again.
            ProducerFenced, CommandRefused: another producer has initialised the transactional id.
            StoreUnavailable: nothing was committed by the deadline: call again.
            OutcomeUnknown: the outcome is not known at the deadline: call again with the same arguments, which resolves
                it. A call with others first learns the outcome, or cancels what has not taken effect.
        """
        self._check()
        segments = arguments.items("staged", staged, StagedSegment)
        name = arguments.identifier("transactional_id", transactional_id)
        batch = None if sink is None else arguments.instance("sink", sink, SinkCommit)
        deadline = self._deadline(timeout_s)
        # Two threads that commit under one id would take each other's transaction for their own.
        if not acquired_in_time(self._committing):
            raise OutcomeUnknown("another thread of this handle was committing until the deadline: call again")
        try:
            return self._commit(segments, name, batch, deadline)
        finally:
            self._committing.release()

    def _commit(
        self, staged: Sequence[StagedSegment], transactional_id: str, sink: SinkCommit | None, deadline: Deadline
    ) -> CommitResult:
        contents = _Contents(tuple(sorted(segment.segment for segment in staged)), sink)
        writer = self._writers.get(transactional_id)
        if writer is None:
            writer = self._writers[transactional_id] = _Writer(TransactionWriter(self.log))
        self._resolve(writer, transactional_id, contents, deadline)
        self.log.refresh(deadline)
        if sink is not None:
            replayed = self._replayed(staged, transactional_id, sink)
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
            replayed = self._replayed(staged, transactional_id, sink) if sink is not None else None
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
        self, staged: Sequence[StagedSegment], transactional_id: str, sink: SinkCommit
    ) -> CommitResult | None:
        state = self.log.transaction(transactional_id)
        if state is None:
            return None
        found = check_batch(state.sink, _batch(staged, state, sink))
        if found is None:
            return None
        if isinstance(found, tuple):
            raise BatchRefused(found.reason)
        return CommitResult(found.entry, replayed=True)

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


def _address(uri: object) -> str:
    """The store's address as text."""
    if not isinstance(uri, str | os.PathLike):
        raise TypeError(f"uri is {arguments.described(uri)}: expected a str or a path")
    return arguments.text("uri", os.fspath(uri))


def read_task(
    task: ReadTask, options: Mapping[str, Any] | None = None, *, batch_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in offset order, in any process that can reach the store's objects.

    Raises:
        DamagedObject: a segment is missing or is not what the log names.
        ViewExpired: vacuum has passed the view that the task was planned in.
    """
    arguments.instance("task", task, ReadTask)
    batch_rows = arguments.integer_or_none("batch_rows", batch_rows, 1)
    yield from read(objects_of(task.store_uri, arguments.mapping("options", options)), task, batch_rows=batch_rows)
