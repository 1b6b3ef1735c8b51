"""Read tasks → Arrow batches, with the read_committed filter (PROTOCOL.md, "Reading").

Kafka-record topics give Kafka's columns; typed topics give their own and ``_topic``, ``_partition``, ``_offset``,
``_timestamp``. What a segment does not store (offset, topic, partition, the transaction) is made from the task. A task
that asks for nothing else fetches nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.schema import DELETED_COLUMN, offset_column, with_offsets
from sparktxn._engine.format.segment import (
    RECORD_SCHEMA,
    decode_row_groups,
    decode_segment,
    parquet_footer,
    stored_schema,
)
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.internal import INTERNAL_TOPIC_IDS
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.arrowvalues import integers, repeated, scalar_of
from sparktxn._foundation.values.structs import SegmentRef
from sparktxn._rows.scan.aborted import AbortedRanges
from sparktxn._rows.scan.columns import (
    ENTRY,
    OFFSET,
    PARTITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    TRANSACTIONAL_ID,
    known_columns,
    output_schema,
    reserved_name,
)
from sparktxn._rows.scan.conditions import Condition, groups_that_may_hold, matching
from sparktxn._rows.scan.plan import LOG_APPEND_TIME, ReadTask, by_file
from sparktxn._rows.scan.segmentbytes import check_bytes
from sparktxn._rows.scan.storedrecords import adjoining, decoded_inline, fetched_files, growing, have_gaps
from sparktxn.errors import ConfigurationError, damage_named, did_you_mean

if TYPE_CHECKING:
    from sparktxn._engine.log.views.entryhistory import History

__all__ = ["output_schema", "read", "segment_values"]


def read(
    objects: ObjectStore,
    task: ReadTask,
    *,
    batch_rows: int | None = None,
    check_checksums: bool = True,
    histories: dict[int, History] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the task's rows in offset order, in batches of at most `batch_rows` (None: as the segments hold them).

    Segments are fetched some at a time, the more the further the reading goes; nothing is fetched before the first
    batch is asked for. A caller that reads rows which are computed again and again keeps `histories`.

    Raises:
        DamagedObject: a segment is missing or altered; rows of the segments before it have been given.
        ViewExpired: a segment is missing because the vacuum has passed the task's view.
        ConfigurationError: the task asks for a column that the topic does not have.
    """
    with damage_named(objects.uri):
        if task.topic_id in INTERNAL_TOPIC_IDS:
            from sparktxn._rows.scan.internalrows import read_history  # it imports half of the state machine

            yield from read_history(objects, task, histories=histories, batch_rows=batch_rows)
        else:
            yield from _rows(objects, task, batch_rows, check_checksums=check_checksums)


def _rows(
    objects: ObjectStore, task: ReadTask, batch_rows: int | None, *, check_checksums: bool
) -> Iterator[pa.RecordBatch]:
    assembly = _Assembly(task)
    aborted = AbortedRanges(task.aborted) if task.aborted else None
    if not (assembly.stored_columns or assembly.conditions or _needs_offsets(assembly, task.segments)):
        for file in by_file(task.segments):
            if kept := _kept(file, aborted, *assembly.offsets):
                yield from assembly.batches(kept, None, batch_rows)
        return
    for segments, located, data in fetched_files(objects, task, joins=not assembly.conditions):
        kept = _kept(segments, aborted, *assembly.offsets)
        if not kept:
            continue
        if isinstance(data, list):
            kept = _behind_each_other(kept, segments)
            stored = decoded_inline(located, data, assembly.stored_schema, assembly.stored_columns)
        else:
            name = located[0].object_name
            check_bytes(located[0], data, check_checksums=check_checksums)
            has_gaps = have_gaps(segments)
            if check_checksums and assembly.stored_columns:
                yield from _row_groups(assembly, segments, kept, data, name, batch_rows)
                continue
            decode = partial(
                decode_segment,
                data,
                name,
                schema=with_offsets(assembly.stored_schema) if has_gaps else assembly.stored_schema,
                record_count=segments[0].file_records,
                verified=check_checksums,
            )
            if assembly.conditions and not _may_match(data, name, decode, assembly.conditions):
                continue
            offsets = [assembly.offset_column] if has_gaps else []
            stored = decode(columns=[*assembly.stored_columns, *offsets])
            if has_gaps and not (kept := _located(kept, stored.column(assembly.offset_column))):
                continue
        yield from assembly.batches(kept, stored if assembly.stored_columns else None, batch_rows)


