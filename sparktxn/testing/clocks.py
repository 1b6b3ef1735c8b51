"""A clock and ids for tests: time passes only when a caller sleeps, and ids repeat with their seed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from random import Random

from sparktxn._foundation.process.clock import callers_own_time
from sparktxn._foundation.values.fieldtypes import Result

__all__ = ["ManualClock", "SeededIds", "StrictBackground"]


def __dir__() -> list[str]:
    return sorted(__all__)


class ManualClock:
    """Stands still until a caller sleeps or moves it."""

    def __init__(self, now_s: float = 1_700_000_000.0) -> None:
        self.now_s = now_s

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        """Return the same in seconds."""
        return self.now_s

    def processor_s(self) -> float:
        """Return the same: whatever takes time here is work."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Move the time on, at once."""
        self.now_s += seconds


class SeededIds:
    """Tokens from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def token(self) -> str:
        """Return 20 of the digits 0-9 and a-v."""
        return f"{self._random.getrandbits(128) >> 48:020x}"


# Background work for tests: at once, and with nothing swallowed.


class StrictBackground:
    """Runs the work at once in the caller's thread; what it raises reaches the caller, so that no error goes unseen.

    The work has no deadline, as on a worker.
    """

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Run `work` now."""
        future: Future[Result] = Future()
        with callers_own_time():
            future.set_result(work())
        return future

    def sibling(self, name: str, workers: int) -> StrictBackground:
        """Return this one."""
        return self

    def repeat(self, work: Callable[[], float | None]) -> None:
        """Leave `work` to its owner's calls."""

    def close(self, timeout_s: float | None = None) -> None:
        """Do nothing: nothing is under way."""
