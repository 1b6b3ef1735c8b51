"""Background work for tests: at once, and with nothing swallowed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from sparktxn.process.clock import callers_own_time
from sparktxn.values.fieldtypes import Result

__all__ = ["StrictBackground"]


def __dir__() -> list[str]:
    return sorted(__all__)


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
