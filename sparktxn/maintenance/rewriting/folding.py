"""Folding: a process that writes checkpoints rewrites its store's small segments, alongside the writers.

It is the rewrite of `rewrite.py`, of a few partitions at a time: those that have gained many small segments
since the last rewrite. One thread of the process does it, after one of its own checkpoints, and never a reader's. Any
number of processes may fold one store: of two rewrites of one range the state machine refuses the second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from sparktxn.config.maintenance import RewriteSettings
from sparktxn.errors import KafkaException, StoreUnavailable
from sparktxn.log.log import Log
from sparktxn.log.views.readview import PartitionView, ReadView
from sparktxn.maintenance.rewriting.rewrite import do_tasks
from sparktxn.maintenance.rewriting.rewriteplan import RewriteTask, plan_tasks
from sparktxn.process.clock import time_left_s
from sparktxn.values.fieldtypes import TopicPartitionKey

__all__ = ["Folder", "start_folding"]

logger = logging.getLogger("sparktxn")

_PAUSE_S: Final = 10.0
"""How long small segments gather before they are folded. A process that ends sooner has not begun."""
_FOLD_S: Final = 120.0
_BEGINNING_S: Final = 60.0
"""How long a fold begins tasks: the next fold has those that are left, long before this one fails for its length."""
_BURST_S: Final = 10.0
"""What may be read at once: so many seconds' share of the bytes per minute."""
_BACKOFF_S: Final = 60.0
_BACKOFF_S_MAX: Final = 3_600.0
_NEVER_S: Final = float("inf")
_FULL_PER_MIN_SEGMENTS: Final = 16
"""A file with so many times `min_segments` is not folded again, small as it may be: its records are copied twice."""
_REST_PER_WORK: Final = 9
"""A fold rests so many times as long as it works, while this process commits."""
_REST_S_MAX: Final = 0.5


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
        self._next_s = -_NEVER_S
        self._backoff_s = _BACKOFF_S
        self._planned_to: dict[TopicPartitionKey, int] = {}
        self._wake: Callable[[], None] | None = None
        self._is_started = False

    def after_checkpoint(self) -> None:
        """Have the thread fold once segments have gathered; the first call starts it. For one thread at a time."""
        if self._is_due:
            return
        self._next_s = max(self._next_s, self._now_s() + self._pause_s)
        self._is_due = True
        if self._wake is not None:
            self._wake()
        elif not self._is_started:
            self._is_started = True
            try:
                self._wake = self._log.background.repeat(self.step)
            except RuntimeError:
                # The handle is being closed: a later process folds.
                return
            except KafkaException:
                # The machine gives no thread: a later checkpoint tries again.
                self._is_started = self._is_due = False

    def step(self) -> float:
        """Fold if that is due; return in how many seconds this is to be called again. Raise nothing.

        A rewrite takes effect as a whole, or leaves files that no entry names and a vacuum deletes.
        """
        wait_s = self._next_s - self._now_s()
        if not self._is_due or wait_s > 0:
            return wait_s if self._is_due else _NEVER_S
        # A checkpoint that is written meanwhile has segments that this fold may not see.
        self._is_due = False
        # From one begin to the next: a long fold that was followed by a pause would make the next one longer still.
        next_s = self._now_s() + self._pause_s
        try:
            self._is_due = not self._fold() or self._is_due
        except Exception as error:  # noqa: BLE001 - no error is a reason to disturb the clients of this process
            self._back_off(error)
            return _NEVER_S
        self._backoff_s = _BACKOFF_S
        self._next_s = max(next_s, self._now_s() - self._left_bytes / self._bytes_per_s)
        return self._next_s - self._now_s() if self._is_due else _NEVER_S

    def _now_s(self) -> float:
        return self._log.clock.monotonic_s()

    def _back_off(self, error: Exception) -> None:
        """Wait for a checkpoint that comes late enough; the next one folds what is left."""
        if time_left_s(None) == 0:
            # The handle has been closed.
            return
        self._next_s = self._now_s() + self._backoff_s
        logger.warning(
            "small segments of %r were not folded into larger files, and are left for %d s: %s: %s",
            self._log.objects.uri,
            self._backoff_s,
            type(error).__name__,
            error,
        )
        self._backoff_s = min(2 * self._backoff_s, _BACKOFF_S_MAX)

    def _fold(self) -> bool:
        """Fold what has gathered, as far as bytes are left; True if nothing remains."""
        begins_until_s = self._now_s() + _BEGINNING_S

        def affords(size_bytes: int) -> bool:
            return self._now_s() < begins_until_s and self._affords(size_bytes)

        with self._log.within(_FOLD_S):
            # What another process has done to the plan may be in entries that this one has not read.
            view = self._log.view(None) if self._is_behind else self._log.known_view()
            starts = self._starts(view)
            planned = _Planned(plan_tasks(self._log.objects, view, self._settings, starts), affords)
            report = do_tasks(self._log, planned, _Rests(self._log).rest)
        if report.unresolved:
            raise StoreUnavailable(f"{self._log.objects.uri!r} did not take a fold's entry within {_FOLD_S:.0f} s")
        self._is_behind = bool(report.lost)
        for lost in report.lost:
            logger.debug("a fold came too late: %s: %s", lost.about, lost.reason)
        if planned.is_complete and not report.lost:
            # What lies between large files is left to a rewrite that plans the whole partition.
            idle = starts.keys() - planned.partitions
            self._planned_to |= {key: view.partitions[key].last_stable_offset for key in idle}
        return planned.is_complete and not report.lost

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

    def _starts(self, view: ReadView) -> dict[TopicPartitionKey, int]:
        """Return from which offsets on partitions are planned: of those that have gained many small segments."""
        starts = {}
        for key, partition in view.partitions.items():
            start, segments = _gathered(partition, self._planned_to.get(key, 0), self._settings)
            if segments >= self._settings.min_segments:
                starts[key] = start
        return starts


