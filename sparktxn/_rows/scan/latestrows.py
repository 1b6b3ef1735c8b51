"""The plan of a read of latest rows: which offsets of a keyed partition are superseded, and which rows are deletes.

Of a key the row with the greatest offset counts, and nothing else. So the plan reads the columns of the key alone,
whatever columns the read has, and its conditions on other columns come after. One on columns of the key is met by all
rows of a key or by none, so it leaves files and partitions out of the plan. Superseded is a property of an offset, not
of a file, so a rewrite changes nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from sparktxn._engine.format.schema import DELETED_COLUMN, TYPED_OFFSET_COLUMN
from sparktxn._rows.scan.conditions import Condition, matching
from sparktxn._rows.scan.plan import ReadTask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Offsets = NDArray[np.int64]

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

_ROWS_AT_ONCE: Final = 4_000_000
"""Keys of so many rows are compared at once: of more than that, in turns, by their hashes."""

_KEYS_MAX: Final = 1_000_000
"""The most keys whose partitions are computed to read those alone."""


class LatestPlan(Struct, frozen=True):
    """What a read of a partition's latest rows leaves out: offsets in their order, that are superseded or deletes."""

    superseded: Offsets
    deletes: Offsets

    def with_deletes_from(self, offset: int) -> LatestPlan:
        """Return a plan that leaves deletes in, but for those below `offset`."""
        return LatestPlan(self.superseded, self.deletes[: self.deletes.searchsorted(offset)])

    def of(self, rows: Rows) -> Rows:
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


def plan_latest(
    tasks: Sequence[ReadTask], key: Sequence[str], read: Callable[[ReadTask], Iterable[pa.RecordBatch]]
) -> LatestPlan:
    """Return the plan of a partition, for the rows that meet the conditions of the tasks.

    Args:
        tasks: those that read `plan_columns` of a partition in a view, in the order of their offsets, with conditions
            on the key alone, the same in each.
        key: the columns of the key.
        read: returns a task's rows, as `read_task` does. It is called anew for each turn.

    Raises:
        DamagedObject: a segment is missing or altered.
        ViewExpired: a segment is missing because the vacuum has passed the view.
    """
    import numpy as np

    count = sum(segment.row_count for task in tasks for segment in task.segments)
    turns = max(1, -(-count // _ROWS_AT_ONCE))
    if turns == 1 or tasks[0].conditions:
        found = _found_at_once(tasks, read)
        if found is not None:
            return LatestPlan(*_hidden(found, key))
    superseded, deletes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for turn in range(turns):
        batches = [_of_turn(rows, key, turn, turns) for task in tasks for rows in _matching(task, read)]
        for hidden, part in zip((superseded, deletes), _hidden(batches, key), strict=True):
            hidden.append(part)
    return LatestPlan(np.sort(np.concatenate(superseded)), np.sort(np.concatenate(deletes)))


def _found_at_once(
    tasks: Iterable[ReadTask], read: Callable[[ReadTask], Iterable[pa.RecordBatch]]
) -> list[pa.RecordBatch] | None:
    """Return the rows that meet the tasks' conditions; None if they are more than are compared at once."""
    found, count = [], 0
    for task in tasks:
        for rows in _matching(task, read):
            count += rows.num_rows
            if count > _ROWS_AT_ONCE:
                return None
            found.append(rows)
    return found


def _matching(task: ReadTask, read: Callable[[ReadTask], Iterable[pa.RecordBatch]]) -> Iterable[pa.RecordBatch]:
    found = (matching(rows, task.conditions) for rows in read(task) if rows.num_rows)
    return (rows for rows in found if rows.num_rows)


def _of_turn(rows: pa.RecordBatch, key: Sequence[str], turn: int, turns: int) -> pa.RecordBatch:
    from sparktxn._engine.format.keytext import hashes, key_texts

    return rows.filter(pa.array(hashes(key_texts([rows.column(name) for name in key])) % turns == turn))


def _hidden(batches: Sequence[pa.RecordBatch], key: Sequence[str]) -> tuple[Offsets, Offsets]:
    """Return the superseded offsets of rows, and those of deletes that are not superseded, in their order."""
    import numpy as np

    if not batches:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows = pa.Table.from_batches(batches)
    newest = rows.group_by(list(key)).aggregate([(TYPED_OFFSET_COLUMN, "max")])
    winners = np.sort(newest.column(f"{TYPED_OFFSET_COLUMN}_max").to_numpy())
    offsets = rows.column(TYPED_OFFSET_COLUMN).to_numpy()
    is_latest = np.zeros(len(offsets), np.bool_)
    is_latest[np.searchsorted(offsets, winners)] = True
    deleted = pc.fill_null(rows.column(DELETED_COLUMN), False).to_numpy()
    return offsets[~is_latest], offsets[is_latest & deleted]
