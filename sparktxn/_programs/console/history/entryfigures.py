"""The figures of all entries that remain, and of records whose entries are gone: each is read once, a little at a time.

The newest entries come from the chronicle. Older ones are read backwards, one stretch after the other. At last come the
manifests: a store that was folded and vacuumed has a history of records and bytes, too. What is kept are sums.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from sparktxn import PartitionView
from sparktxn._engine.log.keep.sealedruns import is_rewritten, not_rewritten
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.entryhistory import HistoryReplay, first_entry
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._programs.console.history.entryfacts import Chronicle, EntryFacts, Moved, facts_of
from sparktxn._programs.console.requestturns import ReadsOn, held
from sparktxn._rows.scan.plan import current_segments, rewritten_segments
from sparktxn.errors import KafkaException, ViewExpired
from sparktxn.store.options import TopicIdPartition
from sparktxn.store.reading import SegmentRef

# What entries did, summed into buckets of time: bounded in memory, however long the log is.
#
# Each span of time that a plot may show has a tally of its own, with buckets of its own width.

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


_STRETCH: Final = 4_096
_AT_ONCE: Final = 64
_SEGMENTS_AT_ONCE: Final = 1_000


class KnownPast(NamedTuple):
    """What is known of the past, and what is still to be read.

    From `first_entry` on all entries are counted; None if the log has none. `entries` is how many are counted in all.
    `older` is whether records are counted whose entries are gone. `undated` of them have no time, and are in no bucket.
    `problem` is why the last reading ended early, empty if it did not.
    """

    tallies: Sequence[Tallies]
    first_entry: int | None
    first_timestamp_ms: int | None
    entries: int
    entries_left: int
    partitions_left: int
    older: bool
    undated: int
    problem: str

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to read."""
        return not self.entries_left and not self.partitions_left


class _Gap(Struct):
    """Entries from `low` to `high` that are not counted; `after_ms` is the time of the one after them."""

    low: int
    high: int
    after_ms: int

    @property
    def entries(self) -> int:
        return self.high - self.low + 1


class _Stretch:
    """The newest entries of a gap: they become a part of the past once all of them are counted."""

    def __init__(self, objects: ObjectStore, gap: _Gap, entries: int) -> None:
        self.gap = gap
        self.first = max(gap.low, gap.high - entries + 1)
        self.last = gap.high
        self.first_ms = gap.after_ms
        self.tallies = Tallies()
        self._facts = HistoryReplay(objects, facts_of).entries(self.first, self.last)

    def go_on(self) -> bool:
        """Count some more; False once all are counted."""
        for one, _ in zip(self._facts, range(_AT_ONCE), strict=False):
            if one.entry == self.first:
                self.first_ms = one.timestamp_ms
            self.tallies.add_facts(one)
            if one.entry == self.last:
                return False
        return True


class _Manifests:
    """The records of one view whose entries are gone, by the greatest time of each segment."""

    def __init__(self, log: Log, before_entry: int, before_ms: int) -> None:
        self._objects = log.objects
        self._before_entry = before_entry
        self._before_ms = before_ms
        self.tallies = Tallies()
        self.undated = 0
        self._views = list(log.known_view().partitions.values())
        self._begin()

    def _begin(self) -> None:
        """Begin with the next partition."""
        self._counting, self._undated = Tallies(), 0
        self._segments_left = self._segments(self._views[-1]) if self._views else iter(())

    @property
    def partitions_left(self) -> int:
        """How many partitions are not read yet."""
        return len(self._views)

    def go_on(self) -> None:
        """Count some segments of the partition that is next; of one that cannot be read nothing is counted.

        Raises:
            ViewExpired: a vacuum has passed the view.
            DamagedObject, StoreUnavailable: a manifest cannot be read.
        """
        view = self._views[-1]
        segment: SegmentRef | None = None
        try:
            for segment, _ in zip(self._segments_left, range(_SEGMENTS_AT_ONCE), strict=False):
                self._count(view, segment)
        except KafkaException:
            self._begin()
            raise
        if segment is None:
            self.tallies.add(self._counting)
            self.undated += self._undated
            self._views.pop()
            self._begin()

    def _count(self, view: PartitionView, segment: SegmentRef) -> None:
        if segment.entry >= self._before_entry or segment.end_offset <= view.log_start_offset:
            return
        if segment.timestamp_max_ms < 0:
            self._undated += segment.row_count
            return
        at_ms = min(segment.timestamp_max_ms, self._before_ms)
        self._counting.add_segment(view.topic.name, at_ms, segment.row_count, segment.file_share_bytes)

    def _segments(self, view: PartitionView) -> Iterator[SegmentRef]:
        """Yield segments, one manifest after the other: a partition may have a million of them."""
        for run in view.sealed:
            if run.entry_min < self._before_entry and not is_rewritten(run, view.rewritten):
                yield from current_segments(self._objects, view, [run], cache=None)
        yield from not_rewritten(view.segments, view.rewritten)
        for each in view.rewritten:
            if each.run.entry_min < self._before_entry:
                yield from rewritten_segments(self._objects, view, [each], by_segment=True, cache=None)


