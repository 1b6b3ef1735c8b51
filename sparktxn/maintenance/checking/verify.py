"""Verifying a store: reads everything, and checks that it is as PROTOCOL.md says.

The log is replayed from the horizon: numbers, chain, checksums, and every command by the state machine. Each checkpoint
must hold what the replay gives, with its manifests and indexes. Every object that a view from the horizon on may read
must exist and hold what the log says. It is what a vacuum keeps and a copy has; `reachable.py` finds it for all
three. Segments of the newest view are decoded too. Each version of a table that is promised must name files that exist.
Nothing is written, and nothing is repaired: `repair.py` does that.

Not checked is what decides nothing: hints, intents, signs of life, and what a vacuum is going to delete.

It may run alongside every other process. A vacuum that runs at the same time makes it begin again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct, field

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import HALVES_PREFIX, SEGMENTS_PREFIX, CheckpointHead, decode_marker, part_of
from sparktxn._engine.format.entry import StoreDocument, decode_store
from sparktxn._engine.format.snapshot import decode_snapshot
from sparktxn._engine.log.follow.checkpointheads import open_head, read_part
from sparktxn._engine.log.follow.confirm import Premise, read_horizon, usable_heads
from sparktxn._engine.log.follow.follower import check_end
from sparktxn._engine.log.keep.replay import Replay
from sparktxn._engine.log.keep.sealedruns import aborted_of, not_rewritten, rewritten_segments_of
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.process.clock import in_time
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import Result, TopicIdPartition
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import (
    AbortedTransaction,
    HalfState,
    ManifestRef,
    PartitionSegments,
    PartitionState,
    SegmentRef,
    StoreState,
    TopicState,
)
from sparktxn.errors import DamagedObject, FormatVersionError, StoreUnavailable
from sparktxn.maintenance.attempts import Overtaken, check_not_overtaken, in_attempts
from sparktxn.maintenance.checking.segmentcheck import (
    RESTORE,
    CheckedSegments,
    Problem,
    SegmentsToCheck,
    StoredSegment,
    check_segments,
    older_tasks_of,
    partition_problems,
    stored_half,
    stored_segment,
    tasks_of,
)
from sparktxn.maintenance.checking.tablecheck import TableReplay, table_problems
from sparktxn.maintenance.copyobjects import CRC32C, INLINE, UNKNOWN_SIZE, ObjectToCopy
from sparktxn.maintenance.reachable import Head, Marks, find_checksums, heads_in, mark
from sparktxn.maintenance.taskrunning import RunTasks, all_results, waves
from sparktxn.store import Store
from sparktxn.store.registry import objects_of

__all__ = [
    "Problem",
    "SegmentsToCheck",
    "VerifyReport",
    "check_index_ends",
    "check_index_segments",
    "read_index",
    "verify",
]


# Checks of a run's index of aborted transactions, which has no checksum (PROTOCOL.md).

_base_offset: Final = attrgetter("base_offset")


def read_index(objects: ObjectStore, folder: str, run: ManifestRef) -> Sequence[AbortedTransaction]:
    """Return the aborted transactions in a run's index.

    Raises:
        DamagedObject: it is missing or damaged.
    """
    (found,) = aborted_of(objects, folder, [run])
    return found


def check_index_ends(
    found: Sequence[AbortedTransaction],
    folder: str,
    run: ManifestRef,
    replay: Replay,
    located: PartitionSegments,
) -> None:
    """Check a run's aborted transactions against the replay, if that has seen them end.

    Raises:
        DamagedObject: the index holds other transactions than the log.
    """
    partition = replay.parts.get(("partition", located.topic_id, located.partition))
    replayed = replay.parts.get(located.key)
    if partition is None or replayed is None or run in replayed.sealed:
        return
    # Another process may have sealed the records after the abort, and this one before it: that run ends at the abort.
    first = min(transaction.last_offset for transaction in found)
    others = [other for other in replayed.sealed if other.end_offset > first]
    known = {*replayed.aborted, *(one for other in others for one in replay.aborted(folder, other))}
    for transaction in found:
        if transaction.last_offset >= partition.log_start_offset and transaction not in known:
            name = names.transaction_index(folder, run.folder, run.base_offset)
            raise DamagedObject(name, f"it holds {transaction}, and the log has no such aborted transaction")


def check_index_segments(
    found: Sequence[AbortedTransaction],
    folder: str,
    run: ManifestRef,
    replay: Replay,
    located: PartitionSegments,
) -> None:
    """Check a run's index, which has no checksum, against the segments: readers must leave out those of its producers.

    Raises:
        DamagedObject: a transaction does not begin with a segment of its producer, or ends within segments.
    """
    start = min(transaction.first_offset for transaction in found)
    meeting = [each for each in located.sealed if start < each.end_offset and each.base_offset < run.end_offset]
    try:
        segments = [segment for each in meeting for segment in replay.manifest(folder, each)]
    except DamagedObject:
        return  # noted where it was read first
    by_producer: dict[int, list[SegmentRef]] = {}
    for segment in segments:
        by_producer.setdefault(segment.producer_id, []).append(segment)
    name = names.transaction_index(folder, run.folder, run.base_offset)
    for transaction in found:
        is_known = segments and transaction.first_offset >= segments[0].base_offset
        own = by_producer.get(transaction.producer_id, [])
        problem = _aborted_problem(transaction, segments, own) if is_known else None
        if transaction.last_offset >= run.end_offset:
            problem = f"its run ends at {run.end_offset}"
        if problem:
            raise DamagedObject(name, f"it holds {transaction}: {problem}")


def _aborted_problem(
    transaction: AbortedTransaction, segments: Sequence[SegmentRef], own: Sequence[SegmentRef]
) -> str | None:
    """Return how an aborted transaction contradicts the segments of its partition, and those of its producer.

    Both are in offset order, up to the end of the run in which it was sealed.
    """
    first = bisect_left(own, transaction.first_offset, key=_base_offset)
    if first == len(own) or own[first].base_offset != transaction.first_offset:
        return "no segment of that producer begins there"
    number = own[first].transaction
    after = bisect_right(segments, transaction.last_offset, key=_base_offset)
    if segments[after - 1].end_offset > transaction.last_offset:
        return "a segment is where it ends"
    for segment in islice(own, first, None):
        is_inside = segment.base_offset <= transaction.last_offset
        if is_inside != (segment.transaction == number):
            return f"it does not end with the producer's transaction {number}"
        if not is_inside:
            break
    return None


_WINDOW: Final = 64
_READ_ON: Final = "readers and writers use another checkpoint; it goes with a vacuum once two newer ones are whole"
_COUNTS_ALL: Final = (
    "every whole checkpoint from the horizon on counts meanwhile; the next vacuum writes another marker"
)
_FOR_KAFKAS_TOOLS: Final = f"only Kafka's tools read it: {RESTORE} if you use them"

_Run = RunTasks[SegmentsToCheck, CheckedSegments]


class VerifyReport(Struct, frozen=True, kw_only=True):
    """What was read, and what is wrong with it: nothing, if `problems` is empty.

    `entries` are those from `horizon` to `entry`. `segments`, `records` and `size_bytes` are what was read of topics.
    `unreferenced` objects are named by nothing that may still be read: the vacuum deletes them at their age.
    """

    horizon: int
    entry: int
    entries: int = 0
    checkpoints: int = 0
    segments: int = 0
    records: int = 0
    size_bytes: int = 0
    unreferenced: int = 0
    unreferenced_bytes: int = 0
    problems: tuple[Problem, ...] = ()


class _Damaged(Exception):
    """The log cannot be followed: what stands behind that is not known."""


@in_time("timeout_s", lambda store: store.log.clock)
def verify(
    store: Store,
    topics: Sequence[str] | None = None,
    *,
    read_records: bool = True,
    run: _Run | None = None,
    timeout_s: float | None = None,
) -> VerifyReport:
    """Read a store, and return what is not as it must be.

    Args:
        store: an open store.
        topics: whose segments to read; None for all. The log is read whole.
        read_records: False only looks whether segments exist with their sizes.
        run: how tasks are run, if not one after the other here. It is called with a function and some of the tasks,
            both picklable, and returns the results. With Spark: ``pyspark_txnlog.run_on(spark)``.
        timeout_s: how long all of it may take.

    Raises:
        StoreUnavailable: the store did not answer, or vacuums passed this verification each time.
        CommandRefused: a topic does not exist (UNKNOWN_TOPIC_OR_PARTITION).
    """
    arguments.instance("store", store, Store)
    names_ = None if topics is None else arguments.identifiers("topics", topics)
    read_records = arguments.boolean("read_records", read_records)
    arguments.function("run", run)
    wanted = None
    if names_ is not None:
        wanted = {topic.topic_id for topic in store.log.view(names_).topics.values()}
    try:
        return in_attempts(lambda: _Verification(store, wanted, read_records=read_records).report(run))
    except Overtaken:
        reason = "vacuums have passed this verification each time: call again while none runs"
        raise StoreUnavailable(reason) from None


class _Found(Struct):
    """What a verification has found so far."""

    problems: list[Problem] = field(default_factory=list)
    checkpoints: int = 0
    unreferenced: int = 0
    unreferenced_bytes: int = 0


class _Verification:
    """One attempt, on the horizon that was in force when it began."""

    def __init__(self, store: Store, topic_ids: Collection[int] | None, *, read_records: bool) -> None:
        self._store = store
        self._objects = store.log.objects
        self._topic_ids = topic_ids
        self._read_records = read_records
        self._horizon = read_horizon(self._objects)
        self._found = _Found()
        self._read: set[str] = set()
        self._marks = Marks()
        self._unreadable: list[CheckpointHead] = []
        self._differs: dict[str, str] = {}

    def report(self, run: _Run | None) -> VerifyReport:
        """Verify, and report.

        Raises:
            Overtaken: a vacuum has passed what was read.
        """
        entry, checked = 0, list[CheckedSegments]()
        try:
            replay = self._replayed()
            entry = replay.entry
            tasks = self._tasks(replay)
            self._check_not_overtaken()
            if self._read_records:
                checked = self._checked(tasks, run)
            self._found.problems += table_problems(self._store.log, replay, self._topic_ids)
        except _Damaged:
            pass
        except (DamagedObject, FormatVersionError) as damaged:
            # A part of the checkpoint at the horizon, without which the state is not known.
            self._check_not_overtaken()
            if all(problem.object_name != damaged.object_name for problem in self._found.problems):
                self._note(damaged)
        self._found.problems += [problem for some in checked for problem in some.problems]
        if any(problem.is_missing for problem in self._found.problems):
            self._check_not_overtaken()
        return VerifyReport(
            horizon=self._horizon,
            entry=entry,
            entries=max(0, entry - self._horizon + 1),
            checkpoints=self._found.checkpoints,
            segments=sum(some.segments for some in checked),
            records=sum(some.records for some in checked),
            size_bytes=sum(some.size_bytes for some in checked),
            unreferenced=self._found.unreferenced,
            unreferenced_bytes=self._found.unreferenced_bytes,
            problems=tuple(self._found.problems),
        )

    def _checked(self, tasks: Sequence[SegmentsToCheck], run: _Run | None) -> list[CheckedSegments]:
        if run is None:
            return [check_segments(self._objects, task) for task in tasks]
        check = partial(_check, self._store.options)
        return [
            checked
            for some in waves(tasks, lambda task: len(task.segments) + len(task.older))
            for checked in all_results(run(check, some), CheckedSegments, len(some))
        ]

    def _check_not_overtaken(self) -> None:
        check_not_overtaken(self._objects, Premise(self._horizon))

    def _note(self, damaged: DamagedObject | FormatVersionError, fix: str = RESTORE) -> None:
        if isinstance(damaged, FormatVersionError):
            fix = "upgrade sparktxn: a newer version has written it"
        self._found.problems.append(Problem(damaged.object_name, damaged.reason, fix))

    # the log

    def _replayed(self) -> TableReplay:
        """Return a replica at the log's end, with every checkpoint on its way compared.

        Raises:
            _Damaged: the log cannot be followed, or there is no checkpoint to begin with.
        """
        store = self._attempt(partial(_read_store_document, self._objects), RESTORE)
        self._is_copy = store is not None and bool(store.copied_from)
        listed = [head for head in heads_in(self._objects.list(names.CHECKPOINTS)) if head.entry >= self._horizon]
        if self._horizon > 1:
            self._check_marker({head.checkpoint for head in listed})
        heads = self._opened(listed)
        replay = TableReplay(self._objects, self._base(heads))
        try:
            for entry in sorted({head.entry for head in heads}):
                replay.advance_to(entry, _WINDOW)
                for head in heads:
                    if head.entry == entry:
                        self._compare(replay, head)
            replay.advance(window=_WINDOW)
            check_end(self._objects, replay)
            if replay.entry < self._store.log.entry:
                raise DamagedObject(names.entry(replay.entry + 1), "this process has read it, and it does not exist")
        except (DamagedObject, FormatVersionError) as damaged:
            self._check_not_overtaken()
            self._note(damaged, "restore the entry from a copy of the store: no process can pass it")
            raise _Damaged from None
        self._mark(replay, heads)
        return replay

    def _opened(self, listed: Sequence[Head]) -> list[CheckpointHead]:
        opened = []
        for head in listed:
            try:
                found = open_head(self._objects, head.entry, head.checkpoint)
            except (DamagedObject, FormatVersionError) as damaged:
                self._note(damaged, _READ_ON)
                continue
            if found is not None:
                opened.append(found)
        return usable_heads(self._objects, opened)

    def _base(self, heads: Sequence[CheckpointHead]) -> CheckpointHead | None:
        """Return what the replay begins with: the checkpoint at the horizon."""
        if self._horizon <= 1:
            self._check_marker_exists(heads)
            return None
        for head in heads:
            if head.entry == self._horizon:
                return head
        self._check_not_overtaken()
        problem = "no checkpoint of that entry is whole, and the entries before it may be gone"
        self._found.problems.append(Problem(names.horizon(self._horizon), problem, RESTORE))
        raise _Damaged

    def _check_marker_exists(self, heads: Sequence[CheckpointHead]) -> None:
        """Note that the horizon's marker is gone, if the log's first entry is, and a checkpoint says which it was.

        Raises:
            _Damaged: it is gone.
        """
        if not heads or self._objects.get(names.entry(1)) is not None:
            return
        ref = heads[-1].parts.get(part_of(("store",)))
        records = (self._attempt(partial(read_part, self._objects, ref), _READ_ON) or ()) if ref is not None else ()
        for record in records:
            if isinstance(record, StoreState) and record.horizon > 1:
                self._check_not_overtaken()
                problem = "it does not exist, and the entries before it are gone: no process can follow the log"
                self._found.problems.append(Problem(names.horizon(record.horizon), problem, RESTORE))
                raise _Damaged

    def _check_marker(self, listed: Collection[str]) -> None:
        """Check that the horizon's marker can be read, and names checkpoints that exist; in a copy some need not."""
        name = names.horizon(self._horizon)
        data = self._objects.get(name)
        if data is None:
            self._check_not_overtaken()
            return
        marker = decode_marker(data)
        if marker is None:
            self._found.problems.append(Problem(name, "it cannot be decoded", _COUNTS_ALL))
        elif not self._is_copy and (unknown := {*marker.checkpoints}.difference(listed)):
            others = ", ".join(sorted(unknown))
            self._found.problems.append(Problem(name, f"it names checkpoints that do not exist: {others}", _COUNTS_ALL))

    def _compare(self, replay: Replay, head: CheckpointHead) -> None:
        """Read what a head names, each object once, and compare it with the replay if all can be read."""
        before = len(self._found.problems)
        for part, ref in sorted(head.parts.items()):
            if ref.name in self._read:
                continue
            self._read.add(ref.name)
            for record in self._attempt(partial(read_part, self._objects, ref), _READ_ON) or ():
                if part.startswith(SEGMENTS_PREFIX) and isinstance(record, PartitionSegments):
                    self._read_runs(replay, record)
        if len(self._found.problems) > before:
            self._unreadable.append(head)
            return
        if (problem := replay.problem(head)) is None:
            self._found.checkpoints += 1
            return
        self._check_not_overtaken()
        name = names.checkpoint_head(head.entry, head.checkpoint)
        self._found.problems.append(Problem(name, f"it does not hold what the log says: {problem}", _READ_ON))

    def _read_runs(self, replay: Replay, located: PartitionSegments) -> None:
        """Read the files of a partition's sealed runs."""
        topic = replay.topics[located.topic_id]
        folder = names.partition_folder(topic, located.topic_id, located.partition)
        for each in located.rewritten:
            if each.run.folder not in self._read:
                self._read.add(each.run.folder)
                self._attempt(partial(replay.manifest, folder, each.run), RESTORE)
        for run in located.sealed:
            if run.folder in self._read:
                continue
            self._read.add(run.folder)
            self._attempt(partial(replay.manifest, folder, run), RESTORE)
            if aborted := self._attempt(partial(read_index, self._objects, folder, run), RESTORE):
                self._attempt(partial(check_index_ends, aborted, folder, run, replay, located), RESTORE)
                self._attempt(partial(check_index_segments, aborted, folder, run, replay, located), RESTORE)
            self._attempt(partial(_read_snapshot, self._objects, folder, run), _FOR_KAFKAS_TOOLS)

    def _attempt(self, work: Callable[[], Result], fix: str) -> Result | None:
        """Return what `work` returns, or None after noting the damage that it met."""
        try:
            return work()
        except (DamagedObject, FormatVersionError) as damaged:
            self._check_not_overtaken()
            self._note(damaged, fix)
            return None

    # what exists

    def _mark(self, replay: Replay, heads: Sequence[CheckpointHead]) -> None:
        """Compare what readers may ask for with what is listed.

        Raises:
            _Damaged: what the checkpoint at the horizon names is not known.
        """
        readable = [head for head in heads if head.entry == self._horizon or head not in self._unreadable]
        try:
            marks = mark(self._objects, readable, self._horizon, replay)
        except (DamagedObject, FormatVersionError) as damaged:
            self._check_not_overtaken()
            self._note(damaged)
            raise _Damaged from None
        self._marks = marks
        for where, runs in marks.runs.items():
            for run in runs.values():
                if run.ref.folder not in self._read:
                    # A rewrite's, and replaced by another one.
                    folder = names.partition_folder(replay.topics[where[0]], *where)
                    self._attempt(partial(replay.manifest, folder, run.ref), RESTORE)
        find_checksums(marks, replay, lambda _: None)
        self._find_missing(replay, marks)

    def _find_missing(self, replay: Replay, marks: Marks) -> None:
        needed = dict(marks.needed)
        wanted = {(where, name) for where, some in marks.segments.items() for name in some}
        for info in self._objects.list(names.TOPICS):
            needed.pop(info.name, None)
            parsed = names.parse_partition_object(info.name)
            if parsed is None:
                continue
            where, rest = parsed[:2], parsed[2]
            wanted.discard((where, rest))
            file = marks.segments.get(where, {}).get(rest)
            if file is not None and file.size_bytes not in (UNKNOWN_SIZE, info.size_bytes):
                self._differs[info.name] = f"it has {counted(info.size_bytes, 'byte')}, expected {file.size_bytes}"
            if not _is_named(marks, where, rest):
                self._found.unreferenced += 1
                self._found.unreferenced_bytes += info.size_bytes
        for info in self._objects.list(names.CHECKPOINTS):
            needed.pop(info.name, None)
        present = (
            {names.parse_entry(name) for name in self._objects.list_names(names.ENTRIES)} if marks.entries else set()
        )
        for entry in sorted(marks.entries.keys() - present):
            problem = "the log names records that it carries and it does not exist"
            self._found.problems.append(Problem(names.entry(entry), problem, RESTORE, True))
        for name, entry in sorted(needed.items()):
            problem = f"the checkpoint after entry {entry} names it and it does not exist"
            self._found.problems.append(Problem(name, problem, RESTORE, True))
        for (topic_id, partition), name in sorted(wanted):
            folder = names.partition_folder(replay.topics.get(topic_id, "?"), topic_id, partition)
            self._found.problems.append(Problem(folder + name, "the log names it and it does not exist", RESTORE, True))
        self._found.problems += [Problem(name, reason, RESTORE) for name, reason in sorted(self._differs.items())]

    # the records

    def _tasks(self, replay: Replay) -> list[SegmentsToCheck]:
        """Check the partitions against their segments, and return what is to be read."""
        topics = {
            record.topic_id: record
            for part in replay.parts.names("topics/")
            for record in replay.parts.part(part).values()
            if isinstance(record, TopicState)
        }
        by_topic: dict[int, list[StoredSegment]] = {topic_id: [] for topic_id in sorted(topics)}
        for located in _records(replay, SEGMENTS_PREFIX, PartitionSegments):
            topic = topics[located.topic_id]
            folder = names.partition_folder(topic.name, topic.topic_id, located.partition)
            partition: PartitionState = replay.parts.get(("partition", located.topic_id, located.partition))
            current = self._segments(replay, folder, located)
            self._found.problems += partition_problems(folder, partition, current, replay.entry)
            start = partition.log_start_offset
            by_topic[topic.topic_id] += [
                stored_segment(folder, segment) for segment in current if segment.end_offset > start
            ]
        for half in _records(replay, HALVES_PREFIX, HalfState):
            for segment in half.segments:
                folder = names.partition_folder(segment.topic, segment.topic_id, segment.partition)
                if segment.topic_id in by_topic:
                    by_topic[segment.topic_id].append(stored_half(folder, segment))
        missing = {problem.object_name for problem in self._found.problems if problem.is_missing} | self._differs.keys()
        decoded = {segment.object_name for some in by_topic.values() for segment in some}
        older = (each for each in self._kept(replay) if each.name not in decoded and each.name not in missing)
        return [
            task
            for topic_id, segments in by_topic.items()
            if self._topic_ids is None or topic_id in self._topic_ids
            for task in tasks_of(
                self._objects.uri,
                topics[topic_id].schema,
                [segment for segment in segments if segment.object_name not in missing],
            )
        ] + [*older_tasks_of(self._objects.uri, older)]

    def _kept(self, replay: Replay) -> Iterator[ObjectToCopy]:
        """Yield the files and entries with records that some view reads, of the topics that are asked for.

        All else that is kept has been read by now, but for the object with append commands of the horizon's entry.
        """
        for each in self._marks.objects(replay.topics):
            if not each.expected or each.proof not in (INLINE, CRC32C):
                continue  # of a rewrite whose manifest cannot be read, or read before
            parsed = names.parse_partition_object(each.name)
            if parsed is None or (
                names.parse_sealed_folder(parsed[2]) is None
                and (self._topic_ids is None or parsed[0] in self._topic_ids)
            ):
                yield each

    def _segments(self, replay: Replay, folder: str, located: PartitionSegments) -> list[SegmentRef]:
        """Return a partition's segments by offset."""
        manifests = (self._attempt(partial(replay.manifest, folder, run), RESTORE) for run in located.sealed)
        segments = [*(segment for some in manifests for segment in some or ()), *located.segments]
        if not located.rewritten:
            return segments
        current = self._attempt(partial(not_rewritten, segments, located.rewritten), RESTORE) or []
        for each in located.rewritten:
            read = partial(rewritten_segments_of, self._objects, folder, [each])
            current += self._attempt(read, RESTORE) or []
        return sorted(current, key=attrgetter("base_offset"))


