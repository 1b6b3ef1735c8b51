"""Doing a task of a compaction: the newest record of each key is copied into files that nothing names yet.

The keys are read first, then all records. Both times the segments are read one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.format.schema import OFFSET_COLUMN
from sparktxn.maintenance.rewriting.compactplan import CompactTask
from sparktxn.maintenance.rewriting.newestoffsets import NewestOffsets, newest_offsets
from sparktxn.maintenance.rewriting.rewritefiles import FileCopy, NewFiles
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.process.clock import Clock, Ids, RandomIds, SystemClock
from sparktxn.scan.storedrecords import stored_records
from sparktxn.store.registry import objects_of
from sparktxn.values import arguments
from sparktxn.values.structs import Compaction, SegmentRef

__all__ = ["CompactedFiles", "copy_newest", "run_compact_task"]

_DECODED_BYTES_MAX: Final = 128 * 1024 * 1024
"""So much of a new file is decoded at a time: by readers, and by the next compaction."""


class CompactedFiles(NewFiles, frozen=True):
    """What a task of a compaction has uploaded, of `replaced_records` records up to the end of `compaction`."""

    compaction: Compaction
    replaced_records: int


def run_compact_task(task: CompactTask, options: Mapping[str, Any] | None = None) -> CompactedFiles:
    """Do a task, in any process that can reach the store's objects; its result is for `apply_compact`.

    Files of a process that dies, or whose result is dropped, are invisible. A vacuum deletes them.

    Raises:
        DamagedObject: a segment is missing or is not what the log names.
        ViewExpired: a vacuum has passed the view that the task was planned in.
        StoreUnavailable: the store did not take a file.
        CommandRefused: a segment's records do not fit into one file (MESSAGE_TOO_LARGE).
    """
    arguments.instance("task", task, CompactTask)
    objects = objects_of(task.read.store_uri, arguments.mapping("options", options))
    return copy_newest(objects, RandomIds(), SystemClock(), task)


def copy_newest(objects: ObjectStore, ids: Ids, clock: Clock, task: CompactTask) -> CompactedFiles:
    """Do a task with an open object store; the errors are those of `run_compact_task`."""
    read = task.read
    choice = _Choice(task, newest_offsets(objects, read, task.buffer_bytes))
    copying = FileCopy(objects, ids, clock, task, _DECODED_BYTES_MAX)
    records = 0
    last: tuple[SegmentRef, pa.Table] | None = None
    for segment, rows in stored_records(objects, read, offsets=True):
        if segment.base_offset < read.start_offset:
            rows = rows.filter(pc.greater_equal(rows.column(OFFSET_COLUMN), read.start_offset))
        records += rows.num_rows
        left = choice.left_of(segment, rows)
        if left.num_rows:
            copying.add([segment], left, [left.num_rows])
            last = None
        elif rows.num_rows and not copying.segments:
            last = (segment, rows.slice(rows.num_rows - 1))
    copying.finish_file()
    if not copying.segments and last is not None:
        # A range without a record cannot be named, so that the newest one stays: it is a tombstone.
        segment, newest = last
        copying.add([segment], newest, [1])
        copying.finish_file()
    return CompactedFiles(**copying.made(), compaction=task.compaction, replaced_records=records)


class _Choice:
    """Which records are left: the newest of each key, and those without a key."""

    def __init__(self, task: CompactTask, newest: NewestOffsets) -> None:
        self._tombstones_end = task.compaction.tombstones_end
        self._newest = newest

    def left_of(self, segment: SegmentRef, rows: pa.Table) -> pa.Table:
        """Return what is left of the records of a segment."""
        keys = rows.column("key")
        newest = self._newest.between(segment.base_offset, segment.end_offset)
        if not len(newest) and not keys.null_count:
            return rows.slice(0, 0)
        offsets = rows.column(OFFSET_COLUMN)
        if len(newest) < rows.num_rows:
            rows = rows.filter(pc.or_(pc.is_null(keys), pc.is_in(offsets, value_set=newest)))
        if segment.base_offset < self._tombstones_end and rows.column("value").null_count:
            is_tombstone = pc.and_(pc.is_null(rows.column("value")), pc.is_valid(rows.column("key")))
            is_old = pc.less(rows.column(OFFSET_COLUMN), self._tombstones_end)
            rows = rows.filter(pc.invert(pc.and_(is_tombstone, is_old)))
        return rows
