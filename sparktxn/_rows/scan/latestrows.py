"""The plan of a read of latest rows: which offsets of a keyed partition are superseded, and which rows are deletes.

Of a key the row with the greatest offset counts, and nothing else. So the plan reads the columns of the key alone,
whatever columns the read has, and its conditions on other columns come after. One on columns of the key is met by all
rows of a key or by none, so it leaves files and partitions out of the plan. Superseded is a property of an offset, not
of a file, so a rewrite changes nothing of it.

What a compaction has left is the *base*: its keys differ, so that only the keys of the *tail*, the rows after it, have
to be looked up there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format.schema import DELETED_COLUMN, TYPED_OFFSET_COLUMN
from sparktxn._engine.log.views.readview import PartitionView
from sparktxn._rows.scan.conditions import Condition, matching
from sparktxn._rows.scan.plan import ReadTask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sparktxn._rows.scan.superseded import KeyRows

    Offsets = NDArray[np.int64]

SomeRows = TypeVar("SomeRows", pa.RecordBatch, pa.Table)

MEMORY_BYTES: Final = 384 * 1024 * 1024
"""Keys and offsets that take so much memory are compared at once: of more than that, in turns, by their hashes."""

_ROW_BYTES_MIN: Final = 16
_JOINED_KEYS_MAX: Final = 2_000_000
"""A base is joined with a tail of at most so many rows: with more keys, a join takes more memory than that saves."""

_KEYS_MAX: Final = 1_000_000
"""The most keys whose partitions are computed to read those alone."""


class LatestPlan(Struct, frozen=True):
    """What a read of a partition's latest rows leaves out: offsets in their order, that are superseded or deletes."""

    superseded: Offsets
    deletes: Offsets

    def with_deletes_from(self, offset: int) -> LatestPlan:
        """Return a plan that leaves deletes in, but for those below `offset`."""
        return LatestPlan(self.superseded, self.deletes[: self.deletes.searchsorted(offset)])

    def of(self, rows: SomeRows) -> SomeRows:
        """Return those of `rows`, at least one, that are latest rows; they have a column of offsets, in their order."""
        offsets = rows.column(TYPED_OFFSET_COLUMN).to_numpy()
        kept = None
        for hidden in (self.superseded, self.deletes):
            first, end = hidden.searchsorted(offsets[0]), hidden.searchsorted(offsets[-1], side="right")
            if first < end:
                some = hidden[first:end]
                places = offsets.searchsorted(some)
                # A read may have left rows out already.
                places = places[offsets[places] == some]
                if kept is None:
                    kept = offsets >= 0
                kept[places] = False
        return rows if kept is None else rows.filter(pa.array(kept))


def without_deletes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return those of `rows`, with the column that says "deleted", that are not deletes."""
    deleted = rows.column(DELETED_COLUMN)
    return rows.filter(pc.invert(deleted)) if pc.any(deleted).as_py() else rows


def plan_columns(key: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that a plan reads."""
    return (*key, DELETED_COLUMN, TYPED_OFFSET_COLUMN)


