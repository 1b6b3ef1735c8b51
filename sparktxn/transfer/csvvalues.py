"""Columns of text to a topic's types: whole columns where each text has a plain form, value by value where not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.errors import ConfigurationError
from sparktxn.transfer.exactvalues import text_reader
from sparktxn.transfer.jsonvalues import BASE64, json_reader, parsed

__all__ = ["WrongText", "csv_names", "is_text_in_csv", "typed_column"]

_TIME: Final = r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}"
_PLAIN: Final = {
    pa.bool_(): r"^(true|false)$",
    pa.int8(): r"^-?[0-9]{1,18}$",
    pa.int16(): r"^-?[0-9]{1,18}$",
    pa.int32(): r"^-?[0-9]{1,18}$",
    pa.int64(): r"^-?[0-9]{1,18}$",
    pa.float32(): r"^-?([0-9]{1,6}|[0-9]{1,3}\.[0-9]{1,3})$",
    pa.float64(): r"^-?([0-9]{1,15}|[0-9]{1,7}\.[0-9]{1,8})$",
    pa.date32(): r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$",
    pa.timestamp("us"): rf"^{_TIME}(\.[0-9]{{1,6}})?$",
    pa.timestamp("us", tz="UTC"): rf"^{_TIME}(\.[0-9]{{1,6}})?Z$",
    pa.timestamp("ms", tz="UTC"): rf"^{_TIME}(\.[0-9]{{1,3}})?Z$",
}
"""Texts that Arrow casts as `text_reader` reads them, or refuses."""


class WrongText(ValueError):
    """The text in row `row` is not a value of the column, because of `reason`."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


def is_text_in_csv(kind: pa.DataType) -> bool:
    """Return whether values of a type are written as text of ours, as Arrow's own would lose some of them."""
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_timestamp(kind))


def csv_names(schema: pa.Schema) -> dict[str, str]:
    """Return the names in CSV of a typed topic's columns, by their own: those of bytes say that these are base64.

    Other programs write bytes as they are, and some of them are base64 by chance: their files are refused by the name.

    Raises:
        ConfigurationError: two columns have one name there.
    """
    found = {each.name: each.name + BASE64 if pa.types.is_binary(each.type) else each.name for each in schema}
    for mine, name in found.items():
        if name != mine and name in found:
            raise ConfigurationError(
                f"column {name!r} of csv is two columns, as it has the bytes of {mine!r}: use json, parquet or arrow, "
                "or leave one of them out"
            )
    return found


def typed_column(texts: pa.ChunkedArray, field: pa.Field, *, bytes_are_text: bool) -> pa.ChunkedArray:
    """Return the values that texts hold; nested ones are JSON. Binary values are base64, but for `bytes_are_text`.

    Raises:
        WrongText: a text holds none, or is null and may not be.
    """
    if not field.nullable and texts.null_count:
        row = pc.index(texts.is_valid(), False).as_py()
        raise WrongText(row, f"it is null, and may not be: expected {field.type}")
    kind = field.type
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_binary(kind) and bytes_are_text:
        return texts.cast(kind)
    plain = _plain_decimal(kind) if pa.types.is_decimal(kind) else _PLAIN.get(kind)
    if plain is not None and pc.all(pc.match_substring_regex(texts, plain)).as_py() is not False:
        try:
            return texts.cast(kind)
        except pa.ArrowException:
            pass  # One of them is out of range: the loop below finds it.
    return pa.chunked_array([pa.array(_values(texts, _reader(field, bytes_are_text=bytes_are_text)), kind)])


def _plain_decimal(kind: pa.DataType) -> str:
    """Return what decimals that fit look like: Arrow's cast of others may wrap around."""
    whole = kind.precision - kind.scale
    fraction = rf"(\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    return rf"^-?{f'[0-9]{{1,{whole}}}' if whole else '0'}{fraction}$"


def _reader(field: pa.Field, *, bytes_are_text: bool) -> Callable[[str], Any]:
    if not pa.types.is_nested(field.type):
        return text_reader(field.type)
    read = json_reader(field, bytes_are_text=bytes_are_text)
    return lambda text: read(parsed(text))


def _values(texts: pa.ChunkedArray, read: Callable[[str], Any]) -> list[Any]:
    values: list[Any] = []
    for text in texts.to_pylist():
        try:
            values.append(None if text is None else read(text))
        except ValueError as error:
            raise WrongText(len(values), str(error)) from None
    return values
