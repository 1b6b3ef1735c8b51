"""Since when something is idle, by the object store's clock alone (PROTOCOL.md, "Expiry").

The log says in which entry something was last used. Or it says by that entry's timestamp, which never falls from one
entry to the next, whether it is older than another entry. Only the store can say how old an entry is: its timestamp is
its writer's clock.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from sparktxn.errors import DamagedObject
from sparktxn.format import names
from sparktxn.format.entry import decode_entry
from sparktxn.log.follow.confirm import Premise, judge, read_horizon
from sparktxn.log.log import Log
from sparktxn.log.write.storeclock import modified_ms

__all__ = ["Ages", "IdleFrom"]

_NEVER: Final = -(2**63)
_ALWAYS: Final = 2**63 - 1


class IdleFrom(Struct, frozen=True):
    """What has been idle for a time: all that was last used in `entry` or before it.

    Entries before `first_entry` have been deleted. Where `entry` is not among those that are left, the store does not
    show what was used before them. Then the timestamp of that use must be at or below `timestamp_ms_max`.
    """

    entry: int
    timestamp_ms: int
    first_entry: int
    timestamp_ms_max: int

    def holds_since(self, timestamp_ms: int) -> bool:
        """Return True for what was last used in an entry with this timestamp."""
        return timestamp_ms < self.timestamp_ms and timestamp_ms <= self.timestamp_ms_max

    def holds_since_entry(self, entry: int, timestamp_ms: int) -> bool:
        """Return True for what was last used in `entry`, or before it, and bears this timestamp."""
        return entry <= self.entry and timestamp_ms <= self.timestamp_ms_max


class Ages:
    """How old the log's entries are, at the store's time `now_ms`. Entries that come later are not looked at."""

    def __init__(self, log: Log, now_ms: int) -> None:
        self._objects = log.objects
        self._now_ms = now_ms
        self._skew_ms_max = log.settings.clock_skew_ms_max
        self._first = read_horizon(log.objects)
        self._last = log.entry
        self._written_ms: dict[int, int | None] = {}

    def idle_for(self, duration_ms: int) -> IdleFrom:
        """Return what has not been used for `duration_ms`.

        Raises:
            StoreUnavailable: the store did not answer.
            DamagedObject: an entry cannot be read.
        """
        if self._last < self._first or not self._is_old(self._first, duration_ms):
            # Every writer has compared its clock with the store's before: so far may a timestamp be wrong.
            latest_ms = self._now_ms - duration_ms - self._skew_ms_max
            return IdleFrom(self._first - 1, self._timestamp_ms(self._first), self._first, latest_ms)
        low, high = self._first, self._last + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_old(middle, duration_ms):
                low = middle
            else:
                high = middle
        return IdleFrom(low, self._timestamp_ms(low + 1), self._first, _ALWAYS)

    def written_ms(self, entry: int) -> int | None:
        """Return when the store took the entry, or the first one that is left where that has been deleted.

        None if a vacuum deletes it at this moment.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        return self._written(max(entry, self._first))

    def _written(self, entry: int) -> int | None:
        if entry not in self._written_ms:
            self._written_ms[entry] = modified_ms(self._objects, names.entry(entry))
        return self._written_ms[entry]

    def _is_old(self, entry: int, duration_ms: int) -> bool:
        """Return True if the store shows that it has held the entry for `duration_ms`.

        It does not for one that a vacuum deletes at this moment: vacuums may keep less than that. A later sweep knows.
        """
        written_ms = self._written(entry)
        # That a store rounds its times to whole seconds is nothing to an expiration.
        return written_ms is not None and self._now_ms - written_ms >= duration_ms

    def _timestamp_ms(self, entry: int) -> int:
        """Return the entry's timestamp; the greatest number after the last one, the least for a deleted one."""
        if entry > self._last:
            return _ALWAYS
        name = names.entry(entry)
        data = self._objects.get(name)
        if data is not None:
            return decode_entry(data, name, entry).timestamp_ms
        if judge(self._objects, Premise(entry)) is not None:
            return _NEVER
        raise DamagedObject(name, f"it is missing, and the log goes on to entry {self._last}")
