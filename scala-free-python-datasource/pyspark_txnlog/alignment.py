"""How far a read in offset order may go, and what a query does that finds no end of whole transactions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from msgspec import Struct

from pyspark_txnlog.stores import warn
from sparktxn import ErrorCode, KafkaError, KafkaException
from sparktxn.clock import SystemClock

if TYPE_CHECKING:
    from pyspark_txnlog.offsets import Partition
    from pyspark_txnlog.options import ReadOptions
    from sparktxn import ReadView, Store
    from sparktxn.clock import Clock

__all__ = ["Alignment", "Ends", "Stall", "readable_ends", "warn_of_stall"]

_REPORTED_EACH_MS: Final = 10_000
"""How often a query that stands still says so: as often as Spark says of another one that it is idle."""


class Alignment(Struct, frozen=True, kw_only=True):
    """What the options say: where reads end, and for how long a stream waits for such a place."""

    cut: Literal["transaction", "lso"]
    timeout_ms: int | None
    on_timeout: Literal["fail", "lso"]


class Ends(NamedTuple):
    """An end for every partition; `stalled` if there are records to read, and no place above the start to end at."""

    offsets: dict[Partition, int]
    stalled: bool


def readable_ends(
    store: Store,
    view: ReadView,
    starts: dict[Partition, int],
    options: ReadOptions,
    *,
    rows_max: int | None = None,
    cut: Literal["transaction", "lso"] | None = None,
) -> Ends:
    """Return how far a read from `starts` may go at `view`: to a cut as `cut`, or else the options, say."""
    if options.isolation == "read_uncommitted":
        ends = {partition: max(start, view.partitions[partition].log_end_offset) for partition, start in starts.items()}
        return Ends(ends if rows_max is None else _shared_out(starts, ends, rows_max), stalled=False)
    unread = {key: part.log_end_offset for key, part in view.partitions.items()}
    found = store.cut(view, {**unread, **starts}, rows_max=rows_max, alignment=cut or options.alignment.cut)
    return Ends({partition: found.offsets[partition] for partition in starts}, found.stalled)


def _shared_out(starts: dict[Partition, int], ends: dict[Partition, int], rows_max: int) -> dict[Partition, int]:
    """Ends lowered to `rows_max` offsets in all, in proportion to what each partition has (Kafka's rule)."""
    total = sum(ends[partition] - start for partition, start in starts.items())
    if total <= rows_max:
        return ends
    return {
        partition: min(ends[partition], start + math.ceil(rows_max * (ends[partition] - start) / total))
        for partition, start in starts.items()
    }


class Stall:
    """For how long a query has stood still before transactions that overlap in a chain."""

    def __init__(self, alignment: Alignment, clock: Clock | None = None) -> None:
        self._alignment = alignment
        self._clock = clock or SystemClock()
        self._since_s: float | None = None
        self._reported_ms = 0

    @property
    def duration_ms(self) -> int | None:
        """How long it has lasted; None if there is none."""
        return None if self._since_s is None else int((self._clock.monotonic_s() - self._since_s) * 1000)

    def is_to_be_reported(self) -> bool:
        """Return whether the stall has lasted for another 10 seconds. The caller then reports it."""
        lasted_ms = self.duration_ms
        if lasted_ms is None or lasted_ms - self._reported_ms < _REPORTED_EACH_MS:
            return False
        self._reported_ms = lasted_ms
        return True

    def is_given_up(self, ends: Ends, entry: int) -> bool:
        """Note where a read of the log at `entry` may end; True if the query is to go on without whole transactions.

        The first one that finds a stall warns.

        Raises:
            KafkaException: the stall has lasted for `alignment.timeout.ms`, and `alignment.timeout.action` is fail.
        """
        if not ends.stalled:
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = self._clock.monotonic_s()
            self._reported_ms = 0
            warn_of_stall(entry)
        timeout_ms, lasted_ms = self._alignment.timeout_ms, self.duration_ms or 0
        if timeout_ms is None or lasted_ms < timeout_ms:
            return False
        if self._alignment.on_timeout == "fail":
            raise KafkaException(
                KafkaError(
                    ErrorCode.LOCAL_TIMED_OUT,
                    f"the query has stood still for {lasted_ms} ms at entry {entry} of the log: {_STALL}. "
                    "Option alignment.timeout.ms limits the wait",
                )
            )
        return True


_STALL = (
    "transactions of a partition overlap in a chain, so that no place between them is an end of whole transactions. "
    "Option order=commit has no such wait, with a new checkpoint; alignment=lso reads on and splits transactions"
)


def warn_of_stall(entry: int) -> None:
    """Warn that a read at `entry` has no place to end at."""
    warn(f"the read stands still at entry {entry} of the log: {_STALL}")
