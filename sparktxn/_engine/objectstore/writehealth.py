"""How writes to a store go: whether one succeeds, what the store has said last, and a line of the log each minute."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol, runtime_checkable

from sparktxn._engine.objectstore.contract import NotSent
from sparktxn._foundation.process.clock import Clock
from sparktxn._foundation.process.events import log_event
from sparktxn.errors import StoreUnavailable
from sparktxn.metrics.process import PROCESS

_LOGGED_EACH_S: Final = 60.0
_TRIED_BYTES_MAX: Final = 1024 * 1024
"""A write of so many bytes shows that the store takes writes again, whatever has failed before."""


class WriteFailure(NamedTuple):
    """Why writes fail: the store's last words, and whether it needs an administrator."""

    reason: str
    is_refused: bool


class Writes:
    """The writes of one handle of a store. Safe for several threads."""

    def __init__(self, uri: str, clock: Clock) -> None:
        self._uri = uri
        self._clock = clock
        self._lock = threading.Lock()
        self._logged_s: float | None = None
        self._not_logged = 0
        self.failure: WriteFailure | None = None
        """None while writes succeed, or none was tried."""
        self.unwritten: tuple[int, str] | None = None
        """The size in bytes of an object that was not written, and why, until one as large is.

        A full disk may still have room for small ones.
        """

    def succeeded(self, size_bytes: int) -> None:
        """Note a write of so many bytes that the store has taken."""
        self.failure = None
        if self.unwritten is not None and size_bytes >= self.unwritten[0]:
            self.unwritten = None

    def tried(self, reason: str) -> None:
        """Note why a try has failed that a client below us repeats."""
        self.failure = WriteFailure(reason, is_refused=False)

    def failed(self, reason: str, size_bytes: int, *, is_refused: bool = False) -> None:
        """Note a write that has failed, for `reason`, in words that hold no secret; say so in the log once a minute."""
        self.unwritten = (min(size_bytes, _TRIED_BYTES_MAX), reason)
        (PROCESS.writes_refused if is_refused else PROCESS.writes_unanswered).add()
        self.failure = WriteFailure(reason, is_refused)
        with self._lock:
            self._not_logged += 1
        self.say(reason)

    def raised(self, error: StoreUnavailable, size_bytes: int) -> None:
        """Note why a write has failed, as `failed` does; one that was not sent says nothing of the store."""
        if not isinstance(error, NotSent):
            self.failed(str(error), size_bytes, is_refused=not error.transient)

    def say(self, reason: str) -> None:
        """Log why writes fail, or will, once a minute."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if self._logged_s is not None and now_s - self._logged_s < _LOGGED_EACH_S:
                return
            self._logged_s, count, self._not_logged = now_s, self._not_logged, 0
        log_event("store_write_failed", store=self._uri, failures=count, error=reason)


@runtime_checkable
class DiskStore(Protocol):
    """What a store has in addition that knows without writing whether its disk takes no write."""

    def why_full(self) -> str | None:
        """Return why the disk takes no write now; None if it may take one."""


@runtime_checkable
class WatchedStore(Protocol):
    """What a store has in addition that knows how its writes go."""

    writes: Writes


def failure_of(objects: object) -> WriteFailure | None:
    """Return why writes to a store fail; None while they succeed, and of a store that does not say."""
    return objects.writes.failure if isinstance(objects, WatchedStore) else None


def with_last_error(text: str, objects: object) -> str:
    """Return `text` with the last error of the store's writes at its end, if they fail."""
    failure = failure_of(objects)
    return text if failure is None or failure.reason in text else f"{text}: {failure.reason}"


class Sends:
    """The requests of HTTP that one put has sent, also those that a client below us sends again by itself."""

    __slots__ = ("_hidden", "_writes", "count", "said")

    def __init__(self, writes: Writes, hidden: Callable[[str], str]) -> None:
        self._writes = writes
        self._hidden = hidden
        self.count = 0
        self.said = ""
        """Why the last one of those that failed has got no answer."""

    def failed(self, error: BaseException) -> None:
        """Note why one has got no answer."""
        self.said = self._hidden(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
        self._writes.tried(self.said)


SENDS: Final[ContextVar[Sends | None]] = ContextVar("the requests of the put that is under way", default=None)
"""Set for the task of a put. A cloud counts into it what it can see; where it sees nothing, the count stays 0."""
