"""One consumer that several threads use: they take turns, and a thread that waits for records lets the others in.

confluent-kafka's consumer is safe for threads, so its programs poll with several, or commit, pause and close from
another one. Of two reading calls the second waits until the first returns, within its own time-out.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sparktxn._foundation.process.clock import acquired_in_time, callers_own_time, time_left_s
from sparktxn._foundation.process.handles import ForkGuard
from sparktxn._foundation.values.fieldtypes import Result

P = ParamSpec("P")


class ConsumerTurns:
    """The two locks of one consumer. Both may be taken again by the thread that has them: callbacks call the consumer.

    `reading` is held by the one call that reads, from its begin to its end. `state` guards all that the consumer knows.
    A call gives it back while it waits for records, and while it runs a callback.
    """

    def __init__(self) -> None:
        self.state = threading.RLock()
        self._reading = threading.RLock()
        self._has_state = True
        self._callers: list[int] = []
        self._returned = threading.Condition(self.state)

    @contextmanager
    def reads(self) -> Iterator[bool]:
        """Take the turn to read; False, without it, if other threads' calls have not ended by the deadline."""
        if not acquired_in_time(self._reading):
            yield False
            return
        try:
            if not acquired_in_time(self.state):
                yield False
                return
            try:
                yield True
            finally:
                had_state, self._has_state = self._has_state, True
                if had_state:
                    self.state.release()
        finally:
            self._reading.release()

    def waits(self, wait: Callable[[], bool]) -> bool:
        """Run `wait` and let other threads in meanwhile; for a call that has the turn to read.

        Return what `wait` returns, or False if the deadline has passed before the others' calls have ended. The call
        then ends, and changes nothing that other threads' calls rely on.
        """
        self.state.release()
        try:
            goes_on = wait()
        finally:
            self._has_state = acquired_in_time(self.state)
        return goes_on and self._has_state

    @contextmanager
    def calls_back(self) -> Iterator[None]:
        """Run a callback of the user, without the caller's deadline, and let other threads in meanwhile.

        A callback may wait for them: confluent-kafka's AIOConsumer awaits ``committed()`` on another thread.
        """
        caller = threading.get_ident()
        self._callers.append(caller)
        self.state.release()
        try:
            with callers_own_time():
                yield
        finally:
            self.state.acquire()
            self._callers.remove(caller)
            self._returned.notify_all()

    def waits_for_callbacks(self, limit_s: float) -> None:
        """Wait until the callbacks that other threads run have returned, or the limit or the caller's deadline passes.

        The calling thread has `state`, and gives it back meanwhile.
        """
        caller = threading.get_ident()
        self._returned.wait_for(lambda: all(one == caller for one in self._callers), time_left_s(limit_s))


class _User(Protocol):
    _turns: ConsumerTurns
    _fork: ForkGuard


U = TypeVar("U", bound=_User)


def in_turn(call: Callable[Concatenate[U, P], Result]) -> Callable[Concatenate[U, P], Result]:
    """Decorate a consumer's method that changes what it knows, or reads several things of it."""

    @functools.wraps(call)
    def taking_turns(self: U, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        self._fork.check("consumer")  # in a forked child the lock may be held by a thread that is not there
        with self._turns.state:
            return call(self, *args, **kwargs)

    return taking_turns
