"""How much a micro-batch takes, and whether it waits for more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from sparktxn.process.clock import SystemClock

if TYPE_CHECKING:
    from sparktxn import ReadView, Store
    from sparktxn.process.clock import Clock
    from sparktxn.values.fieldtypes import TopicPartitionKey

__all__ = ["Pace", "TriggerLimits", "rows_within"]

Ranges = Mapping["TopicPartitionKey", tuple[int, int]]


class TriggerLimits(Struct, frozen=True, kw_only=True):
    """What the options say of a micro-batch: at least, and at most."""

    rows_min: int | None
    rows_max: int | None
    bytes_max: int | None
    delay_ms_max: int

    def default_limit(self) -> ReadLimit:
        """Return what Spark hands back for each micro-batch; for ``once`` it asks for all that is available instead."""
        if self.rows_max is not None:
            return ReadMaxRows(self.rows_max)
        if self.bytes_max is not None:
            return ReadMaxBytes(self.bytes_max)
        if self.rows_min is not None:
            return ReadMinRows(self.rows_min)
        return ReadAllAvailable()


class Pace:
    """When the last micro-batch was let through: the first one is, and then one each `delay_ms_max`, however small.

    As in Spark's Kafka source, this counts also where there is nothing to read.
    """

    def __init__(self, limits: TriggerLimits, clock: Clock | None = None) -> None:
        self._limits = limits
        self._clock = clock or SystemClock()
        self._passed_s: float | None = None

    def waits(self, rows: Callable[[], int]) -> bool:
        """Return whether a micro-batch of so many records as `rows` returns has too few, and may wait for more."""
        if self._limits.rows_min is None:
            return False
        now_s = self._clock.monotonic_s()
        in_time = self._passed_s is not None and now_s - self._passed_s < self._limits.delay_ms_max / 1000
        if in_time and rows() < self._limits.rows_min:
            return True
        self._passed_s = now_s
        return False


def rows_within(store: Store, view: ReadView, ranges: Ranges, bytes_max: int) -> int | None:
    """Return how many records the oldest entries of `ranges` have whose segments stay within `bytes_max`.

    At least 1, so that the oldest transaction is read however large it is; None if all of them do.
    """
    rows_by_entry: dict[int, int] = {}
    bytes_by_entry: dict[int, int] = {}
    for task in store.plan(view, dict(ranges), isolation="read_uncommitted", by_segment=True):
        for segment in task.segments:
            rows = segment.rows_between(task.start_offset, task.end_offset)
            rows_by_entry[segment.entry] = rows_by_entry.get(segment.entry, 0) + rows
            bytes_by_entry[segment.entry] = bytes_by_entry.get(segment.entry, 0) + segment.size_bytes
    rows = size_bytes = 0
    for entry in sorted(rows_by_entry):
        size_bytes += bytes_by_entry[entry]
        if size_bytes > bytes_max:
            return max(1, rows)
        rows += rows_by_entry[entry]
    return None
