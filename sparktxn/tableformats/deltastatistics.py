"""Statistics of a Delta table's files, and the columns that have bounds in all of them ("Per-file Statistics").

delta-rs loses the rows of a file that has no bounds of a column which the table's property names. Where the property is
missing it takes all columns for named. So the property names exactly those of which each file has bounds, or nulls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import Struct

from sparktxn.format.schema import offset_column, stored_schema, timestamp_column
from sparktxn.format.statistics import leaves
from sparktxn.tableformats.version import TableFile, table_schema
from sparktxn.values.fieldtypes import Columns

__all__ = ["BOUNDED", "bounded_columns", "earlier_statistics_text", "statistics_text"]

BOUNDED: Final = "delta.dataSkippingStatsColumns"
"""The property of a table that names the columns with bounds."""

_COLUMNS_MAX: Final = 200
"""So many columns have bounds, the first ones: each commit has them for each of its files."""

_TEXT_MAX: Final = 32
"""So many characters of a text are kept, as Spark does it."""

_LAST_CHARACTER: Final = "\U0010ffff"

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_DAY: Final = date(1970, 1, 1)
_TICKS_PER_MS: Final = {"ms": 1, "us": 1000}


class _Statistics(Struct, frozen=True, rename="camel"):
    """What a reader may skip a file by.

    Bounds may be wide unless they are tight: no value need be at them. Delta takes bounds for tight where nothing is
    said. A reader that ignores `tight_bounds` skips files by them, which is sound for wide ones.
    """

    num_records: int
    min_values: dict[str, Any]
    max_values: dict[str, Any]
    null_count: dict[str, int]
    tight_bounds: bool


class _Bounds(NamedTuple):
    """The bounds of a column as JSON has them; not exact if no value need be at one of them."""

    low: Any
    high: Any
    is_exact: bool = True


_encoder: Final = msgspec.json.Encoder()


def bounded_columns(files: Iterable[TableFile], columns: Columns | None) -> list[str]:
    """Return the columns of a topic's table of which each file has bounds, or nothing but nulls.

    They are written as the property has them, in the order of the table.
    """
    found = dict(_columns_with_bounds(columns))
    for file in files:
        described = _Described(file, columns)
        found = {name: data_type for name, data_type in found.items() if described.is_bounded(name, data_type)}
    return [_quoted(name) for name in found]


def statistics_text(file: TableFile, columns: Columns | None) -> str:
    """Return a file's statistics as an `add` has them."""
    described = _Described(file, columns)
    statistics = _Statistics(file.record_count, {}, {}, {}, tight_bounds=True)
    is_exact = True
    for name, data_type in _columns_with_bounds(columns):
        if (null_count := described.null_count(name)) is not None:
            statistics.null_count[name] = null_count
        if (bounds := described.bounds(name, data_type)) is not None:
            statistics.min_values[name] = bounds.low
            statistics.max_values[name] = bounds.high
            is_exact = is_exact and bounds.is_exact
    return _encoder.encode(msgspec.structs.replace(statistics, tight_bounds=is_exact)).decode()


def earlier_statistics_text(file: TableFile, columns: Columns | None) -> str:
    """Return a file's statistics as earlier versions wrote them: those that the log has, of times and offsets."""
    offset, timestamp = _own_columns(columns)
    times = _time_bounds(file.timestamp_min_ms, file.timestamp_max_ms)
    found = {offset: (file.offset_min, file.offset_max), timestamp: times}
    # One bound of times may be outside of what Delta's text has.
    lows, highs = ({name: pair[side] for name, pair in found.items() if pair[side] is not None} for side in (0, 1))
    statistics = _Statistics(file.record_count, lows, highs, {offset: 0, timestamp: 0}, tight_bounds=False)
    return _encoder.encode(statistics).decode()


def _own_columns(columns: Columns | None) -> tuple[str, str]:
    stored = stored_schema(columns)
    return offset_column(stored), timestamp_column(stored)


