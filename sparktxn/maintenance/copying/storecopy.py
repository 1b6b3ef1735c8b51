"""Copying a store to another root: for a backup, or to move it (PROTOCOL.md, "Copies").

The copy has the same entries, byte for byte, from the source's horizon on. So it has the same offsets, transactions,
groups and settings, and each view from the horizon on. Its first object claims the root: the store's document, with an
id of its own and the id of the source. Its last one says that it is complete, and only then does it open as a store.

A copy that is complete is brought forward entry by entry. Each entry is put into its free slot, after all that it
names. If the copy has an entry of its own, the slot is taken: the copy is refused, and nothing in it is changed.

It may die between any two steps. The next one finds the objects that are there, and reads them back.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, Final

from msgspec import Struct, field

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import SEGMENTS_PREFIX, CheckpointHead, CheckpointHint, encode_hint
from sparktxn._engine.format.copies import CopyDocument, encode_copy
from sparktxn._engine.format.entry import LogEntry, StoreDocument, decode_entry, decode_store, encode_store
from sparktxn._engine.log.follow.checkpointheads import newest_copy, read_part
from sparktxn._engine.log.follow.confirm import Passed, Premise, attempt, judge, read_horizon, usable_heads
from sparktxn._engine.log.keep.replay import Replay
from sparktxn._engine.log.keep.sealedruns import aborted_of, check_manifest
from sparktxn._engine.log.log import CLOSE_TIMEOUT_S, Log
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.puts import put_until_stored, replace_hint
from sparktxn._engine.objectstore.uri import parse_uri
from sparktxn._foundation.config.store import StoreOptions
from sparktxn._foundation.process.background import ThreadBackground
from sparktxn._foundation.process.clock import in_callers_time, in_time
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import PartitionSegments, StateKey, StateRecord
from sparktxn.errors import ConfigurationError, DamagedObject, StoreUnavailable
from sparktxn.maintenance.attempts import Overtaken, check_not_overtaken, in_attempts
from sparktxn.maintenance.copyobjects import (
    MARKER,
    SEALED,
    UNKNOWN_SIZE,
    CopiedObjects,
    CopyTask,
    ObjectToCopy,
    copy_objects,
    run_copy_task,
    tasks_of,
)
from sparktxn.maintenance.reachable import Marks, find_checksums, heads_in, mark, read_heads
from sparktxn.maintenance.taskrunning import TASKS_PER_RUN, RunTasks
from sparktxn.store import Store
from sparktxn.store.registry import objects_of

# Planning a copy of a store: which objects the views from the horizon to one entry read, and how each is checked.
#
# The log is replayed from the horizon, as a vacuum does it. What a vacuum at that horizon keeps is what a copy needs:
# entries, append objects, usable checkpoints with their parts and runs, and segments. Intents and signs of life are
# left out. They are of processes that work on the source.

_WINDOW: Final = 64


class CopyPlan(Struct):
    """All that the views from `horizon` to `entry` read. `entry_checksum` is that of entry `entry`.

    `marks` are what entries and checkpoints name, `heads` the usable checkpoints. `checksums` are the entries' CRC-32C
    from `first_entry` on, which is the horizon of the source. A copy that is brought forward keeps its own horizon.
    """

    horizon: int
    entry: int
    entry_checksum: str
    first_entry: int
    checksums: array[int]
    topics: Mapping[int, str]
    marks: Marks
    heads: list[ObjectToCopy] = field(default_factory=list)
    newest_head: CheckpointHead | None = None
    marker: ObjectToCopy | None = None

    def named_objects(self) -> Iterator[ObjectToCopy]:
        """Return what entries and checkpoints name: all of it must exist before one of those does."""
        return self.marks.objects(self.topics)

    def entries(self, after: int = 0) -> Iterator[ObjectToCopy]:
        """Yield the entries from `first_entry` to `entry`, in their order, without those up to `after`."""
        for number in range(max(self.first_entry, after + 1), self.entry + 1):
            checksum = f"{self.checksums[number - self.first_entry]:08x}"
            yield ObjectToCopy(names.entry(number), UNKNOWN_SIZE, SEALED, checksum, number)

    def count(self) -> int:
        """Return how many objects that is."""
        return self.marks.count() + len(self.checksums) + len(self.heads) + (self.marker is not None)


class _CopyReplay(Replay):
    """A replay that notes the checksum of each entry."""

    def __init__(self, objects: ObjectStore, head: CheckpointHead | None) -> None:
        super().__init__(objects, head)
        self.checksums = array("I") if head is None else array("I", [int(head.entry_checksum, 16)])

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        super().take(entry, changes, size_bytes)
        self.checksums.append(int(entry.checksum, 16))


def plan_copy(objects: ObjectStore, horizon: int, entry: int) -> CopyPlan:
    """Return what views from `horizon` to `entry` read. It is not confirmed: a vacuum may have passed the horizon.

    Args:
        objects: the source.
        horizon: the horizon, read before.
        entry: an entry from a confirmed state.

    Raises:
        DamagedObject: the log, or the checkpoint at the horizon, cannot be read.
        FormatVersionError: a newer version has written what is to be read.
    """
    listed = [head for head in heads_in(objects.list(names.CHECKPOINTS)) if horizon <= head.entry <= entry]
    heads = usable_heads(objects, read_heads(objects, listed))
    base = next((head for head in heads if head.entry == horizon), None) if horizon > 1 else None
    if horizon > 1 and base is None:
        raise DamagedObject(names.horizon(horizon), "there is no checkpoint of that entry that is whole")
    replay = _CopyReplay(objects, base)
    replay.advance_to(entry, _WINDOW)
    reading = _Reading(objects, replay)
    heads = [head for head in heads if head is base or reading.is_whole(head)]
    marks = mark(objects, heads, horizon, replay)
    find_checksums(marks, replay)
    plan = CopyPlan(horizon, entry, replay.checksum, horizon, replay.checksums, replay.topics, marks)
    for head in heads:
        name = names.checkpoint_head(head.entry, head.checkpoint)
        plan.heads.append(ObjectToCopy(name, UNKNOWN_SIZE, SEALED, head.checksum, head.entry))
        plan.newest_head = head
    if base is not None:
        plan.marker = ObjectToCopy(names.horizon(horizon), UNKNOWN_SIZE, MARKER, "", horizon)
    return plan


class _Reading:
    """Reads checkpoint after checkpoint; what several name is read once."""

    def __init__(self, objects: ObjectStore, replay: Replay) -> None:
        self._objects = objects
        self._replay = replay
        self._read: set[str] = set()

    def is_whole(self, head: CheckpointHead) -> bool:
        """Return whether a head, its parts and the runs that they name can be read; readers skip one that cannot."""
        read: set[str] = set()
        try:
            for part, ref in head.parts.items():
                if ref.name in self._read:
                    continue
                for record in read_part(self._objects, ref):
                    if part.startswith(SEGMENTS_PREFIX) and isinstance(record, PartitionSegments):
                        self._read_runs(record)
                read.add(ref.name)
        except DamagedObject as damaged:
            log_event("checkpoint_not_copied", entry=head.entry, error=damaged)
            return False
        self._read |= read
        return True

    def _read_runs(self, located: PartitionSegments) -> None:
        topic = self._replay.topics[located.topic_id]
        folder = names.partition_folder(topic, located.topic_id, located.partition)
        for run in (*located.sealed, *(each.run for each in located.rewritten)):
            name = names.manifest(folder, run.folder)
            if name not in self._read:
                # By its checksum: what has it was encoded from checked segments, and decoding takes most of a plan.
                check_manifest(self._objects, folder, run)
                aborted_of(self._objects, folder, [run])
                self._read.add(name)


# Doing the tasks of a copy: in other processes, by threads here, or one after the other.

Run = RunTasks[CopyTask, CopiedObjects]

_TASKS_AHEAD: Final = 2
_OBJECTS_PER_RUN_TASK: Final = 1_000
_OBJECTS_PER_TASK: Final = 8


class Work:
    """Does tasks: in other processes, by threads here, or one after the other."""

    def __init__(self, store: Store, target_options: StoreOptions, threads: int, run: Run | None) -> None:
        self._clock = store.log.clock
        self._source_options = store.options
        self._target_options = target_options
        self._threads = threads
        self._run = run

    @property
    def objects_max(self) -> int:
        """How many objects a task may have: a thread's is done soon."""
        return _OBJECTS_PER_TASK if self._run is None else _OBJECTS_PER_RUN_TASK

    def done(self, source: ObjectStore, target: ObjectStore, tasks: Iterable[CopyTask]) -> Iterator[CopiedObjects]:
        """Do tasks, some at a time, and yield their results in any order."""
        if self._run is not None:
            left = iter(tasks)
            work = partial(_task, self._source_options, self._target_options)
            while some := list(islice(left, TASKS_PER_RUN)):
                yield from _all_of(some, arguments.items("what run returns", self._run(work, some), CopiedObjects))
        elif self._threads == 1:
            yield from (copy_objects(source, target, self._clock, task) for task in tasks)
        else:
            yield from self._by_threads(source, target, tasks)

    def _by_threads(
        self, source: ObjectStore, target: ObjectStore, tasks: Iterable[CopyTask]
    ) -> Iterator[CopiedObjects]:
        background = ThreadBackground("sparktxn-copy", self._threads)
        waiting: deque[Future[CopiedObjects]] = deque()

        @in_callers_time
        def work(task: CopyTask) -> CopiedObjects:
            return copy_objects(source, target, self._clock, task)

        try:
            for task in tasks:
                waiting.append(background.submit(partial(work, task)))
                if len(waiting) >= _TASKS_AHEAD * self._threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            background.close(CLOSE_TIMEOUT_S)


