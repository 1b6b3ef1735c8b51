"""Turns to write: of the callers whose lists wait, one writes, and the others leave as soon as their lists are done.

The replica's lock alone would do, but not as well. It may go to a caller that is to write the next entry, before it
goes to those that the last entry has answered. Each of these would wait for one entry more. Its next list would miss
that entry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sparktxn.clock import time_left_s

__all__ = ["Turns"]

_WAIT_S: Final = 1.0


class Turns:
    """Says which caller writes. It is no lock: a caller that has waited for a second goes on as if it had the turn."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._writer: object | None = None

    @contextmanager
    def turn(self, is_done: Callable[[], bool]) -> Iterator[None]:
        """Wait until no other caller has the turn, or the list is done; then have the turn until the end of the block.

        Nothing is raised when the caller's deadline passes.

        Args:
            is_done: says whether the list is done. It becomes so while another caller has the turn.
        """
        own = object()
        left_s = time_left_s()
        try:
            with self._changed:
                wait_s = _WAIT_S if left_s is None else min(left_s, _WAIT_S)
                self._changed.wait_for(lambda: self._writer is None or is_done(), wait_s)
                if self._writer is None:
                    self._writer = own
            yield
        finally:
            with self._changed:
                if self._writer is own:
                    self._writer = None
                    self._changed.notify_all()
