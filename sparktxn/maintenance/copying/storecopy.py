"""Copying a store to another root: for a backup, or to move it (PROTOCOL.md, "Copies").

The copy has the same entries, byte for byte, from the source's horizon on. So it has the same offsets, transactions,
groups and settings, and each view from the horizon on. Its first object claims the root: the store's document, with an
id of its own and the id of the source. Its last one says that it is complete, and only then does it open as a store.

A copy that is complete is brought forward entry by entry. Each entry is put into its free slot, after all that it
names. If the copy has an entry of its own, the slot is taken: the copy is refused, and nothing in it is changed.

It may die between any two steps. The next one finds the objects that are there, and reads them back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparktxn.config.store import StoreOptions
from sparktxn.errors import ConfigurationError, DamagedObject, StoreUnavailable
from sparktxn.format import names
from sparktxn.format.copies import CopyDocument
from sparktxn.format.entry import StoreDocument, decode_entry
from sparktxn.log.follow.confirm import Passed, Premise, attempt, judge, read_horizon
from sparktxn.log.follow.newestcopy import newest_copy
from sparktxn.log.log import Log
from sparktxn.maintenance.copying.copyplan import CopyPlan, plan_copy
from sparktxn.maintenance.copying.copytarget import FOLDERS, CopyReport, CopyTarget, OnBytes, OnProgress, check_apart
from sparktxn.maintenance.copying.copywork import Run, Work
from sparktxn.maintenance.copyobjects import ObjectToCopy
from sparktxn.maintenance.overtaken import Overtaken, check_not_overtaken, in_attempts
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.objectstore.uri import parse_uri
from sparktxn.process.clock import in_time
from sparktxn.store import Store
from sparktxn.store.registry import objects_of
from sparktxn.values import arguments

__all__ = ["CopyReport", "Copying", "Work", "copy_store"]


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