def _all_of(tasks: Sequence[CopyTask], results: Sequence[CopiedObjects]) -> Sequence[CopiedObjects]:
    """Return the results; a copy that lacks objects of a task whose result is missing must not count as complete."""
    wanted = sum(len(task.objects) + len(task.existing) for task in tasks)
    done = sum(result.objects + result.existing for result in results)
    if done != wanted and all(result.damaged is None for result in results):
        raise ConfigurationError(
            f"what run returns are results for {done} objects: expected {wanted}, one result for each of {len(tasks)} "
            "tasks; call again, which goes on"
        )
    return results


def _task(source_options: Mapping[str, Any], target_options: Mapping[str, Any], task: CopyTask) -> CopiedObjects:
    return run_copy_task(task, source_options, target_options)


# The root that a copy is made in: its documents, what it may hold, and what is put into it (PROTOCOL.md, "Copies").

FOLDERS: Final = (names.LOG, names.TOPICS)
"""The folders of a root that a copy is about."""

OnBytes = Callable[[int], object]
"""Gets how many bytes have been copied."""

OnProgress = Callable[[int, int], None]
"""Gets how many objects of how many are done."""


class CopyReport(Struct, frozen=True, kw_only=True):
    """What a copy has done, or with `dry_run` would do.

    The copy at `target`, a store with the id `store_id`, reads as the source did from entry `horizon` to `entry`.
    `objects` with `size_bytes` were copied. `existing` ones were found in the target. `is_complete` is False for a dry
    run alone.
    """

    dry_run: bool
    target: str
    store_id: str = ""
    horizon: int = 1
    entry: int = 0
    objects: int = 0
    size_bytes: int = 0
    existing: int = 0
    is_complete: bool = False