def _row_groups(
    assembly: _Assembly,
    segments: Sequence[SegmentRef],
    kept: list[_Kept],
    data: bytes,
    name: str,
    batch_rows: int | None,
) -> Iterator[pa.RecordBatch]:
    """Yield what is kept of a file, row group by row group: only those that have some of it, and meet the conditions.

    The file's bytes are those which the log names.
    """
    decode = partial(
        decode_row_groups,
        data,
        name,
        schema=with_offsets(assembly.stored_schema) if have_gaps(segments) else assembly.stored_schema,
        record_count=segments[0].file_records,
    )
    if _are_cut(assembly, segments):
        whole = decode(columns=[assembly.offset_column], rows=range(segments[0].file_records))
        kept = _located(kept, pa.concat_tables([rows for _, rows in whole]).column(0))
        if not kept:
            return
    decode = partial(decode, rows=range(kept[0].first_row, kept[-1].first_row + kept[-1].row_count))
    if assembly.conditions:
        footer = parquet_footer(data, name)
        groups = None if footer is None else groups_that_may_hold(footer, assembly.conditions)
        decode = partial(decode, groups=groups)
        asked = list(dict.fromkeys(one.column for one in assembly.conditions))
        if not set(asked).issuperset(assembly.stored_columns):
            # Otherwise nothing is saved by decoding their columns first.
            found = decode(columns=asked)
            first_rows = {first for first, rows in found if matching(rows, assembly.conditions).num_rows}
            decode = partial(decode, first_rows=first_rows)
    columns = list(assembly.stored_columns)
    if takes_offsets := assembly.returns_offsets and any(each.is_unlocated for each in kept):
        columns.append(assembly.offset_column)
    for own, first, rows in _by_row_group(kept, decode(columns=columns)):
        if takes_offsets:
            own = [each.at(rows.column(assembly.offset_column), first) for each in own]
        yield from assembly.batches(own, rows, batch_rows, first)
        del rows  # else it stays while the next row group is decoded


def _needs_offsets(assembly: _Assembly, segments: Sequence[SegmentRef]) -> bool:
    """Return whether some rows of `segments` can only be found, or their offsets only be known, from the files."""
    return have_gaps(segments) and (assembly.returns_offsets or _are_cut(assembly, segments))


def _are_cut(assembly: _Assembly, segments: Sequence[SegmentRef]) -> bool:
    """Return whether only some rows of segments with gaps are read: the file says which."""
    start, end = assembly.offsets
    return have_gaps(segments) and any(
        segment.has_gaps and (segment.base_offset < start or segment.end_offset > end) for segment in segments
    )


def _may_match(data: bytes, name: str, decode: Callable[..., pa.Table], conditions: Sequence[Condition]) -> bool:
    """Return False if no record of a segment meets all conditions: by its footer, or by their columns alone."""
    footer = parquet_footer(data, name)
    if footer is not None and not groups_that_may_hold(footer, conditions):
        return False
    rows = decode(columns=list(dict.fromkeys(condition.column for condition in conditions)))
    return bool(matching(rows, conditions).num_rows)


