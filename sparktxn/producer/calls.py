"""One transactional call at a time, and a timed-out one is resumed by the same call (K118)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sparktxn.errors import ErrorCode, KafkaError, KafkaException

__all__ = ["TransactionalCalls"]


class TransactionalCalls:
    """Lets one transactional call of a producer run, and remembers the one that must be made again."""

    __slots__ = ("_lock", "_running", "_unfinished")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: str | None = None
        self._unfinished: str | None = None

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Runs the body as call `name`; a retriable error leaves it unfinished.

        Raises:
            KafkaException: _PREV_IN_PROGRESS or _CONFLICT, both retriable: this or another call is under way in another
                thread, or another one has not been finished.
        """
        if not self._lock.acquire(blocking=False):
            running = self._running
            code = ErrorCode.LOCAL_PREV_IN_PROGRESS if running == name else ErrorCode.LOCAL_CONFLICT
            raise _busy(code, f"{running}() is under way in another thread: wait for it, then call {name}()")
        try:
            if self._unfinished not in (None, name):
                reason = f"the outcome of {self._unfinished}() is not known: call {self._unfinished}() again first"
                raise _busy(ErrorCode.LOCAL_CONFLICT, reason)
            self._running = name
            try:
                yield
            except KafkaException as error:
                self._unfinished = name if error.error.retriable() else None
                raise
            self._unfinished = None
        finally:
            self._running = None
            self._lock.release()


def _busy(code: ErrorCode, reason: str) -> KafkaException:
    return KafkaException(KafkaError(code, reason, retriable=True))
