"""Transaction-aligned cuts (PROTOCOL.md, "Aligned cuts"): where a batch or micro-batch may end.

A cut is an offset per partition. It is *aligned* if every transaction's records from the start on are all below it or
all not below it. Aligned cuts are closed under the greatest and the least of each partition's offsets. So there is one
greatest aligned cut at or below any bound, and one least aligned cut that includes a given record.

A transaction that has not ended has all its records at or above the last stable offset. So a cut that is aligned now is
aligned in every later view: cuts never go back.

What a partition's compaction covers is one transaction. A compaction leaves only some records of a transaction, and
which of them depends on those after it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Literal, NamedTuple

from sparktxn.errors import ConfigurationError
from sparktxn.log.look.views import ReadView
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.scan.commitorder import compacted_entry
from sparktxn.scan.metadata import committed_ranges
from sparktxn.scan.plan import segments_between
from sparktxn.state.internal import entry_of, first_offset, is_internal
from sparktxn.structs import NO_PRODUCER_ID, NO_TRANSACTION

__all__ = ["Alignment", "Cut", "aligned_cut"]

Alignment = Literal["transaction", "lso"]

TopicPartition = tuple[str, int]


class Cut(NamedTuple):
    """Where to end: an offset for every partition of the view, never below its start.

    `rows` counts the records below it, from the start on. `stalled` says that there are records below the last stable
    offsets and yet no aligned cut above the start. Transactions that overlap in a chain hold it (option
    ``alignment=lso`` ignores them).
    """

    offsets: dict[TopicPartition, int]
    stalled: bool
    rows: int


def aligned_cut(
    objects: ObjectStore,
    view: ReadView,
    starts: Mapping[TopicPartition, int],
    *,
    rows_max: int | None = None,
    alignment: Alignment = "transaction",
) -> Cut:
    """Where a reader of committed records that has read up to `starts` may go on to.

    A partition that `starts` does not name starts at its log start offset. With `rows_max` the cut takes the log's
    entries whole, oldest first, while their records stay within it. If that includes no whole transaction, it includes
    the oldest possible one, however large, with what depends on it. With ``alignment="lso"`` transactions are not kept
    whole, and `rows` counts offsets. The limit is shared out in proportion to what each partition has, as Kafka's
    connector does. Internal topics are cut between entries, of which they get `rows_max` each; their rows, which are
    not computed yet, are not in `rows`.

    Raises:
        ConfigurationError: `rows_max` is below 1, or the alignment is unknown.
        DamagedObject: a manifest is missing or altered.
        ViewExpired: a manifest is missing because the vacuum has passed the view.
    """
    if rows_max is not None and rows_max < 1:
        raise ConfigurationError(f"the limit of rows is {rows_max}: expected 1 or more")
    if alignment not in ("transaction", "lso"):
        raise ConfigurationError(f"alignment {alignment!r} is unknown: expected 'transaction' or 'lso'")
    lows = {key: max(starts.get(key, 0), partition.log_start_offset) for key, partition in view.partitions.items()}
    internal = {key: lows.pop(key) for key, partition in view.partitions.items() if is_internal(partition.topic)}
    whole = alignment == "transaction"
    cut = _Backlog(objects, view, lows).cut(rows_max) if whole else _proportional_cut(view, lows, rows_max)
    if not internal:
        return cut
    ends = {key: _history_end(low, view.partitions[key].log_end_offset, rows_max) for key, low in internal.items()}
    return cut._replace(offsets={**cut.offsets, **ends})


def _history_end(low: int, end: int, entries_max: int | None) -> int:
    """Where a cut of an internal topic ends: entries are whole, and one mostly gives a few rows."""
    return end if entries_max is None else max(low, min(end, first_offset(entry_of(low) + entries_max)))


def _proportional_cut(view: ReadView, lows: dict[TopicPartition, int], rows_max: int | None) -> Cut:
    ends = {key: max(low, view.partitions[key].last_stable_offset) for key, low in lows.items()}
    total = sum(ends[key] - low for key, low in lows.items())
    if rows_max is not None and total > rows_max:
        for key, low in lows.items():
            share = rows_max * (ends[key] - low) / total
            # As in Kafka's connector: a small partition still gets its turn.
            ends[key] = min(ends[key], low + (math.ceil(share) if share < 1 else math.floor(share)))
    return Cut(ends, False, sum(ends[key] - low for key, low in lows.items()))


class _Part(NamedTuple):
    """The records of one segment, from the start on."""

    partition: int
    base: int
    end: int
    entry: int
    unit: int
    rows: int


_Offsets = list[int]
"""An offset per partition, by the partition's index in the backlog."""


