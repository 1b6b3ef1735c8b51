"""Checking what segments hold against what the log says of them: tasks that any process can do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.schema import offset_column, stored_schema, timestamp_column, with_offsets
from sparktxn._engine.format.segment import checksum, decode_segment
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.transactions.producerfencing import SEQUENCE_MAX, next_sequence
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import NO_SEQUENCE, HalfSegment, PartitionState, SegmentRef
from sparktxn._rows.scan.segmentbytes import fetch_each
from sparktxn.errors import DamagedObject, FormatVersionError
from sparktxn.maintenance.copyobjects import ObjectToCopy, problem_of

_TASK_BYTES: Final = 128 * 1024 * 1024
_TASK_SEGMENTS: Final = 1_000
_WINDOW_SEGMENTS: Final = 16


class Problem(Struct, frozen=True):
    """Something in a store that is not as PROTOCOL.md says: which object, what is wrong, and what to do.

    `is_missing` is True for an object that does not exist: a vacuum that runs at the same time may have deleted it.
    """

    object_name: str
    problem: str
    fix: str
    is_missing: bool = False


_Item = TypeVar("_Item")


class StoredSegment(Struct, frozen=True):
    """What the log says of one segment, and of the object that holds it; `entry` is the one that named it first."""

    name: str
    record_count: int
    size_bytes: int
    checksum: str
    timestamp_min_ms: int
    timestamp_max_ms: int
    first_row: int
    file_records: int
    base_offset: int
    row_count: int
    entry: int

    @property
    def file(self) -> str:
        """The segment's name in its partition's folder."""
        return self.name.rpartition("/")[2]

    @property
    def carrier(self) -> int | None:
        """The entry that carries its records; None if an object of their own has them."""
        return names.carrier(self.file, self.entry)

    @property
    def object_name(self) -> str:
        """The name of the object that holds its records: of inline ones their entry's."""
        return names.segment_object(self.name.removesuffix(self.file), self.file, self.entry)

    @property
    def has_gaps(self) -> bool:
        """Whether some of its offsets have no record."""
        return self.row_count != self.record_count


class SegmentsToCheck(Struct, frozen=True):
    """Some segments of one topic, whose declared columns are `schema`; picklable.

    `older` are objects that only older views read. Of them only the bytes are checked.
    """

    store_uri: str
    schema: Columns | None
    segments: tuple[StoredSegment, ...]
    older: tuple[ObjectToCopy, ...] = ()


class CheckedSegments(Struct, frozen=True):
    """How many segments were read, what they hold, and what is wrong with them."""

    segments: int
    records: int
    size_bytes: int
    problems: tuple[Problem, ...] = ()


RESTORE: Final = "restore the object from a copy of the store"


def stored_segment(folder: str, segment: SegmentRef) -> StoredSegment:
    """Return what the log says of a segment; `folder` is its partition's."""
    part = (segment.first_row, segment.file_records, segment.base_offset, segment.row_count, segment.entry)
    return _stored(folder + segment.name, segment, *part)


def stored_half(folder: str, segment: HalfSegment) -> StoredSegment:
    """Return what the log says of a half transaction's segment; `folder` is its partition's."""
    return _stored(folder + segment.segment, segment, 0, segment.record_count, 0, segment.record_count, 0)


def _stored(
    name: str,
    segment: SegmentRef | HalfSegment,
    first_row: int,
    file_records: int,
    base_offset: int,
    row_count: int,
    entry: int,
) -> StoredSegment:
    return StoredSegment(
        name,
        segment.record_count,
        segment.size_bytes,
        segment.checksum,
        segment.timestamp_min_ms,
        segment.timestamp_max_ms,
        first_row,
        file_records,
        base_offset,
        row_count,
        entry,
    )


def tasks_of(store_uri: str, schema: Columns | None, segments: Iterable[StoredSegment]) -> Iterator[SegmentsToCheck]:
    """Yield `segments` in tasks of about one size; those of one file that follow each other are in one task."""
    for some in _packed((file, file[0].size_bytes) for file in _by_file(segments)):
        yield SegmentsToCheck(store_uri, schema, tuple(some))


def older_tasks_of(store_uri: str, older: Iterable[ObjectToCopy]) -> Iterator[SegmentsToCheck]:
    """Yield objects that only older views read in tasks of about one size."""
    for some in _packed(([each], max(0, each.size_bytes)) for each in older):
        yield SegmentsToCheck(store_uri, None, (), tuple(some))


def _packed(units: Iterable[tuple[list[_Item], int]]) -> Iterator[list[_Item]]:
    """Yield the items of units, given with their sizes in bytes, some units at a time: what one task checks."""
    some: list[_Item] = []
    size_bytes = 0
    for items, unit_bytes in units:
        if some and (size_bytes + unit_bytes > _TASK_BYTES or len(some) >= _TASK_SEGMENTS):
            yield some
            some, size_bytes = [], 0
        some += items
        size_bytes += unit_bytes
    if some:
        yield some


def _by_file(segments: Iterable[StoredSegment]) -> list[list[StoredSegment]]:
    return [list(some) for _, some in groupby(segments, key=attrgetter("name"))]


