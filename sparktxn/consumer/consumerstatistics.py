"""What a consumer says in its statistics, with librdkafka's names, and their callback inside of its calls."""

from __future__ import annotations

from math import inf
from typing import Any, Final

from sparktxn._foundation.process.clock import Clock
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn._kafka.statscallback import NO_OFFSET, Statistics, by_topic
from sparktxn.consumer.assignment import Assignment, Progress
from sparktxn.consumer.member import Membership, Status
from sparktxn.consumer.polling import Reading
from sparktxn.consumer.threadturns import ConsumerTurns

_JOIN_STATES: Final = {
    Status.OUT: "init",
    Status.JOINING: "wait-join",
    Status.MEMBER: "steady",
    Status.LOST: "wait-unassign-call",
    Status.FAILED: "init",
}


class ConsumerStatistics:
    """The statistics of one consumer; its callback is called like all others, by the thread that reads.

    `due_at_s` is when they are due next, by the monotonic clock; infinite without a callback.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        clock: Clock,
        membership: Membership,
        assignment: Assignment,
        reading: Reading,
        turns: ConsumerTurns,
    ) -> None:
        self._settings = settings
        self._assignment = assignment
        self._reading = reading
        self._membership = membership
        self._turns = turns
        self._statistics = Statistics.wanted(settings, clock, self._own)
        self.due_at_s = inf if self._statistics is None else self._statistics.due_at_s

    def call_back(self) -> None:
        """Call the callback, which is due; what it raises goes to the caller of the consumer."""
        if self._statistics is not None and (call := self._statistics.take()) is not None:
            self.due_at_s = self._statistics.due_at_s
            with self._turns.calls_back():
                call()

    def _own(self) -> dict[str, Any]:
        self._reading.settle()
        partitions = {progress.key: self._of(progress) for progress in self._assignment}
        return {
            "msg_cnt": 0,
            "rxmsgs": sum(fields["rxmsgs"] for fields in partitions.values()),
            "topics": by_topic(partitions),
            "cgrp": {
                "state": "up",
                "join_state": _JOIN_STATES[self._membership.status],
                "assignment_size": len(partitions),
            },
        }

    def _of(self, progress: Progress) -> dict[str, Any]:
        view = self._reading.partition_view(progress.key)
        start, stable, end = (
            (NO_OFFSET, NO_OFFSET, NO_OFFSET)
            if view is None
            else (view.log_start_offset, view.last_stable_offset, view.log_end_offset)
        )
        committed = progress.committed if progress.committed >= 0 else progress.found_committed
        readable = stable if self._settings.read_committed else end
        under_way = self._reading.partition_under_way() == progress.key
        return {
            "desired": True,
            "unknown": False,
            "fetchq_cnt": len(self._reading.ready) if under_way else 0,
            "fetch_state": "active" if progress.resolved and not progress.paused else "offset-query",
            "app_offset": _offset(progress.position),
            "next_offset": _offset(progress.position),
            "stored_offset": _offset(progress.stored.offset),
            "committed_offset": _offset(committed),
            "lo_offset": start,
            "hi_offset": end,
            "ls_offset": stable,
            "consumer_lag": _lag(readable, committed),
            "consumer_lag_stored": _lag(readable, progress.stored.offset),
            "rxmsgs": progress.received,
        }


def _offset(offset: int) -> int:
    return offset if offset >= 0 else NO_OFFSET


def _lag(end: int, offset: int) -> int:
    """Return the lag; -1 if it is not known, as in librdkafka."""
    return max(0, end - offset) if end >= 0 and offset >= 0 else -1
