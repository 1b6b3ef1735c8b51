"""Values of JSON to values of a topic's types, exactly; numbers are kept as they are written until their type is known.

Each way in reads JSON here: import, `txnlog produce`, and nested values in CSV.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NoReturn

import pyarrow as pa

from sparktxn.errors import did_you_mean
from sparktxn.transfer.exactvalues import bytes_of, shown, text_reader, whole_of

__all__ = ["BASE64", "json_reader", "parsed"]

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
