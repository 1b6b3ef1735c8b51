"""What a file's footer says of its columns, of which each table format makes the bounds that it has. Pure.

Bounds are kept as Parquet stores values, since Python's times do not reach as far. A date is a number of days, and a
time a number in the column's unit. Text is bytes. A decimal is its digits as an integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from sparktxn._engine.format.statistics import TIMESTAMP_ID, leaves, number_of, timestamp_bounds


class ColumnStatistics(Struct, frozen=True):
    """A column of a file, or a field of a struct: the names that lead to it, and what the footer has of it.

    `low` and `high` are the least and the greatest value; None where the footer does not have them, or they leave
    values out. `null_count` counts nulls of the structs around it too; None if it is not known.
    """

    names: tuple[str, ...]
    type: pa.DataType
    value_count: int
    null_count: int | None
    low: Any
    high: Any
    size_bytes: int

    @property
    def is_null(self) -> bool:
        """Whether it is known that it has nothing but nulls."""
        return self.null_count == self.value_count


def statistics_of(footer: pq.FileMetaData) -> tuple[ColumnStatistics, ...]:
    """Return what a merged file's footer has of its columns and fields of structs, in their order.

    Those in lists and maps are left out. Writers whose files have no numbers of columns did not leave out NaN, so of
    fractions nothing is taken from these.
    """
    schema = footer.schema.to_arrow_schema()
    is_numbered = any(number_of(field) is not None for field in schema)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    found = []
    for place, leaf in enumerate(leaves(schema)):
        if leaf.names is None:
            continue
        chunks = [group.column(place) for group in groups]
        null_count = _null_count(chunks)
        low, high = _bounds(chunks, leaf.type)
        if pa.types.is_floating(leaf.type) and not is_numbered:
            low = high = None
        if number_of(schema.field(leaf.names[0])) == TIMESTAMP_ID and (times := timestamp_bounds(footer)) is not None:
            null_count, (low, high) = 0, times
        size_bytes = sum(chunk.total_compressed_size for chunk in chunks)
        found.append(ColumnStatistics(leaf.names, leaf.type, footer.num_rows, null_count, low, high, size_bytes))
    return tuple(found)


def _null_count(chunks: Sequence[pq.ColumnChunkMetaData]) -> int | None:
    known = [chunk.statistics for chunk in chunks]
    if any(each is None or not each.has_null_count for each in known):
        return None
    return sum(int(each.null_count) for each in known)


def _bounds(chunks: Sequence[pq.ColumnChunkMetaData], data_type: pa.DataType) -> tuple[Any, Any]:
    lows, highs = [], []
    for chunk in chunks:
        known = chunk.statistics
        if known is None or not (known.has_min_max or (known.has_null_count and known.num_values == 0)):
            return None, None
        if known.has_min_max:
            lows.append(_value(known.min_raw, data_type))
            highs.append(_value(known.max_raw, data_type))
    return (min(lows), max(highs)) if lows else (None, None)


def _value(raw: Any, data_type: pa.DataType) -> Any:
    if pa.types.is_decimal(data_type) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


# What each table format calls the types of a topic's columns; types of several values are each format's own.

DELTA_LOCAL_TIME: Final = "timestamp_ntz"


class TypeNames(NamedTuple):
    """The names of a type without parts. Iceberg has no integers of less than 32 bits."""

    delta: str
    iceberg: str


_INSTANT: Final = TypeNames("timestamp", "timestamptz")
_NAMES: Final = {
    pa.bool_(): TypeNames("boolean", "boolean"),
    pa.int8(): TypeNames("byte", "int"),
    pa.int16(): TypeNames("short", "int"),
    pa.int32(): TypeNames("integer", "int"),
    pa.int64(): TypeNames("long", "long"),
    pa.float32(): TypeNames("float", "float"),
    pa.float64(): TypeNames("double", "double"),
    pa.string(): TypeNames("string", "string"),
    pa.binary(): TypeNames("binary", "binary"),
    pa.date32(): TypeNames("date", "date"),
    # The store's own column has milliseconds. Each format has one type of instants, and readers convert.
    pa.timestamp("ms", tz="UTC"): _INSTANT,
    pa.timestamp("us", tz="UTC"): _INSTANT,
    pa.timestamp("us"): TypeNames(DELTA_LOCAL_TIME, "timestamp"),
}


def names_of(data_type: pa.DataType) -> TypeNames | None:
    """Return what the formats call a type; None for a list, a map or a struct.

    Raises:
        AssertionError: no topic has columns of this type.
    """
    if pa.types.is_decimal(data_type):
        digits = f"{data_type.precision},{data_type.scale}"
        return TypeNames(f"decimal({digits})", f"decimal({digits.replace(',', ', ')})")
    assert data_type in _NAMES or pa.types.is_nested(data_type), f"no topic has columns of type {data_type}"
    return _NAMES.get(data_type)
