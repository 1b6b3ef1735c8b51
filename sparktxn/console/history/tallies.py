"""What entries did, summed into buckets of time: bounded in memory, however long the log is.

Each span of time that a plot may show has a tally of its own, with buckets of its own width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from sparktxn.console.history.entryfacts import EntryFacts, Moved
from sparktxn.values.fieldtypes import TopicIdPartition

__all__ = ["BUCKETS_MAX", "SPANS", "Bucket", "Passage", "Tallies", "Tally"]

BUCKETS_MAX: Final = 240
_BUCKETS_MIN: Final = 8
_CELLS_MAX: Final = 100_000
_ALL_WIDTH_MS: Final = 16
_HOUR_MS: Final = 3_600_000
SPANS: Final[Mapping[str, int | None]] = {"hour": _HOUR_MS, "day": 24 * _HOUR_MS, "week": 168 * _HOUR_MS, "all": None}
"""How long each choice of a plot's span is, in milliseconds; None is as far back as anything is known."""


class Passage(Struct, gc=False):
    """How an offset moved within a bucket: before its first entry there, and after its last one."""

    first: int
    before: int | None
    last: int
    after: int | None

    def widen(self, other: Passage) -> None:
        """Take in another part of the same bucket."""
        if other.first < self.first:
            self.first, self.before = other.first, other.before
        if other.last > self.last:
            self.last, self.after = other.last, other.after


class Bucket(Struct):
    """What entries of one stretch of time did; see `EntryFacts` for the members. Keys of `offsets` are group ids."""

    records: dict[str, int] = field(default_factory=dict)
    size_bytes: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    aborts: int = 0
    ends: dict[TopicIdPartition, Passage] = field(default_factory=dict)
    offsets: dict[str, dict[TopicIdPartition, Passage]] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        """About how much memory it takes: how many items it has."""
        return 1 + 2 * len(self.records) + len(self.ends) + sum(map(len, self.offsets.values()))

    def add_facts(self, facts: EntryFacts) -> None:
        """Add what an entry did."""
        _add_counts(self.records, facts.records)
        _add_counts(self.size_bytes, facts.size_bytes)
        for change in facts.transactions:
            if change.committed is not None:
                self.commits += change.committed
                self.aborts += not change.committed
        for place, moved in facts.ends.items():
            _widen(self.ends, place, _passage(facts.entry, moved))
        for (group_id, topic_id, partition), moved in facts.offsets.items():
            _widen(self.offsets.setdefault(group_id, {}), (topic_id, partition), _passage(facts.entry, moved))

    def add(self, other: Bucket) -> None:
        """Add another bucket, which is not used afterwards."""
        _add_counts(self.records, other.records)
        _add_counts(self.size_bytes, other.size_bytes)
        self.commits += other.commits
        self.aborts += other.aborts
        for place, passage in other.ends.items():
            _widen(self.ends, place, passage)
        for group_id, passages in other.offsets.items():
            mine = self.offsets.setdefault(group_id, {})
            for place, passage in passages.items():
                _widen(mine, place, passage)


def _add_counts(sums: dict[str, int], counted: Mapping[str, int]) -> None:
    for name, count in counted.items():
        sums[name] = sums.get(name, 0) + count


def _passage(entry: int, moved: Moved) -> Passage:
    return Passage(entry, moved.before, entry, moved.after)


def _widen(passages: dict[TopicIdPartition, Passage], place: TopicIdPartition, passage: Passage) -> None:
    known = passages.get(place)
    if known is None:
        passages[place] = passage
    else:
        known.widen(passage)


class Tally:
    """Buckets of `width_ms`, by their number since 1970: those of the newest `span_ms`, or all if it is None.

    A width that would need too many buckets, or too many items in them, is doubled.
    """

    def __init__(self, span_ms: int | None, *, cells_max: int = _CELLS_MAX) -> None:
        self.span_ms = span_ms
        self.width_ms = _ALL_WIDTH_MS if span_ms is None else max(1, span_ms // BUCKETS_MAX)
        self.buckets: dict[int, Bucket] = {}
        self._cells_max = cells_max
        self._unmeasured = 0

    def add_facts(self, facts: EntryFacts) -> None:
        """Add what an entry did."""
        bucket = self._at(facts.timestamp_ms)
        if bucket is not None:
            bucket.add_facts(facts)
            self._measure(facts.weight)

    def add_segment(self, topic: str, timestamp_ms: int, records: int, size_bytes: int) -> None:
        """Add records of which no entry is left."""
        bucket = self._at(timestamp_ms)
        if bucket is not None:
            _add_counts(bucket.records, {topic: records})
            _add_counts(bucket.size_bytes, {topic: size_bytes})
            self._measure(2)

    def add(self, other: Tally) -> None:
        """Add another tally of the same span, which is not used afterwards."""
        while self.width_ms < other.width_ms:
            self._coarsen()
        for number, bucket in other.buckets.items():
            mine = self._at(number * other.width_ms)
            if mine is not None:
                mine.add(bucket)
        self._measure(sum(bucket.cells for bucket in other.buckets.values()))

    def _at(self, timestamp_ms: int) -> Bucket | None:
        """Return the bucket of a time; None if it lies before the span."""
        while True:
            number = timestamp_ms // self.width_ms
            if number in self.buckets:
                return self.buckets[number]
            newest = max(self.buckets, default=number)
            if self.span_ms is None:
                if max(newest, number) - min(min(self.buckets, default=number), number) < BUCKETS_MAX:
                    break
                self._coarsen()
                continue
            kept = max(1, self.span_ms // self.width_ms) + 1
            if number <= newest - kept:
                return None
            for old in [old for old in self.buckets if old <= number - kept]:
                del self.buckets[old]
            break
        found = self.buckets[number] = Bucket()
        return found

    def _measure(self, added: int) -> None:
        """Count the items now and then, and double the width while there are too many."""
        self._unmeasured += added
        if self._unmeasured < self._cells_max // 4:
            return
        self._unmeasured = 0
        while len(self.buckets) > _BUCKETS_MIN and sum(one.cells for one in self.buckets.values()) > self._cells_max:
            self._coarsen()

    def _coarsen(self) -> None:
        self.width_ms *= 2
        finer, self.buckets = self.buckets, {}
        for number, bucket in finer.items():
            if number // 2 in self.buckets:
                self.buckets[number // 2].add(bucket)
            else:
                self.buckets[number // 2] = bucket


class Tallies:
    """A tally for each of `SPANS`."""

    def __init__(self) -> None:
        self.by_span = {span: Tally(span_ms) for span, span_ms in SPANS.items()}

    def add_facts(self, facts: EntryFacts) -> None:
        """Add what an entry did."""
        for tally in self.by_span.values():
            tally.add_facts(facts)

    def add_segment(self, topic: str, timestamp_ms: int, records: int, size_bytes: int) -> None:
        """Add records of which no entry is left."""
        for tally in self.by_span.values():
            tally.add_segment(topic, timestamp_ms, records, size_bytes)

    def add(self, other: Tallies) -> None:
        """Add others, which are not used afterwards."""
        for span, tally in self.by_span.items():
            tally.add(other.by_span[span])