class _Backlog:
    """All that a view holds from the starts on, by partition and by unit: a transaction, or a segment outside one.

    Half transactions that one entry has committed are one unit.
    """

    def __init__(self, objects: ObjectStore, view: ReadView, lows: dict[TopicPartition, int]) -> None:
        self._keys = list(lows)
        self._lows: _Offsets = list(lows.values())
        self._stable: _Offsets = []
        self._parts: list[list[_Part]] = []
        self._bases: list[_Offsets] = []
        self._units: list[list[_Part]] = []
        transactions: dict[tuple[int, int], int] = {}
        whole_to = max((compacted_entry(view.partitions[key], low) for key, low in lows.items()), default=0)
        compacted: set[int] = set()
        for index, (key, low) in enumerate(lows.items()):
            partition = view.partitions[key]
            covered = partition.compacted if compacted_entry(partition, low) else None
            compacted_end = covered.end_offset if covered else 0
            parts = []
            # Past the last stable offset too: a committed transaction may have records on both sides of it.
            found = segments_between(objects, partition, low, partition.log_end_offset)
            for segment in committed_ranges(partition).noted(found) if whole_to else found:
                unit = len(self._units)
                if segment.transaction != NO_TRANSACTION:
                    unit = transactions.setdefault((segment.producer_id, segment.transaction), unit)
                elif segment.producer_id == NO_PRODUCER_ID:
                    # Of half transactions: those that one entry has committed stay together.
                    unit = transactions.setdefault((NO_PRODUCER_ID, segment.entry), unit)
                base, end = max(low, segment.base_offset), segment.end_offset
                part = _Part(index, base, end, segment.entry, unit, segment.rows_between(base, end))
                parts.append(part)
                if segment.base_offset < compacted_end or 0 < segment.committed_entry <= whole_to:
                    compacted.add(unit)
                if unit == len(self._units):
                    self._units.append([part])
                else:
                    self._units[unit].append(part)
            self._parts.append(parts)
            self._bases.append([part.base for part in parts])
            self._stable.append(max(low, partition.last_stable_offset))
        self._join(compacted)

    def _join(self, units: set[int]) -> None:
        """Make one unit of several."""
        if len(units) < 2:
            return
        joined = min(units)
        for parts in self._parts:
            parts[:] = [part._replace(unit=joined) if part.unit in units else part for part in parts]
        self._units[joined] = [part for parts in self._parts for part in parts if part.unit == joined]

    def cut(self, rows_max: int | None) -> Cut:
        """The cut that `aligned_cut` promises."""
        greatest = self._lowered(list(self._stable))
        offsets, rows = greatest, self._rows_below(greatest)
        stalled = rows == 0 and self._rows_below(self._stable) > 0
        if rows_max is not None and rows > rows_max:
            offsets = self._lowered(self._bound(greatest, rows_max))
            if self._rows_below(offsets) == 0:
                offsets = self._closed_over(self._oldest_below(greatest).unit)
            rows = self._rows_below(offsets)
        offsets = [self._past_gap(index, offset) for index, offset in enumerate(offsets)]
        return Cut(dict(zip(self._keys, offsets, strict=True)), stalled, rows)

    def _lowered(self, cut: _Offsets) -> _Offsets:
        """The greatest aligned cut at or below `cut`, which it changes.

        A transaction with records at or above the cut is taken out whole. In every partition the cut goes down to its
        first record there, which may put others above it. Each segment is checked once.
        """
        taken_out = bytearray(len(self._units))
        looked_at = [len(parts) for parts in self._parts]
        queue = list(range(len(cut)))
        while queue:
            index = queue.pop()
            position = bisect_left(self._bases[index], cut[index], hi=looked_at[index])
            for part in self._parts[index][position : looked_at[index]]:
                if taken_out[part.unit]:
                    continue
                taken_out[part.unit] = True
                for other in self._units[part.unit]:
                    if other.base < cut[other.partition]:
                        cut[other.partition] = other.base
                        queue.append(other.partition)
            looked_at[index] = position
        return cut

    def _bound(self, limit: _Offsets, rows_max: int) -> _Offsets:
        """How far below `limit` the oldest entries go whose records, each entry's whole, stay within `rows_max`."""
        rows_by_entry: dict[int, int] = {}
        for parts, end in zip(self._parts, limit, strict=True):
            for part in parts:
                if part.base >= end:
                    break
                rows_by_entry[part.entry] = rows_by_entry.get(part.entry, 0) + part.rows
        rows = 0
        for first_left_out in sorted(rows_by_entry):
            rows += rows_by_entry[first_left_out]
            if rows > rows_max:
                break
        bound = []
        for parts, end in zip(self._parts, limit, strict=True):
            position = bisect_left(parts, first_left_out, key=_entry)
            bound.append(min(end, parts[position].base) if position < len(parts) else end)
        return bound

    def _oldest_below(self, cut: _Offsets) -> _Part:
        """The first records that lie below a cut with records below it."""
        firsts = [parts[0] for parts, end in zip(self._parts, cut, strict=True) if parts and parts[0].base < end]
        return min(firsts, key=_entry)

    def _closed_over(self, unit: int) -> _Offsets:
        """The least aligned cut that takes in a transaction: with all that lies before its records, and so on."""
        cut = list(self._lows)
        taken_in = {unit}
        stack = [unit]
        while stack:
            for part in self._units[stack.pop()]:
                parts, bases = self._parts[part.partition], self._bases[part.partition]
                for before in parts[bisect_left(bases, cut[part.partition]) : bisect_left(bases, part.end)]:
                    if before.unit not in taken_in:
                        taken_in.add(before.unit)
                        stack.append(before.unit)
                cut[part.partition] = max(cut[part.partition], part.end)
        return cut

    def _past_gap(self, index: int, offset: int) -> int:
        """`offset` moved past control records, to the next record or the last stable offset: nothing is to be read."""
        position = bisect_left(self._bases[index], offset)
        following = self._bases[index][position : position + 1]
        return max(offset, min([self._stable[index], *following]))

    def _rows_below(self, cut: _Offsets) -> int:
        rows = 0
        for parts, end in zip(self._parts, cut, strict=True):
            for part in parts:
                if part.base >= end:
                    break
                rows += part.rows
        return rows


def _entry(part: _Part) -> int:
    return part.entry