class _Kept(NamedTuple):
    """The records of a segment from offset `start` to `end`, which a task returns.

    They are `row_count` rows of its file from `first_row` on. `offsets` are theirs, None if none is left out. Of a
    segment with gaps they may be None until its rows are decoded: `start` and `end` then count for nothing.
    """

    segment: SegmentRef
    start: int
    end: int
    first_row: int
    row_count: int
    offsets: pa.Array | None = None

    def offsets_of(self, first: int, count: int) -> pa.Array:
        """Return the offsets of `count` rows, from row `first` of these on."""
        if self.offsets is not None:
            return self.offsets.slice(first, count)
        return pa.arange(self.start + first, self.start + first + count)

    @property
    def is_unlocated(self) -> bool:
        """Whether only the file says the offsets of the records, and has not been asked."""
        return self.offsets is None and self.segment.has_gaps

    def at(self, offsets: pa.ChunkedArray, first_row: int) -> _Kept:
        """Return these records with their offsets, which a file's column of them says from row `first_row` on."""
        if not self.is_unlocated:
            return self
        return self._replace(offsets=offsets.slice(self.first_row - first_row, self.row_count).combine_chunks())

    def without(self, count: int) -> _Kept:
        """Return these records without the first `count` rows."""
        return self._replace(
            start=self.start + count,
            first_row=self.first_row + count,
            row_count=self.row_count - count,
            offsets=None if self.offsets is None else self.offsets.slice(min(count, len(self.offsets))),
        )

    def up_to(self, count: int) -> _Kept:
        """Return the first `count` rows of these records."""
        offsets = None if self.offsets is None else self.offsets.slice(0, count)
        return self._replace(end=self.start + count, row_count=count, offsets=offsets)


def _kept(segments: Sequence[SegmentRef], aborted: AbortedRanges | None, start: int, end: int) -> list[_Kept]:
    """Return what a task returns of `segments` from offset `start` to `end`; of those with gaps perhaps less."""
    ranges = aborted or AbortedRanges(())
    if aborted is None and start <= segments[0].base_offset and segments[-1].end_offset <= end:
        # Segments of the files of a rewrite are many: each costs its part of a microsecond.
        return [
            _Kept(
                segment, base := segment.base_offset, base + segment.record_count, segment.first_row, segment.row_count
            )
            for segment in segments
        ]
    kept = [(segment, low, high) for segment in segments for low, high in ranges.kept(segment, start, end)]
    return [
        _Kept(segment, low, high, segment.first_row, segment.row_count)
        if segment.has_gaps
        else _Kept(segment, low, high, segment.first_row + low - segment.base_offset, high - low)
        for segment, low, high in kept
    ]


def _by_row_group(
    kept: Iterable[_Kept], groups: Iterator[tuple[int, pa.Table]]
) -> Iterator[tuple[list[_Kept], int, pa.Table]]:
    """Yield what is kept of each row group, the row group's first row, and its rows.

    Args:
        kept: parts of segments, in the order of the file; those with gaps that are cut have their offsets.
        groups: some row groups in their order, each with its first row.
    """
    waiting = deque(kept)
    for first, rows in groups:
        end = first + rows.num_rows
        own = []
        while waiting and waiting[0].first_row < end:
            each = waiting.popleft()
            if each.first_row < first:
                # It begins in a row group that was left out.
                each = each.without(first - each.first_row)
                if each.row_count <= 0:
                    continue
            count = end - each.first_row
            if count < each.row_count:
                waiting.appendleft(each.without(count))
                each = each.up_to(count)
            own.append(each)
        if own:
            yield own, first, rows
        del rows  # else it stays while the next row group is decoded


def _located(kept: Iterable[_Kept], offsets: pa.ChunkedArray) -> list[_Kept]:
    """Return `kept` with the rows that a file's column of offsets says, without what has none."""
    column = offsets.combine_chunks()
    located = []
    for each in kept:
        if each.segment.has_gaps:
            own = column.slice(each.first_row, each.row_count)
            first = pc.sum(pc.less(own, each.start)).as_py()
            count = pc.sum(pc.less(own, each.end)).as_py() - first
            each = each._replace(first_row=each.first_row + first, row_count=count, offsets=own.slice(first, count))
        if each.row_count:
            located.append(each)
    return located


def _behind_each_other(kept: Sequence[_Kept], segments: Sequence[SegmentRef]) -> list[_Kept]:
    """Return `kept` with their places among the rows of all `segments`, which are whole and without gaps."""
    first_rows = dict(zip(segments, accumulate([0, *(segment.record_count for segment in segments)]), strict=False))
    return [each._replace(first_row=each.first_row + first_rows[each.segment]) for each in kept]


