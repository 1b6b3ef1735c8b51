"""Work alongside the caller: uploads, checkpoints, and what a consumer asks of a store.

The only place that makes worker threads for it, so that the simulator can run the same work inline. No thread is waited
for without a limit: an object store that does not answer must keep neither `close()` nor the interpreter's exit.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from sparktxn.clock import Deadline, SystemClock
from sparktxn.errors import ErrorCode, KafkaError, KafkaException

__all__ = ["EXIT_S", "Background", "InlineBackground", "ThreadBackground", "start_thread"]

Result = TypeVar("Result")

_IDLE_S: Final = 10.0
"""How long a worker thread waits for more work before it ends."""
EXIT_S: Final = 5.0
"""How long the interpreter's exit waits for work under way."""


def start_thread(name: str, work: Callable[..., object], *args: object) -> threading.Thread:
    """Call `work` in a daemon thread, and return the thread.

    Raises:
        KafkaException: ``_CRIT_SYS_RESOURCE``: the machine gives no thread; nothing was started.
    """
    thread = threading.Thread(target=work, args=args, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        reason = f"no thread {name!r}: {error}; end other threads, or raise the limit (ulimit -u, a container's pids)"
        raise KafkaException(KafkaError(ErrorCode.LOCAL_CRIT_SYS_RESOURCE, reason)) from error
    return thread


class Background(Protocol):
    """Runs functions alongside the caller."""

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Start `work`; its result or exception is in the future."""

    def sibling(self, name: str, workers: int) -> Background:
        """Return one of the same kind with threads of its own, for work that must not queue behind other work."""

    def repeat(self, work: Callable[[], float | None]) -> Callable[[], None] | None:
        """Call `work` in a thread of its own, again after as many seconds as it returns, until it returns None.

        Returns:
            What has `work` called now, without waiting for it. None if there are no threads: its owner calls it.
        """

    def close(self, timeout_s: float | None = None) -> None:
        """Take no more work, and wait up to `timeout_s` (None: no limit) for what was started.

        What has not begun by then never does, and what is under way sends no further request to an object store.
        Calling twice is harmless.
        """


class ThreadBackground:
    """Daemon threads, made when there is work and ended once they have been idle for a while."""

    def __init__(self, name: str, workers: int) -> None:
        self._name = name
        self._workers = workers
        self._changed = threading.Condition()
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._running: list[threading.Thread] = []
        self._closed = False
        self._woken: list[threading.Event] = []
        self._life = Deadline(SystemClock(), None)
        _opened.add(self)

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Start `work` on a worker thread; where the machine gives none, do it here, before this returns.

        Raises:
            RuntimeError: this is closed.
        """
        future: Future[Result] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name} is closed")
            self._queue.append((future, work))
            if self._idle < len(self._queue) and len(self._threads) < self._workers:
                self._start_worker()
            if self._threads:
                self._changed.notify()
                return future
            self._begin()
        self._do(future, work)
        return future

    def sibling(self, name: str, workers: int) -> ThreadBackground:
        """Return one with threads of its own."""
        return ThreadBackground(name, workers)

    def close(self, timeout_s: float | None = None) -> None:
        """Wait up to `timeout_s` for what was started, and drop the rest."""
        with self._changed:
            self._closed = True
        self.wait(timeout_s)
        with self._changed:
            for future, _ in self._queue:
                future.cancel()
                future.set_running_or_notify_cancel()  # else wait() and as_completed() go on waiting for it
            self._queue.clear()
            if self._running or self._woken:
                self._life.end()
            for woken in self._woken:
                woken.set()
            self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until nothing is queued or under way, but on the calling thread; False if `timeout_s` came first."""
        with self._changed:
            own = {threading.current_thread()}
            return self._changed.wait_for(lambda: not self._queue and own.issuperset(self._running), timeout_s)

    def repeat(self, work: Callable[[], float | None]) -> Callable[[], None]:
        """Call `work` again and again in a daemon thread, until it returns None or this is closed.

        Raises:
            RuntimeError: this is closed.
            KafkaException: no thread can be started.
        """
        woken = threading.Event()
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name} is closed")
            start_thread(f"{self._name}-again", self._repeat, work, woken)
            self._woken.append(woken)
        return woken.set

    def _repeat(self, work: Callable[[], float | None], woken: threading.Event) -> None:
        while not self._closed:
            with self._life.governs():
                pause_s = work()
            if pause_s is None:
                return
            woken.wait(min(pause_s, threading.TIMEOUT_MAX))  # no due time is infinity, which it refuses
            woken.clear()

    def _start_worker(self) -> None:
        """Start one more worker, if the machine gives a thread; the caller holds the lock."""
        with suppress(KafkaException):
            self._threads.add(start_thread(f"{self._name}-{len(self._threads)}", self._work))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                found = self._changed.wait_for(lambda: self._queue or self._closed, _IDLE_S)
                self._idle -= 1
                if not found or not self._queue:
                    self._threads.discard(threading.current_thread())
                    return
                future, work = self._begin()
            self._do(future, work)
            # An idle thread must not keep what its last work was about.
            del future, work

    def _begin(self) -> tuple[Future[Any], Callable[[], Any]]:
        """Take what is next in the queue for this thread; the caller holds the lock."""
        self._running.append(threading.current_thread())
        return self._queue.popleft()

    def _do(self, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            with self._life.governs():
                _run(future, work)
        finally:
            with self._changed:
                self._running.remove(threading.current_thread())
                self._changed.notify_all()


def _run(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the future carries it to its owner
        future.set_exception(error)
    else:
        future.set_result(result)


_opened: weakref.WeakSet[ThreadBackground] = weakref.WeakSet()


def _wait_at_exit() -> None:
    """Give work under way, such as an offset commit of a program that just ends, some seconds to finish."""
    deadline = Deadline(SystemClock(), EXIT_S)
    for background in list(_opened):
        background.wait(deadline.remaining_s())


atexit.register(_wait_at_exit)


class InlineBackground:
    """Runs the work at once in the caller's thread: for simulation, where order must replay exactly."""

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Run `work` now."""
        future: Future[Result] = Future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - the future carries it to its owner
            future.set_exception(error)
        return future

    def sibling(self, name: str, workers: int) -> InlineBackground:
        """Return this one."""
        return self

    def repeat(self, work: Callable[[], float | None]) -> None:
        """Leave `work` to its owner's calls."""

    def close(self, timeout_s: float | None = None) -> None:
        """Nothing is under way."""
