"""Rows as JSON lines: one way to write them, for `consume` and export, and one to read them, for `produce` and import.

Bytes of a typed topic are base64. In Kafka's record they are text, and those that are not UTF-8 are base64 in a member
whose name ends with ``_base64``. NaN and infinite numbers are the texts "NaN", "Infinity" and "-Infinity"; decimals are
text, times ISO 8601, maps arrays of [key, value].
"""

from __future__ import annotations

import base64
import math
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.errors import ConfigurationError, did_you_mean
from sparktxn.scan.leaves import leaves
from sparktxn.transfer.exactvalues import YEARS_US, WrongLine, shown
from sparktxn.transfer.jsonvalues import BASE64, json_reader, parsed

__all__ = ["JsonRows", "encoded", "json_bytes", "json_values", "some_lines"]

_YEARS: Final = {
    pa.date32(): (-719_162, 2_932_896),
    "ms": (YEARS_US[0] // 1_000, YEARS_US[1] // 1_000),
    "us": YEARS_US,
}
"""The first and the last value of the years 1 to 9999."""


class _Column(NamedTuple):
    """A column of the topic, and what reads its values."""

    name: str
    read: Callable[[Any], Any]


def some_lines(lines: Iterable[bytes], lines_max: int, bytes_max: int) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lines that are not empty with their numbers, so many or so many bytes at a time; without a byte-order mark.

    A list may have more bytes by one line.
    """
    some: list[tuple[int, bytes]] = []
    size = 0
    for number, line in enumerate(lines, 1):
        text = line.removeprefix(BOM_UTF8) if number == 1 else line
        if text.strip():
            some.append((number, text))
            size += len(text)
        if len(some) >= lines_max or size >= bytes_max:
            yield some
            some, size = [], 0
    if some:
        yield some


class JsonRows:
    """Reads lines as rows of a topic.

    Args:
        schema: the topic's columns.
        is_record: they are those of Kafka's record, whose bytes are text.
        names: the topic's name of each of a line's members, where they differ.
        ignored: members that are left out; None: all that the topic does not have.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        is_record: bool = False,
        names: Callable[[str], str] = str,
        ignored: Iterable[str] | None = (),
    ) -> None:
        self._schema = schema
        self._required = {field.name for field in schema if not field.nullable}
        if is_record:
            self._required.add("value")
        self._names = names
        self._ignored = None if ignored is None else frozenset(ignored)
        self._columns: dict[str, _Column] = {}
        for field in schema:
            self._columns[field.name] = _Column(field.name, json_reader(field, bytes_are_text=is_record))
            if is_record and pa.types.is_binary(field.type):
                self._columns[field.name + BASE64] = _Column(field.name, json_reader(field))
        self._known: dict[str, _Column | None] = {}

    def table(self, lines: Iterable[tuple[int, bytes]]) -> pa.Table:
        """Return the rows of lines, given with their numbers; columns that no line has are left out.

        Raises:
            WrongLine: a line is not a JSON object with the topic's columns and types.
        """
        columns: dict[str, list[Any]] = {}
        count = 0
        for number, line in lines:
            try:
                self._add(parsed(line.decode()), columns, count)
            except UnicodeDecodeError as error:
                raise WrongLine(number, f"it is not UTF-8 ({error.reason} at byte {error.start + 1})") from None
            except ValueError as error:
                raise WrongLine(number, str(error)) from None
            count += 1
        if not columns:
            columns = {self._schema.names[0]: []}
        arrays = {
            field.name: pa.array(_filled(columns[field.name], count), field.type)
            for field in self._schema
            if field.name in columns
        }
        return pa.table(arrays)

    def _add(self, row: Any, columns: dict[str, list[Any]], count: int) -> None:
        if not isinstance(row, dict):
            raise ValueError(f"expected a JSON object on each line, and found {shown(row)}")  # noqa: TRY004
        missing = self._required
        for name, value in row.items():
            if name not in self._known:
                self._known[name] = self._column(name)
            found = self._known[name]
            if found is None:
                continue
            mine, read = found
            values = columns.setdefault(mine, [])
            if len(values) > count:
                raise ValueError(f"column {mine!r} is there twice: expected {mine!r} or {mine + BASE64!r}")
            _filled(values, count)
            try:
                values.append(read(value))
            except ValueError as error:
                raise ValueError(f"column {mine!r}: {error}") from None
            if mine in missing:
                missing = missing - {mine}
        if missing:
            raise ValueError(
                f"column {min(missing)!r} is missing: expected it on each line, and null only where the topic allows it"
            )

    def _column(self, name: str) -> _Column | None:
        """Return a member's column and what reads it; None if it is left out."""
        mine = self._names(name)
        if mine in self._columns:
            return self._columns[mine]
        if self._ignored is None or mine in self._ignored:
            return None
        known = self._schema.names
        raise ValueError(f"there is no column {mine!r}: expected {', '.join(known)}{did_you_mean(mine, known)}")


def _filled(values: list[Any], count: int) -> list[Any]:
    if len(values) < count:
        values.extend([None] * (count - len(values)))
    return values


def encoded(row: Mapping[str, Any]) -> bytes:
    """Return a row of `json_values` as JSON, without an end of line."""
    return msgspec.json.encode(row)


def json_values(field: pa.Field, column: pa.Array) -> list[Any]:
    """Return a typed topic's column as `encoded` takes it.

    Raises:
        ConfigurationError: a time is outside the years 1 to 9999, which ISO 8601 cannot hold.
    """
    _check_years(field, column)
    values: list[Any] = column.to_pylist()
    return [_finite(value) for value in values] if _has_floats(field.type) else values


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes of Kafka's record as a member: text, or base64 under `name` with ``_base64``."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name + BASE64: base64.b64encode(data).decode()}


def _has_floats(kind: pa.DataType) -> bool:
    inner = [kind.field(index).type for index in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return bool(pa.types.is_floating(kind) or any(map(_has_floats, inner)))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _check_years(field: pa.Field, column: pa.Array) -> None:
    for leaf in leaves(column):
        years = _YEARS.get(getattr(leaf.type, "unit", leaf.type)) if pa.types.is_temporal(leaf.type) else None
        if years is None:
            continue
        found = pc.min_max(leaf.cast(pa.int32() if pa.types.is_date(leaf.type) else pa.int64()))
        for number in (found["min"].as_py(), found["max"].as_py()):
            if number is not None and not years[0] <= number <= years[1]:
                raise ConfigurationError(
                    f"column {field.name!r} has the {leaf.type} {number} since 1970, which is outside the years 1 to "
                    "9999 and has no text: export parquet or arrow, or leave the row out with a condition"
                )
