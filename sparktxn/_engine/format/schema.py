"""Schemas of topics: Kafka's record, or declared columns whose types are written as text (PROTOCOL.md, "Topics").

A declared type is one that Parquet, Arrow IPC and Spark keep exactly; every other one is refused with the nearest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn.errors import ConfigurationError, did_you_mean

_TIMESTAMP_MS: Final = pa.timestamp("ms", tz="UTC")
# Parquet calls a list's item "element": with another name every read would have to cast.
_HEADER: Final = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", _HEADER))),
        pa.field("timestamp", _TIMESTAMP_MS, nullable=False),
    ]
)
"""Kafka's record as segments store it."""

OFFSET_COLUMN: Final = "offset"
"""The column of the records' offsets, in files that a rewrite has made from segments of Kafka's record."""

TYPED_OFFSET_COLUMN: Final = "_offset"
"""The same column in files of a typed topic, which may declare one that is called `OFFSET_COLUMN`."""

TIMESTAMP_COLUMN: Final = "_timestamp"
"""The reserved column of a typed topic that keeps the record's timestamp."""

DELETED_COLUMN: Final = "_deleted"
"""The reserved column of a keyed topic: true in a row that deletes its key, null in an upsert."""

_DEPTH_MAX: Final = 16
_COLUMNS_MAX: Final = 10_000
_DECIMAL_DIGITS_MAX: Final = 38

_PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "timestamp[us, tz=UTC]": pa.timestamp("us", tz="UTC"),
    "timestamp[us]": pa.timestamp("us"),
}
_NAMES: Final = {data_type: name for name, data_type in _PRIMITIVES.items()}
_EXPECTED: Final = (
    ", ".join(_PRIMITIVES) + ", decimal128(precision, scale), list<type>, map<type, type> or struct<name: type, ...>"
)

_DECIMAL = re.compile(r"decimal128\(\s*([0-9]{1,4})\s*,\s*([0-9]{1,4})\s*\)")
_FIELD = re.compile(r"\s*([\w.-]+)\s*:(.*)", re.DOTALL)
_FIELD_NAME = re.compile(r"[\w.-]+")
_NOT_NULL: Final = " not null"


def stored_schema(columns: Columns | None) -> pa.Schema:
    """Return the schema of a topic's segments: RECORD_SCHEMA for None, else the declared columns and ``_timestamp``."""
    return RECORD_SCHEMA if columns is None else _typed_schema(tuple(columns))