def check_segments(objects: ObjectStore, task: SegmentsToCheck) -> CheckedSegments:
    """Read a task's segments whole, and compare them with what the log says.

    Raises:
        StoreUnavailable: the store did not answer.
    """
    schema = stored_schema(task.schema)
    problems: list[Problem] = []
    records = size_bytes = 0
    files = _by_file(task.segments)
    for first in range(0, len(files), _WINDOW_SEGMENTS):
        window = files[first : first + _WINDOW_SEGMENTS]
        stored = [(segments[0].object_name, segments[0].file, segments[0].carrier) for segments in window]
        # Not what a follower of the log has kept: what the store holds is asked.
        for segments, data in zip(window, fetch_each(objects, stored, use_kept=False), strict=True):
            if data is None:
                missing = segments[0].object_name
                problems.append(Problem(missing, "the log names it and it does not exist", RESTORE, True))
            elif isinstance(data, DamagedObject):
                problems.append(Problem(data.object_name, data.reason, RESTORE))
                continue
            elif problem := _file_problem(segments, data, schema):
                problems.append(problem)
            else:
                records += sum(segment.row_count for segment in segments)
            size_bytes += len(data or b"")
    for first in range(0, len(task.older), _WINDOW_SEGMENTS):
        some = task.older[first : first + _WINDOW_SEGMENTS]
        for each, data in zip(some, objects.get_many([each.name for each in some]), strict=True):
            if data is None:
                problems.append(Problem(each.name, "the log names it and it does not exist", RESTORE, True))
            elif reason := problem_of(data, each):
                problems.append(Problem(each.name, reason, RESTORE))
            size_bytes += len(data or b"")
    return CheckedSegments(len(task.segments) + len(task.older), records, size_bytes, tuple(problems))


def _file_problem(segments: Sequence[StoredSegment], data: bytes, schema: pa.Schema) -> Problem | None:
    """Return what is wrong with an object that holds `segments`."""
    segment = segments[0]
    if len(data) != segment.size_bytes:
        return Problem(segment.name, f"it has {counted(len(data), 'byte')}, expected {segment.size_bytes}", RESTORE)
    if (found := checksum(data)) != segment.checksum:
        return Problem(segment.name, f"its checksum is {found}, expected {segment.checksum}", RESTORE)
    column = offset_column(schema)
    if names.has_offsets(segment.file) or any(each.has_gaps for each in segments):
        schema = with_offsets(schema)
    try:
        rows = decode_segment(data, segment.name, schema=schema, record_count=segment.file_records)
    except (DamagedObject, FormatVersionError) as damaged:
        return Problem(segment.name, damaged.reason, RESTORE)
    parts = ((each, rows.slice(each.first_row, each.row_count)) for each in segments)
    problems = (_time_problem(each, part) or _offset_problem(each, part, column) for each, part in parts)
    return next((problem for problem in problems if problem is not None), None)


def _time_problem(segment: StoredSegment, rows: pa.Table) -> Problem | None:
    if segment.timestamp_min_ms == segment.timestamp_max_ms:
        # Perhaps the entry's time, which the segment does not hold.
        return None
    name = timestamp_column(rows.schema)
    times = pc.min_max(rows.column(name).cast(pa.int64()))
    found = (times["min"].as_py(), times["max"].as_py())
    expected = (segment.timestamp_min_ms, segment.timestamp_max_ms)
    if found == expected or (segment.has_gaps and expected[0] <= found[0] and found[1] <= expected[1]):
        return None
    return Problem(segment.name, f"its timestamps go from {found[0]} to {found[1]}, expected {expected}", RESTORE)


def _offset_problem(segment: StoredSegment, rows: pa.Table, column: str) -> Problem | None:
    """Return what is wrong with the column of offsets, if the file has one: they grow, and are the segment's."""
    if column not in rows.column_names:
        return None
    end = segment.base_offset + segment.record_count
    offsets = rows.column(column).combine_chunks()
    grow = pc.all(pc.less(offsets[:-1], offsets[1:]), min_count=0).as_py()
    if grow and segment.base_offset <= offsets[0].as_py() and offsets[-1].as_py() < end:
        return None
    return Problem(
        segment.name, f"its offsets do not grow from {segment.base_offset} to {end - 1}, as the log says", RESTORE
    )


def partition_problems(
    folder: str, partition: PartitionState, segments: Sequence[SegmentRef], newest_entry: int
) -> Iterator[Problem]:
    """Yield what of a partition's segments, in offset order, contradicts the partition or each other.

    Offsets never overlap. Those that no segment has are of control records, or below the log start. A producer's
    sequences never come again within an epoch.
    """
    end = 0
    sequences: dict[tuple[int, int], tuple[int, str]] = {}
    for segment in segments:
        name = folder + segment.name
        if segment.base_offset < end:
            yield _contradiction(
                name, f"it begins at offset {segment.base_offset}, before the end of the one before it, {end}"
            )
        end = segment.end_offset
        if max(segment.entry, segment.committed_entry) > newest_entry:
            yield _contradiction(name, f"an entry after {newest_entry}, the newest, is said to have named it")
        if segment.base_sequence != NO_SEQUENCE:
            producer = (segment.producer_id, segment.producer_epoch)
            last, earlier = sequences.get(producer, (-1, ""))
            if earlier and (last - segment.base_sequence) % (SEQUENCE_MAX + 1) <= SEQUENCE_MAX // 2:
                problem = (
                    f"its sequence {segment.base_sequence} is not behind {last}, its producer's last in {earlier!r}"
                )
                yield _contradiction(name, problem)
            sequences[producer] = (next_sequence(segment.base_sequence, segment.record_count - 1), segment.name)
    if end > partition.log_end_offset:
        yield _contradiction(folder, f"its segments end at {end}, and the partition at {partition.log_end_offset}")
    for transaction in partition.open_transactions:
        if transaction.first_offset >= partition.log_end_offset:
            yield _contradiction(
                folder, f"an open transaction begins at {transaction.first_offset}, at or behind the partition's end"
            )


def _contradiction(name: str, problem: str) -> Problem:
    return Problem(name, problem, "report it: no process of sparktxn writes this; keep a copy of the store")
