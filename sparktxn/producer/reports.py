"""Delivery reports: made by the thread that stores records, delivered only by the thread that calls the producer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from sparktxn._foundation.process.clock import callers_own_time
from sparktxn._kafka.message import Message
from sparktxn._kafka.statscallback import Statistics
from sparktxn._rows.stage.pendingsegment import DeliveryCallback
from sparktxn.errors import KafkaError

__all__ = ["DeliveryCallback", "Reports"]


class Reports:
    """A queue of callbacks to call. Safe for several threads; a callback may call the producer.

    With `only_errors`, reports of success are left out (librdkafka's ``delivery.report.only.error``).
    """

    def __init__(self, *, only_errors: bool = False, error_cb: Callable[[KafkaError], Any] | None = None) -> None:
        self._only_errors = only_errors
        self._error_cb = error_cb
        self.statistics: Statistics | None = None
        self._queue: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._arrived = threading.Condition()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, reports: list[tuple[DeliveryCallback, KafkaError | None, Message]]) -> None:
        """Queue delivery reports, in order, and wake who waits for them."""
        with self._arrived:
            self._queue.extend(
                (callback, (error, message))
                for callback, error, message in reports
                if error is not None or not self._only_errors
            )
            self._arrived.notify_all()

    def add_error(self, error: KafkaError) -> None:
        """Queue a call of the producer's own error callback, if it has one."""
        if self._error_cb is None:
            return
        with self._arrived:
            self._queue.append((self._error_cb, (error,)))
            self._arrived.notify_all()

    def wake(self) -> None:
        """Wake who waits, so that it checks again."""
        with self._arrived:
            self._arrived.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        """Return True once there is a report, False when `timeout_s` (None: no limit) is over or `wake` was called."""
        with self._arrived:
            if not self._queue:
                self._arrived.wait(timeout_s if self.statistics is None else self.statistics.limit_s(timeout_s))
            return bool(self._queue)

    def serve_with_statistics(self) -> int:
        """Call back with statistics if they are due, too; return how many callbacks were called."""
        called = 0
        if self.statistics is not None and (call := self.statistics.take()) is not None:
            called = 1
            with callers_own_time():
                call()
        return called + self.serve()

    def serve(self) -> int:
        """Call what is queued now, on this thread; return how many. What a callback raises goes to the caller."""
        served = 0
        if not self._queue:
            return served
        with callers_own_time():
            for _ in range(len(self._queue)):
                try:
                    callback, arguments = self._queue.popleft()
                except IndexError:  # another thread serves too
                    break
                served += 1
                callback(*arguments)
        return served