def key_conditions(key: Sequence[str], conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return those of `conditions` that are on columns of the key."""
    return tuple(condition for condition in conditions if condition.column in key)


def key_partitions(
    key: Sequence[str], conditions: Sequence[Condition], schema: pa.Schema, partition_count: int
) -> Collection[int]:
    """Return the partitions with all rows whose key meets `conditions`: all of them, unless they name whole keys.

    Args:
        key: the columns of the key.
        conditions: conditions on these columns.
        schema: has them with their types.
        partition_count: how many partitions the topic has.
    """
    columns = []
    for name in key:
        own = [condition for condition in conditions if condition.column == name]
        named = next((condition for condition in own if condition.operator in ("=", "in")), None)
        if named is None:
            return range(partition_count)
        values = named.value if named.operator == "in" else (named.value,)
        column = pa.array(values, schema.field(name).type).unique()
        columns.append(matching(pa.record_batch({name: column}), own).column(0))
    lengths = [len(column) for column in columns]
    if prod(lengths) > _KEYS_MAX:
        return range(partition_count)
    return _partitions_of(columns, lengths, partition_count) if prod(lengths) else ()


def _partitions_of(columns: Sequence[pa.Array], lengths: Sequence[int], partition_count: int) -> Collection[int]:
    """Return the partitions of all keys that have one of the values of each column."""
    import numpy as np

    from sparktxn._engine.format.keytext import key_texts, partitions_of_texts

    places = np.indices(lengths).reshape(len(lengths), -1)
    keys = [column.take(pa.array(place)) for column, place in zip(columns, places, strict=True)]
    return sorted(partitions_of_texts(key_texts(keys), partition_count).unique().to_pylist())


def base_end(view: PartitionView) -> int:
    """Return the offset below which no key of a keyed partition is there twice: the end of its compaction, or 0."""
    return 0 if view.compacted is None else view.compacted.end_offset


def plan_latest(
    tasks: Sequence[ReadTask],
    key: Sequence[str],
    read: Callable[[ReadTask], Iterable[pa.RecordBatch]],
    base_end: int = 0,
    *,
    memory_bytes: int = MEMORY_BYTES,
    finds_deletes: bool = True,
) -> LatestPlan:
    """Return the plan of a partition, for the rows that meet the conditions of the tasks.

    What lies below `base_end` is the base: a row of it is superseded if the tail, which is the rest, has its key. A
    tail that takes too much memory, and a partition without a base, are compared as a whole.

    Args:
        tasks: those that read a partition in a view, in the order of their offsets, with conditions on the key alone,
            the same in each. Their columns do not matter.
        key: the columns of the key.
        read: returns a task's rows, as `read_task` does. It may be called more than once for each.
        base_end: as the function `base_end` says of the view.
        memory_bytes: how much memory keys may take, about; comparing them takes as much again.
        finds_deletes: whether deletes are asked for, too; otherwise the plan has none.

    Raises:
        DamagedObject: a segment is missing or altered.
        ViewExpired: a segment is missing because the vacuum has passed the view.
    """
    import numpy as np

    from sparktxn._rows.scan.superseded import hidden_offsets, ordered, superseded_by

    columns = plan_columns(key) if finds_deletes else (*key, TYPED_OFFSET_COLUMN)
    conditions = tasks[0].conditions if tasks else ()
    found = partial(_found, read=read, columns=columns, conditions=conditions)
    base = _between(tasks, 0, base_end)
    tail = _tail(found(_between(tasks, base_end)), key, memory_bytes) if base else None
    if tail is None:
        count = 0 if conditions else sum(segment.row_count for task in tasks for segment in task.segments)
        shares = max(1, -(-count * _ROW_BYTES_MIN // memory_bytes))
        return LatestPlan(*hidden_offsets(partial(found, tasks), key, memory_bytes, shares))
    superseded: list[Offsets] = []
    deletes: list[Offsets] = []
    if tail.count:
        rows = found(base if finds_deletes else _near(base, tail))
        superseded += map(_offsets, superseded_by(tail, _noting(rows, deletes)))
    elif finds_deletes:
        own = dict.fromkeys(condition.column for condition in conditions)
        columns = (*own, DELETED_COLUMN, TYPED_OFFSET_COLUMN)
        deletes += [_deletes(rows) for rows in _found(base, read=read, columns=columns, conditions=conditions)]
    below = ordered(superseded)
    others = np.setdiff1d(ordered(deletes), below, assume_unique=True)
    return LatestPlan(*map(np.concatenate, zip((below, others), tail.hidden(), strict=True)))


def _found(
    tasks: Iterable[ReadTask],
    *,
    read: Callable[[ReadTask], Iterable[pa.RecordBatch]],
    columns: tuple[str, ...],
    conditions: Sequence[Condition],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks that meet all `conditions`, with `columns`."""
    for task in tasks:
        for rows in read(replace(task, columns=columns)):
            found = matching(rows, conditions) if rows.num_rows else rows
            if found.num_rows:
                yield found


def _between(tasks: Iterable[ReadTask], start: int, end: int | None = None) -> list[ReadTask]:
    """Return tasks that read what others have from offset `start` on, up to `end`; none without segments."""
    found = []
    for task in tasks:
        first, last = max(start, task.start_offset), task.end_offset if end is None else min(end, task.end_offset)
        own = tuple(each for each in task.segments if each.base_offset < last and each.end_offset > first)
        if own and first < last:
            found.append(replace(task, start_offset=first, end_offset=last, segments=own))
    return found


def _tail(found: Iterable[pa.RecordBatch], key: Sequence[str], memory_bytes: int) -> KeyRows | None:
    """Return the rows of a tail, with which a base is joined; None if they are too many."""
    from sparktxn._rows.scan.superseded import KeyRows

    tail = KeyRows(key)
    for rows in found:
        tail.add(rows)
        if tail.count > _JOINED_KEYS_MAX or tail.size_bytes > memory_bytes:
            return None
    return tail


def _near(base: Iterable[ReadTask], tail: KeyRows) -> list[ReadTask]:
    """Return tasks that leave out what no key of a tail can be in, by the statistics of files."""
    column = tail.keys().column(0)
    if pa.types.is_boolean(column.type):
        return list(base)
    ends = pc.min_max(column).as_py()
    name = tail.keys().column_names[0]
    near = (Condition(name, ">=", ends["min"]), Condition(name, "<=", ends["max"]))
    return [replace(task, conditions=(*task.conditions, *near)) for task in base]


def _noting(found: Iterable[pa.RecordBatch], deletes: list[Offsets]) -> Iterator[pa.RecordBatch]:
    """Yield rows without the column that says "deleted", and note which of them are, if they have it."""
    for rows in found:
        if DELETED_COLUMN in rows.schema.names:
            deletes.append(_deletes(rows))
            yield rows.drop_columns([DELETED_COLUMN])
        else:
            yield rows


def _deletes(rows: pa.RecordBatch) -> Offsets:
    return _offsets(rows.filter(pc.fill_null(rows.column(DELETED_COLUMN), False)))


def _offsets(rows: SomeRows) -> Offsets:
    offsets: Offsets = rows.column(TYPED_OFFSET_COLUMN).to_numpy()
    return offsets
