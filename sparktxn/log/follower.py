"""Following the log: the one owner of a process's replica, and the rule that makes its answers final.

Everybody confirms: writers before they acknowledge, call an entry lost, or raise a refusal; readers before they pin a
view. Confirming is reading the horizon *after* the answers that one relies on (PROTOCOL.md, "Confirming").
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sparktxn.clock import Clock, Deadline
from sparktxn.errors import OutcomeUnknown
from sparktxn.format.names import LAST_CHECKPOINT
from sparktxn.log.checkpoints import hinted_head, newest_head
from sparktxn.log.horizon import read_horizon
from sparktxn.log.tail import Tail
from sparktxn.objectstore.contract import ObjectStore

__all__ = ["Follower"]


class Follower:
    """Owns the process's tail of one log. Hold the lock (`locked`) while using `tail`."""

    def __init__(self, objects: ObjectStore, clock: Clock, *, checkpoint_entries: int, hint: bytes | None) -> None:
        self._objects = objects
        self._clock = clock
        self._window = 1 if objects.probe_is_cheap else checkpoint_entries + 1
        self._lock = threading.RLock()
        self.refreshed_s = clock.monotonic_s()
        self.tail = self._open(hint)

    @contextmanager
    def locked(self, deadline: Deadline, what: str) -> Iterator[None]:
        """Holds the lock.

        Raises:
            OutcomeUnknown: another thread of this process kept it until the deadline.
        """
        remaining_s = deadline.remaining_s()
        if not self._lock.acquire(timeout=-1 if remaining_s is None else remaining_s):
            raise OutcomeUnknown(f"{what}: the log was busy until the deadline; call again")
        try:
            yield
        finally:
            self._lock.release()

    def refresh(self) -> None:
        """Follows the log to its end, confirmed: after this, what the tail says is final."""
        started_s = self._clock.monotonic_s()
        self.tail.advance()
        if not self.confirm():
            self.reopen()
        self.refreshed_s = started_s

    def is_confirmed(self, slot: int | None = None) -> bool:
        """True if no slot that was read or put since the last confirmed state can have been deleted and created again.

        `slot` is one that was asked for besides, such as one of a body that was sent long ago.
        """
        first_slot = self.tail.confirmed_entry + 1
        return read_horizon(self._objects) <= (first_slot if slot is None else min(first_slot, slot))

    def confirm(self) -> bool:
        """`is_confirmed`, noted in the tail."""
        if not self.is_confirmed():
            return False
        self.tail.confirmed_entry = self.tail.entry
        return True

    def reopen(self) -> None:
        """Starts again from the newest checkpoint, confirmed: what was read before is void."""
        self.tail = self._open(None, listed=True)

    def _open(self, hint: bytes | None, *, listed: bool = False) -> Tail:
        while True:
            head = None if listed else hinted_head(self._objects, hint or self._objects.get(LAST_CHECKPOINT))
            if head is None:
                head = newest_head(self._objects)
            tail = Tail(self._objects, head)
            tail.advance(window=self._window)
            horizon = read_horizon(self._objects)
            if horizon <= tail.confirmed_entry + 1:
                tail.confirmed_entry = tail.entry
                return tail
            # The hint was older than the horizon, or the horizon moved while we read: a newer checkpoint exists.
            listed = True
