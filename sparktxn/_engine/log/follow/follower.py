"""Following the log: how it is opened, where its end is, and the one owner of a process's replica.

A writer confirms it (`log/follow/confirm.py`) before it acknowledges, calls an entry lost, or raises a refusal; a
reader before it pins a view.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from sparktxn._engine.format.checkpoint import CheckpointHead
from sparktxn._engine.format.commands import Command
from sparktxn._engine.format.names import ENTRIES, entry, parse_entry
from sparktxn._engine.log.follow.checkpointheads import check_heads, head_to_open, newest_head
from sparktxn._engine.log.follow.confirm import Passed, Premise, confirm, excused, judge, names_of
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.process.clock import Clock, time_left_s
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn.errors import DamagedObject, FormatVersionError, OutcomeUnknown

# Opening a replica: from the newest checkpoint that counts, along the log, and confirmed.

AnyTail = TypeVar("AnyTail", bound=Tail)


def open_tail(
    objects: ObjectStore,
    make: Callable[[CheckpointHead | None, frozenset[str]], AnyTail],
    follow: Callable[[AnyTail], object],
    *,
    hinted: CheckpointHead | None = None,
    at_most: int | None = None,
) -> AnyTail | Passed:
    """Return a replica that `follow` has advanced, confirmed; how a vacuum has passed it if none can be.

    Args:
        objects: the store.
        make: makes a replica that stands at a head, or before entry 1; the tokens are of heads that are not usable.
        follow: advances it.
        hinted: the head to try first; else, and if it does not count, heads are listed.
        at_most: heads after this entry do not count.

    Raises:
        DamagedObject, FormatVersionError: an object cannot be read, and no vacuum has passed it. A head that is damaged
            or missing counts if the replica can stand at no other one.
    """
    unusable: frozenset[str] = frozenset()
    rejected: tuple[int, int] | None = None
    head = hinted
    while True:
        is_listed = head is None or head is not hinted
        if head is None:
            head = newest_head(objects, at_most=at_most, excluded=unusable)
        tail = make(head, unusable)
        passed = _passed(objects, head, tail, follow)
        if passed is None:
            return tail
        if head is not None and not passed.entries:
            unusable |= {head.checkpoint}
        else:
            # The hint was older than the horizon, or the horizon has moved since: a newer checkpoint exists.
            if (tail.confirmed_entry, passed.horizon) == rejected:
                check_heads(objects, passed.horizon, at_most)
                return passed
            rejected = (tail.confirmed_entry, passed.horizon) if is_listed else None
        head = None


def _passed(
    objects: ObjectStore, head: CheckpointHead | None, tail: AnyTail, follow: Callable[[AnyTail], object]
) -> Passed | None:
    """Advance a replica that stands at `head`, and confirm it; return how a vacuum has passed it, if one has."""
    premise = (Premise() if head is None else names_of(head)).with_slot(tail.confirmed_entry + 1)
    passed = confirm(objects, lambda: premise, lambda: follow(tail))
    if isinstance(passed, Passed):
        return passed
    tail.confirmed_entry = tail.entry
    return None


# The end of the log: the first entry that is absent, and none after it (PROTOCOL.md, "Entries").
#
# A lost entry (an incomplete copy, a lifecycle rule, a deletion by hand) would read as a shorter log. The next writer
# would fill its place, and nothing could repair the store afterwards. So a process that opens the log looks for
# entries behind the end.


def check_end(objects: ObjectStore, tail: Tail) -> None:
    """Follow the log to its end, and check that no later entry exists.

    Entries that other writers add meanwhile are followed. An entry is created after the one before it. One that is
    absent after a later one was listed is missing, or was vacuumed. The caller rules out the latter by the horizon,
    read afterwards.

    Raises:
        DamagedObject: an entry is missing.
        FormatVersionError: a newer version has written an entry.
    """
    listed = [number for name in objects.list_names(ENTRIES, entry(tail.entry)) if (number := parse_entry(name))]
    if not listed:
        return
    tail.advance(at_most=max(listed))
    missing = tail.entry + 1
    later = [number for number in listed if number > missing]
    if later:
        raise DamagedObject(
            entry(missing), f"entry {missing} is missing and entry {min(later)} exists: restore entry {missing}"
        )


_READ_NOTES: Final = 256
"""Of so many refreshes that found entries it is known when they were. Older entries count as read at the first."""


class Follower:
    """Owns the process's tail of one log. Hold the lock (`locked`) while using `tail`.

    `watched` is the lists of this process that an entry of another may settle, by id (`log/write/intents.py`).
    """

    def __init__(self, objects: ObjectStore, clock: Clock, *, checkpoint_entries: int, hint: bytes | None) -> None:
        self._objects = objects
        self._clock = clock
        self._window = 1 if objects.probe_is_cheap else checkpoint_entries + 1
        self._lock = threading.RLock()
        self._checked_entry = -1
        self.watched: dict[str, Sequence[Command]] = {}
        self.refreshed_s = clock.monotonic_s()
        self._read: deque[tuple[int, float]] = deque(maxlen=_READ_NOTES)
        self.tail = self._open(head_to_open(objects, hint))

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Hold the lock, to read or change the replica.

        Raises:
            OutcomeUnknown: another thread of this process kept it until the caller's deadline.
        """
        remaining_s = time_left_s()
        started_s = self._clock.monotonic_s()
        if not self._lock.acquire(timeout=-1 if remaining_s is None else remaining_s):
            waited_s = self._clock.monotonic_s() - started_s
            raise OutcomeUnknown(
                f"{what}: another call of this process waited for {self._objects.uri!r} and kept the log busy for "
                f"{waited_s:.1f} s, up to the deadline; call again"
            )
        try:
            yield
        finally:
            self._lock.release()

    def refresh(self) -> None:
        """Follow the log to its end, confirmed: after this, what the tail says is final."""
        started_s = self._clock.monotonic_s()
        if isinstance(confirm(self._objects, self._premise, self.tail.advance), Passed):
            self.reopen()
        self.tail.confirmed_entry = self.tail.entry
        self.refreshed_s = started_s
        if not self._read or self._read[-1][0] != self.tail.entry:
            self._read.append((self.tail.entry, self._clock.monotonic_s()))

    def read_by_s(self, entry: int) -> float | None:
        """Return a moment, by the monotonic clock, by which this process had read an entry; None if it has not."""
        return next((read_s for newest, read_s in list(self._read) if newest >= entry), None)

    def attempt(self, work: Callable[[], Result]) -> Result | Passed:
        """Return what `work` returns of the state, not confirmed; if a vacuum has passed the state, open it again.

        Raises:
            DamagedObject, FormatVersionError: an object cannot be read, and no vacuum has passed the state.
        """
        try:
            return work()
        except (DamagedObject, FormatVersionError) as damage:
            return self.begin_again(damage)

    def begin_again(self, damage: DamagedObject | FormatVersionError) -> Passed:
        """Open the state again that has led to `damage`: a vacuum has passed it.

        Raises:
            DamagedObject, FormatVersionError: none has; or the same horizon has passed the newest state too, so that
                the next attempt would meet the same damage.
        """
        passed = excused(self._objects, self._premise(), damage)
        self.reopen()
        again = judge(self._objects, self._premise())
        if again is not None and again.horizon == passed.horizon:
            raise damage
        return passed

    def insist(self, work: Callable[[], Result]) -> Result:
        """Return what `work` returns of the state, as `attempt`; after the state was opened again, of the new one."""
        while isinstance(result := self.attempt(work), Passed):
            pass
        return result

    def advance(self, *, at_most: int | None = None) -> None:
        """Follow the log, to `at_most` or to its end. What is read is a guess until it is confirmed.

        Raises:
            DamagedObject: the log contradicts itself, and not because entries were deleted and created again.
            FormatVersionError: a newer version has written an entry.
        """
        self.attempt(lambda: self.tail.advance(at_most=at_most))

    def check_end(self) -> None:
        """Check, before this process's first put, that the log has not lost an entry since the store was opened.

        Raises:
            DamagedObject: an entry is missing, and a later one exists.
        """
        if self.tail.entry != self._checked_entry:
            self.attempt(lambda: self._check_end(self.tail))

    def is_behind(self) -> bool:
        """Return True if a vacuum may have deleted what this state was read from, or what it names: open it again."""
        return judge(self._objects, self._premise()) is not None

    def is_confirmed(self, slot: int | None = None) -> bool:
        """Return True if each slot that was read or put since the last confirmed state holds what it held then.

        `slot` is one more that was asked for, such as that of a body that was sent long ago.
        """
        slots = self.tail.slots
        return judge(self._objects, slots if slot is None else slots.with_slot(slot)) is None

    def confirm(self) -> bool:
        """Return `is_confirmed`, and note it in the tail."""
        if not self.is_confirmed():
            return False
        self.tail.confirmed_entry = self.tail.entry
        return True

    def reopen(self) -> None:
        """Start again from the newest checkpoint, confirmed: what was read before is void."""
        self.tail = self._open(None)

    def _premise(self) -> Premise:
        return self.tail.premise

    def _open(self, hinted: CheckpointHead | None) -> Tail:
        tail = open_tail(self._objects, self._tail, self._follow_opened, hinted=hinted)
        assert isinstance(tail, Tail), "any head counts"
        return tail

    def _tail(self, head: CheckpointHead | None, unusable: frozenset[str]) -> Tail:
        tail = Tail(self._objects, head, unusable)
        tail.watched = self.watched
        return tail

    def _follow_opened(self, tail: Tail) -> None:
        tail.advance(window=self._window)
        self._check_end(tail)

    def _check_end(self, tail: Tail) -> None:
        check_end(self._objects, tail)
        self._checked_entry = tail.entry
