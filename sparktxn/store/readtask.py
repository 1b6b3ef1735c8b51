"""The rows of a task, in a process that needs no log to read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sparktxn._foundation.values import arguments
from sparktxn._rows.scan.plan import ReadTask
from sparktxn._rows.scan.reader import read
from sparktxn.store.registry import objects_of

if TYPE_CHECKING:
    import pyarrow as pa


def read_task(
    task: ReadTask, options: Mapping[str, Any] | None = None, *, batch_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in offset order, in any process that can reach the store's objects.

    Raises:
        DamagedObject: a segment is missing or is not what the log names.
        ViewExpired: vacuum has passed the view that the task was planned in.
    """
    arguments.instance("task", task, ReadTask)
    batch_rows = arguments.integer_or_none("batch_rows", batch_rows, 1)
    yield from read(objects_of(task.store_uri, arguments.mapping("options", options)), task, batch_rows=batch_rows)
