"""Doing a task of a rewrite: its segments' records are copied into few Parquet files that nothing names yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow.compute as pc
from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.objectstore.contract import OBJECT_SIZE_MAX, ObjectStore
from sparktxn._engine.objectstore.puts import put_until_stored
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import Clock, Ids, RandomIds, SystemClock
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import CompactedSegment, RewrittenSegment, SegmentRef
from sparktxn._rows.scan.storedrecords import stored_blocks
from sparktxn._rows.stage.segmentwriter import SegmentWriter
from sparktxn.errors import CommandRefused, DamagedObject, ErrorCode
from sparktxn.maintenance.rewriting.rewriteplan import RewriteTask, SegmentsTask
from sparktxn.store.registry import objects_of

_DECODED_BYTES_MAX: Final = 1 << 30
_SEGMENT_BYTES_MAX: Final = OBJECT_SIZE_MAX - (1 << 20)


class NewFiles(Struct, frozen=True):
    """What a task has uploaded: files that no entry names yet. It is picklable.

    `segments` are what is left from `base_offset` on, in offset order, as parts of the new files.
    """

    topic: str
    topic_id: int
    partition: int
    base_offset: int
    planned_entry: int
    segments: tuple[RewrittenSegment, ...]
    replaced_files: int
    replaced_bytes: int
    aborted_records: int

    def files(self) -> dict[str, int]:
        """Return the sizes of the new files by their names in the partition's folder."""
        return {segment.name: segment.size_bytes for segment in self.segments}


class RewrittenFiles(NewFiles, frozen=True):
    """What a task of a rewrite has uploaded, of the range that ends before `end_offset`."""

    end_offset: int


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


def copy_records(
    objects: ObjectStore,
    ids: Ids,
    clock: Clock,
    task: RewriteTask,
    background: Background | None = None,
    rest: Callable[[], None] | None = None,
) -> RewrittenFiles:
    """Do a task with an open object store; the errors are those of `run_rewrite_task`.

    Args:
        objects: the store.
        ids: for the unique names of files.
        clock: for the waits between attempts.
        task: what is to be done.
        background: encodes row groups while records are read.
        rest: called after each block of segments, some dozens or a part of a file; what it raises ends the task.
    """
    copying = FileCopy(objects, ids, clock, task, background=background)
    for segments, rows in stored_blocks(objects, task.read, offsets=True):
        segments, rows, counts = _from_start(segments, rows, task.read.start_offset)
        if segments:
            copying.add(segments, rows, counts)
        del rows  # else it stays while the next block is decoded
        if rest is not None:
            rest()
    copying.finish_file()
    return RewrittenFiles(**copying.made(), end_offset=task.end_offset)


def _from_start(segments: Sequence[SegmentRef], rows: Any, start: int) -> tuple[Sequence[SegmentRef], Any, Any]:
    """Return segments and their rows without those below offset `start`, and how many rows are left of each."""
    if segments[0].base_offset >= start:
        return segments, rows, None
    kept = rows.filter(pc.greater_equal(rows.column(rows.num_columns - 1), start))
    counts = [segment.row_count for segment in segments]
    counts[0] -= rows.num_rows - kept.num_rows
    # Of a segment with gaps nothing may be left.
    return (segments, kept, counts) if counts[0] else (segments[1:], kept, counts[1:])


class _Part(NamedTuple):
    """What a file holds of a segment: rows from `first_row` on."""

    segment: SegmentRef
    first_row: int
    row_count: int


