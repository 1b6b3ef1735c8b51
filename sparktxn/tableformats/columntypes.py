"""What each table format calls the types of a topic's columns; types of several values are each format's own."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

__all__ = ["DELTA_LOCAL_TIME", "TypeNames", "names_of"]

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
