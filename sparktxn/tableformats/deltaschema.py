"""The columns of a topic's table as Delta Lake's metadata has them: Spark's JSON form of a schema."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa

from sparktxn.tableformats.columntypes import DELTA_LOCAL_TIME, names_of

__all__ = ["has_local_times", "schema_string"]

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
    names = names_of(data_type)
    return names is not None and names.delta == DELTA_LOCAL_TIME


def _struct(fields: list[pa.Field]) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field(field) for field in fields]}


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type(field.type), "nullable": field.nullable, "metadata": {}}


def _type(data_type: pa.DataType) -> str | dict[str, Any]:
    names = names_of(data_type)
    if names is not None:
        return names.delta
    if pa.types.is_list(data_type):
        item = data_type.value_field
        return {"type": "array", "elementType": _type(item.type), "containsNull": item.nullable}
    if pa.types.is_map(data_type):
        types = {"keyType": _type(data_type.key_type), "valueType": _type(data_type.item_type)}
        return {"type": "map", **types, "valueContainsNull": data_type.item_field.nullable}
    return _struct([data_type.field(index) for index in range(data_type.num_fields)])
