"""Turns to write: of the callers whose lists wait, one writes, and the others leave as soon as their lists are done.

The replica's lock alone would do, but not as well. It may go to a caller that is to write the next entry, before it
goes to those that the last entry has answered. Each of these would wait for one entry more. Its next list would miss
that entry.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sparktxn.process.clock import time_left_s

__all__ = ["Turns"]

_WAIT_S: Final = 1.0


class Turns:
    """Says which caller writes. It is no lock: a caller that has waited for a second goes on as if it had the turn.

    A caller that gives its turn back wakes those whose lists are done, and one more, which gets the turn. The others
    sleep on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writer: _Waiting | None = None
        self._waiting: deque[_Waiting] = deque()

    @contextmanager
    def turn(self, is_done: Callable[[], bool]) -> Iterator[None]:
        """Wait until no other caller has the turn, or the list is done; then have the turn until the end of the block.

        Nothing is raised when the caller's deadline passes.

        Args:
            is_done: says whether the list is done. It becomes so while another caller has the turn.
        """
        own = _Waiting(is_done)
        left_s = time_left_s()
        try:
            with self._lock:
                waits = self._writer is not None and not is_done()
                if waits:
                    self._waiting.append(own)
                elif self._writer is None:
                    self._writer = own
            if waits:
                own.woken.acquire(timeout=_WAIT_S if left_s is None else min(left_s, _WAIT_S))
            yield
        finally:
            self._leave(own)

    def _leave(self, own: _Waiting) -> None:
        with self._lock:
            if own in self._waiting:
                self._waiting.remove(own)
            if self._writer is not own:
                return
            waiting, self._waiting, self._writer = self._waiting, deque(), None
            for other in waiting:
                if other.is_done():
                    other.woken.release()
                elif self._writer is None:
                    self._writer = other
                    other.woken.release()
                else:
                    self._waiting.append(other)


class _Waiting:
    """A caller; `woken` is held until it may go on."""

    __slots__ = ("is_done", "woken")

    def __init__(self, is_done: Callable[[], bool]) -> None:
        self.is_done = is_done
        self.woken = threading.Lock()
        self.woken.acquire()
