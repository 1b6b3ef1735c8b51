"""Manifests: the segments of a sealed run, as Parquet with one row per segment (PROTOCOL.md, "Manifests").

The columns are the fields of `SegmentRef`. The footer's statistics let any Parquet reader skip by offset, entry and
time.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparktxn._engine.format import names
from sparktxn._engine.format.decodeguard import check_parquet
from sparktxn._foundation.values.arrowvalues import byte_strings, integers
from sparktxn._foundation.values.structs import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TRANSACTION,
    CompactedSegment,
    RewrittenSegment,
    SegmentRef,
)
from sparktxn.errors import DamagedObject, FormatVersionError

_TEXTS: Final = {"name", "checksum"}

MANIFEST_SCHEMA: Final = pa.schema(
    [
        pa.field(field, pa.string() if field in _TEXTS else pa.int64(), nullable=False)
        for field in SegmentRef.__struct_fields__
    ]
)
"""One column per field of `SegmentRef`, none of them ever null."""

_REWRITTEN_SCHEMA: Final = pa.schema(
    [*MANIFEST_SCHEMA, *(pa.field(name, pa.int64(), nullable=False) for name in ("first_row", "file_records"))]
)
"""A manifest that names a part of a file says which one."""

_COMPACTED_SCHEMA: Final = _REWRITTEN_SCHEMA.append(pa.field("row_count", pa.int64(), nullable=False))
"""A manifest that names a segment with gaps says how many records are left."""

_SCHEMAS: Final = (MANIFEST_SCHEMA, _REWRITTEN_SCHEMA, _COMPACTED_SCHEMA)

_INTEGERS: Final = [field.name for field in _COMPACTED_SCHEMA if field.name not in _TEXTS]
_ROW_GROUP_ROWS: Final = 65_536
_SEGMENTS_MAX: Final = 1_000_000
_ROWS_AT_ONCE: Final = 4_096
_MANY_SEGMENTS: Final = 256
"""From so many on it takes less to check columns than segments."""
_CHECKSUM_DIGITS: Final = frozenset("0123456789abcdef")

# The least value of each field that has one; the others are any 64-bit integer.
_LEAST: Final = {
    "base_offset": 0,
    "record_count": 1,
    "size_bytes": 1,
    "entry": 1,
    "producer_id": NO_PRODUCER_ID,
    "producer_epoch": NO_PRODUCER_EPOCH,
    "base_sequence": NO_SEQUENCE,
    "transaction": NO_TRANSACTION,
    "committed_entry": 0,
    "first_row": 0,
    "file_records": 1,
    "row_count": 1,
}


def encode_manifest(segments: Sequence[SegmentRef]) -> bytes:
    """Return the manifest's bytes.

    Raises:
        ValueError: there are no segments, or what they say cannot be.
    """
    if not segments:
        raise ValueError("a manifest holds at least one segment")
    schema = _SCHEMAS[max(map(_kind, segments))]
    columns = zip(schema.names, zip(*map(attrgetter(*schema.names), segments), strict=True), strict=True)
    table = pa.Table.from_arrays(
        [_texts(column) if name in _TEXTS else integers(column) for name, column in columns], schema=schema
    )
    is_sound = len(segments) >= _MANY_SEGMENTS and _is_sound(table)
    if not is_sound and (problem := _problem(segments)):
        raise ValueError(f"segments cannot be sealed: {problem}")
    numbers = [name for name in _INTEGERS if name in schema.names]
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        row_group_size=_ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        write_statistics=numbers,
        store_schema=False,
    )
    return sink.getvalue()


def _texts(values: Sequence[str]) -> pa.Array:
    return byte_strings([value.encode() for value in values], pa.string())


def _kind(segment: SegmentRef) -> int:
    """Return which of the schemas can describe a segment."""
    if segment.has_gaps:
        return 2
    return 1 if isinstance(segment, RewrittenSegment) else 0


def decode_manifest(data: bytes, name: str) -> tuple[SegmentRef, ...]:
    """Return the segments in the manifest, by base offset.

    Raises:
        FormatVersionError: it has a column that is not known.
        DamagedObject: the bytes are not a manifest, or what they say cannot be.
    """
    return segments_of_rows(manifest_rows(data, name))


def manifest_rows(data: bytes, name: str) -> pa.Table:
    """Return the columns of the manifest, checked: they take far less to decode than its segments.

    Raises:
        FormatVersionError, DamagedObject: as for `decode_manifest`.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        # Before anything is decoded: buffers are allocated by what the footer says.
        if not 0 < file.metadata.num_rows <= _SEGMENTS_MAX:
            raise DamagedObject(name, f"it has {file.metadata.num_rows} rows: expected 1 to {_SEGMENTS_MAX}")
        if check_parquet(data, _COMPACTED_SCHEMA.names):
            raise DamagedObject(name, "its texts are longer than those of any manifest")
        table = file.read(use_threads=False)
        table.validate(full=True)
        found = {field.name: field.type for field in table.schema}
        if set(found) > set(MANIFEST_SCHEMA.names) and (added := sorted(set(found) - set(_COMPACTED_SCHEMA.names))):
            raise FormatVersionError(name, f"has columns that this version does not know: {added}")
        schema = _schema(table)
        if found != {field.name: field.type for field in schema}:
            raise DamagedObject(name, f"it has the columns {found}: expected {schema}")
        is_sound = table.num_rows >= _MANY_SEGMENTS and _is_sound(table)
        problem = None if is_sound else _problem(segments_of_rows(table))
    except (DamagedObject, FormatVersionError):
        raise
    except Exception as error:  # foreign bytes make the decoders below us fail in any way
        raise DamagedObject(name, f"it cannot be decoded: {error}") from error
    if problem:
        raise DamagedObject(name, problem)
    return table


