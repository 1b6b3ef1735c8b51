"""Work that a process repeats in the background, alongside its clients: it leaves them the processor, and backs off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparktxn.errors import KafkaException, StoreUnavailable
from sparktxn.log.log import Log
from sparktxn.process.clock import time_left_s

__all__ = ["NEVER_S", "Repeated", "Rests"]

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
