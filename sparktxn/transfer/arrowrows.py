"""Rows of Parquet and Arrow files, some at a time.

Parquet's old type INT96 holds nanoseconds of any year without saying whether they are instants. Arrow's reader wraps
years outside 1677 to 2262, or cuts digits, without a word. So it is read in three units, which show both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from sparktxn.scan.leaves import leaves

__all__ = ["Int96Error", "arrow_tables", "parquet_tables"]

At = Callable[[float], object]
"""Called with the part of a file that has been read, from 0 to 1."""

_FILE_MAGIC: Final = b"ARROW1"
_ROWS: Final = 65_536
_BATCH_BYTES: Final = 16 * 1024 * 1024
_GROWTH_MAX: Final = 8


class Int96Error(ValueError):
    """Row `row` of column `column` has a time of Parquet's type INT96 that microseconds do not hold."""

    def __init__(self, column: str, row: int) -> None:
        super().__init__(
            f"row {row}, column {column!r}: a time of Parquet's old type INT96 has nanoseconds, or is far from our "
            "era, and the topic's type keeps microseconds: write it as INT64 "
            "(spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS)"
        )


def arrow_tables(path: Path, at: At) -> Iterator[pa.Table]:
    """Yield the rows of an Arrow file or stream; `at` is called with the part of it that has been read.

    Raises:
        ValueError: a column is damaged. Arrow trusts what such a file says about itself, and a process may die of it.
    """
    before = 0
    with pa.memory_map(str(path)) as source:
        for batch, part in _batches(source):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                try:
                    column.validate(full=True)
                except pa.ArrowInvalid as error:
                    reason = str(error).rpartition("Invalid: ")[2]
                    raise ValueError(
                        f"rows {before + 1} to {before + batch.num_rows}, column {name!r}: a value is not what its "
                        f"type allows ({reason}); write the file anew, with bytes that are not text in a binary column"
                    ) from None
            before += batch.num_rows
            at(part)
            yield pa.Table.from_batches([batch])


def _batches(source: pa.MemoryMappedFile) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield the batches of a file, which begins with its name, or of a stream; with the part that has been read."""
    is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    source.seek(0)
    if not is_file:
        with pa.ipc.open_stream(source) as stream:
            for batch in stream:
                yield batch, source.tell() / source.size()
        return
    with pa.ipc.open_file(source) as reader:
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index), (index + 1) / reader.num_record_batches


def parquet_tables(path: Path, schema: pa.Schema, names: Mapping[str, str], at: At) -> Iterator[pa.Table]:
    """Yield the rows of a Parquet file; INT96 becomes the topic's type of timestamps.

    Args:
        path: the file.
        schema: the topic's columns.
        names: the topic's names of the file's columns, where they differ.
        at: called with the part of the file's rows that have been read, before they are yielded.

    Raises:
        Int96Error: a value has digits that the topic's type does not keep, or a year far from ours.
        ValueError: there are rows without columns.
    """
    with pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        old = _int96_columns(file)
        rows = _rows_at_a_time(file.metadata)
        others = zip(*(_in_unit(path, old, rows, unit) for unit in ("ns", "s")), strict=True) if old else repeat(None)
        before = 0
        for batch, other in zip(file.iter_batches(rows), others, strict=False):
            table = pa.Table.from_batches([batch])
            if other is not None:
                table = _exact_times(table, other, before, {name: names.get(name, name) for name in old}, schema)
            before += batch.num_rows
            at(before / max(1, file.metadata.num_rows))
            yield table
        if before != file.metadata.num_rows:
            raise ValueError(f"it says that it has {file.metadata.num_rows} rows, and {before} can be read")


def _rows_at_a_time(metadata: pyarrow.parquet.FileMetaData) -> int:
    """Return how many rows to read at once, so that they rarely take more than some megabytes."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    # A dictionary holds each value once: what is read may be larger than what is stored.
    return max(1, min(_ROWS, _BATCH_BYTES // max(1, widest * _GROWTH_MAX)))


def _int96_columns(file: pyarrow.parquet.ParquetFile) -> list[str]:
    columns = (file.metadata.schema.column(index) for index in range(len(file.metadata.schema)))
    roots = dict.fromkeys(column.path.split(".")[0] for column in columns if column.physical_type == "INT96")
    return [name for name in file.schema_arrow.names if name in roots or name.split(".")[0] in roots]


def _in_unit(path: Path, names: list[str], rows: int, unit: str) -> Iterator[pa.Table]:
    with pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit=unit) as file:
        for batch in file.iter_batches(rows, columns=names):
            yield pa.Table.from_batches([batch])


def _exact_times(
    table: pa.Table, other: tuple[pa.Table, pa.Table], before: int, names: dict[str, str], schema: pa.Schema
) -> pa.Table:
    """Return the table with the topic's zones in the columns that have INT96.

    Raises:
        Int96Error: microseconds are not what the file holds.
    """
    for name, mine in names.items():
        units = [found.column(name).combine_chunks() for found in (table, *other)]
        if not _is_exact(*units):
            row = bisect_left(range(1, table.num_rows + 1), True, key=lambda n: not _is_exact(*(u[:n] for u in units)))
            raise Int96Error(name, before + row + 1)
        if mine in schema.names:
            kind = _zoned(units[0].type, units[1].type, schema.field(mine).type)
            table = table.set_column(table.schema.get_field_index(name), name, units[0].cast(kind))
    return table


def _is_exact(table: pa.Array, nanoseconds: pa.Array, seconds: pa.Array) -> bool:
    """Return whether microseconds lose nothing: nanoseconds are exact but for multiples of 2**64, seconds never."""
    for us, ns, s in zip(leaves(table), leaves(nanoseconds), leaves(seconds), strict=True):
        if us.type == ns.type:
            continue
        count = us.cast(pa.int64())
        is_kept = pc.equal(pc.multiply(count, 1_000), ns.cast(pa.int64()))
        is_near = pc.equal(_whole_seconds(count), s.cast(pa.int64()))
        if pc.all(pc.and_(is_kept, is_near)).as_py() is False:
            return False
    return True


def _whole_seconds(count: pa.Array) -> pa.Array:
    down = pc.divide(count, 1_000_000)
    is_below = pc.and_(pc.less(count, 0), pc.not_equal(pc.multiply(down, 1_000_000), count))
    return pc.if_else(is_below, pc.subtract(down, 1), down)


def _zoned(found: pa.DataType, nanoseconds: pa.DataType, expected: pa.DataType) -> pa.DataType:
    """Return the type with the zones of the expected one where the file has INT96, which has none."""
    types = pa.types
    if types.is_timestamp(found) and found != nanoseconds and types.is_timestamp(expected):
        return pa.timestamp("us", tz=expected.tz)
    if types.is_list(found) and types.is_list(expected):
        return pa.list_(
            found.value_field.with_type(_zoned(found.value_type, nanoseconds.value_type, expected.value_type))
        )
    if types.is_map(found) and types.is_map(expected):
        return pa.map_(
            _zoned(found.key_type, nanoseconds.key_type, expected.key_type),
            _zoned(found.item_type, nanoseconds.item_type, expected.item_type),
        )
    if types.is_struct(found) and types.is_struct(expected) and [f.name for f in found] == [f.name for f in expected]:
        fields = zip(found, nanoseconds, expected, strict=True)
        return pa.struct([one.with_type(_zoned(one.type, ns.type, other.type)) for one, ns, other in fields])
    return found
