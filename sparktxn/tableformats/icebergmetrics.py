"""What an Iceberg table's manifests say of the columns of a file: counts, sizes and bounds (Iceberg's Appendix D)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from sparktxn.format.fieldnumbers import OFFSET_ID, TIMESTAMP_ID, number_of, numbered_columns
from sparktxn.format.schema import stored_schema, with_offsets
from sparktxn.format.statistics import leaves
from sparktxn.tableformats.version import TableFile
from sparktxn.values.fieldtypes import Columns

__all__ = ["earlier_metrics", "metrics"]

_TEXT_MAX: Final = 16
"""So many characters of a text are kept, as Iceberg does it by default."""

_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_INT64_MAX: Final = 2**63 - 1

_YEARS_DAYS: Final = (-719_162, 2_932_896)
"""The first day of the year 1, and the last one of 9999: pyiceberg shows no others."""
_DAY_US: Final = 86_400_000_000
_US: Final = {"ms": 1000, "us": 1}


def metrics(file: TableFile, columns: Columns | None) -> dict[str, list[dict[str, Any]]]:
    """Return what a file's entry has of its columns and fields of structs, by their numbers.

    Of a file without statistics it is what the log has.
    """
    if file.statistics is None:
        return {"column_sizes": [], **earlier_metrics(file)}
    numbers = dict(_numbers(with_offsets(stored_schema(columns))))
    found: dict[int, tuple[Any, ...]] = {}
    for each in file.statistics:
        number, data_type = numbers.get(each.names, (None, None))
        if number is None:
            continue
        low, high = each.low, each.high
        if number == OFFSET_ID:
            low, high = file.offset_min, file.offset_max
        is_known = each.type == data_type and low is not None and high is not None
        low, high = _bounds(low, high, each.type) if is_known else (None, None)
        found[number] = each.size_bytes, each.value_count, each.null_count, low, high
    names = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    return {
        name: [
            {"key": number, "value": found[number][place]}
            for number in sorted(found)
            if found[number][place] is not None
        ]
        for place, name in enumerate(names)
    }


def earlier_metrics(file: TableFile) -> dict[str, list[dict[str, Any]]]:
    """Return what earlier versions of this package wrote: the bounds that the log has, of times and offsets."""
    counted = (TIMESTAMP_ID, OFFSET_ID)
    return {
        "value_counts": [{"key": number, "value": file.record_count} for number in counted],
        "null_value_counts": [{"key": number, "value": 0} for number in counted],
        "lower_bounds": _earlier_bounds(file.timestamp_min_ms, file.offset_min),
        "upper_bounds": _earlier_bounds(file.timestamp_max_ms, file.offset_max),
    }


def _earlier_bounds(timestamp_ms: int, offset: int) -> list[dict[str, Any]]:
    """Return a bound of each column that has one; none of timestamps whose microseconds Iceberg cannot hold."""
    bounds = {TIMESTAMP_ID: timestamp_ms * 1000, OFFSET_ID: offset}
    return [
        {"key": number, "value": value.to_bytes(8, "little", signed=True)}
        for number, value in bounds.items()
        if -_INT64_MAX <= value <= _INT64_MAX
    ]


def _numbers(schema: pa.Schema) -> Iterator[tuple[tuple[str, ...], tuple[int, pa.DataType]]]:
    """Yield the numbers and types of columns and of fields of structs, by the names that lead to them."""
    numbered = numbered_columns(schema)
    for leaf in leaves(schema):
        if leaf.names is not None:
            field = numbered.field(leaf.names[0])
            for name in leaf.names[1:]:
                field = field.type.field(name)
            number = number_of(field)
            assert number is not None
            yield leaf.names, (number, leaf.type)


def _bounds(low: Any, high: Any, data_type: pa.DataType) -> tuple[bytes | None, bytes | None]:
    if pa.types.is_string(data_type):
        return _least_text(low), _greatest_text(high)
    return _value(low, data_type), _value(high, data_type)


def _value(value: Any, data_type: pa.DataType) -> bytes | None:
    """Return a value as Iceberg has single ones; None for types without bounds, and times that engines cannot show."""
    if pa.types.is_boolean(data_type):
        return bytes([value])
    if pa.types.is_floating(data_type):
        return struct.pack("<f" if pa.types.is_float32(data_type) else "<d", value)
    if pa.types.is_decimal(data_type):
        return int(value).to_bytes(_signed_size(value), "big", signed=True)
    if pa.types.is_date(data_type):
        return _int(value, 4) if _YEARS_DAYS[0] <= value <= _YEARS_DAYS[1] else None
    if pa.types.is_timestamp(data_type):
        microseconds = value * _US[data_type.unit]
        return _int(microseconds, 8) if _YEARS_DAYS[0] <= microseconds // _DAY_US <= _YEARS_DAYS[1] else None
    if pa.types.is_integer(data_type):
        return _int(value, 8 if pa.types.is_int64(data_type) else 4)
    return None


def _int(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little", signed=True)


def _signed_size(value: int) -> int:
    """Return how many bytes a number takes at least, with its sign."""
    return (value if value >= 0 else ~value).bit_length() // 8 + 1


def _least_text(value: bytes) -> bytes | None:
    text = _decoded(value)
    return None if text is None else text[:_TEXT_MAX].encode()


def _greatest_text(value: bytes) -> bytes | None:
    """Return a text that is not less than another, and is cut; None if none with so few characters is."""
    text = _decoded(value)
    if text is None or len(text) <= _TEXT_MAX:
        return None if text is None else value
    for place in reversed(range(_TEXT_MAX)):
        code = ord(text[place])
        if code < _LAST_CHARACTER:
            following = code + 1
            if following in _SURROGATES:
                following = _SURROGATES.stop
            return (text[:place] + chr(following)).encode()
    return None


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:  # of foreign bytes
        return None