def _read_store_document(objects: ObjectStore) -> StoreDocument:
    """Return the object that says that there is a store, without which no process opens it.

    Raises:
        DamagedObject, FormatVersionError: it is missing, or cannot be read.
    """
    data = objects.get(names.STORE)
    if data is None:
        raise DamagedObject(names.STORE, "it does not exist: no process finds the store without it")
    return decode_store(data, names.STORE)


def _read_snapshot(objects: ObjectStore, folder: str, run: ManifestRef) -> None:
    """Check that the producer snapshot at the end of a run is whole.

    Raises:
        DamagedObject: it is not, or does not exist.
    """
    name = names.snapshot(folder, run.folder, run.end_offset)
    data = objects.get(name)
    if data is None:
        raise DamagedObject(name, "a sealed run has one and it does not exist")
    decode_snapshot(data, name)


def _records(replay: Replay, prefix: str, kind: type[Any]) -> Iterator[Any]:
    for part in replay.parts.names(prefix):
        yield from (record for record in replay.parts.part(part).values() if isinstance(record, kind))


def _is_named(marks: Marks, where: TopicIdPartition, rest: str) -> bool:
    is_of_a_log = names.parse_sealed_folder(rest) is not None or names.parse_segment_born(rest) is not None
    return marks.holds(where, rest) or not is_of_a_log


def _check(options: Any, task: SegmentsToCheck) -> CheckedSegments:
    return check_segments(objects_of(task.store_uri, options), task)
