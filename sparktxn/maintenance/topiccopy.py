"""Copying some topics to a store of their own (PROTOCOL.md, "A copy of some topics").

The copy is of one view. It begins with a checkpoint of that view's state, without the other topics, and a horizon at
its entry. Its log is that checkpoint, and what is written to the copy later. All objects that hold records, sealed runs
and indexes are those of the source, byte for byte.

It may die between any two steps. The next one finds the objects that are there, and reads them back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sparktxn import arguments
from sparktxn.clock import Deadline, in_time
from sparktxn.config.store import StoreOptions
from sparktxn.errors import ConfigurationError, StoreUnavailable
from sparktxn.format import names
from sparktxn.format.checkpoint import CheckpointHead, PartRef, digest, encode_head, state_digest
from sparktxn.format.copies import CopyDocument
from sparktxn.format.entry import FORMAT_VERSION, StoreDocument
from sparktxn.format.horizon import encode_marker
from sparktxn.log.follow.confirm import Passed, Premise, attempt, judge
from sparktxn.log.log import Log
from sparktxn.maintenance.copyobjects import ObjectToCopy
from sparktxn.maintenance.copytarget import FOLDERS, CopyReport, CopyTarget, OnProgress, Overtaken, check_apart
from sparktxn.maintenance.copywork import RunTasks, Work
from sparktxn.maintenance.topiccopyplan import (
    TopicCopyPlan,
    named_objects,
    plan_topic_copy,
    view_topics,
)
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.objectstore.uri import parse_uri
from sparktxn.registry import objects_of
from sparktxn.store import Store

__all__ = ["TopicCopying", "copy_topics"]

_ATTEMPTS: Final = 3
_OWN_OBJECTS: Final = 3
"""The copy's first entry, the head of its checkpoint and its horizon's marker."""


@in_time("timeout_s", lambda store: store.log.clock)
def copy_topics(
    store: Store,
    target_uri: str,
    topics: Sequence[str],
    *,
    entry: int | None = None,
    target_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    threads: int = 8,
    run: RunTasks | None = None,
    on_progress: OnProgress | None = None,
    timeout_s: float | None = None,
) -> CopyReport:
    """Copy some topics, as one view shows them, to a store of their own.

    The copy has these topics with their ids, settings, records, offsets, transactions and committed offsets of groups.
    Transactions that are open in the view are open in the copy: a producer may go on, or they time out there. Members
    of groups and half transactions are not copied. Later entries of the source are not added: that needs another root.

    Safe alongside every process that works on the source. After a crash at any moment call again: what was copied
    stays. A vacuum that passes the view makes it begin again from a newer one, up to three times. Where the copy is
    complete, and of the same entry, nothing is done.

    Args:
        store: an open store, the source.
        target_uri: an empty root, or one to which an earlier call has begun to copy the same topics.
        topics: the names of topics, at least one.
        entry: copy the view at this entry of the log; None: the newest.
        target_options: settings of the target, such as ``storage.*``.
        dry_run: only return what would be copied: nothing is written.
        threads: how many objects are copied at once; one of up to 48 MiB is held by each.
        run: how tasks are run, if not by threads here. It is called with a function and some of the tasks, both
            picklable, and returns the results. With Spark: ``pyspark_txnlog.run_on(spark)``.
        on_progress: called now and then with how many objects are done, and of how many.
        timeout_s: how long all of it may take; what is not copied by then is copied by the next call.

    Raises:
        ConfigurationError: no topic is named, or an internal one. Or the target is another store, a copy of other
            topics, or a complete one of another entry; nothing in it was changed.
        CommandRefused: a topic does not exist (UNKNOWN_TOPIC_OR_PARTITION), or the log has no such entry.
        ViewExpired: a vacuum has passed `entry`.
        DamagedObject: an object of the source, or one that exists in the target, is not what the log names.
        StoreUnavailable: a store did not answer, or vacuums have passed this copy each time: call again.
    """
    log = arguments.instance("store", store, Store).log
    uri = str(parse_uri(arguments.text("target_uri", target_uri)))
    wanted = arguments.identifiers("topics", topics)
    if not wanted:
        raise ConfigurationError("topics is empty: expected at least one topic's name; copy_store copies all topics")
    entry = arguments.integer_or_none("entry", entry, 1)
    options = StoreOptions(arguments.mapping("target_options", target_options))
    dry_run = arguments.boolean("dry_run", dry_run)
    threads = arguments.integer("threads", threads, 1)
    arguments.function("run", run)
    arguments.function("on_progress", on_progress)
    deadline = log.deadline(arguments.timeout_s("timeout_s", timeout_s))
    check_apart(log.objects.uri, uri)
    work = Work(store, options, threads, run, deadline)
    names_ = tuple(dict.fromkeys(wanted))
    copying = TopicCopying(log, objects_of(uri, options), names_, entry, deadline, work, on_progress)
    return copying.foreseen() if dry_run else copying.run()


class TopicCopying:
    """One call: it makes the copy, or finds that an earlier call has made it."""

    def __init__(
        self,
        log: Log,
        target: ObjectStore,
        topics: tuple[str, ...],
        entry: int | None,
        deadline: Deadline,
        work: Work,
        on_progress: OnProgress | None,
    ) -> None:
        self._log = log
        self._source = log.objects
        self._target = CopyTarget(log, target, work, on_progress)
        self._topics = topics
        self._entry = entry
        self._deadline = deadline
        self._kept = Premise()

    def run(self) -> CopyReport:
        """Copy, and begin again where a vacuum, or another copy to this target, was ahead.

        Raises:
            StoreError: see `copy_topics`.
        """
        return self._attempted(self._round)

    def foreseen(self) -> CopyReport:
        """Return what `run` would do; nothing is written."""
        return self._attempted(self._foreseen)

    def _attempted(self, work: Callable[[], CopyReport]) -> CopyReport:
        for _ in range(_ATTEMPTS):
            try:
                report = attempt(self._source, lambda: self._kept, work)
            except Overtaken:
                continue
            if not isinstance(report, Passed):
                return report
        uri = self._target.objects.uri
        raise StoreUnavailable(f"vacuums of {self._source.uri!r}, or other copies to {uri!r}, came first: call again")

    def _planned(self) -> tuple[TopicCopyPlan, StoreDocument | None, CopyDocument | None]:
        """Return what the copy has, confirmed, and the target's documents.

        Raises:
            ConfigurationError: the target is something else than an unfinished copy of the same, or that copy.
            Overtaken: a vacuum has passed the view.
        """
        # Before the plan: of two attempts, the one that puts the later document has planned from the newer view.
        store, newest = self._target.found()
        self._kept = Premise()
        topics, snapshot = view_topics(self._log, self._topics, self._entry, self._deadline)
        self._kept = snapshot.premise
        plan = plan_topic_copy(self._source, snapshot, topics)
        if judge(self._source, self._kept) is not None:
            raise Overtaken
        self._target.copy_of({topic.name: topic.topic_id for topic in topics}, newest)
        if newest is not None and newest.complete and newest.entry != plan.entry:
            raise ConfigurationError(
                f"the target {self._target.objects.uri!r} is a complete copy of these topics at entry {newest.entry}, "
                f"and entry {plan.entry} was asked for: a copy of topics is of one view; copy to an empty root"
            )
        if newest is not None and newest.entry > plan.entry:
            # Its checkpoint may be there, or come late: a process would open it as the newest.
            raise ConfigurationError(
                f"the target {self._target.objects.uri!r} is an unfinished copy of entry {newest.entry}, and this one "
                f"is of entry {plan.entry}: expected an entry from {newest.entry} on, or an empty root"
            )
        return plan, store, newest

    def _round(self) -> CopyReport:
        plan, store, newest = self._planned()
        target = self._target
        if store is not None and newest is not None and newest.complete:
            return target.copied(store, plan.entry, plan.entry)
        sizes = target.sizes()
        target.check_nothing_else(store, sizes, plan.entry)
        wanted = named_objects(self._source, plan)
        if store is None:
            store = target.claimed()
        newest = target.written(newest, plan.entry, plan.entry, plan.decoded.checksum, complete=False)
        self._copy(plan, wanted, sizes)
        target.written(newest, plan.entry, plan.entry, plan.decoded.checksum, complete=True)
        return target.copied(store, plan.entry, plan.entry)

    def _copy(self, plan: TopicCopyPlan, wanted: Sequence[ObjectToCopy], sizes: Mapping[str, int]) -> None:
        """Put all objects of the copy: those that others name come first."""
        target = self._target
        target.copy(wanted, sizes, len(wanted) + len(plan.parts) + _OWN_OBJECTS)
        target.put(names.entry(plan.entry), plan.body)
        # The head, its parts and their token are of this attempt: another one may name other sealed runs.
        head = _head(plan, self._log.ids.token())
        for part, data in plan.parts.items():
            target.put(head.parts[part].name, data)
        target.put(names.checkpoint_head(head.entry, head.checkpoint), encode_head(head))
        target.put(names.horizon(plan.entry), encode_marker(()))
        target.hint(head)

    def _foreseen(self) -> CopyReport:
        plan, store, newest = self._planned()
        target = self._target
        if newest is not None and newest.complete:
            return target.report(store, plan.entry, plan.entry, dry_run=True)
        sizes = target.sizes()
        target.check_nothing_else(store, sizes, plan.entry)
        wanted = named_objects(self._source, plan)
        missing = [each for each in wanted if each.name not in sizes]
        in_source = {info.name: info.size_bytes for folder in FOLDERS for info in self._source.list(folder)}
        own = [plan.body, *plan.parts.values(), encode_head(_head(plan, self._log.ids.token())), encode_marker(())]
        return target.report(
            store,
            plan.entry,
            plan.entry,
            dry_run=True,
            objects=len(missing) + len(own),
            size_bytes=sum(in_source.get(each.name, 0) for each in missing) + sum(len(data) for data in own),
            existing=len(wanted) - len(missing),
        )


def _head(plan: TopicCopyPlan, checkpoint: str) -> CheckpointHead:
    """Return the head of the copy's checkpoint; it has written all objects that it names."""
    parts = {
        part: PartRef(names.checkpoint_part(plan.entry, checkpoint, index), len(data), digest(data))
        for index, (part, data) in enumerate(plan.parts.items())
    }
    return CheckpointHead(
        format=FORMAT_VERSION,
        checkpoint=checkpoint,
        entry=plan.entry,
        token=plan.decoded.token,
        entry_checksum=plan.decoded.checksum,
        timestamp_ms=plan.decoded.timestamp_ms,
        digest=state_digest(parts),
        parts=parts,
        base=plan.entry,
        reader_features=plan.store.reader_features,
        writer_features=plan.store.writer_features,
    )
