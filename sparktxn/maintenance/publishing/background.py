"""Publishing in the background: a process that folds publishes its store's tables once they lag behind."""

from __future__ import annotations

from typing import Final

from sparktxn.config.topic import table_formats
from sparktxn.log.log import Log
from sparktxn.maintenance.publishing.publish import PublishJob, PublishReport, RefusedTable
from sparktxn.maintenance.repeating import NEVER_S, Repeated, Rests
from sparktxn.maintenance.rewriting import folding
from sparktxn.process.events import log_event
from sparktxn.values.structs import TopicState

__all__ = ["Publisher", "start_background_jobs"]

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
    folding.start_folding(log)
    fold, publisher = log.on_checkpoint, Publisher(log)

    def after_checkpoint() -> None:
        if fold is not None:
            fold()
        publisher.after_checkpoint()

    log.on_checkpoint = after_checkpoint
    publisher.after_checkpoint()
