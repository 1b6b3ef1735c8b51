"""How many bytes records hold, whatever their order and encoding.

A value of text or bytes counts its length, a number its width (a boolean one byte), a null nothing. A nested value
counts the sum of its parts.
"""

from __future__ import annotations

from bisect import bisect_right

import pyarrow as pa
import pyarrow.compute as pc

_ROW_OVERHEAD_BYTES = 16
"""What a row takes in a segment in addition to its payload: lengths and levels of its columns, at most about so
much."""


def payload_bytes(table: pa.Table) -> int:
    """Return the bytes of all records of `table`."""
    return sum(_column_bytes(column) for column in table.columns)


def row_bytes(table: pa.Table) -> pa.Array:
    """Return the payload of each row of `table`, as int64 without nulls."""
    sizes = _repeat(0, table.num_rows)
    for column in table.columns:
        sizes = pc.add(sizes, pa.concat_arrays([record_bytes(chunk) for chunk in column.chunks] or [_repeat(0, 0)]))
    return sizes


def row_above(rows: pa.Table, bytes_max: int) -> int | None:
    """Return the bytes of the largest of a topic's rows if it has more than `bytes_max`, else None.

    The timestamp, the last column, is not part of a record's size.
    """
    if rows.nbytes <= bytes_max:
        return None
    sized = rows.select(rows.column_names[:-1])
    # The largest values of all columns rarely are in one row, and still rarely are too large together.
    if sum(map(_largest_bytes, sized.columns)) <= bytes_max:
        return None
    largest: int = pc.max(row_bytes(sized)).as_py()
    return largest if largest > bytes_max else None


def rows_that_fit(table: pa.Table, bytes_max: int) -> int:
    """Return how many of the first rows of `table` have at most `bytes_max` bytes together; 0 if the first has more."""
    return bisect_right(_running_bytes(table), bytes_max)


def _running_bytes(table: pa.Table) -> memoryview:
    """Return the bytes up to and including each row."""
    sizes = pc.add(row_bytes(table), pa.scalar(_ROW_OVERHEAD_BYTES, pa.int64()))
    running = pc.cumulative_sum(sizes)
    return memoryview(running.buffers()[1]).cast("q")[running.offset : running.offset + len(running)]


def _column_bytes(column: pa.ChunkedArray) -> int:
    if column.null_count == len(column):
        return 0
    if _is_sized(column.type):
        return sum(map(_text_bytes, column.chunks))
    if pa.types.is_nested(column.type):
        return sum(_total(record_bytes(chunk)) for chunk in column.chunks)
    value_count: int = len(column) - column.null_count
    return value_count * _width_bytes(column.type)


def _largest_bytes(column: pa.ChunkedArray) -> int:
    """Return the bytes of the largest value of a column."""
    if column.null_count == len(column):
        return 0
    if _is_sized(column.type):
        return int(pc.max(pc.binary_length(column)).as_py())
    if pa.types.is_nested(column.type):
        return max((pc.max(record_bytes(chunk)).as_py() for chunk in column.chunks if len(chunk)), default=0)
    return _width_bytes(column.type)


def _text_bytes(chunk: pa.Array) -> int:
    if chunk.null_count or not len(chunk):
        return _total(pc.binary_length(chunk))
    # Without nulls the values lie end to end: two offsets show it, many times faster than a sum for a small segment.
    offsets = memoryview(chunk.buffers()[1]).cast("i")
    size: int = offsets[chunk.offset + len(chunk)] - offsets[chunk.offset]
    return size


def _total(sizes: pa.Array) -> int:
    total: int | None = pc.sum(sizes).as_py()
    return total or 0  # a sum of nothing is null


def record_bytes(array: pa.Array) -> pa.Array:
    """Return the bytes of each value of `array`, as int64 without nulls."""
    data_type = array.type
    if array.null_count == len(array):
        return _repeat(0, len(array))
    if _is_sized(data_type):
        return pc.fill_null(pc.binary_length(array).cast(pa.int64()), 0)
    if pa.types.is_list(data_type):
        return _list_bytes(array)
    if pa.types.is_map(data_type):
        return _list_bytes(pairs_of(array))
    if pa.types.is_struct(data_type):
        total = _repeat(0, len(array))
        for field in array.flatten():
            total = pc.add(total, record_bytes(field))
        return total
    widths = _repeat(_width_bytes(data_type), len(array))
    return pc.if_else(array.is_valid(), widths, 0) if array.null_count else widths


def pairs_of(array: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of structs with `key` and `value`: no kernel of Arrow takes maps apart."""
    pair = pa.struct([pa.field("key", array.type.key_type, nullable=False), pa.field("value", array.type.item_type)])
    return array.cast(pa.list_(pair))


def _list_bytes(array: pa.ListArray) -> pa.Array:
    """Return, per list, the difference of the running total of its items' bytes at its two ends."""
    lengths = pc.fill_null(pc.list_value_length(array).cast(pa.int64()), 0)
    ends = pc.cumulative_sum(lengths)
    totals = pa.concat_arrays([_repeat(0, 1), pc.cumulative_sum(record_bytes(array.flatten()))])
    return pc.subtract(totals.take(ends), totals.take(pc.subtract(ends, lengths)))


def _repeat(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def _is_sized(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_binary(data_type) or pa.types.is_string(data_type))


def _width_bytes(data_type: pa.DataType) -> int:
    return int(max(8, data_type.bit_width)) // 8
