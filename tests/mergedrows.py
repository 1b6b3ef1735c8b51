"""Merged files as another engine reads them: by the offsets that they hold, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparktxn import ReadTask, Store, read_task
from sparktxn.store import merged_files

__all__ = ["check_merged_rows"]

Row = tuple[int, int, dict[str, Any]]


def check_merged_rows(store: Store, tasks: Iterable[ReadTask]) -> None:
    """Pass if the rows of tasks are those of their merged files, by offset, and those of what is left to Python."""
    tasks = list(tasks)
    files, rest = merged_files(tasks)
    assert not any(segment.has_offset_column for task in rest for segment in task.segments)
    found = _read(store, rest)
    for file in files:
        task = file.task
        offset, columns = _names(task)
        data = store.log.objects.get(task.segment_name(task.segments[0]))
        rows = pq.read_table(pa.BufferReader(data), partitioning=None).to_pylist()
        is_read = [not file.ranges or any(start <= row[offset] < end for start, end in file.ranges) for row in rows]
        found += [
            (task.partition, row[offset], {name: row.get(name) for name in columns})
            for row, wanted in zip(rows, is_read, strict=True)
            if wanted
        ]
        assert bool(file.ranges) or all(is_read)
    assert sorted(found, key=lambda row: row[:2]) == sorted(_read(store, tasks), key=lambda row: row[:2])


def _names(task: ReadTask) -> tuple[str, list[str]]:
    """The column of offsets of a task's topic, and those that are compared."""
    if task.schema is None:
        return "offset", ["key", "value"]
    return "_offset", [name for name, *_ in task.schema]


def _read(store: Store, tasks: Iterable[ReadTask]) -> list[Row]:
    found = []
    for task in tasks:
        offset, columns = _names(task)
        rows = (row for batch in read_task(task, store.options) for row in batch.to_pylist())
        found += [(task.partition, row[offset], {name: row[name] for name in columns}) for row in rows]
    return found
