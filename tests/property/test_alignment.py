"""Aligned cuts against a reference that tries every cut, over random histories of overlapping transactions."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn.clock import SystemClock
from sparktxn.log.look.views import PartitionView, ReadView
from sparktxn.objectstore.memory import MemoryStore
from sparktxn.scan.alignment import aligned_cut
from sparktxn.structs import NO_TRANSACTION, SegmentRef, TopicState

OBJECTS = MemoryStore("alignment", SystemClock())
TOPIC = TopicState("t", 1, 3, {}, None, 1)

Vector = tuple[int, ...]


class Record(NamedTuple):
    """One row; records of one unit stay together."""

    partition: int
    offset: int
    entry: int
    unit: object


class History:
    """A log of some partitions, entry by entry, with what each view would hold."""

    def __init__(self, partition_count: int) -> None:
        self.entry = 0
        self.ends = [0] * partition_count
        self.segments: list[list[SegmentRef]] = [[] for _ in range(partition_count)]
        self.open: dict[int, dict[int, int]] = {}
        self.transactions: dict[int, int] = {}

    def step(self, producer: int, action: str, partitions: set[int], rows: int) -> None:
        """One producer's commands; several steps may share an entry (group commit)."""
        if action == "plain":
            for partition in sorted(partitions):
                self._append(partition, rows, producer + 100, NO_TRANSACTION)
            return
        if producer not in self.open:
            self.open[producer] = {}
            self.transactions[producer] = self.transactions.get(producer, 0) + 1
        for partition in sorted(partitions):
            self.open[producer].setdefault(partition, self.ends[partition])
            self._append(partition, rows, producer, self.transactions[producer])
        if action == "end":
            for partition in self.open.pop(producer):
                self.ends[partition] += 1

    def _append(self, partition: int, rows: int, producer: int, transaction: int) -> None:
        base = self.ends[partition]
        self.segments[partition].append(
            SegmentRef("s", base, rows, 1, "", self.entry, producer, 0, 0, transaction, 0, 0)
        )
        self.ends[partition] = base + rows

    def view(self) -> ReadView:
        partitions = {}
        for partition, end in enumerate(self.ends):
            firsts = [first[partition] for first in self.open.values() if partition in first]
            partitions[TOPIC.name, partition] = PartitionView(
                TOPIC, partition, self.entry, 0, min(firsts, default=end), end, (), tuple(self.segments[partition]), ()
            )
        return ReadView(self.entry, 0, {TOPIC.name: TOPIC}, partitions)


def records_of(view: ReadView, starts: Vector) -> list[Record]:
    return [
        Record(one.partition, offset, segment.entry, unit_of(one.partition, segment))
        for one in view.partitions.values()
        for segment in one.segments
        for offset in range(max(segment.base_offset, starts[one.partition]), segment.end_offset)
    ]


def unit_of(partition: int, segment: SegmentRef) -> object:
    if segment.transaction == NO_TRANSACTION:
        return (partition, segment.base_offset)
    return (segment.producer_id, segment.transaction, "transaction")


def is_aligned(records: list[Record], cut: Vector) -> bool:
    below = {record.unit for record in records if record.offset < cut[record.partition]}
    above = {record.unit for record in records if record.offset >= cut[record.partition]}
    return not below & above


class Reference:
    """The definition, by trying every cut between the starts and the last stable offsets."""

    def __init__(self, view: ReadView, starts: Vector) -> None:
        self.low = starts
        views = list(view.partitions.values())
        self.stable = tuple(max(low, one.last_stable_offset) for low, one in zip(starts, views, strict=True))
        self.records = records_of(view, starts)
        bounds = zip(self.low, self.stable, strict=True)
        every = product(*(range(low, stable + 1) for low, stable in bounds))
        self.aligned = [cut for cut in every if is_aligned(self.records, cut)]

    def taken(self, cut: Vector) -> list[Record]:
        return [record for record in self.records if record.offset < cut[record.partition]]

    def greatest(self, bound: Vector) -> Vector:
        fitting = [cut for cut in self.aligned if at_most(cut, bound)]
        greatest = tuple(max(column) for column in zip(*fitting, strict=True))
        assert is_aligned(self.records, greatest)
        return greatest

    def limited(self, rows_max: int | None) -> Vector:
        greatest = self.greatest(self.stable)
        within = self.taken(greatest)
        if rows_max is None or len(within) <= rows_max:
            return greatest
        entries = sorted({record.entry for record in within})
        fitting = [0, *(entry for entry in entries if sum(record.entry <= entry for record in within) <= rows_max)]
        bound = tuple(
            min([end, *(r.offset for r in self.records if r.partition == partition and r.entry > fitting[-1])])
            for partition, end in enumerate(greatest)
        )
        cut = self.greatest(bound)
        if self.taken(cut):
            return cut
        oldest = min(within, key=lambda record: (record.entry, record.partition, record.offset))
        candidates = [cut for cut in self.aligned if oldest in self.taken(cut) and at_most(cut, greatest)]
        return tuple(min(column) for column in zip(*candidates, strict=True))


