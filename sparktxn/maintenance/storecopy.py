"""Copying a store to another root: for a backup, or to move it (PROTOCOL.md, "Copies").

The copy has the same entries, byte for byte, from the source's horizon on. So it has the same offsets, transactions,
groups and settings, and each view from the horizon on. Its first object claims the root: the store's document, with an
id of its own and the id of the source. Its last one says that it is complete, and only then does it open as a store.

A copy that is complete is brought forward entry by entry. Each entry is put into its free slot, after all that it
names. If the copy has an entry of its own, the slot is taken: the copy is refused, and nothing in it is changed.

It may die between any two steps. The next one finds the objects that are there, and reads them back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from sparktxn import arguments
from sparktxn.background import ThreadBackground
from sparktxn.clock import Deadline, in_time
from sparktxn.config.store import StoreOptions
from sparktxn.errors import ConfigurationError, DamagedObject, StoreUnavailable
from sparktxn.format import names
from sparktxn.format.checkpoint import CheckpointHint, encode_hint
from sparktxn.format.copies import CopyDocument, encode_copy
from sparktxn.format.entry import StoreDocument, decode_entry, decode_store, encode_store
from sparktxn.log.follow.confirm import Passed, Premise, attempt, judge
from sparktxn.log.follow.copies import newest_copy
from sparktxn.log.follow.horizon import read_horizon
from sparktxn.log.log import CLOSE_TIMEOUT_S, Log
from sparktxn.maintenance.copyobjects import (
    CopiedObjects,
    CopyTask,
    ObjectToCopy,
    copy_objects,
    run_copy_task,
    tasks_of,
)
from sparktxn.maintenance.copyplan import CopyPlan, plan_copy
from sparktxn.maintenance.running import TASKS_PER_RUN
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.objectstore.putting import put_until_stored
from sparktxn.objectstore.uri import parse_uri
from sparktxn.registry import objects_of
from sparktxn.store import Store

__all__ = ["CopyReport", "Copying", "Work", "copy_store"]

RunTasks = Callable[[Callable[[CopyTask], CopiedObjects], Sequence[CopyTask]], Iterable[CopiedObjects]]
"""Runs a function for each of some tasks, anywhere, and returns what it returns."""

OnProgress = Callable[[int, int], None]
"""Gets how many objects of how many are done."""

_ATTEMPTS: Final = 3
_TASKS_AHEAD: Final = 2
_OBJECTS_PER_RUN_TASK: Final = 1_000
_OBJECTS_PER_TASK: Final = 8
_FOLDERS: Final = (names.LOG, names.TOPICS)


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


class _Overtaken(Exception):
    """A vacuum has passed the horizon that was planned from, or another copy has begun."""


@in_time("timeout_s", lambda store: store.log.clock)
def copy_store(
    store: Store,
    target_uri: str,
    *,
    target_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    threads: int = 8,
    run: RunTasks | None = None,
    on_progress: OnProgress | None = None,
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
        timeout_s: how long all of it may take; what is not copied by then is copied by the next call.

    Raises:
        ConfigurationError: the target is another store, or has entries of its own; or the source's vacuum has deleted
            entries that an earlier copy lacks. Nothing in it was changed.
        DamagedObject: an object of the source, or one that exists in the target, is not what the log names. The target
            is as complete as before.
        StoreUnavailable: a store did not answer, or vacuums have passed this copy each time: call again.
    """
    log = arguments.instance("store", store, Store).log
    uri = str(parse_uri(arguments.text("target_uri", target_uri)))
    options = StoreOptions(arguments.mapping("target_options", target_options))
    dry_run = arguments.boolean("dry_run", dry_run)
    threads = arguments.integer("threads", threads, 1)
    arguments.function("run", run)
    arguments.function("on_progress", on_progress)
    deadline = log.deadline(arguments.timeout_s("timeout_s", timeout_s))
    _check_apart(log.objects.uri, uri)
    work = Work(store, options, threads, run, deadline)
    copying = Copying(log, objects_of(uri, options), deadline, work, on_progress)
    return copying.foreseen() if dry_run else copying.run()


