"""Work beside the caller: uploads and checkpoints.

The only place that makes worker threads for them, so that the simulator can run the same work inline.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

__all__ = ["Background", "InlineBackground", "ThreadBackground"]

Result = TypeVar("Result")


class Background(Protocol):
    """Runs functions beside the caller."""

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Starts `work`; its result or exception is in the future."""

    def close(self) -> None:
        """Waits for what was started and takes no more; calling twice is harmless."""


class ThreadBackground:
    """A pool of worker threads, made at the first use."""

    def __init__(self, name: str, workers: int) -> None:
        self._name = name
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Starts `work` on a worker thread."""
        if self._closed:
            raise RuntimeError(f"{self._name} is closed")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix=self._name)
        return self._pool.submit(work)

    def close(self) -> None:
        """Waits for what was started."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True)


class InlineBackground:
    """Runs the work at once in the caller's thread: for simulation, where order must replay exactly."""

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Runs `work` now."""
        future: Future[Result] = Future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - the future carries it to whoever asks
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Nothing is under way."""
