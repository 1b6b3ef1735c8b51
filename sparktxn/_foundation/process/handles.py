"""Handles after a fork, as copies, and dropped without `close()`: a thread gives back what those held.

A finalizer runs wherever the garbage collector happens to run: on any thread, inside any function, also while that
thread holds a lock. So it takes no lock and waits for nothing; it only queues the work. The thread that does the work
lives as long as anything is held that a handle must give back.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import NoReturn, ParamSpec

from sparktxn._foundation.process.background import start_thread
from sparktxn._foundation.process.clock import Deadline, SystemClock
from sparktxn._foundation.process.events import log_event

# Handles, forks and copies: a handle must not be used in a forked child, and cannot be copied or pickled.

_generation = 0


def _after_fork_in_child() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class ForkGuard:
    """Remembers the process that made a handle."""

    __slots__ = ("_born",)

    def __init__(self) -> None:
        self._born = _generation

    def forked(self) -> bool:
        """Return True in a child of the process that made the handle."""
        return self._born != _generation

    def check(self, what: str) -> None:
        """Raise RuntimeError in a child process: `what` has threads and connections that did not survive the fork."""
        if self._born != _generation:
            raise RuntimeError(made_before(what))


def made_before(what: str) -> str:
    """Return why a handle of a forked process cannot be used in its child."""
    return f"this {what} was made before a fork: make a new one in the child process"


class NoCopies:
    """A handle that cannot be copied or pickled: a copy would give back what the first one still uses."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse `copy.copy`, `copy.deepcopy` and pickling, which all begin here.

        Raises:
            TypeError: always; it says what to do.
        """
        name = type(self).__name__
        raise TypeError(f"a {name} cannot be copied or pickled, it has threads and connections: make another {name}")


Parameters = ParamSpec("Parameters")

_Work = Callable[[], None]


class Held:
    """One thing that must be given back."""

    def __init__(self, caretaker: Caretaker) -> None:
        self._caretaker: Caretaker | None = caretaker
        self._fork = ForkGuard()

    def release(self) -> None:
        """Count the thing as given back. Calling again, or in a forked child, changes nothing."""
        caretaker, self._caretaker = self._caretaker, None
        if caretaker is not None and not self._fork.forked():
            caretaker.release()


class Caretaker:
    """Counts what is held, and gives back in a thread what was dropped. The thread lives while anything is held."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # Its `put` may interrupt itself, which makes it safe in a finalizer.
        self.queue: SimpleQueue[_Work | None] = SimpleQueue()
        self.held = 0
        self.thread: threading.Thread | None = None
        self._is_ending = False
        self._life = Deadline(SystemClock(), None)

    def hold(self) -> Held:
        """Count one thing more; see `hold` of the module."""
        with self.lock:
            if self.thread is None:
                self.thread = start_thread(
                    "sparktxn-dropped", self._serve, finish=self._finish, give_up=self._life.end, ends_first=True
                )
            self.held += 1
        return Held(self)

    def release(self) -> None:
        """Count one thing less; after the last one the thread ends."""
        with self.lock:
            self.held -= 1
            if self.held == 0:
                self.queue.put(None)

    def give_back_later(self, work: _Work) -> None:
        """Have the thread call `work`; see `give_back_later` of the module."""
        if self.held:
            self.queue.put(work)

    def _finish(self) -> None:
        """End the thread at the interpreter's exit, after what is queued."""
        self._is_ending = True
        self.queue.put(None)

    def _serve(self) -> None:
        while True:
            work = self.queue.get()
            if work is None:
                if self._is_ending:
                    return
                with self.lock:
                    if self.held == 0:
                        self.thread = None
                        return
                continue
            try:
                with self._life.governs():
                    work()
            except BaseException:  # noqa: BLE001 - logged with its trace
                log_event("drop_failed", exc_info=True)
            # Whatever the work refers to must not live until the next one comes.
            del work


_caretaker = Caretaker()


def _start_anew_in_child() -> None:
    """Forget the parent's thread, and what the parent's handles hold: a forked child gives none of it back."""
    global _caretaker
    _caretaker = Caretaker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_in_child)


def hold() -> Held:
    """Count one thing that must be given back; from here on the work of `give_back_later` is done.

    Raises:
        KafkaException: no thread can be started; nothing is counted.
    """
    return _caretaker.hold()


def give_back_later(work: _Work) -> None:
    """Have another thread call `work`; nothing if nothing is held. Safe in a finalizer: no lock, and no wait."""
    _caretaker.give_back_later(work)


def weakly(method: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Return a callback that does not keep the object of `method` alive, and does nothing once that is gone."""
    reference = weakref.WeakMethod(method)

    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        bound = reference()
        if bound is not None:
            bound(*args, **kwargs)

    return call