def _check_apart(source: str, target: str) -> None:
    here, there = f"{source.rstrip('/')}/", f"{target.rstrip('/')}/"
    if here.startswith(there) or there.startswith(here):
        raise ConfigurationError(
            f"the target {target!r} is the store {source!r}, or one is inside the other: expected another root"
        )


class Work:
    """Does tasks: in other processes, by threads here, or one after the other."""

    def __init__(
        self, store: Store, target_options: StoreOptions, threads: int, run: RunTasks | None, deadline: Deadline
    ) -> None:
        self._clock = store.log.clock
        self._source_options = store.options
        self._target_options = target_options
        self._threads = threads
        self._run = run
        self._deadline = deadline

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

        def work(task: CopyTask) -> CopiedObjects:
            with self._deadline.governs():
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


class Copying:
    """One call: a first copy, or one that brings an earlier one forward."""

    def __init__(
        self, log: Log, target: ObjectStore, deadline: Deadline, work: Work, on_progress: OnProgress | None
    ) -> None:
        self._log = log
        self._source = log.objects
        self._target = target
        self._deadline = deadline
        self._work = work
        self._on_progress = on_progress
        self._horizon = 1
        self._objects = self._size_bytes = self._existing = 0

    def run(self) -> CopyReport:
        """Copy, and begin again where a vacuum, or another copy to this target, was ahead.

        Raises:
            ConfigurationError, DamagedObject, StoreUnavailable: see `copy_store`.
        """
        for _ in range(_ATTEMPTS):
            try:
                report = attempt(self._source, lambda: Premise(self._horizon), self._round)
            except _Overtaken:
                continue
            if not isinstance(report, Passed):
                return report
        raise StoreUnavailable(
            f"vacuums of {self._source.uri!r}, or other copies to {self._target.uri!r}, came first: call again"
        )

    def _round(self) -> CopyReport:
        store, newest = self._found()
        if store is not None and newest is not None and newest.complete:
            return self._brought_forward(store, newest)
        return self._first(store, newest)

    def foreseen(self) -> CopyReport:
        """Return what `run` would do; nothing is written."""
        store, newest = self._found()
        is_first = newest is None or not newest.complete
        sizes = self._sizes()
        end = 0 if newest is None or is_first else self._checked_end(sizes, newest)
        plan = self._plan()
        if newest is not None and not is_first:
            plan.horizon = newest.horizon
        if is_first:
            self._check_nothing_else(store, sizes, plan)
        wanted = [*plan.named_objects(), *plan.entries(end), *plan.heads]
        if is_first and plan.marker is not None:
            wanted.append(plan.marker)
        missing = [each.name for each in wanted if each.name not in sizes]
        in_source = {info.name: info.size_bytes for folder in _FOLDERS for info in self._source.list(folder)}
        return self._report(
            store,
            plan,
            dry_run=True,
            objects=len(missing),
            size_bytes=sum(in_source.get(name, 0) for name in missing),
            existing=len(wanted) - len(missing),
        )

    def _report(self, store: StoreDocument | None, plan: CopyPlan, **members: Any) -> CopyReport:
        store_id = "" if store is None else store.store_id
        return CopyReport(target=self._target.uri, store_id=store_id, horizon=plan.horizon, entry=plan.entry, **members)

    def _copied(self, store: StoreDocument, plan: CopyPlan) -> CopyReport:
        return self._report(
            store,
            plan,
            dry_run=False,
            objects=self._objects,
            size_bytes=self._size_bytes,
            existing=self._existing,
            is_complete=True,
        )

    # what there is

    def _found(self) -> tuple[StoreDocument | None, CopyDocument | None]:
        """Return the target's document, and the newest one of its copying.

        Raises:
            ConfigurationError: the target is another store.
        """
        data = self._target.get(names.STORE)
        if data is None:
            return None, None
        store = decode_store(data, names.STORE)
        self._check_is_copy(store)
        return store, newest_copy(self._target)

    def _check_is_copy(self, store: StoreDocument) -> None:
        if store.store_id == self._log.store_id:
            reason = f"is the store {self._source.uri!r} itself"
        elif not store.copied_from:
            reason = "is a store of its own"
        elif store.copied_from != self._log.store_id:
            reason = f"is a copy of the store with the id {store.copied_from}, not of {self._log.store_id}"
        else:
            return
        raise ConfigurationError(f"the target {self._target.uri!r} {reason}: expected an empty root, or an older copy")

    def _sizes(self) -> dict[str, int]:
        """Return the sizes of the target's objects, by their names."""
        return {info.name: info.size_bytes for folder in _FOLDERS for info in self._target.list(folder)}

    def _plan(self) -> CopyPlan:
        """Return what views from the horizon to the source's newest entry read, confirmed.

        Raises:
            _Overtaken: a vacuum has passed it.
        """
        self._horizon = read_horizon(self._source)
        plan = plan_copy(self._source, self._horizon, self._log.refresh(self._deadline))
        if judge(self._source, Premise(self._horizon)) is not None:
            raise _Overtaken
        return plan

    # the first copy

    def _first(self, store: StoreDocument | None, newest: CopyDocument | None) -> CopyReport:
        plan = self._plan()
        sizes = self._sizes()
        self._check_nothing_else(store, sizes, plan)
        if store is None:
            store = self._claimed()
        newest = self._written(newest, plan, complete=False)
        self._copy(plan.named_objects(), sizes, plan.count())
        self._copy(plan.entries(), sizes, plan.count())
        self._copy(plan.heads, sizes, plan.count())
        if plan.marker is not None:
            self._copy([plan.marker], {}, plan.count())
        self._hint(plan)
        self._written(newest, plan, complete=True)
        return self._copied(store, plan)

    def _check_nothing_else(self, store: StoreDocument | None, sizes: Mapping[str, int], plan: CopyPlan) -> None:
        """Check that the target has nothing but what an earlier call has copied.

        Raises:
            ConfigurationError: it has.
        """
        if store is None and sizes:
            raise ConfigurationError(
                f"the target {self._target.uri!r} holds {len(sizes)} objects of a store, such as {min(sizes)!r}, and "
                "no document of one: expected an empty root"
            )
        for name in sizes:
            head = names.parse_checkpoint_head(name)
            number = names.parse_entry(name) or (head[0] if head is not None else 0)
            if number > plan.entry:
                raise ConfigurationError(
                    f"the unfinished copy {self._target.uri!r} has {name!r}, and the log of {self._source.uri!r} ends "
                    f"at entry {plan.entry}: expected an empty root, or what this store was copied to"
                )

    def _claimed(self) -> StoreDocument:
        """Put the store's document, which makes the root this copy's."""
        data = encode_store(self._log.ids.token(), self._log.clock.wall_ms(), self._log.store_id)
        found = put_until_stored(self._target, names.STORE, data, self._log.clock)
        store = decode_store(found, names.STORE)
        self._check_is_copy(store)
        return store

    def _written(self, before: CopyDocument | None, plan: CopyPlan, *, complete: bool) -> CopyDocument:
        """Put the next document of the copying.

        Raises:
            _Overtaken: another copy to this target has put it.
        """
        document = CopyDocument(
            copy=1 if before is None else before.copy + 1,
            token=self._log.ids.token(),
            horizon=plan.horizon,
            entry=plan.entry,
            entry_checksum=plan.entry_checksum,
            complete=complete,
        )
        data = encode_copy(document)
        if put_until_stored(self._target, names.copy(document.copy), data, self._log.clock) != data:
            raise _Overtaken
        return document

    def _copy(
        self, objects: Iterable[ObjectToCopy], sizes: Mapping[str, int], total: int, *, proven_entry: int = -1
    ) -> None:
        """Copy objects. Those that exist are read back, but those of entries up to `proven_entry`.

        Raises:
            DamagedObject: one is not what the log names.
        """
        wanted = (each for each in objects if not self._is_proven(each, sizes, proven_entry))
        tasks = tasks_of(
            self._source.uri, self._target.uri, wanted, sizes.__contains__, objects_max=self._work.objects_max
        )
        for done in self._work.done(self._source, self._target, tasks):
            self._objects += done.objects
            self._size_bytes += done.size_bytes
            self._existing += done.existing
            if done.damaged is not None:
                raise DamagedObject(*done.damaged)
            if self._on_progress is not None:
                self._on_progress(self._objects + self._existing, total)

    def _is_proven(self, each: ObjectToCopy, sizes: Mapping[str, int], proven_entry: int) -> bool:
        size_bytes = sizes.get(each.name)
        if size_bytes is None or each.entry > proven_entry or each.size_bytes not in (-1, size_bytes):
            return False
        self._existing += 1
        return True

    def _hint(self, plan: CopyPlan) -> None:
        head = plan.newest_head
        if head is not None:
            self._target.put(names.LAST_CHECKPOINT, encode_hint(CheckpointHint(head.entry, head.checkpoint)))

    # bringing a copy forward

    def _brought_forward(self, store: StoreDocument, newest: CopyDocument) -> CopyReport:
        sizes = self._sizes()
        end = self._checked_end(sizes, newest)
        plan = self._plan()
        plan.horizon = newest.horizon
        total = plan.count()
        self._copy(plan.named_objects(), sizes, total, proven_entry=newest.entry)
        for each in plan.entries(end):
            self._put_next(each)
        self._copy(plan.heads, sizes, total, proven_entry=newest.entry)
        if plan.entry > newest.entry:
            self._hint(plan)
            self._note_entry(newest, plan)
        return self._copied(store, plan)

    def _checked_end(self, sizes: Mapping[str, int], newest: CopyDocument) -> int:
        """Return the newest entry of the copy, which the source has too.

        Raises:
            ConfigurationError: the copy has an entry of its own, or the source lacks the entries that follow.
            DamagedObject: an entry is missing or damaged.
        """
        end = max([newest.entry, *(number for name in sizes if (number := names.parse_entry(name)) is not None)])
        # The target was listed before this: its end is at most the source's, also if another copy brings it forward.
        newest_of_source = self._log.refresh(self._deadline)
        self._horizon = read_horizon(self._source)
        if self._horizon > end + 1:
            raise ConfigurationError(
                f"the copy {self._target.uri!r} ends at entry {end}, and a vacuum of {self._source.uri!r} has deleted "
                f"the entries before {self._horizon}: copy to an empty root, and more often than vacuum.retention.ms"
            )
        if end > newest_of_source:
            raise self._own_entry(end)
        if end == 0:
            return 0
        number = max(end, self._horizon)
        name = names.entry(number)
        ours, theirs = self._source.get(name), self._target.get(names.entry(end))
        if ours is None or theirs is None:
            raise DamagedObject(name if ours is None else names.entry(end), "it was listed and does not exist")
        entry = decode_entry(ours, name, number)
        same = ours == theirs if number == end else entry.previous == decode_entry(theirs, "", end).checksum
        if not same:
            raise self._own_entry(end)
        return end

    def _own_entry(self, number: int) -> ConfigurationError:
        return ConfigurationError(
            f"the copy {self._target.uri!r} was written to: its entry {number} is none of {self._source.uri!r}, and "
            "nothing in it was changed; copy to an empty root"
        )

    def _put_next(self, each: ObjectToCopy) -> None:
        """Put an entry into its slot.

        Raises:
            ConfigurationError: the slot holds an entry of the copy's own.
            DamagedObject: the source's entry is missing or damaged.
        """
        done = copy_objects(
            self._source, self._target, self._log.clock, CopyTask(self._source.uri, self._target.uri, (each,))
        )
        if done.damaged is not None:
            theirs = self._target.get(each.name)
            if theirs is not None and judge(self._source, Premise(self._horizon)) is None:
                raise self._own_entry(each.entry)
            raise DamagedObject(*done.damaged)
        self._objects += done.objects
        self._size_bytes += done.size_bytes

    def _note_entry(self, newest: CopyDocument, plan: CopyPlan) -> None:
        """Note how far the copy is; another copy may have brought it further meanwhile."""
        while plan.entry > newest.entry:
            try:
                newest = self._written(newest, plan, complete=True)
            except _Overtaken:
                found = newest_copy(self._target)
                newest = newest if found is None else found
