"""Following the log: the one owner of a process's replica, and the rule that makes its answers final.

Everybody confirms: writers before they acknowledge, call an entry lost, or raise a refusal; readers before they pin a
view. Confirming is reading the horizon *after* the answers that one relies on (PROTOCOL.md, "Confirming").
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sparktxn.clock import Clock, Deadline, time_left_s
from sparktxn.errors import DamagedObject, FormatVersionError, OutcomeUnknown
from sparktxn.format import names
from sparktxn.format.commands import Command
from sparktxn.log.checkpoints import hinted_head, newest_head
from sparktxn.log.ending import check_end
from sparktxn.log.horizon import is_kept, is_usable, read_horizon
from sparktxn.log.tail import Tail
from sparktxn.objectstore.contract import ObjectStore

__all__ = ["Follower"]


class Follower:
    """Owns the process's tail of one log. Hold the lock (`locked`) while using `tail`.

    `watched` is the lists of this process that an entry of another may settle, by id (`log/intents.py`).
    """

    def __init__(self, objects: ObjectStore, clock: Clock, *, checkpoint_entries: int, hint: bytes | None) -> None:
        self._objects = objects
        self._clock = clock
        self._window = 1 if objects.probe_is_cheap else checkpoint_entries + 1
        self._lock = threading.RLock()
        self._kept: tuple[int, int] | None = None
        self._checked_entry = -1
        self.watched: dict[str, Sequence[Command]] = {}
        self.refreshed_s = clock.monotonic_s()
        self.tail = self._open(hint)

    @contextmanager
    def locked(self, deadline: Deadline, what: str) -> Iterator[None]:
        """Hold the lock; what is asked of the object store meanwhile keeps `deadline` too.

        Raises:
            OutcomeUnknown: another thread of this process kept it until the deadline.
        """
        remaining_s = time_left_s(deadline.remaining_s())
        started_s = self._clock.monotonic_s()
        if not self._lock.acquire(timeout=-1 if remaining_s is None else remaining_s):
            waited_s = self._clock.monotonic_s() - started_s
            raise OutcomeUnknown(
                f"{what}: another call of this process waited for {self._objects.uri!r} and kept the log busy for "
                f"{waited_s:.1f} s, up to the deadline; call again"
            )
        try:
            with deadline.governs():
                yield
        finally:
            self._lock.release()

    def refresh(self) -> None:
        """Follows the log to its end, confirmed: after this, what the tail says is final."""
        started_s = self._clock.monotonic_s()
        self.advance()
        horizon = read_horizon(self._objects)
        if self.tail.is_void(horizon) or self.is_passed(horizon):
            self.reopen()
        self.tail.confirmed_entry = self.tail.entry
        self.refreshed_s = started_s

    def advance(self, *, at_most: int | None = None) -> None:
        """Follows the log, to `at_most` or to its end. What is read is a guess until it is confirmed.

        Raises:
            DamagedObject: the log contradicts itself, and not because entries were deleted and created again.
            FormatVersionError: a newer version has written an entry.
        """
        try:
            self.tail.advance(at_most=at_most)
        except (DamagedObject, FormatVersionError):
            if not self.is_behind():
                raise
            self.reopen()

    def check_end(self) -> None:
        """Check, before this process's first put, that the log has not lost an entry since the store was opened.

        Raises:
            DamagedObject: an entry is missing, and a later one exists.
        """
        if self.tail.entry == self._checked_entry:
            return
        try:
            check_end(self._objects, self.tail)
            self._checked_entry = self.tail.entry
        except DamagedObject:
            if not self.is_behind():
                raise
            self.reopen()

    def is_behind(self) -> bool:
        """True if a vacuum may have deleted what this state was read from, or what it names: open it again."""
        horizon = read_horizon(self._objects)
        return self.tail.is_void(horizon) or self.is_passed(horizon)

    def is_passed(self, horizon: int | None = None) -> bool:
        """True if a vacuum may have deleted objects that this state names, though it is as new as can be."""
        if horizon is None:
            horizon = read_horizon(self._objects)
        base = self.tail.parts.base
        if base is None or horizon <= base or self._kept == (horizon, base):
            return False
        if not is_kept(self._objects, base, "", horizon):
            return True
        self._kept = (horizon, base)
        return False

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
        rejected = None
        passed: frozenset[str] = frozenset()
        while True:
            head = None if listed else hinted_head(self._objects, hint)
            if head is None:
                head = newest_head(self._objects, excluded=passed)
            tail = Tail(self._objects, head, passed)
            tail.watched = self.watched
            damage = self._advance_opened(tail)
            horizon = read_horizon(self._objects)
            if head is not None and not is_usable(self._objects, head, horizon):
                passed |= {head.checkpoint}
                listed = True
                continue
            if not tail.is_void(horizon):
                if damage is not None:
                    raise damage
                tail.confirmed_entry = tail.entry
                return tail
            # The hint was older than the horizon, or the horizon moved while we read: a newer checkpoint exists.
            if (tail.confirmed_entry, horizon) == rejected:
                raise DamagedObject(
                    names.horizon(horizon),
                    f"entries below {horizon} may be gone, and the newest checkpoint that is whole holds the state "
                    f"after entry {tail.confirmed_entry}",
                )
            rejected = (tail.confirmed_entry, horizon) if listed else None
            listed = True

    def _advance_opened(self, tail: Tail) -> DamagedObject | FormatVersionError | None:
        """Follows the log; what contradicts itself is told, and judged once the horizon is known."""
        try:
            tail.advance(window=self._window)
            check_end(self._objects, tail)
            self._checked_entry = tail.entry
        except (DamagedObject, FormatVersionError) as damage:
            return damage
        return None