class Past(ReadsOn):
    """The past of a log. `up_to` counts what is new, and `read_on` what is old, `stretch` entries after the other.

    What goes wrong in `read_on` is in `KnownPast.problem`, and is tried again.
    """

    def __init__(self, log: Log, chronicle: Chronicle, *, stretch: int = _STRETCH) -> None:
        super().__init__(log)
        self._entries_at_once = stretch
        self._chronicle = chronicle
        self._lock = threading.Lock()
        self._problem = ""
        self._forget()

    def _forget(self) -> None:
        self._tallies = Tallies()
        self._newest = 0
        # The oldest gap stays, even once it is empty: it says from where on all is counted.
        self._gaps: list[_Gap] = []
        self._stretch: _Stretch | None = None
        self._manifests: _Manifests | None = None

    def up_to(self, last: int) -> KnownPast:
        """Return what is known of the entries up to `last`, which the log has, and perhaps of later ones.

        Raises:
            DamagedObject, StoreUnavailable, OutcomeUnknown, ViewExpired: as `Chronicle`.
        """
        facts = self._chronicle.up_to(last)
        with held(self._lock):
            new = [one for one in facts if one.entry > self._newest]
            if new:
                self._count(new)
            return self._known()

    def _count(self, new: Sequence[EntryFacts]) -> None:
        first, low = new[0], self._newest + 1
        if not self._gaps:
            low = min(first.entry, first_entry(self._log.objects))
        if not self._gaps or first.entry > low:
            self._gaps.append(_Gap(low, first.entry - 1, first.timestamp_ms))
        for one in new:
            self._tallies.add_facts(one)
        self._newest = new[-1].entry

    def _known(self) -> KnownPast:
        tallies, manifests = self._tallies, self._manifests
        if not self._gaps:
            return KnownPast([tallies], None, None, 0, 0, 0, older=False, undated=0, problem=self._problem)
        left = sum(gap.entries for gap in self._gaps)
        partitions_left = int(self._gaps[0].low > 1) if manifests is None else manifests.partitions_left
        return KnownPast(
            [tallies] if manifests is None else [tallies, manifests.tallies],
            self._gaps[-1].high + 1,
            self._gaps[-1].after_ms,
            self._newest - self._gaps[0].low + 1 - left,
            left,
            partitions_left,
            older=manifests is not None,
            undated=0 if manifests is None else manifests.undated,
            problem=self._problem,
        )

    def _read_some(self) -> bool:
        try:
            found = self._count_some()
        except ViewExpired:
            # A vacuum was faster than this reading, which continues with what the vacuum has left.
            self._give_up(first_entry(self._log.objects))
            found = False
        self._problem = ""
        return found

    def _note_failure(self, error: KafkaException) -> None:
        self._stretch = None
        self._problem = error.error.str()

    def _give_up(self, oldest: int) -> None:
        """Take note that entries below `oldest` are gone, and begin with the manifests again."""
        with held(self._lock):
            self._stretch = None
            self._manifests = None
            if any(gap.low < oldest for gap in self._gaps[1:]):
                # What lies between counted entries can be counted no more.
                self._forget()
                return
            gap = self._gaps[0]
            gap.low = min(gap.high + 1, max(gap.low, oldest))

    def _count_some(self) -> bool:
        """Count some entries, or one partition; False if nothing is left to count."""
        with held(self._lock):
            gap = self._gaps[-1] if self._gaps else None
        if gap is None:
            return False
        if self._stretch is None and gap.entries:
            self._stretch = _Stretch(self._log.objects, gap, self._entries_at_once)
        if self._stretch is not None:
            self._read_stretch(self._stretch)
            return True
        if gap.low == 1:
            return False
        manifests = self._manifests or _Manifests(self._log, gap.high + 1, gap.after_ms)
        if manifests.partitions_left:
            manifests.go_on()
        with held(self._lock):
            self._manifests = manifests
        return manifests.partitions_left > 0

    def _read_stretch(self, stretch: _Stretch) -> None:
        if stretch.go_on():
            return
        self._stretch = None
        with held(self._lock):
            self._tallies.add(stretch.tallies)
            stretch.gap.high, stretch.gap.after_ms = stretch.first - 1, stretch.first_ms
            self._gaps = [gap for gap in self._gaps if gap.entries or gap is self._gaps[0]]
