"""Work alongside the caller, on threads: uploads, checkpoints, folds, and what a consumer asks of a store.

The only place that makes threads, so that the simulator can run the same work inline. It also ends them at the
interpreter's exit. CPython ends a thread that asks for its lock once the interpreter is finalised. In pyarrow's C++
that ends the process with SIGABRT. So the exit does not go on while a thread is at work (`_end_threads`).

No thread is waited for without a limit: an object store that does not answer must keep neither `close()` nor the exit.
"""

from __future__ import annotations

import atexit

# pyarrow imports this with its first array. Python refuses that once the main thread has ended, while others still run.
import concurrent.futures.thread  # noqa: F401
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sparktxn._foundation.process.clock import Deadline, SystemClock, callers_own_time, time_left_s
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn.errors import ErrorCode, KafkaError, KafkaException

_IDLE_S: Final = 10.0
"""How long a worker thread waits for more work before it ends."""
EXIT_S = 0.75
"""How long the interpreter's exit waits for work under way."""
_STEP_S: Final = 60.0
"""How long it then waits for threads that compute: none ends inside a call of pyarrow, and none of those is longer."""
_REST_S: Final = 0.1
"""A thread that has slept for so long waits for an answer, and not for the processor."""


class _Started:
    """A thread, and what ends it at the interpreter's exit; the thread keeps this alive while it runs."""

    def __init__(
        self,
        name: str,
        work: Callable[[], object],
        finish: Callable[[], None],
        give_up: Callable[[], None],
        ends_first: bool,
    ) -> None:
        self._work = work
        self.finish = finish
        self.give_up = give_up
        self.ends_first = ends_first
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        self._work()


_started: weakref.WeakSet[_Started] = weakref.WeakSet()
_starting = threading.Lock()
_is_exiting = False
_after_threads: list[Callable[[], None]] = []


def start_thread(
    name: str,
    work: Callable[..., object],
    *args: object,
    finish: Callable[[], None],
    give_up: Callable[[], None],
    ends_first: bool = False,
) -> threading.Thread:
    """Call `work` in a daemon thread, and return the thread.

    Args:
        name: the thread's name.
        work: what it does, with `args`.
        finish: called at the interpreter's exit: `work` is to return once it has done what is under way. It must not
            wait.
        give_up: called later if `work` has not returned: it may send no further request. It must not wait.
        ends_first: whether other threads are asked to finish after this one, which may give them work.

    Raises:
        KafkaException: ``_CRIT_SYS_RESOURCE``: the machine gives no thread, or the interpreter ends.
    """
    started = _Started(name, partial(work, *args), finish, give_up, ends_first)
    try:
        with _starting:
            if _is_exiting:
                raise RuntimeError("the interpreter ends")
            started.thread.start()
            _started.add(started)
    except RuntimeError as error:
        reason = f"no thread {name!r}: {error}; end other threads, or raise the limit (ulimit -u, a container's pids)"
        raise KafkaException(KafkaError(ErrorCode.LOCAL_CRIT_SYS_RESOURCE, reason)) from error
    return started.thread