class _Constant:
    """Makes a column of the same value in every row; the longest array so far serves the shorter ones as a slice."""

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._array: pa.Array | None = None

    def __call__(self, segment: SegmentRef, start: int, end: int) -> pa.Array:
        if self._array is None or len(self._array) < end - start:
            self._array = pa.repeat(self._value, end - start)
        return self._array.slice(0, end - start)


class _Assembly:
    """Puts a task's output columns together from stored columns and from what the task says."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self.offsets = task.start_offset, task.end_offset
        self.schema = output_schema(task.schema, task.columns)
        self.stored_schema = stored_schema(task.schema)
        self.offset_column = offset_column(self.stored_schema)
        made = self.made_columns()
        self.stored_columns = [name for name in self.schema.names if name not in made]
        # A delete is stored as true and all else as null, which readers show as false: nothing is left out by it.
        stored = {name for name in self.stored_schema.names if name not in made and name != DELETED_COLUMN}
        self._has_deletes = DELETED_COLUMN in self.stored_columns
        self.conditions = [condition for condition in task.conditions if condition.column in stored]
        self._made = {name: make for name, make in made.items() if name in self.schema.names}
        self.returns_offsets = reserved_name(OFFSET, task.schema) in self.schema.names

    def made_columns(self) -> dict[str, Callable[[SegmentRef, int, int], pa.Array]]:
        """Return what makes each column that segments do not store, from a segment, a start and an end offset."""
        task = self._task
        made: dict[str, Callable[[SegmentRef, int, int], pa.Array]] = {
            reserved_name(TOPIC, task.schema): _Constant(scalar_of(task.topic, pa.string())),
            reserved_name(PARTITION, task.schema): _Constant(scalar_of(task.partition, pa.int32())),
            reserved_name(OFFSET, task.schema): _offsets,
        }
        if task.schema is None:
            made[TIMESTAMP_TYPE] = _Constant(scalar_of(task.timestamp_type, pa.int32()))
        if task.timestamp_type == LOG_APPEND_TIME:
            made[reserved_name(TIMESTAMP, task.schema)] = _entry_timestamps
        return made | self._transaction_columns()

    def _transaction_columns(self) -> dict[str, Callable[[SegmentRef, int, int], pa.Array]]:
        """Return the columns of a record's transaction: all records of a segment have the same."""
        task = self._task
        values: dict[str, Callable[[SegmentRef], int | str | None]] = {
            PRODUCER_ID: lambda segment: None if segment.producer_id < 0 else segment.producer_id,
            PRODUCER_EPOCH: lambda segment: None if segment.producer_epoch < 0 else segment.producer_epoch,
            TRANSACTIONAL_ID: lambda segment: task.transactional_ids.get(segment.producer_id),
            ENTRY: lambda segment: segment.committed_entry or None,
        }
        known = known_columns(task.schema)
        made = {}
        for name, value in values.items():
            column = reserved_name(name, task.schema)
            made[column] = _of_segment(value, known.field(column).type)
        return made

    def batches(
        self, kept: Sequence[_Kept], stored: pa.Table | None, batch_rows: int | None, first_row: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `kept`, all inside one file, of which `stored` has the rows from `first_row` on."""
        if stored is not None and self._has_deletes:
            stored = _with_deletes(stored)
        if len(kept) > 1:
            yield from self._joined(kept, stored, batch_rows, first_row)
            return
        (one,) = kept
        if stored is None:
            step = batch_rows or one.row_count
            for first in range(0, one.row_count, step):
                yield self._batch(one, None, first, min(step, one.row_count - first))
            return
        position = 0
        rows = stored.slice(one.first_row - first_row, one.row_count)
        for chunk in rows.to_batches(max_chunksize=batch_rows):
            yield self._batch(one, chunk, position, chunk.num_rows)
            position += chunk.num_rows

    def _joined(
        self, kept: Sequence[_Kept], stored: pa.Table | None, batch_rows: int | None, first_row: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of several parts of one file, together: many parts cost little more than their rows."""
        ends = integers(accumulate([each.row_count for each in kept]))
        rows_count = ends[-1].as_py()
        columns = {}
        for name, make in self._made.items():
            if make is _offsets:
                columns[name] = _joined_offsets(kept, ends)
            elif isinstance(make, _Constant):
                columns[name] = make(kept[0].segment, 0, rows_count)
            else:
                each = pa.concat_arrays([make(one.segment, 0, 1) for one in kept])
                columns[name] = repeated(each, ends)
        if stored is not None:
            ranges = adjoining(kept)
            rows = pa.concat_tables([stored.slice(first - first_row, end - first) for first, end in ranges])
            columns |= {name: rows.column(name) for name in self.stored_columns}
        if not self.schema.names:
            columns[OFFSET] = pa.nulls(rows_count)
            table = pa.table(columns).select([])
        else:
            table = pa.Table.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)
        yield from table.to_batches(max_chunksize=batch_rows)

    def _batch(self, kept: _Kept, stored: pa.RecordBatch | None, first: int, count: int) -> pa.RecordBatch:
        if not self.schema.names:
            return pa.record_batch([pa.nulls(count)], names=[OFFSET]).select([])
        arrays = []
        for name in self.schema.names:
            make = self._made.get(name)
            if make is _offsets:
                arrays.append(kept.offsets_of(first, count))
            elif make is not None:
                arrays.append(make(kept.segment, 0, count))
            elif stored is not None:
                arrays.append(stored.column(name))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _with_deletes(rows: pa.Table) -> pa.Table:
    """Return rows of a keyed topic with false in the place of null: of an upsert nothing is stored."""
    place = rows.column_names.index(DELETED_COLUMN)
    return rows.set_column(place, rows.schema.field(place), pc.fill_null(rows.column(place), False))