def check_apart(source: str, target: str) -> None:
    """Check that two roots have no object in common.

    Raises:
        ConfigurationError: they have.
    """
    here, there = f"{source.rstrip('/')}/", f"{target.rstrip('/')}/"
    if here.startswith(there) or there.startswith(here):
        raise ConfigurationError(
            f"the target {target!r} is the store {source!r}, or one is inside the other: expected another root"
        )


class CopyTarget:
    """The target of one call, which counts what it has copied."""

    def __init__(
        self,
        log: Log,
        objects: ObjectStore,
        work: Work,
        on_progress: OnProgress | None,
        on_bytes: OnBytes | None = None,
    ) -> None:
        self._log = log
        self._source = log.objects
        self.objects = objects
        self._work = work
        self._on_progress = on_progress
        self._on_bytes = on_bytes
        self._copied = self._copied_bytes = self._existing = self._total = 0

    def found(self) -> tuple[StoreDocument | None, CopyDocument | None]:
        """Return the target's document, and the newest one of its copying.

        Raises:
            ConfigurationError: the target is another store, or an earlier version has copied some topics alone to it.
        """
        data = self.objects.get(names.STORE)
        if data is None:
            return None, None
        store = decode_store(data, names.STORE)
        self._check_is_copy(store)
        newest = newest_copy(self.objects)
        if newest is not None and newest.topics:
            raise ConfigurationError(
                f"the target {self.objects.uri!r} is a copy of {', '.join(map(repr, sorted(newest.topics)))} alone, "
                "which an earlier version has made: expected an empty root, or a copy of the whole store"
            )
        return store, newest

    def _check_is_copy(self, store: StoreDocument) -> None:
        if store.store_id == self._log.store_id:
            reason = f"is the store {self._source.uri!r} itself"
        elif not store.copied_from:
            reason = "is a store of its own"
        elif store.copied_from != self._log.store_id:
            reason = f"is a copy of the store with the id {store.copied_from}, not of {self._log.store_id}"
        else:
            return
        raise ConfigurationError(f"the target {self.objects.uri!r} {reason}: expected an empty root, or an older copy")

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the target's objects, by their names."""
        return {info.name: info.size_bytes for folder in FOLDERS for info in self.objects.list(folder)}

    def check_nothing_else(self, store: StoreDocument | None, sizes: Mapping[str, int], entry: int) -> None:
        """Check that the target has nothing but what an earlier call has copied of entries up to `entry`.

        Raises:
            ConfigurationError: it has.
        """
        if store is None and sizes:
            raise ConfigurationError(
                f"the target {self.objects.uri!r} holds {counted(len(sizes), 'object')} of a store, such as "
                f"{min(sizes)!r}, and "
                "no document of one: expected an empty root"
            )
        for name in sizes:
            head = names.parse_checkpoint_head(name)
            number = names.parse_entry(name) or (head[0] if head is not None else 0)
            if number > entry:
                raise ConfigurationError(
                    f"the unfinished copy {self.objects.uri!r} has {name!r}, and this copy of {self._source.uri!r} "
                    f"ends at entry {entry}: expected an empty root, or what this store was copied to"
                )

    def claimed(self) -> StoreDocument:
        """Put the store's document, which makes the root this copy's."""
        data = encode_store(self._log.ids.token(), self._log.clock.wall_ms(), self._log.store_id)
        found = put_until_stored(self.objects, names.STORE, data, self._log.clock)
        store = decode_store(found, names.STORE)
        self._check_is_copy(store)
        return store

    def written(
        self, before: CopyDocument | None, horizon: int, entry: int, entry_checksum: str, *, complete: bool
    ) -> CopyDocument:
        """Put the next document of the copying.

        Raises:
            Overtaken: another copy to this target has put it.
        """
        document = CopyDocument(
            copy=1 if before is None else before.copy + 1,
            token=self._log.ids.token(),
            horizon=horizon,
            entry=entry,
            entry_checksum=entry_checksum,
            complete=complete,
        )
        data = encode_copy(document)
        if put_until_stored(self.objects, names.copy(document.copy), data, self._log.clock) != data:
            raise Overtaken
        return document

    def copy(
        self, objects: Iterable[ObjectToCopy], sizes: Mapping[str, int], total: int, *, proven_entry: int = -1
    ) -> None:
        """Copy objects. Those that exist are read back, but those of entries up to `proven_entry`.

        Raises:
            DamagedObject: one is not what the log names.
        """
        self._total = total
        wanted = (each for each in objects if not self._is_proven(each, sizes, proven_entry))
        tasks = tasks_of(
            self._source.uri, self.objects.uri, wanted, sizes.__contains__, objects_max=self._work.objects_max
        )
        for done in self._work.done(self._source, self.objects, tasks):
            self._copied += done.objects
            self._copied_bytes += done.size_bytes
            self._existing += done.existing
            if done.damaged is not None:
                raise DamagedObject(*done.damaged)
            self._show()

    def _show(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._copied + self._existing, self._total)
        if self._on_bytes is not None:
            self._on_bytes(self._copied_bytes)

    def _is_proven(self, each: ObjectToCopy, sizes: Mapping[str, int], proven_entry: int) -> bool:
        size_bytes = sizes.get(each.name)
        if size_bytes is None or each.entry > proven_entry or each.size_bytes not in (-1, size_bytes):
            return False
        self._existing += 1
        return True

    def copy_here(self, each: ObjectToCopy) -> DamagedObject | None:
        """Copy one object in this thread; return what is wrong with it, or with what has its name."""
        task = CopyTask(self._source.uri, self.objects.uri, (each,))
        done = copy_objects(self._source, self.objects, self._log.clock, task)
        self._copied += done.objects
        self._copied_bytes += done.size_bytes
        return None if done.damaged is None else DamagedObject(*done.damaged)

    def hint(self, head: CheckpointHead | None) -> None:
        """Note the checkpoint that processes are to try first, also where nothing else was copied.

        The store may have refused it to the copy before, and that is not an error.
        """
        if head is not None:
            replace_hint(self.objects, names.LAST_CHECKPOINT, encode_hint(CheckpointHint(head.entry, head.checkpoint)))

    def report(self, store: StoreDocument | None, horizon: int, entry: int, **members: Any) -> CopyReport:
        """Return a report on a target that holds, or is to hold, the views from `horizon` to `entry`."""
        store_id = "" if store is None else store.store_id
        return CopyReport(target=self.objects.uri, store_id=store_id, horizon=horizon, entry=entry, **members)

    def copied(self, store: StoreDocument, horizon: int, entry: int) -> CopyReport:
        """Return the report on a copy that is complete."""
        return self.report(
            store,
            horizon,
            entry,
            dry_run=False,
            objects=self._copied,
            size_bytes=self._copied_bytes,
            existing=self._existing,
            is_complete=True,
        )