class _Rests:
    """Leaves the processor to the commits of this process: a fold takes a tenth of the time while they go on.

    Python runs one thread at a time, so that a commit waits while a fold computes. Where nothing is committed, a fold
    goes on without a rest. Segments that gather faster than that are folded once fewer are committed.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._since_s = log.clock.monotonic_s()
        self._entry = log.entry

    def rest(self) -> None:
        """Rest in proportion to what was done since the last rest, if the log has grown meanwhile.

        Raises:
            StoreUnavailable: the handle is being closed.
        """
        if time_left_s(None) == 0:
            raise StoreUnavailable(f"a fold of {self._log.objects.uri!r} was given up: the store is being closed")
        clock, entry = self._log.clock, self._log.entry
        now_s = clock.monotonic_s()
        if entry > self._entry:
            clock.sleep(min(_REST_PER_WORK * (now_s - self._since_s), _REST_S_MAX))
        self._entry, self._since_s = entry, clock.monotonic_s()


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


def _gathered(view: PartitionView, start: int, settings: RewriteSettings) -> tuple[int, int]:
    """Return the offset to plan from, and how many segments that are likely small have come since the last rewrite.

    Nothing is read: of what is sealed or rewritten the state knows the mean size. What lies below is left as it is.
    """
    small_bytes, full_segments = settings.target_bytes // 2, _FULL_PER_MIN_SEGMENTS * settings.min_segments
    start = since = max(start, view.log_start_offset)
    for rewritten in view.rewritten[-1:]:
        # A file that is still small is folded once more, with what has come since.
        is_small = rewritten.run.size_bytes < small_bytes and rewritten.run.segment_count < full_segments
        start = max(start, rewritten.base_offset if is_small else rewritten.end_offset)
        since = max(start, rewritten.end_offset)
    segments = 0
    for run in reversed(view.sealed):
        if run.end_offset <= since:
            break
        if run.size_bytes >= small_bytes * run.segment_count:
            start = since = run.end_offset
            break
        if run.end_offset <= view.last_stable_offset:
            segments += run.segment_count
    single = (segment for segment in view.segments if segment.base_offset >= since)
    return start, segments + sum(segment.end_offset <= view.last_stable_offset for segment in single)


def start_folding(log: Log) -> None:
    """Fold the log's segments from now on; called after a checkpoint, and once for each log."""
    folder = Folder(log, log.settings.fold_bytes_per_minute)
    log.on_checkpoint = folder.after_checkpoint
    folder.after_checkpoint()
