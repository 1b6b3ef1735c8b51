"""Rows as JSON lines: one way to write them, for `consume` and export, and one to read them, for `produce` and import.

Bytes of a typed topic are base64. In Kafka's record they are text, and those that are not UTF-8 are base64 in a member
whose name ends with ``_base64``. NaN and infinite numbers are the texts "NaN", "Infinity" and "-Infinity"; decimals are
text, times ISO 8601, maps arrays of [key, value].
"""

from __future__ import annotations

import base64
import json
import math
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.schema import DELETED_COLUMN
from sparktxn._rows.scan.columns import leaves
from sparktxn._rows.stage.keyedrows import WHOLE_ROW
from sparktxn.errors import ConfigurationError, did_you_mean
from sparktxn.transfer.exactvalues import YEARS_US, WrongLine, bytes_of, shown, text_reader, whole_of

# Values of JSON to values of a topic's types, exactly; numbers are kept as they are written until their type is
# known.
#
# Each way in reads JSON here: import, `txnlog produce`, and nested values in CSV.

JsonReader = Callable[[Any], Any]
"""Takes a value of `parsed`, and returns the value that Arrow takes for it; raises ValueError."""

BASE64: Final = "_base64"
"""The end of a member's name whose bytes are base64, where members of bytes are text (Kafka's record)."""

_EXPECTED: Final = {
    pa.binary().id: "text, in quotes",
    pa.date32().id: 'text such as "2026-05-01"',
    pa.timestamp("us").id: 'text such as "2026-05-01T12:00:00Z"',
}
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
_PAIR: Final = 2


class Number(str):
    """A number as JSON writes it."""

    __slots__ = ()


def parsed(text: str) -> Any:
    """Return what JSON holds, with its numbers as text.

    Raises:
        ValueError: it is not JSON, an object has a name twice, or it is nested too deeply.
    """
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg} at character {error.pos + 1})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply: expected at most the depth of the topic's types") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has {shown(twice)} twice: expected each name once")
    return found


def _constant(text: str) -> NoReturn:
    raise ValueError(f'{text} is not JSON: expected "{text}", in quotes')


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=_constant
)


def json_reader(field: pa.Field, *, bytes_are_text: bool = False) -> JsonReader:
    """Return what reads a value of a column.

    Args:
        field: the column.
        bytes_are_text: binary values are text, and members of objects whose names end with ``_base64`` are base64;
            else all binary values are base64.
    """
    reader = _reader(field.type, bytes_are_text=bytes_are_text)

    def read(value: Any) -> Any:
        if value is not None:
            return reader(value)
        if not field.nullable:
            raise ValueError(f"{field.name!r} is null, and may not be: expected {field.type}")
        return None

    return read


def _reader(kind: pa.DataType, *, bytes_are_text: bool) -> JsonReader:
    types = pa.types
    if types.is_list(kind):
        return _list_reader(kind, json_reader(kind.value_field, bytes_are_text=bytes_are_text))
    if types.is_map(kind):
        return _map_reader(kind, bytes_are_text=bytes_are_text)
    if types.is_struct(kind):
        return _struct_reader(kind, bytes_are_text=bytes_are_text)
    if types.is_boolean(kind):
        return lambda value: value if isinstance(value, bool) else _refuse(value, kind, "true or false")
    if types.is_string(kind):
        return _text
    read = str.encode if types.is_binary(kind) and bytes_are_text else text_reader(kind)
    if types.is_integer(kind):
        return lambda value: read(value) if type(value) is Number else _refuse(value, kind, "a whole number")
    if types.is_floating(kind):
        return lambda value: (
            read(value)
            if type(value) is Number or (isinstance(value, str) and value in _NO_NUMBERS)
            else _refuse(value, kind, 'a number, "NaN", "Infinity" or "-Infinity"')
        )
    if types.is_decimal(kind):
        return lambda value: read(value) if isinstance(value, str) else _refuse(value, kind, "a number")
    if types.is_timestamp(kind) and kind.unit == "ms":
        return lambda value: _milliseconds(value, kind, read)
    return lambda value: read(_text(value)) if type(value) is str else _refuse(value, kind, _EXPECTED[kind.id])


def _refuse(value: Any, kind: pa.DataType, expected: str) -> NoReturn:
    raise ValueError(f"{shown(value)} is not of type {kind}: expected {expected}")


def _text(value: Any) -> str:
    if type(value) is not str:
        _refuse(value, pa.string(), "text, in quotes")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{shown(value)} is not text: it has half of a surrogate pair") from None
    return str(value)


