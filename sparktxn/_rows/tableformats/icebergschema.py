"""The columns of a topic's table as Iceberg's metadata has them: types, and the numbers of columns.

The numbers are those that merged files have (`format/statistics.py`), and that of the partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import pyarrow as pa

from sparktxn._engine.format.statistics import OFFSET_ID, TIMESTAMP_ID, number_of, numbered, numbered_columns
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._rows.tableformats.columnstatistics import names_of
from sparktxn._rows.tableformats.version import table_schema

__all__ = [
    "OFFSET_ID",
    "PARTITION_ID",
    "TIMESTAMP_ID",
    "ambiguous_name",
    "last_column_id",
    "name_mapping",
    "schema_of",
]

PARTITION_ID: Final = 3

_encoder: Final = msgspec.json.Encoder(order="sorted")


def schema_of(columns: Columns | None, schema_id: int) -> dict[str, Any]:
    """Return the columns of a topic's table as a schema of Iceberg's metadata.

    >>> [(field["id"], field["name"], field["type"]) for field in schema_of((("a", "int8", True),), 0)["fields"]]
    [(4, 'a', 'int'), (1, '_timestamp', 'timestamptz'), (2, '_offset', 'long'), (3, 'kafka_partition', 'int')]
    """
    *stored, partition = table_schema(columns)
    # No file has it: pyiceberg then gives values of the metadata to a column only if it may be null.
    last = numbered(partition.with_nullable(True), iter([PARTITION_ID]))
    fields = [_field(field) for field in (*numbered_columns(pa.schema(stored)), last)]
    return {"type": "struct", "schema-id": schema_id, "fields": fields}


def ambiguous_name(columns: Columns | None) -> str | None:
    """Return a name that two columns or nested fields have, with dots between its parts; None if there is none.

    Iceberg refuses such a schema.

    >>> ambiguous_name((("a.b", "int8", True), ("a", "struct<b: int8>", True)))
    'a.b'
    """
    names = sorted(_names(_mapping(schema_of(columns, 0)["fields"]), ""))
    return next((name for name, following in pairwise(names) if name == following), None)


def last_column_id(schema: Mapping[str, Any]) -> int:
    """Return the highest number of a schema's columns and nested fields."""
    return max(_ids(_mapping(schema["fields"])))


def name_mapping(schema: Mapping[str, Any]) -> str:
    """Return the text that finds columns by their names in files of earlier versions, which have no numbers.

    The partition is in no file: its values come from the metadata.
    """
    stored = [field for field in schema["fields"] if field["id"] != PARTITION_ID]
    return _encoder.encode(_mapping(stored)).decode()


def _field(field: pa.Field) -> dict[str, Any]:
    return {"id": number_of(field), "name": field.name, "required": not field.nullable, "type": _type(field.type)}


def _type(data_type: pa.DataType) -> str | dict[str, Any]:
    names = names_of(data_type)
    if names is not None:
        return names.iceberg
    if pa.types.is_list(data_type):
        return {"type": "list", **_nested("element", data_type.value_field)}
    if pa.types.is_map(data_type):
        key = _nested("key", data_type.key_field)
        del key["key-required"]  # keys always are
        return {"type": "map", **key, **_nested("value", data_type.item_field)}
    return {"type": "struct", "fields": [_field(field) for field in data_type]}


def _nested(part: str, field: pa.Field) -> dict[str, Any]:
    return {f"{part}-id": number_of(field), f"{part}-required": not field.nullable, part: _type(field.type)}


def _mapping(fields: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [_mapped(field["id"], field["name"], field["type"]) for field in fields]


def _mapped(number: int, name: str, data_type: str | Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"field-id": number, "names": [name]}
    if isinstance(data_type, str):
        return found
    if data_type["type"] == "struct":
        return found | {"fields": _mapping(data_type["fields"])}
    parts = [part for part in ("element", "key", "value") if part in data_type]
    return found | {"fields": [_mapped(data_type[f"{part}-id"], part, data_type[part]) for part in parts]}


def _ids(mapping: Sequence[Mapping[str, Any]]) -> list[int]:
    found = [each["field-id"] for each in mapping]
    for each in mapping:
        if "fields" in each:
            found += _ids(each["fields"])
    return found


def _names(mapping: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[str]:
    for each in mapping:
        name = prefix + each["names"][0]
        yield name
        yield from _names(each.get("fields", ()), f"{name}.")