def segments_of_rows(table: pa.Table) -> tuple[SegmentRef, ...]:
    """Return the segments that rows of a manifest describe."""
    schema = _schema(table)
    make: Callable[..., SegmentRef] = _with_gaps
    if schema is not _COMPACTED_SCHEMA:
        make = SegmentRef if schema is MANIFEST_SCHEMA else _part_of_file
    found: list[SegmentRef] = []
    # All columns of all rows as lists would be in memory with the segments.
    for first in range(0, table.num_rows, _ROWS_AT_ONCE):
        some = table.slice(first, _ROWS_AT_ONCE)
        columns = [some.column(field).to_pylist() for field in schema.names]
        if table.num_rows > _ROWS_AT_ONCE:
            # Of many segments what is equal is in memory once: names of merged files, entries, offsets, times.
            share: dict[Any, Any] = {}
            columns = [[*map(share.setdefault, column, column)] for column in columns]
        found += [make(*row) for row in zip(*columns, strict=True)]
    return tuple(found)


def _schema(table: pa.Table) -> pa.Schema:
    found = table.column_names
    return _SCHEMAS[2 if "row_count" in found else 1 if "first_row" in found else 0]


def _part_of_file(*row: Any) -> SegmentRef:
    """Return a segment that may be a part of its file."""
    *fields, first_row, file_records = row
    segment = SegmentRef(*fields)
    if (first_row, file_records) == (0, segment.record_count):
        return segment
    return RewrittenSegment(*fields, first_row=first_row, file_records=file_records)


def _with_gaps(*row: Any) -> SegmentRef:
    """Return a segment that may lack some of its records."""
    *fields, first_row, file_records, row_count = row
    segment = _part_of_file(*fields, first_row, file_records)
    if row_count == segment.record_count:
        return segment
    base = fields[: len(SegmentRef.__struct_fields__)]
    return CompactedSegment(*base, first_row=first_row, file_records=file_records, row_count=row_count)


def _is_sound(table: pa.Table) -> bool:
    """Return whether `_problem` finds nothing in the rows of a manifest, column by column: a tenth of its time."""
    rows, column = table.num_rows, dict(zip(table.column_names, table.columns, strict=True))
    if any(each.null_count for each in table.columns):
        return False
    if any(pc.min(column[field]).as_py() < least for field, least in _LEAST.items() if field in column):
        return False
    try:
        ends = pc.add_checked(column["base_offset"], column["record_count"])
        # Compared with a value of Python's, each process would import pandas for it: 0.2 s of a processor.
        is_committed = column["committed_entry"].cast(pa.bool_())
        conditions = [
            # Segments of a merged file have the same.
            pc.match_substring_regex(pc.unique(column["name"]), rf"\A(?:{names.SEGMENT_FILES})\z"),
            pc.match_substring_regex(pc.unique(column["checksum"]), r"\A[0-9a-f]{8}\z"),
            pc.less_equal(column["timestamp_min_ms"], column["timestamp_max_ms"]),
            pc.or_(pc.invert(is_committed), pc.less_equal(column["entry"], column["committed_entry"])),
            pc.less_equal(ends.slice(0, rows - 1), column["base_offset"].slice(1)),
        ]
        if "first_row" in column:
            row_counts = column.get("row_count", column["record_count"])
            conditions.append(pc.less_equal(row_counts, column["record_count"]))
            file_rows = pc.add_checked(column["first_row"], row_counts)
            conditions.append(pc.less_equal(file_rows, column["file_records"]))
    except pa.ArrowInvalid:  # a sum is not a 64-bit integer
        return False
    return all(pc.all(condition, min_count=0).as_py() for condition in conditions)


def _problem(segments: Sequence[SegmentRef]) -> str | None:
    previous_end = -1
    for segment in segments:
        if problem := _field_problem(segment):
            return f"segment {segment.name!r}: {problem}"
        if segment.base_offset < previous_end:
            return f"segment {segment.name!r} starts at {segment.base_offset}, before the end of the one before it"
        previous_end = segment.end_offset
    return None


def _field_problem(segment: SegmentRef) -> str | None:
    for field, least in _LEAST.items():
        value = getattr(segment, field)
        if value is None or value < least:
            return f"its {field} is {value}: expected {least} or more"
    if not segment.name or not names.is_segment(segment.name):
        return "that is not the name of a segment"
    if not segment.checksum or len(segment.checksum) != 8 or not _CHECKSUM_DIGITS.issuperset(segment.checksum):
        return f"its checksum is {segment.checksum!r}: expected 8 lower-case hexadecimal digits"
    if segment.timestamp_min_ms is None or segment.timestamp_max_ms is None:
        return "it has no timestamps"
    if segment.timestamp_min_ms > segment.timestamp_max_ms:
        return f"its timestamps run from {segment.timestamp_min_ms} down to {segment.timestamp_max_ms}"
    if 0 < segment.committed_entry < segment.entry:
        return f"its entry {segment.entry} is after entry {segment.committed_entry}, which committed it"
    if segment.row_count > segment.record_count:
        return f"it has {segment.row_count} records for {segment.record_count} offsets"
    if segment.first_row + segment.row_count > segment.file_records:
        return f"its file has {segment.file_records} rows, and its records begin at row {segment.first_row}"
    return None