def _columns_with_bounds(columns: Columns | None) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the columns whose values Delta has bounds of: the table's own, then the first ones.

    Fields of structs are left out: Polars 2.1 reads no table in which only some fields of a struct have bounds.
    """
    *declared, timestamp, offset, _ = table_schema(columns)
    found = (
        (leaf.names[0], leaf.type)
        for leaf in leaves(pa.schema([offset, timestamp, *declared]))
        if leaf.names is not None and len(leaf.names) == 1 and _bounds_of(leaf.type) is not None
    )
    yield from islice(found, _COLUMNS_MAX)


class _Described:
    """A file as its statistics describe it."""

    def __init__(self, file: TableFile, columns: Columns | None) -> None:
        self._file = file
        self._known = {each.names: each for each in file.statistics or ()}
        self._offset, _ = _own_columns(columns)

    def null_count(self, name: str) -> int | None:
        """Return how many rows have null; a column that the file does not have is null in all of them."""
        if name == self._offset:
            return 0
        if self._file.statistics is None:
            return None
        column = self._known.get((name,))
        return self._file.record_count if column is None else column.null_count

    def bounds(self, name: str, data_type: pa.DataType) -> _Bounds | None:
        """Return the bounds of a column; None if there are none, or Delta cannot write them."""
        if name == self._offset:
            return _Bounds(self._file.offset_min, self._file.offset_max)
        column = self._known.get((name,))
        if column is None or column.low is None or column.high is None or column.type != data_type:
            return None
        make = _bounds_of(data_type)
        return None if make is None else make(column.low, column.high, data_type)

    def is_bounded(self, name: str, data_type: pa.DataType) -> bool:
        """Return whether a reader may take it that the file has bounds of a column, or nothing but nulls."""
        return self.null_count(name) == self._file.record_count or (
            self.null_count(name) is not None and self.bounds(name, data_type) is not None
        )


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _bounds_of(data_type: pa.DataType) -> Callable[[Any, Any, pa.DataType], _Bounds | None] | None:
    """Return what makes bounds of a type; None for types that Delta has none of."""
    if pa.types.is_integer(data_type):
        return _integers
    if pa.types.is_floating(data_type):
        return _fractions
    if pa.types.is_decimal(data_type):
        return _decimals
    if pa.types.is_date(data_type):
        return _dates
    if pa.types.is_timestamp(data_type):
        return _timestamps
    return _texts if pa.types.is_string(data_type) else None


def _integers(low: int, high: int, _: pa.DataType) -> _Bounds:
    return _Bounds(low, high)


def _fractions(low: float, high: float, _: pa.DataType) -> _Bounds | None:
    """Return bounds of fractions: JSON has no infinite ones. Zeros of Parquet's bounds have the sign that is wider."""
    return _Bounds(low, high, low != 0 and high != 0) if isfinite(low) and isfinite(high) else None


def _decimals(low: int, high: int, data_type: pa.DataType) -> _Bounds:
    return _Bounds(_decimal(low, data_type.scale), _decimal(high, data_type.scale))


def _decimal(digits: int, scale: int) -> msgspec.Raw:
    sign, _, _ = Decimal(digits).as_tuple()
    text = str(abs(digits)).rjust(scale + 1, "0")
    whole = text[: len(text) - scale] + (f".{text[-scale:]}" if scale else "")
    return msgspec.Raw((("-" if sign else "") + whole).encode())


def _dates(low: int, high: int, _: pa.DataType) -> _Bounds | None:
    first, last = _date(low), _date(high)
    return None if first is None or last is None else _Bounds(first, last)


def _date(days: int) -> str | None:
    """Return a date as text; None outside of the years 1 to 9999, which Delta's text does not have."""
    try:
        return (_FIRST_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def _timestamps(low: int, high: int, data_type: pa.DataType) -> _Bounds | None:
    ticks = _TICKS_PER_MS[data_type.unit]
    first, last = _time_bounds(low // ticks, -(-high // ticks), "Z" if data_type.tz else "")
    if first is None or last is None:
        return None
    return _Bounds(first, last, low % ticks == 0 and high % ticks == 0)


def _time_bounds(low_ms: int, high_ms: int, zone: str = "Z") -> tuple[str | None, str | None]:
    return _time(low_ms, zone), _time(high_ms, zone)


def _time(milliseconds: int, zone: str) -> str | None:
    """Return a time as text; None outside of the years 1 to 9999, which Delta's text does not have."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds") + zone


def _texts(low: bytes, high: bytes, _: pa.DataType) -> _Bounds | None:
    try:
        least, greatest = low.decode(), high.decode()
    except UnicodeDecodeError:  # of foreign bytes
        return None
    cut = _cut_above(greatest)
    return _Bounds(least[:_TEXT_MAX], cut, len(least) <= _TEXT_MAX and cut == greatest)


def _cut_above(text: str) -> str:
    """Return a text that is cut, or the whole one, and not less than it.

    The last character of Unicode follows the cut. Only a text with that character at this place could be greater, so
    all that stand there are kept, too.
    """
    if len(text) <= _TEXT_MAX:
        return text
    end = _TEXT_MAX
    while text[end : end + 1] == _LAST_CHARACTER:
        end += 1
    return text[:end] + _LAST_CHARACTER