@in_time("timeout_s", lambda store: store.log.clock)
def copy_store(
    store: Store,
    target_uri: str,
    *,
    target_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    threads: int = 8,
    run: Run | None = None,
    on_progress: OnProgress | None = None,
    on_bytes: OnBytes | None = None,
    timeout_s: float | None = None,
) -> CopyReport:
    """Copy a store to another root, or bring an earlier copy of it forward.

    Safe alongside every process that works on the source. Open transactions, groups and producers are in the copy as
    they are in the log. After a crash at any moment call again: what was copied stays. A vacuum that passes the view
    makes it begin again from a newer one, up to three times.

    Args:
        store: an open store, the source.
        target_uri: an empty root, or one that an earlier call has copied this store to.
        target_options: settings of the target, such as ``storage.*``.
        dry_run: only return what would be copied: nothing is written.
        threads: how many objects are copied at once; one of up to 48 MiB is held by each.
        run: how tasks are run, if not by threads here. It is called with a function and some of the tasks, both
            picklable, and returns the results. With Spark: ``pyspark_txnlog.run_on(spark)``.
        on_progress: called now and then with how many objects are done, and of how many.
        on_bytes: called now and then with how many bytes have been copied.
        timeout_s: how long all of it may take; what is not copied by then is copied by the next call.

    Raises:
        ConfigurationError: the target is another store, or has entries of its own; or the source's vacuum has deleted
            entries that an earlier copy lacks. Nothing in it was changed.
        DamagedObject: an object of the source, or one that exists in the target, is not what the log names. The target
            is as complete as before.
        StoreUnavailable: a store did not answer, or vacuums have passed this copy each time: call again.
    """
    log = arguments.instance("store", store, Store).log
    uri = str(parse_uri(arguments.path("target_uri", target_uri)))
    options = StoreOptions(arguments.mapping("target_options", target_options))
    dry_run = arguments.boolean("dry_run", dry_run)
    threads = arguments.integer("threads", threads, 1)
    arguments.function("run", run)
    arguments.function("on_progress", on_progress)
    arguments.function("on_bytes", on_bytes)
    check_apart(log.objects.uri, uri)
    work = Work(store, options, threads, run)
    copying = Copying(log, objects_of(uri, options), work, on_progress, on_bytes)
    return copying.run(dry_run=dry_run)