def _milliseconds(value: Any, kind: pa.DataType, read: Callable[[str], Any]) -> int:
    if type(value) is Number:
        return whole_of(value, pa.int64())
    return int(read(value)) if isinstance(value, str) else _refuse(value, kind, "text, or whole milliseconds")


def _list_reader(kind: pa.DataType, read: JsonReader) -> JsonReader:
    def read_list(value: Any) -> list[Any]:
        if not isinstance(value, list):
            _refuse(value, kind, "a JSON array")
        return [read(item) for item in value]

    return read_list


def _map_reader(kind: pa.DataType, *, bytes_are_text: bool) -> JsonReader:
    key = _reader(kind.key_type, bytes_are_text=bytes_are_text)
    named = str if pa.types.is_string(kind.key_type) else text_reader(kind.key_type)
    item = json_reader(kind.item_field, bytes_are_text=bytes_are_text)

    def read_map(value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, dict):
            return [(named(_text(name)), item(one)) for name, one in value.items()]
        if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == _PAIR for pair in value):
            _refuse(value, kind, "a JSON object, or an array of [key, value]")
        if any(name is None for name, _ in value):
            _refuse(value, kind, "keys that are not null")
        return [(key(name), item(one)) for name, one in value]

    return read_map


def _struct_reader(kind: pa.DataType, *, bytes_are_text: bool) -> JsonReader:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    readers = {field.name: json_reader(field, bytes_are_text=bytes_are_text) for field in fields}
    encoded = {field.name + BASE64: field.name for field in fields if bytes_are_text and pa.types.is_binary(field.type)}

    def read_struct(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            _refuse(value, kind, "a JSON object")
        found = {}
        for name, one in value.items():
            mine = encoded.get(name, name)
            if mine not in readers or mine in found:
                problem = "is there twice" if mine in readers else "is unknown"
                raise ValueError(
                    f"member {name!r} {problem}: expected {', '.join(readers)}{did_you_mean(name, readers)}"
                )
            found[mine] = readers[name](one) if mine == name else _encoded(one)
        return {name: found[name] if name in found else read(None) for name, read in readers.items()}

    return read_struct


def _encoded(value: Any) -> bytes | None:
    return None if value is None else bytes_of(_text(value))


_YEARS: Final = {
    pa.date32(): (-719_162, 2_932_896),
    "ms": (YEARS_US[0] // 1_000, YEARS_US[1] // 1_000),
    "us": YEARS_US,
}
"""The first and the last value of the years 1 to 9999."""


def key_reader(fields: Sequence[pa.Field]) -> Callable[[bytes], tuple[Any, ...]]:
    """Return what reads a key of these columns, as a keyed topic has it as text (PROTOCOL.md, "Keyed topics").

    What it returns has a value for each column. It takes JSON that is written otherwise, too: with spaces, for example.
    It raises ValueError for what is not such a key.
    """
    if len(fields) > 1:
        readers = [json_reader(field) for field in fields]
        names = ", ".join(field.name for field in fields)

        def read_array(key: bytes) -> tuple[Any, ...]:
            values = parsed(_of_utf8(key))
            if not isinstance(values, list) or len(values) != len(readers):
                raise ValueError(f"{shown(key.decode())} is not a JSON array of {len(readers)} values: {names}")
            return tuple(read(value) for read, value in zip(readers, values, strict=True))

        return read_array
    kind = fields[0].type
    if pa.types.is_binary(kind):
        return lambda key: (key,)
    read = text_reader(kind)
    return lambda key: (read(_of_utf8(key)),)


def _of_utf8(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 ({error.reason} at byte {error.start + 1})") from None


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
        whole: columns of a keyed topic that each upsert must have: a line without true in its ``_deleted``.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        is_record: bool = False,
        names: Callable[[str], str] = str,
        ignored: Iterable[str] | None = (),
        whole: Iterable[str] = (),
    ) -> None:
        self._schema = schema
        self._required = {field.name for field in schema if not field.nullable}
        self._whole = frozenset(whole) - self._required
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
        missing, absent, is_delete = self._required, self._whole, False
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
            elif mine in absent:
                absent = absent - {mine}
            elif mine == DELETED_COLUMN:
                is_delete = value is True
        if missing:
            raise ValueError(
                f"column {min(missing)!r} is missing: expected it on each line, and null only where the topic allows it"
            )
        if absent and not is_delete:
            raise ValueError(f"column {min(absent)!r} is missing: {WHOLE_ROW}")

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
