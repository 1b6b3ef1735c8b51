"""Doing a task of a rewrite: its segments' records are copied into few Parquet files that nothing names yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from sparktxn import arguments
from sparktxn.clock import Clock, Ids, RandomIds, SystemClock
from sparktxn.errors import CommandRefused, DamagedObject, ErrorCode
from sparktxn.format import names
from sparktxn.format.segment import checksum
from sparktxn.maintenance.rewriteplan import RewriteTask
from sparktxn.maintenance.segmentwriter import SegmentWriter
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.objectstore.putting import put_until_stored
from sparktxn.objectstore.uri import OBJECT_SIZE_MAX
from sparktxn.registry import objects_of
from sparktxn.scan.reader import stored_records
from sparktxn.structs import RewrittenSegment, SegmentRef

__all__ = ["RewrittenFiles", "copy_records", "run_rewrite_task"]

_PARQUET: Final = "parquet"
_DECODED_BYTES_MAX: Final = 1 << 30
_SEGMENT_BYTES_MAX: Final = OBJECT_SIZE_MAX - (1 << 20)


class RewrittenFiles(Struct, frozen=True):
    """What a task of a rewrite has uploaded: files that no entry names yet. It is picklable.

    `segments` are those of the range from `base_offset` to `end_offset`, in offset order, as parts of the new files.
    """

    topic: str
    topic_id: int
    partition: int
    base_offset: int
    end_offset: int
    planned_entry: int
    segments: tuple[RewrittenSegment, ...]
    replaced_files: int
    replaced_bytes: int
    aborted_records: int

    def files(self) -> dict[str, int]:
        """Return the sizes of the new files by their names in the partition's folder."""
        return {segment.name: segment.size_bytes for segment in self.segments}


def run_rewrite_task(task: RewriteTask, options: Mapping[str, Any] | None = None) -> RewrittenFiles:
    """Do a task, in any process that can reach the store's objects; its result is for `apply_rewrite`.

    Files of a process that dies, or whose result is dropped, are invisible. A vacuum deletes them.

    Raises:
        DamagedObject: a segment is missing or is not what the log names.
        ViewExpired: a vacuum has passed the view that the task was planned in.
        StoreUnavailable: the store did not take a file.
        CommandRefused: a segment's records do not fit into one file (MESSAGE_TOO_LARGE).
    """
    arguments.instance("task", task, RewriteTask)
    objects = objects_of(task.read.store_uri, arguments.mapping("options", options))
    return copy_records(objects, RandomIds(), SystemClock(), task)


def copy_records(objects: ObjectStore, ids: Ids, clock: Clock, task: RewriteTask) -> RewrittenFiles:
    """Do a task with an open object store; the errors are those of `run_rewrite_task`."""
    copying = _Copying(objects, ids, clock, task)
    for segment, rows in stored_records(objects, task.read):
        copying.begin(rows.nbytes)
        copying.add(segment, rows)
    copying.finish_file()
    return RewrittenFiles(
        topic=task.read.topic,
        topic_id=task.read.topic_id,
        partition=task.read.partition,
        base_offset=task.base_offset,
        end_offset=task.end_offset,
        planned_entry=task.planned_entry,
        segments=tuple(copying.segments),
        replaced_files=task.files,
        replaced_bytes=task.size_bytes,
        aborted_records=task.aborted_records,
    )


class _Copying:
    """Writes file after file; a segment's records are never divided between two."""

    def __init__(self, objects: ObjectStore, ids: Ids, clock: Clock, task: RewriteTask) -> None:
        self._objects = objects
        self._ids = ids
        self._clock = clock
        self._task = task
        self._writer = SegmentWriter(task.compression)
        self._parts: list[tuple[SegmentRef, int]] = []
        self.segments: list[RewrittenSegment] = []

    def begin(self, more_bytes: int) -> None:
        """Upload the file if it is as large as it should be, or would be too large with `more_bytes`."""
        writer = self._writer
        if self._parts and (
            writer.expected_bytes >= self._task.target_bytes
            or writer.size_bytes_max + more_bytes > _SEGMENT_BYTES_MAX
            or writer.decoded_bytes + more_bytes > _DECODED_BYTES_MAX
        ):
            self.finish_file()

    def add(self, segment: SegmentRef, rows: Any) -> None:
        """Add all records of a segment."""
        self._parts.append((segment, self._writer.record_count))
        self._writer.add(rows, segment.file_share_bytes)

    def finish_file(self) -> None:
        """Upload the file, if it has records, and note its parts."""
        if not self._parts:
            return
        records = self._writer.record_count
        data = self._writer.finish()
        read = self._task.read
        if len(data) > OBJECT_SIZE_MAX:
            first, last = self._parts[0][0], self._parts[-1][0]
            raise CommandRefused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"offsets {first.base_offset} to {last.end_offset} of partition {read.partition} of topic "
                f"{read.topic!r} take {len(data)} bytes as one Parquet file: expected at most {OBJECT_SIZE_MAX}; set "
                "the topic's compression.type to zstd",
            )
        file_name = names.segment_file(self._task.planned_entry, self._ids.token(), _PARQUET)
        name = names.segment(read.topic, read.topic_id, read.partition, file_name)
        if put_until_stored(self._objects, name, data, self._clock) != data:
            raise DamagedObject(name, "it holds other bytes than were put under this unique name")
        crc = checksum(data)
        self.segments += [_placed(segment, file_name, len(data), crc, row, records) for segment, row in self._parts]
        self._parts = []
        self._writer = SegmentWriter(self._task.compression)


def _placed(
    segment: SegmentRef, file_name: str, size_bytes: int, crc: str, first_row: int, file_records: int
) -> RewrittenSegment:
    """Return a segment whose records are now in another file; all else of it stays as it is."""
    return RewrittenSegment(
        file_name,
        segment.base_offset,
        segment.record_count,
        size_bytes,
        crc,
        segment.entry,
        segment.producer_id,
        segment.producer_epoch,
        segment.base_sequence,
        segment.transaction,
        segment.timestamp_min_ms,
        segment.timestamp_max_ms,
        segment.committed_entry,
        first_row=first_row,
        file_records=file_records,
    )
