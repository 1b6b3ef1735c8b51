"""In the background, a process that writes checkpoints folds small segments, and publishes tables that lag."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn._foundation.config.topic import table_formats
from sparktxn._foundation.process.clock import time_left_s
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.structs import RewrittenRange, TopicState
from sparktxn.errors import KafkaException, StoreUnavailable
from sparktxn.maintenance.publishing.publish import PublishJob, PublishReport, RefusedTable
from sparktxn.maintenance.rewriting.rewrite import do_tasks
from sparktxn.maintenance.rewriting.rewriteplan import RewriteTask, plan_tasks
from sparktxn.metrics.process import PROCESS, Call

# Work that a process repeats in the background, alongside its clients: it leaves them the processor, and backs off.

NEVER_S: Final = float("inf")

_BACKOFF_S: Final = 60.0
_BACKOFF_S_MAX: Final = 3_600.0
_REST_PER_WORK: Final = 9
"""The work rests so many times as long as it computes, while this process commits."""
_REST_S_MAX: Final = 0.5


class Repeated:
    """The thread that repeats a step of work, and how long it waits after a failure: longer after each one.

    Args:
        log: the store, as this process has opened it.
        step: does what is due, and returns in how many seconds to call it again. It raises nothing.
    """

    def __init__(self, log: Log, step: Callable[[], float]) -> None:
        self._log = log
        self._step = step
        self._backoff_s = _BACKOFF_S
        self._wake: Callable[[], None] | None = None
        self.is_started = False

    def begin(self) -> bool:
        """Have the thread call the step, which the first call starts; False if the machine gives no thread now."""
        if self.is_started:
            if self._wake is not None:
                self._wake()
            return True
        try:
            self._wake = self._log.background.repeat(self._step)
        except RuntimeError:
            # The handle is being closed: a later process does the work.
            pass
        except KafkaException:
            return False
        self.is_started = True
        return True

    def succeeded(self) -> None:
        """Wait after the next failure as after a first one."""
        self._backoff_s = _BACKOFF_S

    def failed(self) -> float:
        """Return in how many seconds to try again after a failure: NEVER_S once the handle has been closed."""
        if time_left_s(None) == 0:
            return NEVER_S
        wait_s, self._backoff_s = self._backoff_s, min(2 * self._backoff_s, _BACKOFF_S_MAX)
        return wait_s


class Rests:
    """Leaves the processor to the commits of this process: a fold takes a tenth of it while they go on.

    Python runs one thread at a time, so that a commit waits while a fold computes. While a fold itself waits, for
    commits or for the disk, it takes nothing from them, and owes no rest. Where nothing is committed, it goes on
    without a rest. Segments that gather faster than that are folded once fewer are committed.

    One thread makes and uses it.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._since_s = log.clock.processor_s()
        self._entry = log.entry

    def rest(self) -> None:
        """Rest in proportion to what was done since the last rest, if the log has grown meanwhile.

        Raises:
            StoreUnavailable: the handle is being closed.
        """
        if time_left_s(None) == 0:
            raise StoreUnavailable(f"a fold of {self._log.objects.uri!r} was given up: the store is being closed")
        clock, entry = self._log.clock, self._log.entry
        if entry > self._entry:
            clock.sleep(min(_REST_PER_WORK * (clock.processor_s() - self._since_s), _REST_S_MAX))
        self._entry, self._since_s = entry, clock.processor_s()


# Folding: a process that writes checkpoints rewrites its store's small segments, alongside the writers.
#
# It is the rewrite of `rewrite.py`, of a few partitions at a time: those that have gained many small segments since
# the last rewrite. One thread of the process does it, after one of its own checkpoints, and never a reader's. Any
# number of processes may fold one store: of two rewrites of one range the state machine refuses the second.

_PAUSE_S: Final = 10.0
"""How long small segments gather before they are folded. A process that ends sooner has not begun."""
_FOLD_S: Final = 120.0
"""How long a fold begins tasks: the next fold has those that are left, long before this one fails for its length."""
_BURST_S: Final = 10.0
"""What may be read at once: so many seconds' share of the bytes per minute."""
_FULL_PER_MIN_SEGMENTS: Final = 16
"""A file with so many times `min_segments` is not folded again, small as it may be: its records are copied twice."""
_SEGMENTS_PER_TASK: Final = 2_048
"""What a fold has in memory goes by this, however much has gathered."""
_SEGMENTS_PER_ENTRY: Final = 4 * _SEGMENTS_PER_TASK


