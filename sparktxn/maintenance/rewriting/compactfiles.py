"""Doing a task of a compaction: the newest offset of each key, whose record is copied into files with no name yet.

The keys are read first, then all records. Both times the segments are read one after the other. Keyed topics are
compacted by the plan that readers of their latest rows have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.schema import OFFSET_COLUMN, offset_column
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.process.clock import Clock, Ids, RandomIds, SystemClock
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import Compaction, SegmentRef
from sparktxn._rows.scan.latestrows import plan_latest
from sparktxn._rows.scan.plan import ReadTask
from sparktxn._rows.scan.reader import read as read_rows
from sparktxn._rows.scan.storedrecords import stored_records
from sparktxn.maintenance.rewriting.compactplan import CompactTask
from sparktxn.maintenance.rewriting.rewritefiles import FileCopy, NewFiles
from sparktxn.store.registry import objects_of

# The newest offset of each key of some segments, in bounded memory whatever the number of keys.
#
# Keys are compared as they are, so that no collision can lose a record; Kafka's cleaner keeps a hash of each key. If
# the keys take too much memory, half of them by a hash is put off to another reading of the keys, and so on.

_KEY: Final = "key"
_WAITING_BYTES: Final = 8 * 1024 * 1024
_SHARES_MAX: Final = 1 << 16
_HASHED_ROWS: Final = 65_536


class NewestOffsets:
    """A set of offsets, in order."""

    def __init__(self, offsets: pa.Array) -> None:
        self._offsets = offsets
        self._sorted = memoryview(offsets.buffers()[1]).cast("q") if len(offsets) else memoryview(b"").cast("q")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._offsets)

    def between(self, start: int, end: int) -> pa.Array:
        """Return those from `start` to `end` (exclusive)."""
        length = len(self._offsets)
        first = bisect_left(self._sorted, start, hi=length)
        return self._offsets.slice(first, bisect_left(self._sorted, end, lo=first, hi=length) - first)


def newest_offsets(objects: ObjectStore, read: ReadTask, buffer_bytes: int) -> NewestOffsets:
    """Return the greatest offset of each key that the segments of `read` have from its start to its end.

    Records without a key have none. The keys are read once for each `buffer_bytes` that they and their offsets take.

    Raises:
        DamagedObject: a segment is missing or altered.
        ViewExpired: a segment is missing because the vacuum has passed the view of `read`.
    """
    found: list[pa.ChunkedArray] = []
    shares = [_Share(1, 0)]
    while shares:
        share = shares.pop()
        newest = _Newest()
        for rows in _keys(objects, read):
            newest.add(share.own(rows))
            while newest.size_bytes > buffer_bytes and share.of < _SHARES_MAX:
                share, other = share.halves()
                shares.append(other)
                newest.keep(share)
        found.append(newest.offsets())
    whole = pa.chunked_array([chunk for each in found for chunk in each.chunks], pa.int64()).combine_chunks()
    return NewestOffsets(whole.take(pc.array_sort_indices(whole)))


class _Share:
    """The keys whose hash leaves `remainder` when it is divided by `of`."""

    def __init__(self, of: int, remainder: int) -> None:
        self.of = of
        self._remainder = remainder

    def halves(self) -> tuple[_Share, _Share]:
        """Return two shares that have its keys."""
        return _Share(2 * self.of, self._remainder), _Share(2 * self.of, self._remainder + self.of)

    def own(self, rows: pa.Table) -> pa.Table:
        """Return the rows whose keys are in this share."""
        if self.of == 1:
            return rows
        masks = []
        for batch in rows.to_batches(max_chunksize=_HASHED_ROWS):
            keys = batch.column(_KEY).to_pylist()
            masks.append(pa.array([crc32(key) % self.of == self._remainder for key in keys], pa.bool_()))
        return rows.filter(pa.chunked_array(masks, pa.bool_()))


class _Newest:
    """The greatest offset by key, of what has been added."""

    def __init__(self) -> None:
        self._known: pa.Table | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0

    @property
    def size_bytes(self) -> int:
        """How much memory the keys and offsets take that are known to differ."""
        return self._known.nbytes if self._known is not None else 0

    def add(self, rows: pa.Table) -> None:
        """Add keys and their offsets."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        # Grouping costs by what is known: it waits for as much again.
        if self._waiting_bytes > max(_WAITING_BYTES, self.size_bytes // 2):
            self._group()

    def keep(self, share: _Share) -> None:
        """Forget the keys that are not in `share`."""
        if self._known is not None:
            self._known = share.own(self._known)
        self._waiting = [share.own(rows) for rows in self._waiting]

    def offsets(self) -> pa.ChunkedArray:
        """Return the offsets."""
        self._group()
        return pa.chunked_array([], pa.int64()) if self._known is None else self._known.column(OFFSET_COLUMN)

    def _group(self) -> None:
        tables = [*([] if self._known is None else [self._known]), *self._waiting]
        if not self._waiting:
            return
        self._known, self._waiting, self._waiting_bytes = None, [], 0
        rows = pa.concat_tables(tables)
        del tables
        grouped = rows.group_by(_KEY, use_threads=False).aggregate([(OFFSET_COLUMN, "max")])
        # Grouping makes all columns nullable.
        columns = [grouped.column(_KEY), grouped.column(f"{OFFSET_COLUMN}_max")]
        self._known = pa.Table.from_arrays(columns, schema=rows.schema)


def _keys(objects: ObjectStore, read: ReadTask) -> Iterator[pa.Table]:
    """Yield the keys and offsets of the records that have keys, from the start of `read` to its end."""
    for segment, rows in stored_records(objects, read, [_KEY], offsets=True):
        if rows.column(_KEY).null_count:
            rows = rows.filter(pc.is_valid(rows.column(_KEY)))
        if segment.base_offset < read.start_offset:
            rows = rows.filter(pc.greater_equal(rows.column(OFFSET_COLUMN), read.start_offset))
        if rows.num_rows:
            yield rows


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
    left_of = _latest_of(objects, task) if task.key else _newest_of(objects, task)
    copying = FileCopy(objects, ids, clock, task, _DECODED_BYTES_MAX)
    records = 0
    last: tuple[SegmentRef, pa.Table] | None = None
    for segment, rows in stored_records(objects, read, offsets=True):
        if segment.base_offset < read.start_offset:
            rows = rows.filter(pc.greater_equal(rows.column(offset_column(rows.schema)), read.start_offset))
        records += rows.num_rows
        left = left_of(segment, rows) if rows.num_rows else rows
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


LeftOf = Callable[[SegmentRef, pa.Table], pa.Table]
"""Returns what is left of the records of a segment: the newest of each key."""


def _latest_of(objects: ObjectStore, task: CompactTask) -> LeftOf:
    """Return what leaves the newest row of each key of a keyed topic, deletes above the tombstones' end among them."""
    read, memory_bytes = partial(read_rows, objects), task.buffer_bytes
    plan = plan_latest([task.read], task.key, read, task.clean_end, memory_bytes=memory_bytes)
    plan = plan.with_deletes_from(task.compaction.tombstones_end)
    return lambda segment, rows: plan.of(rows)


def _newest_of(objects: ObjectStore, task: CompactTask) -> LeftOf:
    """Return what leaves the newest record of each key, tombstones above their end among them, and those without."""
    newest, tombstones_end = newest_offsets(objects, task.read, task.buffer_bytes), task.compaction.tombstones_end

    def left_of(segment: SegmentRef, rows: pa.Table) -> pa.Table:
        keys, own = rows.column("key"), newest.between(segment.base_offset, segment.end_offset)
        if not len(own) and not keys.null_count:
            return rows.slice(0, 0)
        if len(own) < rows.num_rows:
            rows = rows.filter(pc.or_(pc.is_null(keys), pc.is_in(rows.column(OFFSET_COLUMN), value_set=own)))
        if segment.base_offset < tombstones_end and rows.column("value").null_count:
            is_tombstone = pc.and_(pc.is_null(rows.column("value")), pc.is_valid(rows.column("key")))
            is_old = pc.less(rows.column(OFFSET_COLUMN), tombstones_end)
            rows = rows.filter(pc.invert(pc.and_(is_tombstone, is_old)))
        return rows

    return left_of
