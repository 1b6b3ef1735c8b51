"""Threads of simulated processes: greenlets, with locks, conditions, threads and futures that give the turn away.

A process of the simulator has as many threads as its clients make. These are a producer's sender, work in the
background, and those that a program starts by itself. While a simulation runs, the engine's modules find these
primitives under the name `threading` (`cooperative_threads`). Outside of a simulated process they make the real ones.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import lru_cache
from math import inf
from types import ModuleType
from typing import Any, Final, Protocol, TypeVar

from greenlet import getcurrent, greenlet

from sparktxn._foundation.process import background, handles
from sparktxn.errors import DamagedObject, KafkaException

__all__ = ["Fiber", "FiberBackground", "Owner", "cooperative_threads", "current_fiber", "no_collections"]

Result = TypeVar("Result")
_SWITCHES: Final = 0.1
"""How often a thread that finds a lock free lets another one go first: between two operations of the store, too."""


class Scheduler(Protocol):
    """Decides which fiber continues."""

    now_s: float

    def give_turn(self, fiber: Fiber) -> None:
        """Returns when it is the fiber's turn again."""

    def draw(self) -> float:
        """A number from 0 to 1, by the seed."""


class Owner(Protocol):
    """A simulated process, as its threads know it."""

    threads: list[Fiber]
    generation: int

    @property
    def scheduler(self) -> Scheduler:
        """Return what decides which fiber continues."""

    def spawn(self, work: Callable[[], object]) -> Fiber:
        """Starts a thread."""

    def fail(self, error: BaseException) -> None:
        """Ends the simulation."""


class Fiber(greenlet):  # greenlet has no types
    """One thread of a simulated process; it sleeps until `wake_s`. Of an older generation it is a dead process's.

    The `interrupted_in`-th operation of the store from now on is interrupted, as by Ctrl-C; 0: none is.
    """

    def __init__(self, owner: Owner, run: Callable[[], None]) -> None:
        super().__init__(run)
        self.owner = owner
        self.generation = owner.generation
        self.wake_s = 0.0
        self.interrupted_in = 0
        self.ended = _Queue()

    def has_begun(self) -> bool:
        """True between its first turn and its end."""
        return bool(self)

    def sleep_until(self, when_s: float) -> None:
        """Gives the turn away until then."""
        self.wake_s = when_s
        self.owner.scheduler.give_turn(self)


def current_fiber() -> Fiber | None:
    """The fiber that runs, or None outside of simulated processes."""
    current = getcurrent()
    return current if isinstance(current, Fiber) else None


def _running() -> Fiber:
    fiber = current_fiber()
    assert fiber is not None, "a simulated process's lock is waited for from outside"
    return fiber


def _end_of(timeout: float | None) -> float:
    return inf if timeout is None or timeout < 0 else _running().owner.scheduler.now_s + timeout


class _Queue:
    """Fibers that wait for something."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Fiber] = []

    def wait(self, until_s: float) -> bool:
        """True once another fiber has woken this one, False when it is `until_s`."""
        fiber = _running()
        self._waiting.append(fiber)
        try:
            fiber.sleep_until(until_s)
        finally:
            is_woken = fiber not in self._waiting
            if not is_woken:
                self._waiting.remove(fiber)
        return is_woken

    def wake(self, count: int | None = None) -> None:
        """Wakes all that wait, or the first `count`."""
        woken = self._waiting[:count]
        del self._waiting[:count]
        for fiber in woken:
            fiber.wake_s = fiber.owner.scheduler.now_s


class _Lock:
    """A lock between the threads of one simulated process."""

    def __init__(self, *, reentrant: bool = False) -> None:
        self._reentrant = reentrant
        self._owner: greenlet | None = None
        self._depth = 0
        self._queue = _Queue()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        fiber = current_fiber()
        if fiber is not None and len(fiber.owner.threads) > 1 and fiber.owner.scheduler.draw() < _SWITCHES:
            fiber.sleep_until(fiber.owner.scheduler.now_s)
        me = getcurrent()
        if self._reentrant and self._owner is me:
            self._depth += 1
            return True
        if self._owner is not None:
            if not blocking:
                return False
            until_s = _end_of(timeout)
            while self._owner is not None:
                self._queue.wait(until_s)
                if self._owner is not None and _running().owner.scheduler.now_s >= until_s:
                    return False
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        if self._owner is None:
            return  # the thread dies: it has let go of the lock while it waited
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._queue.wake(1)

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Condition:
    """A condition between the threads of one simulated process."""

    def __init__(self, lock: _Lock | None = None) -> None:
        self._lock = lock or _Lock(reentrant=True)
        self._queue = _Queue()
        self.acquire = self._lock.acquire
        self.release = self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        lock = self._lock
        depth, lock._depth = lock._depth, 1
        lock.release()
        try:
            return self._queue.wait(_end_of(timeout))
        finally:
            lock.acquire()
            lock._depth = depth

    def wait_for(self, predicate: Callable[[], Result], timeout: float | None = None) -> Result:
        until_s = _end_of(timeout)
        while not (found := predicate()):
            remaining_s = until_s - _running().owner.scheduler.now_s
            if remaining_s <= 0:
                break
            self.wait(None if remaining_s == inf else remaining_s)
        return found

    def notify(self, n: int = 1) -> None:
        self._queue.wake(n)

    def notify_all(self) -> None:
        self._queue.wake()


class _Event:
    """An event between the threads of one simulated process."""

    def __init__(self) -> None:
        self._is_set = False
        self._queue = _Queue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._queue.wake()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._queue.wait(_end_of(timeout))
        return self._is_set


class _Thread:
    """A thread of a simulated process; it ends with the process."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        assert target is not None
        self.name = name or "thread"
        self.daemon = daemon
        self._work: Callable[[], object] = lambda: target(*args, **(kwargs or {}))
        self.fiber: Fiber | None = None

    def start(self) -> None:
        self.fiber = _running().owner.spawn(self._work)

    def is_alive(self) -> bool:
        return self.fiber is not None and not self.fiber.dead

    def join(self, timeout: float | None = None) -> None:
        if self.fiber is not None and not self.fiber.dead:
            self.fiber.ended.wait(_end_of(timeout))