class FileCopy:
    """Copies segments, or what is left of them, into file after file; none is divided between two.

    Args:
        objects: the store.
        ids: for the unique names of files.
        clock: for the waits between attempts.
        task: what is copied: the files are born at its entry, and become about as large as it says.
        decoded_bytes_max: what a file may take in memory, decoded; a segment that takes more is alone in its file.
        background: encodes row groups while the caller adds segments; None: `add` does.
    """

    def __init__(
        self,
        objects: ObjectStore,
        ids: Ids,
        clock: Clock,
        task: SegmentsTask,
        decoded_bytes_max: int = _DECODED_BYTES_MAX,
        background: Background | None = None,
    ) -> None:
        self._objects = objects
        self._ids = ids
        self._clock = clock
        self._task = task
        self._decoded_bytes_max = decoded_bytes_max
        self._background = background
        self._writer = SegmentWriter(task.compression, background)
        self._parts: list[_Part] = []
        self.segments: list[RewrittenSegment] = []

    def add(self, segments: Sequence[SegmentRef], rows: Any, counts: Sequence[int] | None = None) -> None:
        """Add segments, one after the other; upload the file before one that makes it too large.

        Args:
            segments: at least one; they take little memory together, or there is one of them.
            rows: their rows, with the columns of `with_offsets`.
            counts: how many rows are left of each, at least one; None: all.

        Raises:
            StoreUnavailable, DamagedObject, CommandRefused: as `finish_file`.
        """
        size_bytes = rows.nbytes
        if self._parts and (
            self._writer.size_bytes_max + size_bytes > _SEGMENT_BYTES_MAX
            or self._writer.decoded_bytes + size_bytes > self._decoded_bytes_max
        ):
            self.finish_file()
        row_bytes = size_bytes / rows.num_rows
        first = end = expected_bytes = 0
        for place, segment in enumerate(segments):
            if self._parts and self._writer.expected_bytes + expected_bytes >= self._task.target_bytes:
                self._write(rows.slice(first, end - first), expected_bytes)
                self.finish_file()
                first, expected_bytes = end, 0
            count = segment.row_count if counts is None else counts[place]
            self._parts.append(_Part(segment, self._writer.record_count + end - first, count))
            # A file that says more of itself than its rows take, decoded, has something else than rows.
            share_bytes = segment.file_share_bytes * count // segment.row_count
            expected_bytes += max(1, min(int(count * row_bytes), share_bytes))
            end += count
        self._write(rows.slice(first), expected_bytes)

    def _write(self, rows: Any, expected_bytes: int) -> None:
        if rows.num_rows:
            self._writer.add(rows, expected_bytes)

    def finish_file(self) -> None:
        """Upload the file, if it has records, and note its parts.

        Raises:
            StoreUnavailable: the store did not take the file.
            DamagedObject: the store has another object under its unique name.
            CommandRefused: MESSAGE_TOO_LARGE, a segment's records do not fit into one file.
        """
        if not self._parts:
            return
        records = self._writer.record_count
        data = self._writer.finish()
        read = self._task.read
        if len(data) > OBJECT_SIZE_MAX:
            first, last = self._parts[0].segment, self._parts[-1].segment
            raise CommandRefused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"offsets {first.base_offset} to {last.end_offset} of partition {read.partition} of topic "
                f"{read.topic!r} take {len(data)} bytes as one Parquet file: expected at most {OBJECT_SIZE_MAX}; set "
                "the topic's compression.type to zstd",
            )
        file_name = names.merged_segment_file(self._task.planned_entry, self._ids.token())
        name = names.segment(read.topic, read.topic_id, read.partition, file_name)
        if put_until_stored(self._objects, name, data, self._clock) != data:
            raise DamagedObject(name, "it holds other bytes than were put under this unique name")
        crc = checksum(data)
        self.segments += [_placed(part, file_name, len(data), crc, records) for part in self._parts]
        self._parts = []
        self._writer = SegmentWriter(self._task.compression, self._background)

    def made(self) -> dict[str, Any]:
        """Return the members of `NewFiles`."""
        task, read = self._task, self._task.read
        return {
            "topic": read.topic,
            "topic_id": read.topic_id,
            "partition": read.partition,
            "base_offset": task.base_offset,
            "planned_entry": task.planned_entry,
            "segments": tuple(self.segments),
            "replaced_files": task.files,
            "replaced_bytes": task.size_bytes,
            "aborted_records": task.aborted_records,
        }


def _placed(part: _Part, file_name: str, size_bytes: int, crc: str, file_records: int) -> RewrittenSegment:
    """Return a segment whose records are now in another file; all else of it stays as it is."""
    fields = {name: getattr(part.segment, name) for name in SegmentRef.__struct_fields__}
    fields |= {"name": file_name, "size_bytes": size_bytes, "checksum": crc}
    fields |= {"first_row": part.first_row, "file_records": file_records}
    if part.row_count == part.segment.record_count:
        return RewrittenSegment(**fields)
    return CompactedSegment(**fields, row_count=part.row_count)
