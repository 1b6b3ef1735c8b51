"""Refusals at the edge: what a client refuses by what it knows, it decides again by what the log says now.

A column, a partition or a setting that another process has changed a moment ago must not be refused by an older view.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from sparktxn._foundation.process.clock import Clock
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn.errors import KafkaException, StoreError

_AT_ONCE: Final = 100
"""So many refusals that stand may each have read the log."""
_PER_S: Final = 2.0
"""How many more may do so each second."""


class _Read(Protocol):
    def __call__(self, *, max_age_s: float) -> object: ...


class _Call(threading.local):
    """The call of this thread that decides about many records; `read_by` are those that have read their log in it."""

    read_by: set[Refusals] | None = None


_call: Final = _Call()


@contextmanager
def reading_once() -> Iterator[None]:
    """Have the body, one call about many records, read a log at most once before it refuses some of them."""
    before, _call.read_by = _call.read_by, set()
    try:
        yield
    finally:
        _call.read_by = before


class Refusals:
    """Decides what a client may refuse, for all clients of one log. Safe for several threads.

    A program may give wrong records in a tight loop, and does not read the log for each of them. After many refusals in
    a row, the next ones are decided by a state that is at most half a second old.

    Args:
        read: follows the log to its end, unless that was done up to `max_age_s` ago.
        clock: the log's.
    """

    def __init__(self, read: _Read, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        # Changed without a lock: two threads may count one refusal between them.
        self._left = float(_AT_ONCE)
        self._counted_s = clock.monotonic_s()

    def decide(self, by_what_is_known: Callable[[], Result], forget: Callable[[], object] | None = None) -> Result:
        """Return what the function returns. If it refuses, return what it does once the log was read to its end.

        Args:
            by_what_is_known: decides. It runs twice where it refuses, and changes nothing.
            forget: drops what the caller keeps of the log's state; called before the second time.

        Raises:
            KafkaException: the refusal, by what the log says now.
            StoreError: it cannot be read.
        """
        try:
            return by_what_is_known()
        except StoreError:
            raise
        except KafkaException:
            pass
        self._read_on()
        if forget is not None:
            forget()
        found = by_what_is_known()
        self._left += 1  # a refusal that does not stand costs nothing
        return found

    def _read_on(self) -> None:
        if _call.read_by is not None:
            if self in _call.read_by:
                return
            _call.read_by.add(self)
        self._read(max_age_s=0 if self._may_read() else 1 / _PER_S)

    def _may_read(self) -> bool:
        now_s = self._clock.monotonic_s()
        passed_s, self._counted_s = now_s - self._counted_s, now_s
        self._left = min(self._left + passed_s * _PER_S, float(_AT_ONCE))
        if self._left < 1:
            return False
        self._left -= 1
        return True