class Copying:
    """One call: a first copy, or one that brings an earlier one forward."""

    def __init__(
        self, log: Log, target: ObjectStore, work: Work, on_progress: OnProgress | None, on_bytes: OnBytes | None = None
    ) -> None:
        self._log = log
        self._source = log.objects
        self._target = CopyTarget(log, target, work, on_progress, on_bytes)
        self._horizon = 1

    def run(self, *, dry_run: bool = False) -> CopyReport:
        """Copy, or say what would be copied. Begin again where a vacuum, or another copy to this target, was ahead.

        Raises:
            ConfigurationError, DamagedObject, StoreUnavailable: see `copy_store`.
        """
        work = self._foreseen if dry_run else self._round
        try:
            return in_attempts(lambda: self._attempt(work))
        except Overtaken:
            others = f"vacuums of {self._source.uri!r}, or other copies to {self._target.objects.uri!r}"
            raise StoreUnavailable(f"{others}, came first: call again") from None

    def _attempt(self, work: Callable[[], CopyReport]) -> CopyReport:
        report = attempt(self._source, lambda: Premise(self._horizon), work)
        if isinstance(report, Passed):
            raise Overtaken
        return report

    def _round(self) -> CopyReport:
        store, newest = self._target.found()
        if store is not None and newest is not None and newest.complete:
            return self._brought_forward(store, newest)
        return self._first(store, newest)

    def _foreseen(self) -> CopyReport:
        """Return what `_round` would do; nothing is written."""
        store, newest = self._target.found()
        is_first = newest is None or not newest.complete
        sizes = self._target.sizes()
        end = 0
        if newest is None or is_first:
            self._horizon = read_horizon(self._source)
        else:
            end = self._checked_end(sizes, newest)
        plan = self._plan()
        if newest is not None and not is_first:
            plan.horizon = newest.horizon
        if is_first:
            self._target.check_nothing_else(store, sizes, plan.entry)
        wanted = [*plan.named_objects(), *plan.entries(end), *plan.heads]
        if is_first and plan.marker is not None:
            wanted.append(plan.marker)
        missing = [each.name for each in wanted if each.name not in sizes]
        in_source = {info.name: info.size_bytes for folder in FOLDERS for info in self._source.list(folder)}
        return self._target.report(
            store,
            plan.horizon,
            plan.entry,
            dry_run=True,
            objects=len(missing),
            size_bytes=sum(in_source.get(name, 0) for name in missing),
            existing=len(wanted) - len(missing),
        )

    def _plan(self) -> CopyPlan:
        """Return what views from the horizon that was read to the source's newest entry read, confirmed.

        Raises:
            Overtaken: a vacuum has passed that horizon.
        """
        plan = plan_copy(self._source, self._horizon, self._log.refresh())
        check_not_overtaken(self._source, Premise(self._horizon))
        return plan

    # the first copy

    def _first(self, store: StoreDocument | None, newest: CopyDocument | None) -> CopyReport:
        self._horizon = read_horizon(self._source)
        plan = self._plan()
        sizes = self._target.sizes()
        self._target.check_nothing_else(store, sizes, plan.entry)
        if store is None:
            store = self._target.claimed()
        newest = self._written(newest, plan, complete=False)
        self._target.copy(plan.named_objects(), sizes, plan.count())
        self._target.copy(plan.entries(), sizes, plan.count())
        self._target.copy(plan.heads, sizes, plan.count())
        if plan.marker is not None:
            self._target.copy([plan.marker], {}, plan.count())
        self._target.hint(plan.newest_head)
        self._written(newest, plan, complete=True)
        return self._target.copied(store, plan.horizon, plan.entry)

    # bringing a copy forward

    def _brought_forward(self, store: StoreDocument, newest: CopyDocument) -> CopyReport:
        sizes = self._target.sizes()
        end = self._checked_end(sizes, newest)
        plan = self._plan()
        plan.horizon = newest.horizon
        total = plan.count()
        self._target.copy(plan.named_objects(), sizes, total, proven_entry=newest.entry)
        for each in plan.entries(end):
            self._put_next(each)
        self._target.copy(plan.heads, sizes, total, proven_entry=newest.entry)
        self._target.hint(plan.newest_head)
        if plan.entry > newest.entry:
            self._note_entry(newest, plan)
        return self._target.copied(store, plan.horizon, plan.entry)

    def _checked_end(self, sizes: Mapping[str, int], newest: CopyDocument) -> int:
        """Return the newest entry of the copy, which the source has too.

        Raises:
            ConfigurationError: the copy has an entry of its own, or the source lacks the entries that follow.
            DamagedObject: an entry is missing or damaged.
        """
        end = max([newest.entry, *(number for name in sizes if (number := names.parse_entry(name)) is not None)])
        # The target was listed before this: its end is at most the source's, also if another copy brings it forward.
        newest_of_source = self._log.refresh()
        self._horizon = read_horizon(self._source)
        if self._horizon > end + 1:
            raise ConfigurationError(
                f"the copy {self._target.objects.uri!r} ends at entry {end}, and a vacuum of {self._source.uri!r} has "
                f"deleted the entries before {self._horizon}: copy to an empty root, and more often than "
                "vacuum.retention.ms"
            )
        if end > newest_of_source:
            raise self._own_entry(end)
        if end == 0:
            return 0
        number = max(end, self._horizon)
        name = names.entry(number)
        ours, theirs = self._source.get(name), self._target.objects.get(names.entry(end))
        if ours is None or theirs is None:
            raise DamagedObject(name if ours is None else names.entry(end), "it was listed and does not exist")
        entry = decode_entry(ours, name, number)
        same = ours == theirs if number == end else entry.previous == decode_entry(theirs, "", end).checksum
        if not same:
            raise self._own_entry(end)
        return end

    def _own_entry(self, number: int) -> ConfigurationError:
        return ConfigurationError(
            f"the copy {self._target.objects.uri!r} was written to: its entry {number} is none of "
            f"{self._source.uri!r}, and nothing in it was changed; copy to an empty root"
        )

    def _put_next(self, each: ObjectToCopy) -> None:
        """Put an entry into its slot.

        Raises:
            ConfigurationError: the slot holds an entry of the copy's own.
            DamagedObject: the source's entry is missing or damaged.
        """
        damaged = self._target.copy_here(each)
        if damaged is not None:
            theirs = self._target.objects.get(each.name)
            if theirs is not None and judge(self._source, Premise(self._horizon)) is None:
                raise self._own_entry(each.entry)
            raise damaged

    def _note_entry(self, newest: CopyDocument, plan: CopyPlan) -> None:
        """Note how far the copy is; another copy may have brought it further meanwhile."""
        while plan.entry > newest.entry:
            try:
                newest = self._written(newest, plan, complete=True)
            except Overtaken:
                found = newest_copy(self._target.objects)
                newest = newest if found is None else found

    def _written(self, before: CopyDocument | None, plan: CopyPlan, *, complete: bool) -> CopyDocument:
        """Put the next document of the copying; errors are those of `CopyTarget.written`."""
        return self._target.written(before, plan.horizon, plan.entry, plan.entry_checksum, complete=complete)
