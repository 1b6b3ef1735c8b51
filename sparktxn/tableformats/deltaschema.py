"""The columns of a topic's table as Delta Lake's metadata has them: Spark's JSON form of a schema."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa

__all__ = ["has_local_times", "schema_string"]

_LOCAL_TIME: Final = "timestamp_ntz"

_PRIMITIVES: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    # The store's own column has milliseconds. Delta has one type of instants, whose files may have either.
    pa.timestamp("ms", tz="UTC"): "timestamp",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): _LOCAL_TIME,
}

_encoder: Final = msgspec.json.Encoder()


def schema_string(schema: pa.Schema) -> str:
    """Return the columns as the text of `metaData.schemaString`.

    >>> schema_string(pa.schema([pa.field("a", pa.int8(), nullable=False)]))
    '{"type":"struct","fields":[{"name":"a","type":"byte","nullable":false,"metadata":{}}]}'
    """
    return _encoder.encode(_struct(list(schema))).decode()


def has_local_times(schema: pa.Schema) -> bool:
    """Return whether a column or a field of one is a timestamp without a time zone, which not all readers know."""
    return any(_holds_local_time(field.type) for field in schema)


def _holds_local_time(data_type: pa.DataType) -> bool:
    if pa.types.is_map(data_type):
        return _holds_local_time(data_type.key_type) or _holds_local_time(data_type.item_type)
    if pa.types.is_nested(data_type):
        return any(_holds_local_time(data_type.field(index).type) for index in range(data_type.num_fields))
    return _PRIMITIVES.get(data_type) == _LOCAL_TIME


def _struct(fields: list[pa.Field]) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field(field) for field in fields]}


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type(field.type), "nullable": field.nullable, "metadata": {}}


def _type(data_type: pa.DataType) -> str | dict[str, Any]:
    name = _PRIMITIVES.get(data_type)
    if name is not None:
        return name
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_list(data_type):
        item = data_type.value_field
        return {"type": "array", "elementType": _type(item.type), "containsNull": item.nullable}
    if pa.types.is_map(data_type):
        types = {"keyType": _type(data_type.key_type), "valueType": _type(data_type.item_type)}
        return {"type": "map", **types, "valueContainsNull": data_type.item_field.nullable}
    assert pa.types.is_struct(data_type), f"no topic has columns of type {data_type}"
    return _struct([data_type.field(index) for index in range(data_type.num_fields)])
