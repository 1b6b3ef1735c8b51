"""The rows of a task, in a process that needs no log to read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sparktxn._foundation.values import arguments
from sparktxn._rows.scan.latesttask import LatestTask
from sparktxn._rows.scan.plan import ReadTask
from sparktxn._rows.scan.reader import read
from sparktxn.store.registry import objects_of

if TYPE_CHECKING:
    import pyarrow as pa


def read_task(
    task: ReadTask | LatestTask, options: Mapping[str, Any] | None = None, *, batch_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in offset order, in any process that can reach the store's objects.

    Of a task of latest rows it reads the columns of the key first, to know which rows these are.

    Raises:
        DamagedObject: a segment is missing or is not what the log names.
        ViewExpired: vacuum has passed the view that the task was planned in.
    """
    arguments.instance("task", task, (ReadTask, LatestTask), "a ReadTask or a LatestTask")
    batch_rows = arguments.integer_or_none("batch_rows", batch_rows, 1)
    read_part = partial(read, objects_of(task.store_uri, arguments.mapping("options", options)), batch_rows=batch_rows)
    yield from task.rows(read_part) if isinstance(task, LatestTask) else read_part(task)