def _joined_offsets(kept: Sequence[_Kept], ends: pa.Array) -> pa.Array:
    """Return the offsets of `kept`, whose rows end at `ends` in the result: without gaps they grow by one in each."""
    if [each.offsets for each in kept].count(None) < len(kept):
        return pa.concat_arrays([each.offsets_of(0, each.row_count) for each in kept])
    return growing([each.start for each in kept], [each.row_count for each in kept], ends)


def segment_values(task: ReadTask, columns: Sequence[str]) -> pa.Table:
    """Return the values that all rows of a segment share, in one row for each of the task's segments, in their order.

    Args:
        task: a task of a topic with segments.
        columns: what a segment does not store: columns of the record's transaction, or the timestamp of a topic with
            `LogAppendTime`.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: a column is not one of those.
    """
    made = _Assembly(arguments.instance("task", task, ReadTask)).made_columns()
    columns = arguments.identifiers("columns", columns)
    for name in columns:
        if name not in made:
            raise ConfigurationError(
                f"columns has {name!r}, which no segment's rows share: expected some of {', '.join(made)}"
                f"{did_you_mean(name, made)}"
            )
    schema = pa.schema([known_columns(task.schema).field(name) for name in columns])
    if not task.segments:
        return schema.empty_table()
    values = [
        pa.concat_arrays(
            [made[name](segment, segment.base_offset, segment.base_offset + 1) for segment in task.segments]
        )
        for name in columns
    ]
    return pa.Table.from_arrays(values, schema=schema)


def _of_segment(
    value: Callable[[SegmentRef], int | str | None], arrow_type: pa.DataType
) -> Callable[[SegmentRef, int, int], pa.Array]:
    return lambda segment, start, end: pa.repeat(scalar_of(value(segment), arrow_type), end - start)


def _offsets(segment: SegmentRef, start: int, end: int) -> pa.Array:
    return pa.arange(start, end)


def _entry_timestamps(segment: SegmentRef, start: int, end: int) -> pa.Array:
    """Return LogAppendTime's column: every record has the greatest timestamp of its segment."""
    return pa.repeat(scalar_of(segment.timestamp_max_ms, RECORD_SCHEMA.field("timestamp").type), end - start)
