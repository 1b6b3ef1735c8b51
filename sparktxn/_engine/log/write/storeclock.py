"""The object store's own clock: how old an object is, and whether this machine's clock is right (PROTOCOL.md, "Time").

A timestamp of the log is a writer's clock, and never falls. One writer far ahead would move the log's time permanently,
and one far behind would let its own work look old. So a writer whose clock is far from the store's writes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from sparktxn._engine.format import names
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.puts import put_until_stored
from sparktxn._foundation.process.clock import Clock, Ids
from sparktxn._foundation.values.quantities import time_text
from sparktxn.errors import ClockSkewError, StoreUnavailable

_LEFT_BEHIND_MS: Final = 3_600_000
_SECOND_MS: Final = 1_000
_CHECK_INTERVAL_S: Final = 3_600.0


def store_now_ms(objects: ObjectStore, clock: Clock, ids: Ids) -> int:
    """Return the store's time, in milliseconds: the time of an object that is written now, and deleted again.

    Who dies in between, or may not delete, leaves an object of a few bytes, which a later call deletes.

    Raises:
        StoreUnavailable: the store did not take the object, or does not list it.
    """
    name = names.clock(ids.token())
    put_until_stored(objects, name, b"now", clock)
    found = {info.name: info.modified_ms for info in objects.list(names.CLOCKS)}
    now_ms = found.get(name)
    if now_ms is None:
        raise StoreUnavailable(
            f"the object {name!r} that was just written is not listed: the store's time is not known"
        )
    with suppress(StoreUnavailable):
        left = [other for other, other_ms in found.items() if other == name or now_ms - other_ms > _LEFT_BEHIND_MS]
        objects.delete(left)
    return now_ms


def modified_ms(objects: ObjectStore, name: str) -> int | None:
    """Return when the object was written, by the store's clock; None if it does not exist.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    return next((info.modified_ms for info in objects.list(name) if info.name == name), None)


def rounding_ms(*times_ms: int) -> int:
    """Return by how much a difference of these times may be too long: S3 gives whole seconds, rounded down."""
    return _SECOND_MS - 1 if all(time_ms % _SECOND_MS == 0 for time_ms in times_ms) else 0


class ClockCheck:
    """Compares this machine's clock with the store's before a handle writes. Hold the log's lock while using it.

    The store is asked before the first write, every hour, and whenever the wall clock has moved differently than the
    monotonic one. Other writes cost two readings of a clock. A store without timestamps is not compared with.

    Args:
        skew_ms_max: how far apart the two clocks may be.
    """

    def __init__(self, objects: ObjectStore, clock: Clock, ids: Ids, skew_ms_max: int) -> None:
        self._objects = objects
        self._clock = clock
        self._ids = ids
        self._skew_ms_max = skew_ms_max
        self._checked_s: float | None = None
        self._wall_ms = 0
        self._skew_ms = 0

    def check(self) -> None:
        """Pass if this machine's clock is near the store's.

        Raises:
            ClockSkewError: it is not; nothing may be written.
            StoreUnavailable: the store did not give its time.
        """
        if self._checked_s is not None:
            passed_s = self._clock.monotonic_s() - self._checked_s
            moved_ms = abs(self._clock.wall_ms() - self._wall_ms - int(passed_s * 1000))
            if passed_s < _CHECK_INTERVAL_S and moved_ms + self._skew_ms <= self._skew_ms_max:
                return
        self._checked_s = None
        self._ask_store()

    def _ask_store(self) -> None:
        # The store has dated its object at some time between these two readings.
        before_ms = self._clock.wall_ms()
        store_ms = store_now_ms(self._objects, self._clock, self._ids)
        after_ms = self._clock.wall_ms()
        if store_ms <= 0:
            skew_ms = 0
        else:
            skew_ms = max(0, before_ms - store_ms - rounding_ms(store_ms), store_ms - max(before_ms, after_ms))
        if skew_ms > self._skew_ms_max:
            way = "ahead of" if before_ms > store_ms else "behind"
            raise ClockSkewError(
                f"this machine's clock says {time_text(after_ms)} and the clock of {self._objects.uri!r} "
                f"{time_text(store_ms)}: {skew_ms} ms {way} it, and clock.skew.max.ms is {self._skew_ms_max}. Nothing "
                "was written: set this machine's clock right, or the store's, and call again"
            )
        self._checked_s = self._clock.monotonic_s()
        self._wall_ms, self._skew_ms = self._clock.wall_ms(), skew_ms