class _Threading:
    """The module `threading`, as the engine's modules find it while a simulation runs."""

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def Lock(self) -> Any:
        return _Lock() if current_fiber() is not None else threading.Lock()

    def RLock(self) -> Any:
        return _Lock(reentrant=True) if current_fiber() is not None else threading.RLock()

    def Condition(self, lock: Any = None) -> Any:
        return _Condition(lock) if current_fiber() is not None else threading.Condition(lock)

    def Event(self) -> Any:
        return _Event() if current_fiber() is not None else threading.Event()

    def Thread(self, *args: Any, **kwargs: Any) -> Any:
        return _Thread(*args, **kwargs) if current_fiber() is not None else threading.Thread(*args, **kwargs)

    def current_thread(self) -> Any:
        return current_fiber() or threading.current_thread()


_THREADING: Final = _Threading()


class _Caretaker(handles.Caretaker):
    """Has a thread of the simulated process give back what that one has dropped.

    Real threads of other tests may still be at work, and what they hold stays with the real caretaker.
    """

    def __init__(self, real: handles.Caretaker) -> None:
        super().__init__()
        self._real = real

    def hold(self) -> handles.Held:
        return self._real.hold() if current_fiber() is None else handles.Held(self)

    def release(self) -> None:
        """Nothing is counted: processes are given a thread for each work."""

    def give_back_later(self, work: Callable[[], None]) -> None:
        fiber = current_fiber()
        if fiber is None:
            self._real.give_back_later(work)
        else:
            fiber.owner.spawn(work)


@lru_cache(maxsize=1)
def _using_threads(loaded: int) -> list[ModuleType]:
    """Return the engine's modules that use threads; `loaded` is how many modules there are, of whatever kind."""
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith("sparktxn.") and module.__dict__.get("threading") is threading and name != __name__
    ]


@contextmanager
def no_collections() -> Iterator[None]:
    """Keep the garbage collector out of greenlets: what it finalises, and when, depends on what ran before.

    A finalizer that gives the turn away would also leave the collection unfinished: while it is, no other one begins.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def cooperative_threads() -> Iterator[None]:
    """Gives the engine's modules threads that the simulator schedules, until the end of the block.

    What handles that are dropped have held is given back by a thread of the process that has dropped them.
    """
    changed = _using_threads(len(sys.modules))
    caretaker, started = handles._caretaker, background._started
    handles._caretaker = _Caretaker(caretaker)
    background._started = weakref.WeakSet()  # the exit of the interpreter ends real threads only
    for module in changed:
        module.__dict__["threading"] = _THREADING
    try:
        yield
    finally:
        for module in changed:
            module.__dict__["threading"] = threading
        handles._caretaker, background._started = caretaker, started


class _FiberFuture(Future[Result]):
    """A future for which the threads of a simulated process wait."""

    def __init__(self) -> None:
        super().__init__()
        self._queue = _Queue()
        self.add_done_callback(lambda _: self._queue.wake())

    def result(self, timeout: float | None = None) -> Result:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if not self.done() and current_fiber() is not None:
            self._queue.wait(_end_of(timeout))


class FiberBackground:
    """Work alongside the caller, each piece in a thread of its own. Errors that are not answers end the simulation."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Starts `work` in a thread."""
        future: _FiberFuture[Result] = _FiberFuture()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except Exception as error:
                if isinstance(error, DamagedObject) or not isinstance(error, KafkaException):
                    self._owner.fail(error)
                future.set_exception(error)

        self._owner.spawn(run)
        return future

    def sibling(self, name: str, workers: int) -> FiberBackground:
        """Returns this one."""
        return self

    def repeat(self, work: Callable[[], float | None]) -> None:
        """Leaves `work` to its owner's calls."""

    def close(self, timeout_s: float | None = None) -> None:
        """Nothing: what is under way ends with the process."""