def after_threads(work: Callable[[], None]) -> None:
    """Call `work` at the interpreter's exit, once the threads have ended."""
    _after_threads.append(work)


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
        lock = threading.RLock()
        # Workers wait for work, and callers for its end: else each end of a call would wake all idle workers.
        self._changed = threading.Condition(lock)
        self._ended = threading.Condition(lock)
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._running: list[threading.Thread] = []
        self._closed = False
        self._repeating: list[_Repeating] = []
        self._life = Deadline(SystemClock(), None)

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
            if self._running:
                self._life.end()
            for repeating in self._repeating:
                repeating.end()
            self._changed.notify_all()
            self._ended.notify_all()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until nothing is queued or under way, but on the calling thread; False if `timeout_s` came first."""
        with self._changed:
            own = {threading.current_thread()}
            return self._ended.wait_for(lambda: not self._queue and own.issuperset(self._running), timeout_s)

    def repeat(self, work: Callable[[], float | None]) -> Callable[[], None]:
        """Call `work` again and again in a daemon thread, until it returns None or this is closed.

        Raises:
            RuntimeError: this is closed.
            KafkaException: no thread can be started.
        """
        repeating = _Repeating(work)
        with self._changed:
            if self._closed:
                raise RuntimeError(f"{self._name} is closed")
            start_thread(f"{self._name}-again", self._repeat, repeating, finish=repeating.end, give_up=repeating.end)
            self._repeating.append(repeating)
        return repeating.woken.set

    def _repeat(self, repeating: _Repeating) -> None:
        try:
            repeating.run()
        finally:
            with self._changed:
                self._repeating.remove(repeating)

    def _finish(self) -> None:
        """Have the workers end once the queue is empty."""
        with self._changed:
            self._changed.notify_all()

    def _give_up(self) -> None:
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._life.end()
            self._changed.notify_all()
            self._ended.notify_all()

    def _start_worker(self) -> None:
        """Start one more worker, if the machine gives a thread; the caller holds the lock."""
        with suppress(KafkaException):
            name = f"{self._name}-{len(self._threads)}"
            self._threads.add(start_thread(name, self._work, finish=self._finish, give_up=self._give_up))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                found = self._changed.wait_for(lambda: self._queue or self._closed or _is_exiting, _IDLE_S)
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
                self._ended.notify_all()
            del future, work  # as in `_run`, whose frame knows this one


def _run(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - the future carries it to its owner
        future.set_exception(error)
        del future, work  # an error has the frames that it came through: it would keep itself, and what the work had
    else:
        future.set_result(result)


class _Repeating:
    """Work that a thread does again and again, and how it is woken and ended."""

    def __init__(self, work: Callable[[], float | None]) -> None:
        self._work = work
        self._life = Deadline(SystemClock(), None)
        self.woken = threading.Event()

    def run(self) -> None:
        """Call the work, again after as many seconds as it returns, until it returns None or is ended."""
        while not self._life.passed():
            try:
                with self._life.governs():
                    pause_s = self._work()
            except Exception:
                if self._life.passed():  # it was refused a request
                    return
                raise
            if pause_s is None:
                return
            self.woken.wait(min(pause_s, threading.TIMEOUT_MAX))  # no due time is infinity, which it refuses
            self.woken.clear()

    def end(self) -> None:
        """Have the work send no further request, and the thread end."""
        self._life.end()
        self.woken.set()


def _end_threads() -> None:
    """End all threads that `start_thread` has started, at the interpreter's exit.

    1. Each is asked to finish. Work that a caller has begun, such as an offset commit of a program that just ends, is
       waited for up to EXIT_S. What repeats, such as a fold, sends no further request.
    2. The others send no further request, and an exception ends them where they next run a line of Python.
    3. A thread that still computes, as in pyarrow's C++, is waited for. One that sleeps waits for an answer, outside of
       pyarrow's code. It is left, as CPython ends it there without harm; answered before, the exception ends it.

    An interrupt (Ctrl-C) ends a wait early, but for that of step 3.
    """
    global _is_exiting
    with _starting:
        _is_exiting = True
        threads = list(_started)
    limit = Deadline(SystemClock(), EXIT_S)
    for is_first in (True, False):
        asked = [started for started in threads if started.ends_first or not is_first]
        for started in asked:
            started.finish()
        with suppress(KeyboardInterrupt), limit.governs():
            asked = _unfinished(asked)
    threads = asked
    for started in threads:
        started.give_up()
    for started in threads:
        _raise_in(started.thread)
    limit = Deadline(SystemClock(), _STEP_S)
    while threads and not limit.passed():
        before = [(started, _activity(started.thread)) for started in threads]
        with suppress(KeyboardInterrupt):
            with Deadline(SystemClock(), _REST_S).governs():
                threads = _unfinished(threads)
            if all(seen and seen == _activity(started.thread) for started, seen in before if started in threads):
                break
    for work in _after_threads:
        work()


def _unfinished(threads: Iterable[_Started]) -> list[_Started]:
    """Return which threads are alive; wait for their ends until the caller's deadline."""
    return [started for started in threads if _lives(started.thread, time_left_s())]


def _lives(thread: threading.Thread, timeout_s: float | None) -> bool:
    if thread is threading.current_thread():
        return False
    thread.join(timeout_s)
    return thread.is_alive()


def _raise_in(thread: threading.Thread) -> None:
    """Raise SystemExit in a thread, once it runs Python again."""
    import ctypes  # seldom needed, and slow to import

    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def _activity(thread: threading.Thread) -> list[str] | None:
    """Return what changes whenever a thread runs; None if it runs at this moment, or if that is not known."""
    try:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text().splitlines()
    except OSError:
        return None
    shown = [line for line in status if line.startswith(("State:", "voluntary_ctxt", "nonvoluntary_ctxt"))]
    return None if any(line.startswith("State:\tR") for line in shown) or len(shown) < 3 else shown


def _forget_in_child() -> None:
    """Forget the parent's threads: a forked child has none of them."""
    global _started, _starting, _is_exiting
    _started, _starting, _is_exiting = weakref.WeakSet(), threading.Lock(), False


atexit.register(_end_threads)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


class InlineBackground:
    """Runs the work at once in the caller's thread: for simulation, where order must replay exactly."""

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Run `work` now."""
        future: Future[Result] = Future()
        try:
            with callers_own_time():  # as in a thread
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
        """Do nothing: nothing is under way."""


# Errors that are kept as values: what a frame has in its variables stays as long as an error that came through it.

Error = TypeVar("Error", bound=BaseException)


def without_frames(error: Error) -> Error:
    """Return an error without the frames that it and its causes came through, for a caller that keeps it.

    Mostly the error is in one of these frames, too. Both would then stay until the interpreter looks for cycles, with
    all that a request had: a gateway's records among it.
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
