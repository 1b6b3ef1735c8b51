"""Time and randomness: the only source of both, and the deadlines that requests keep.

Everything that needs either takes a `Clock` or an `Ids`, so that the simulator can hold both in its hand. A deadline
governs a thread while a public call runs in it. Whatever waits or makes a request asks for it (`time_left_s`,
`is_time_up`), so nothing takes it as an argument. A worker has its own, unless it works `in_callers_time`.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, Protocol

from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import Result

P = ParamSpec("P")


class Clock(Protocol):
    """Wall and monotonic time, and that of the processor."""

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch; may jump."""

    def monotonic_s(self) -> float:
        """Return seconds that only grow; the zero is arbitrary."""

    def processor_s(self) -> float:
        """Return seconds of a processor that the calling thread has used; the zero is arbitrary."""

    def sleep(self, seconds: float) -> None:
        """Sleep for about `seconds`."""


class SystemClock:
    """The machine's clock."""

    monotonic_s = staticmethod(time.monotonic)
    """Return seconds of the monotonic clock."""
    processor_s = staticmethod(time.thread_time)
    """Return seconds of a processor that the calling thread has used."""

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


_TOKEN_LENGTH: Final = 20
# Five bits of a byte are a digit, so that one call of the system and one translation make a token.
_DIGIT_OF_BYTE: Final = b"0123456789abcdefghijklmnopqrstuv" * 8


class Ids(Protocol):
    """Unguessable names that never repeat."""

    def token(self) -> str:
        """Return 20 of the digits 0-9 and a-v: 100 random bits."""


class RandomIds:
    """Tokens from the operating system's random source."""

    def token(self) -> str:
        """Return 20 of the digits 0-9 and a-v: 100 random bits."""
        return os.urandom(_TOKEN_LENGTH).translate(_DIGIT_OF_BYTE).decode()


_LONGEST_S: Final = 1e9
"""Above this, some thirty years, no lock can be waited for."""


class Deadline:
    """A point in monotonic time by which a call must answer; `seconds` None, below 0 or infinite is never."""

    __slots__ = ("at_s", "clock", "seconds")

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self.clock = clock
        self.seconds = None if seconds is None or seconds < 0 or seconds > _LONGEST_S else seconds
        self.at_s = None if self.seconds is None else clock.monotonic_s() + self.seconds

    def remaining_s(self) -> float | None:
        """Return seconds left, at least 0; None if there is no limit."""
        return None if self.at_s is None else max(0.0, self.at_s - self.clock.monotonic_s())

    def passed(self) -> bool:
        """Return True once no time is left."""
        return self.at_s is not None and self.clock.monotonic_s() >= self.at_s

    def end(self) -> None:
        """Pass the deadline at once: a thread that was given up begins nothing more under it."""
        self.at_s = -math.inf

    def governs(self) -> _Governs:
        """Return a context in which every wait and request of this thread keeps this deadline too.

        Of nested ones the earliest counts.
        """
        return _Governs(self)


_governing: ContextVar[tuple[Deadline, ...]] = ContextVar("sparktxn_deadlines", default=())


class _Governs:
    """The context of `Deadline.governs`; a class, because each commit enters it several times."""

    __slots__ = ("_limit", "_token")

    def __init__(self, limit: Deadline) -> None:
        self._limit = limit

    def __enter__(self) -> Deadline:
        self._token = _governing.set((*_governing.get(), self._limit))
        return self._limit

    def __exit__(self, *_: object) -> None:
        _governing.reset(self._token)


@contextmanager
def callers_own_time() -> Iterator[None]:
    """Run the body under no deadline: for callbacks, whose requests are not those of the call that runs them."""
    token = _governing.set(())
    try:
        yield
    finally:
        _governing.reset(token)


def governing_deadline() -> Deadline | None:
    """Return the deadline that governs this thread and comes first, or None if none has a limit."""
    found, least_s = None, 0.0
    for deadline in _governing.get():
        remaining_s = deadline.remaining_s()
        if remaining_s is not None and (found is None or remaining_s < least_s):
            found, least_s = deadline, remaining_s
    return found


def time_left_s(limit_s: float | None = None) -> float | None:
    """Return `limit_s` (None: no limit), or the time left to this thread by its governing deadlines if that is less."""
    for deadline in _governing.get():
        if deadline.at_s is not None:
            remaining_s = max(0.0, deadline.at_s - deadline.clock.monotonic_s())
            limit_s = remaining_s if limit_s is None else min(remaining_s, limit_s)
    return limit_s


def acquired_in_time(lock: threading.Lock | threading.RLock, limit_s: float | None = None) -> bool:
    """Acquire `lock` within `limit_s` (None: no limit) and the deadlines that govern this thread; False if not."""
    left_s = time_left_s(limit_s)
    return lock.acquire(timeout=-1 if left_s is None else min(left_s, threading.TIMEOUT_MAX))


def is_time_up() -> bool:
    """Return True once a deadline that governs this thread has passed."""
    return time_left_s() == 0.0


def in_callers_time(work: Callable[P, Result]) -> Callable[P, Result]:
    """Return `work` for a thread that serves the calling one: it keeps the caller's deadlines and its own."""
    callers = _governing.get()

    @functools.wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        token = _governing.set((*_governing.get(), *callers))
        try:
            return work(*args, **kwargs)
        finally:
            _governing.reset(token)

    return call


def in_time(
    parameter: str, clock_of: Callable[[Any], Clock], own_time_s: Callable[[Any], float | None] = lambda _: None
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Decorate a public call so that the argument `parameter`, in seconds, bounds every wait and request in it.

    `clock_of` and `own_time_s` get the call's first argument. None or a number below 0 is what `own_time_s` says,
    without it no limit. The argument is checked here, and in no call that is decorated.

    Raises (the decorated call):
        TypeError: the argument is not a number.
        ConfigurationError: it is NaN.
    """

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        parameters = inspect.signature(function).parameters
        first = next(iter(parameters))
        position = list(parameters).index(parameter)
        default = parameters[parameter].default

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            given: Any = args[position] if position < len(args) else kwargs.get(parameter, default)
            limit_s = None if given is None else arguments.timeout_s(parameter, given)
            try:
                handle = args[0] if args else kwargs.get(first)
                clock = clock_of(handle)
                limit_s = own_time_s(handle) if given is None or given < 0 else limit_s
            except AttributeError:  # no handle at all: the call says what it expects
                return function(*args, **kwargs)
            with _Governs(Deadline(clock, limit_s)):
                return function(*args, **kwargs)

        return call

    return decorate