class Folder:
    """Folds the segments of one log, a fold at a time; one thread owns it.

    Args:
        log: the store, as this process has opened it.
        bytes_per_minute: how many bytes of small segments may be read in a minute, above 0.
        settings: which segments count as small, how many of them are folded together, and how large files become.
        pause_s: how long small segments gather after a checkpoint.
    """

    def __init__(
        self,
        log: Log,
        bytes_per_minute: int,
        settings: RewriteSettings | None = None,
        *,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._log = log
        self._settings = settings or RewriteSettings(target_bytes=1_048_576, min_segments=128)
        self._pause_s = pause_s
        self._bytes_per_s = bytes_per_minute / 60
        self._left_bytes = self._bytes_per_s * _BURST_S
        self._counted_s = self._now_s()
        self._is_due = self._is_behind = False
        self._next_s = -NEVER_S
        self._left: dict[TopicPartitionKey, _Left] = {}
        self._repeated = Repeated(log, self.step)

    def after_checkpoint(self) -> None:
        """Have the thread fold once segments have gathered; the first call starts it. For one thread at a time."""
        if self._is_due:
            return
        self._next_s = max(self._next_s, self._now_s() + self._pause_s)
        self._is_due = True
        if not self._repeated.begin():
            # A later checkpoint tries again.
            self._is_due = False

    def step(self) -> float:
        """Fold if that is due; return in how many seconds this is to be called again. Raise nothing.

        A rewrite takes effect as a whole, or leaves files that no entry names and a vacuum deletes.
        """
        wait_s = self._next_s - self._now_s()
        if not self._is_due or wait_s > 0:
            return wait_s if self._is_due else NEVER_S
        # A checkpoint that is written meanwhile has segments that this fold may not see.
        self._is_due = False
        # From one begin to the next: a long fold that was followed by a pause would make the next one longer still.
        next_s = self._now_s() + self._pause_s
        try:
            with Call(PROCESS.fold, self._log.clock):
                self._is_due = not self._fold() or self._is_due
        except Exception as error:  # noqa: BLE001 - no error is a reason to disturb the clients of this process
            # A checkpoint that comes late enough has the next fold take what is left.
            wait_s = self._repeated.failed()
            self._next_s = self._now_s() + wait_s
            if wait_s < NEVER_S:
                store, kind = self._log.objects.uri, type(error).__name__
                log_event("fold_failed", store=store, retry_s=wait_s, kind=kind, error=error)
            return NEVER_S
        self._repeated.succeeded()
        self._next_s = max(next_s, self._now_s() - self._left_bytes / self._bytes_per_s)
        return self._next_s - self._now_s() if self._is_due else NEVER_S

    def _now_s(self) -> float:
        return self._log.clock.monotonic_s()

    def _fold(self) -> bool:
        """Fold what has gathered, as far as bytes are left; True if nothing remains."""
        begins_until_s = self._now_s() + _BEGINNING_S

        def affords(size_bytes: int) -> bool:
            return self._now_s() < begins_until_s and self._affords(size_bytes)

        with self._log.within(_FOLD_S):
            # What another process has done to the plan may be in entries that this one has not read.
            view = self._log.view(None) if self._is_behind else self._log.known_view()
            gathered = self._gathered(view)
            starts = {key: found.start for key, found in gathered.items()}
            planned = _Planned(self._plan(view, starts), affords)
            report = do_tasks(self._log, planned, Rests(self._log).rest, _SEGMENTS_PER_ENTRY)
        if report.unresolved:
            raise StoreUnavailable(f"{self._log.objects.uri!r} did not take a fold's entry within {_FOLD_S:.0f} s")
        self._is_behind = bool(report.lost)
        for lost in report.lost:
            log_event("fold_overtaken", about=lost.about, reason=lost.reason)
        is_complete = planned.is_complete and not report.lost
        for key, found in gathered.items():
            partition, left = view.partitions[key], self._left.get(key, _Left())
            is_idle = is_complete and key not in planned.partitions
            if is_complete:
                left = _after(partition, left, found, self._settings, is_idle=is_idle)
            self._left[key] = _with_passed(partition, left, is_complete=is_complete, is_idle=is_idle)
        return is_complete

    def _plan(self, view: ReadView, starts: Mapping[TopicPartitionKey, int]) -> Iterator[RewriteTask]:
        segments = _SEGMENTS_PER_TASK
        return plan_tasks(self._log.objects, view, self._settings, starts, segments_per_task=segments)

    def _affords(self, size_bytes: int) -> bool:
        """Return whether so many bytes may be read now, and count them if they may."""
        now_s = self._now_s()
        earned_bytes = (now_s - self._counted_s) * self._bytes_per_s
        self._left_bytes = min(self._bytes_per_s * _BURST_S, self._left_bytes + earned_bytes)
        self._counted_s = now_s
        if self._left_bytes <= 0:
            return False
        self._left_bytes -= size_bytes
        return True

    def _gathered(self, view: ReadView) -> dict[TopicPartitionKey, _Gathered]:
        """Return what is planned of which partitions: of those that have gained many small segments."""
        found = {}
        for key, partition in view.partitions.items():
            if table_formats(partition.topic.settings):
                # Publishing merges them, and what a table shows is merged with nothing that is new.
                continue
            left = self._left.get(key, _Left())
            gathered = _gathered(partition, left, self._settings)
            if gathered.segments >= self._settings.min_segments:
                found[key] = gathered
        return found


class _Passed(NamedTuple):
    """A fold has gone past open transactions: the first one began at `start`, and the log ended at `end` then.

    If `is_tried`, a plan from `start` on has found too few segments, after all of them had ended.
    """

    start: int
    end: int
    is_tried: bool = False


class _Left(NamedTuple):
    """What this process's folds have left of a partition.

    Small segments below `planned_to` lie between large files: a rewrite that plans the whole partition has them. Where
    a fold has gone past open transactions, it has left theirs. While these are open, the last plan up to offset
    `idle_to` has found nothing to fold, and the one before it ended at `idle_from`.
    """

    planned_to: int = 0
    idle_from: int = 0
    idle_to: int = 0
    passed: _Passed | None = None


class _Gathered(NamedTuple):
    """A partition's segments that are likely small and have come since the last rewrite.

    It is planned from `start` on. Of `segments`, `stable` are below the last stable offset: the others may be of open
    transactions.
    """

    start: int
    segments: int
    stable: int


class _Planned:
    """The tasks of a plan that may be done now.

    `is_complete` says whether those were all, and `partitions` which partitions they are of.
    """

    def __init__(self, tasks: Iterator[RewriteTask], affords: Callable[[int], bool]) -> None:
        self._tasks = tasks
        self._affords = affords
        self.is_complete = False
        self.partitions: set[TopicPartitionKey] = set()

    def __iter__(self) -> Iterator[RewriteTask]:
        for task in self._tasks:
            self.partitions.add((task.read.topic, task.read.partition))
            if not self._affords(task.size_bytes):
                return
            yield task
        self.is_complete = True


def _gathered(view: PartitionView, left: _Left, settings: RewriteSettings) -> _Gathered:
    """Return what has come since the last rewrite of a partition, or since transactions that a fold has gone past.

    Nothing is read: of what is sealed or rewritten the state knows the mean size. What lies below is left as it is.
    """
    small_bytes = settings.target_bytes // 2
    start = since = max(left.planned_to, view.log_start_offset)
    for rewritten in view.rewritten[-1:]:
        start = max(start, rewritten.base_offset if _is_small(rewritten, settings) else rewritten.end_offset)
        since = max(start, rewritten.end_offset)
    passed = left.passed
    if passed is not None and view.last_stable_offset < passed.end and left.idle_to > since:
        # Each fold would plan all that a transaction writes which stays open. A piece that lies across the end of the
        # last plan is found all the same.
        return _counted(view, max(start, left.idle_from), left.idle_to, small_bytes)
    found = _counted(view, start, since, small_bytes)
    if passed is None or view.last_stable_offset < passed.end:
        return found
    # All that were open then have ended: their segments are folded with what lies between them.
    back = _counted(view, _beginning(view, passed.start, settings), passed.start, small_bytes)
    segments = found.segments if passed.is_tried else max(found.segments, back.segments)
    return found._replace(start=min(found.start, back.start), segments=segments)


def _is_small(rewritten: RewrittenRange, settings: RewriteSettings) -> bool:
    """Return whether a file is folded once more, with what has come since."""
    run, full_segments = rewritten.run, _FULL_PER_MIN_SEGMENTS * settings.min_segments
    return run.size_bytes < settings.target_bytes // 2 and run.segment_count < full_segments


def _beginning(view: PartitionView, offset: int, settings: RewriteSettings) -> int:
    """Return where the last rewritten range at or before `offset` begins, if its file is small; else `offset`."""
    before = view.rewritten[: bisect_right(view.rewritten, offset, key=attrgetter("base_offset"))][-1:]
    begins = [each.base_offset for each in before if _is_small(each, settings)]
    return max(view.log_start_offset, *begins or [offset])


def _counted(view: PartitionView, start: int, since: int, small_bytes: int) -> _Gathered:
    segments = stable = 0
    for run in reversed(view.sealed):
        if run.end_offset <= since:
            break
        if run.size_bytes >= small_bytes * run.segment_count:
            start = since = run.end_offset
            break
        segments += run.segment_count
        stable += run.segment_count if run.end_offset <= view.last_stable_offset else 0
    ends = [segment.end_offset for segment in view.segments if segment.base_offset >= since]
    stable += sum(end <= view.last_stable_offset for end in ends)
    return _Gathered(start, segments + len(ends), stable)


def _after(view: PartitionView, left: _Left, found: _Gathered, settings: RewriteSettings, *, is_idle: bool) -> _Left:
    """Return what a plan has left of a partition; if it `is_idle`, it has found nothing to fold."""
    if not is_idle:
        return _Left(left.planned_to, passed=left.passed)
    planned_to = view.last_stable_offset if found.stable >= settings.min_segments else left.planned_to
    return _Left(planned_to, left.idle_to, view.log_end_offset, left.passed)


def _with_passed(view: PartitionView, left: _Left, *, is_complete: bool, is_idle: bool) -> _Left:
    """Return `left` with the transactions that a fold has gone past, until all have ended and a plan has had theirs.

    Those that begin meanwhile are left out: each segment is planned a few times then, however they overlap.
    """
    stable, passed = view.last_stable_offset, left.passed
    if passed is not None and (not is_complete or stable < passed.end):
        return left
    if passed is not None and is_idle and not passed.is_tried:
        return left._replace(passed=passed._replace(is_tried=True))
    return left._replace(passed=_Passed(stable, view.log_end_offset) if stable < view.log_end_offset else None)


def start_folding(log: Log) -> None:
    """Fold the log's segments from now on; called after a checkpoint, and once for each log."""
    folder = Folder(log, log.settings.fold_bytes_per_minute)
    log.on_checkpoint = folder.after_checkpoint
    folder.after_checkpoint()


_LAG_TARGET_MS: Final = 60_000
"""How long records wait before a version of their topic's table has them: each version is a few files for good."""
_STEP_S: Final = 120.0
_BEGINNING_S: Final = 60.0
"""How long a step begins files: the next step has those that are left, long before this one fails for its length."""


class Publisher:
    """Publishes the tables of one log, one time after the other; one thread owns it.

    Any number of processes may publish one store: a version that another one has just published is not followed by one
    of this process.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._repeated = Repeated(log, self.step)
        self._has_failed = False
        self._entry = 0
        self._refused: tuple[RefusedTable, ...] = ()
        self._job: PublishJob | None = None

    def after_checkpoint(self) -> None:
        """Have the thread publish from now on, if a topic is a table. For one thread at a time."""
        if not self._repeated.is_started and self._tables():
            # Without a thread a later checkpoint tries again.
            self._repeated.begin()

    def step(self) -> float:
        """Publish if that is due; return in how many seconds this is to be called again. Raise nothing.

        A publication that takes long continues with its entry in the next step, however much is committed meanwhile.
        """
        try:
            with self._log.within(_STEP_S):
                wait_s = self._wait_s()
                if self._job is None and (self._has_failed or (wait_s <= 0 and self._log.entry != self._entry)):
                    self._job = PublishJob(self._log, rest=Rests(self._log).rest)
                if self._job is not None:
                    report = self._job.go_on(_BEGINNING_S)
                    if report is None:
                        return 0.0
                    self._entry, self._job = report.entry, None
                    self._say_refused(report)
                    wait_s = self._wait_s()
        except Exception as error:  # noqa: BLE001 - no error is a reason to disturb the clients of this process
            # A version that was published may have no metadata yet.
            self._job, self._has_failed = None, True
            wait_s = self._repeated.failed()
            if wait_s < NEVER_S:
                store, kind = self._log.objects.uri, type(error).__name__
                log_event("tables_not_published", store=store, retry_s=wait_s, kind=kind, error=error)
            return wait_s
        self._has_failed = False
        self._repeated.succeeded()
        # A table that shows all has had no version for longer than it may lag behind.
        return wait_s if wait_s > 0 else self._target_s()

    def _say_refused(self, report: PublishReport) -> None:
        """Log which topics another process has to publish, once for each reason."""
        for each in report.refused:
            if each not in self._refused:
                log_event("table_not_publishable", store=self._log.objects.uri, reason=each.reason)
        self._refused = report.refused

    def _tables(self) -> list[TopicState]:
        return [topic for topic in self._log.topics() if table_formats(topic.settings)]

    def _target_s(self) -> float:
        return _LAG_TARGET_MS / 1000 if self._tables() else NEVER_S

    def _wait_s(self) -> float:
        """Return in how many seconds a table lags behind, if anything is committed until then; 0 if one does now."""
        known = {table.topic_id: table for table in self._log.tables()}
        now_ms = self._log.clock.wall_ms()
        waits = [NEVER_S]
        for topic in self._tables():
            table = known.get(topic.topic_id)
            waits.append(0.0 if table is None else (table.timestamp_ms + _LAG_TARGET_MS - now_ms) / 1000)
        return min(waits)


def start_background_jobs(log: Log) -> None:
    """Fold the log's segments and publish its tables from now on; called after a checkpoint, once for each log."""
    log.on_checkpoint = None
    start_folding(log)
    fold, publisher = log.on_checkpoint, Publisher(log)

    def after_checkpoint() -> None:
        if fold is not None:
            fold()
        publisher.after_checkpoint()

    log.on_checkpoint = after_checkpoint
    publisher.after_checkpoint()