def with_offsets(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a rewrite's files: a topic's `stored_schema`, and the offset of each record."""
    return schema.append(pa.field(offset_column(schema), pa.int64(), nullable=False))


def offset_column(schema: pa.Schema) -> str:
    """Return the name of the column of offsets in files of a topic with the `stored_schema` `schema`."""
    return TYPED_OFFSET_COLUMN if TIMESTAMP_COLUMN in schema.names else OFFSET_COLUMN


def timestamp_column(schema: pa.Schema) -> str:
    """Return the name of the column of timestamps in files of a topic with the `stored_schema` `schema`."""
    return TIMESTAMP_COLUMN if TIMESTAMP_COLUMN in schema.names else "timestamp"


@lru_cache(maxsize=1024)
def _typed_schema(columns: Columns) -> pa.Schema:
    fields = [pa.field(name, parse_type(data_type), nullable=nullable) for name, data_type, nullable in columns]
    return pa.schema([*fields, pa.field(TIMESTAMP_COLUMN, _TIMESTAMP_MS, nullable=False)])


def check_schema(schema: pa.Schema | Iterable[Sequence[object]]) -> Columns:
    """Return a typed topic's declared columns as the log keeps them: checked, with types as `type_text` writes them.

    Raises:
        ConfigurationError: there are no columns, a name is empty, reserved or taken, or a type is not one that segments
            keep exactly. Reserved are names that start with ``_``, and ``kafka_partition``. A name is taken also if
            only the case differs, since Spark ignores it.
    """
    columns = _columns_of(schema)
    check_columns(columns)
    return columns


def check_columns(columns: Columns, existing: Columns = ()) -> None:
    """Check columns that a topic is to have after the `existing` ones: this is all that makes a schema readable.

    Raises:
        ConfigurationError: see `check_schema`.
    """
    if not 0 < len(existing) + len(columns) <= _COLUMNS_MAX:
        count = len(existing) + len(columns)
        raise ConfigurationError(f"a typed topic has {count} columns: expected 1 to {_COLUMNS_MAX}")
    taken = {name.lower(): name for name, _, _ in existing}
    for name, declared, _ in columns:
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError(f"column name {name!r} is not valid: expected text that is not empty")
        if name.startswith("_") or name.lower() == PARTITION_COLUMN:
            reserved = f"names that start with '_', and {PARTITION_COLUMN!r}, belong to the store"
            raise ConfigurationError(f"column name {name!r} is reserved: {reserved}")
        if name.lower() in taken:
            raise ConfigurationError(f"column name {name!r} is not unique: {taken[name.lower()]!r} is declared too")
        taken[name.lower()] = name
        _column_parse(name, declared)


def _columns_of(schema: pa.Schema | Iterable[Sequence[object]]) -> Columns:
    if isinstance(schema, pa.Schema):
        return tuple((field.name, _column_type(field.name, field.type), field.nullable) for field in schema)
    columns = []
    for column in arguments.items("schema", schema, object):
        if not isinstance(column, tuple | list) or len(column) != 3 or not isinstance(column[2], bool):
            shown = arguments.described(column)
            raise ConfigurationError(f"a column of the schema is {shown}: expected (name, type, nullable)")
        name, declared, nullable = column
        data_type = declared if isinstance(declared, pa.DataType) else _column_parse(name, declared)
        columns.append((name, _column_type(name, data_type), nullable))
    return tuple(columns)


def _column_type(name: object, data_type: pa.DataType) -> str:
    try:
        return type_text(data_type)
    except ConfigurationError as error:
        raise ConfigurationError(f"column {name!r}: {error}") from None


def _column_parse(name: object, declared: object) -> pa.DataType:
    try:
        return parse_type(declared)
    except ConfigurationError as error:
        raise ConfigurationError(f"column {name!r}: {error}") from None


def type_text(data_type: pa.DataType) -> str:
    """Return the type as text; `parse_type` is its inverse.

    Raises:
        ConfigurationError: segments do not keep this type exactly.

    >>> type_text(pa.list_(pa.struct([("a", pa.int64()), ("b", pa.float32())])))
    'list<struct<a: int64, b: float>>'
    """
    return _type_text(data_type, 0)


def _type_text(data_type: pa.DataType, depth: int) -> str:
    if depth > _DEPTH_MAX:
        raise ConfigurationError(f"a type is nested deeper than {_DEPTH_MAX} levels")
    name = _NAMES.get(data_type)
    if name is not None:
        return name
    if pa.types.is_decimal128(data_type) and 0 <= data_type.scale <= data_type.precision:
        return f"decimal128({data_type.precision}, {data_type.scale})"
    if pa.types.is_list(data_type):
        item = data_type.value_field
        return f"list<{_type_text(item.type, depth + 1)}{'' if item.nullable else _NOT_NULL}>"
    if pa.types.is_map(data_type):
        value = data_type.item_field
        key = _key_text(data_type.key_type, depth + 1)
        return f"map<{key}, {_type_text(value.type, depth + 1)}{'' if value.nullable else _NOT_NULL}>"
    if pa.types.is_struct(data_type) and data_type.num_fields > 0:
        fields = [data_type.field(index) for index in range(data_type.num_fields)]
        _check_field_names([field.name for field in fields])
        return f"struct<{', '.join(_field_text(field, depth) for field in fields)}>"
    raise ConfigurationError(f"type {data_type} is not kept exactly: expected {_EXPECTED}{_hint(data_type)}")


def _key_text(data_type: pa.DataType, depth: int) -> str:
    if pa.types.is_nested(data_type):
        raise ConfigurationError(f"type {data_type} is not a key of a map: expected a type that is not nested")
    return _type_text(data_type, depth)


def _field_text(field: pa.Field, depth: int) -> str:
    return f"{field.name}: {_type_text(field.type, depth + 1)}{'' if field.nullable else _NOT_NULL}"


def _check_field_names(field_names: Sequence[str]) -> None:
    lowered = {name.lower() for name in field_names}
    if len(lowered) != len(field_names) or not all(_FIELD_NAME.fullmatch(name) for name in field_names):
        raise ConfigurationError(
            f"struct field names {list(field_names)!r} are not valid: "
            "expected unique names of letters, digits, '_', '.' and '-'"
        )


def _hint(data_type: pa.DataType) -> str:
    if pa.types.is_timestamp(data_type):
        return "; cast it to 'timestamp[us]'" if data_type.tz is None else "; cast it to 'timestamp[us, tz=UTC]'"
    return did_you_mean(str(data_type).removeprefix("large_"), _PRIMITIVES)


def parse_type(text: object) -> pa.DataType:
    """Return the type that `text` names.

    Raises:
        ConfigurationError: it names none that segments keep exactly.
    """
    if not isinstance(text, str):
        raise ConfigurationError(f"type {text!r} is not valid: expected text, one of {_EXPECTED}")
    return _parse(text, 0)


def _parse(text: str, depth: int) -> pa.DataType:
    if depth > _DEPTH_MAX:
        raise ConfigurationError(f"a type is nested deeper than {_DEPTH_MAX} levels")
    text = text.strip()
    if text in _PRIMITIVES:
        return _PRIMITIVES[text]
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2])
        if not 1 <= precision <= _DECIMAL_DIGITS_MAX or scale > precision:
            raise ConfigurationError(
                f"type {text!r} is not valid: expected a precision from 1 to {_DECIMAL_DIGITS_MAX} "
                "and a scale from 0 to the precision"
            )
        return pa.decimal128(precision, scale)
    if text.startswith("list<") and text.endswith(">"):
        return pa.list_(_parse_field("element", text[len("list<") : -1], depth))
    if text.startswith("map<") and text.endswith(">"):
        return _parse_map(text, depth)
    if text.startswith("struct<") and text.endswith(">"):
        return _parse_struct(text, depth)
    raise ConfigurationError(f"type {text!r} is unknown: expected {_EXPECTED}{did_you_mean(text, _PRIMITIVES)}")


def _parse_map(text: str, depth: int) -> pa.DataType:
    parts = _split_fields(text[len("map<") : -1])
    if len(parts) != 2:
        raise ConfigurationError(f"type {text!r} is not valid: expected 'map<type, type>'")
    key = _parse(parts[0], depth + 1)
    if pa.types.is_nested(key):
        raise ConfigurationError(f"type {text!r} is not valid: expected a key that is not nested")
    return pa.map_(key, _parse_field("value", parts[1], depth))


def _parse_struct(text: str, depth: int) -> pa.DataType:
    fields = []
    for part in _split_fields(text[len("struct<") : -1]):
        match = _FIELD.fullmatch(part)
        if not match:
            raise ConfigurationError(f"type {text!r} is not valid: expected 'name: type' in place of {part.strip()!r}")
        fields.append(_parse_field(match[1], match[2], depth))
    _check_field_names([field.name for field in fields])
    return pa.struct(fields)


def _parse_field(name: str, text: str, depth: int) -> pa.Field:
    text = text.strip()
    nullable = not text.endswith(_NOT_NULL)
    return pa.field(name, _parse(text.removesuffix(_NOT_NULL), depth + 1), nullable=nullable)


def _split_fields(text: str) -> list[str]:
    """Return `text` at the commas that are outside brackets."""
    parts, start, open_brackets = [], 0, 0
    for index, character in enumerate(text):
        if character in "<([":
            open_brackets += 1
        elif character in ">)]":
            open_brackets -= 1
        elif character == "," and open_brackets == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]
