"""The plan of a read of latest rows: which offsets of a keyed partition are superseded, and which rows are deletes.

Of a key the row with the greatest offset counts, and nothing else. So the plan reads the columns of the key alone, of
all rows of a view, whatever columns and conditions the read has: these come after it. Superseded is a property of an
offset, not of a file, so a rewrite changes nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from sparktxn._engine.format.schema import DELETED_COLUMN, TYPED_OFFSET_COLUMN
from sparktxn._rows.scan.plan import ReadTask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Offsets = NDArray[np.int64]

_ROWS_AT_ONCE: Final = 4_000_000
"""Keys of so many rows are compared at once: of more than that, in turns, by their hashes."""


class LatestPlan(Struct, frozen=True):
    """What a read of a partition's latest rows leaves out: offsets in their order, that are superseded or deletes."""

    superseded: Offsets
    deletes: Offsets

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return those of `rows` that are latest rows; they have a column of offsets, in their order."""
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


def plan_latest(
    tasks: Sequence[ReadTask], key: Sequence[str], read: Callable[[ReadTask], Iterable[pa.RecordBatch]]
) -> LatestPlan:
    """Return the plan of a partition.

    Args:
        tasks: those that read `plan_columns` of all rows of the partition in a view, in the order of their offsets.
        key: the columns of the key.
        read: returns a task's rows, as `read_task` does. It is called anew for each turn.

    Raises:
        DamagedObject: a segment is missing or altered.
        ViewExpired: a segment is missing because the vacuum has passed the view.
    """
    import numpy as np

    count = sum(segment.row_count for task in tasks for segment in task.segments)
    turns = max(1, -(-count // _ROWS_AT_ONCE))
    superseded, deletes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for turn in range(turns):
        batches = [rows for task in tasks for rows in read(task) if rows.num_rows]
        if turns > 1:
            batches = [_of_turn(rows, key, turn, turns) for rows in batches]
        if not batches:
            break
        for found, part in zip((superseded, deletes), _hidden(pa.Table.from_batches(batches), key), strict=True):
            found.append(part)
    return LatestPlan(np.sort(np.concatenate(superseded)), np.sort(np.concatenate(deletes)))


def _of_turn(rows: pa.RecordBatch, key: Sequence[str], turn: int, turns: int) -> pa.RecordBatch:
    from sparktxn._engine.format.keytext import hashes, key_texts

    return rows.filter(pa.array(hashes(key_texts([rows.column(name) for name in key])) % turns == turn))


def _hidden(rows: pa.Table, key: Sequence[str]) -> tuple[Offsets, Offsets]:
    """Return the superseded offsets of rows, and those of deletes that are not superseded."""
    import numpy as np

    newest = rows.group_by(list(key)).aggregate([(TYPED_OFFSET_COLUMN, "max")])
    winners = np.sort(newest.column(f"{TYPED_OFFSET_COLUMN}_max").to_numpy())
    offsets = rows.column(TYPED_OFFSET_COLUMN).to_numpy()
    is_latest = np.zeros(len(offsets), np.bool_)
    is_latest[np.searchsorted(offsets, winners)] = True
    deleted = pc.fill_null(rows.column(DELETED_COLUMN), False).to_numpy()
    return offsets[~is_latest], offsets[is_latest & deleted]