def at_most(one: Vector, other: Vector) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


def cut_of(view: ReadView, starts: Vector, rows_max: int | None) -> tuple[Vector, bool, int]:
    named = {(TOPIC.name, partition): start for partition, start in enumerate(starts)}
    cut = aligned_cut(OBJECTS, view, named, rows_max=rows_max)
    return tuple(cut.offsets.values()), cut.stalled, cut.rows


partition_counts = st.integers(2, 3)
limits = st.none() | st.integers(1, 8)


@st.composite
def histories(draw: Any, entries_max: int = 6) -> list[ReadView]:
    """The views after each entry of a random history: fused transactions, early-published ones, plain appends."""
    partition_count = draw(partition_counts)
    history = History(partition_count)
    views = [history.view()]
    for _ in range(draw(st.integers(1, entries_max))):
        history.entry += 1
        for producer in draw(st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True)):
            action = draw(st.sampled_from(["publish", "publish", "end", "end", "plain"]))
            smallest = 0 if action == "end" else 1
            partitions = draw(st.sets(st.integers(0, partition_count - 1), min_size=smallest))
            history.step(producer, action, partitions, draw(st.integers(1, 2)))
        views.append(history.view())
    return views


@settings(max_examples=200, deadline=None)
@given(st.data(), histories(), limits)
def test_the_cut_is_the_one_that_trying_every_cut_finds(data: Any, views: list[ReadView], rows_max: int | None) -> None:
    view = views[-1]
    ends = [partition.log_end_offset for partition in view.partitions.values()]
    # Any start, such as a user's: in the middle of a transaction, of a segment, past the last stable offset.
    starts = tuple(data.draw(st.integers(0, end)) for end in ends)
    reference = Reference(view, starts)
    expected = reference.limited(rows_max)
    cut, stalled, rows = cut_of(view, starts, rows_max)

    assert at_most(starts, cut)
    assert at_most(cut, reference.stable)
    assert is_aligned(reference.records, cut)
    assert reference.taken(cut) == reference.taken(expected)
    assert rows == len(reference.taken(expected))
    assert stalled == (bool(reference.taken(reference.stable)) and not rows)
    for partition, offset in enumerate(cut):
        following = [record.offset for record in reference.records if record.partition == partition]
        assert offset == reference.stable[partition] or offset in following, "control records are passed"


@settings(max_examples=100, deadline=None)
@given(histories(entries_max=12))
def test_the_cut_never_goes_back_as_the_log_grows(views: list[ReadView]) -> None:
    cuts = [cut_of(view, (0,) * len(views[0].partitions), None)[0] for view in views]
    assert all(at_most(before, after) for before, after in pairwise(cuts))


@settings(max_examples=100, deadline=None)
@given(st.data(), histories(entries_max=10), st.integers(1, 6))
def test_micro_batches_hold_whole_transactions_and_arrive(data: Any, views: list[ReadView], rows_max: int) -> None:
    position: Vector = (0,) * len(views[0].partitions)
    everything = records_of(views[-1], position)

    def advanced(view: ReadView) -> Vector:
        cut, _, _ = cut_of(view, position, rows_max)
        assert at_most(position, cut)
        assert is_aligned(everything, cut), "a micro-batch ends inside a transaction"
        return cut

    for view in views:
        for _ in range(data.draw(st.integers(0, 2))):
            position = advanced(view)
    while (after := advanced(views[-1])) != position:
        position = after
    assert position == cut_of(views[-1], (0,) * len(position), None)[0]
