"""Numbers of columns in merged files, which are those of a topic's Iceberg table (PROTOCOL.md, "Tables").

Numbers follow from the columns alone. The columns of each table have the first ones, and declared columns have those
after them, each with its nested fields. So a column that is declared later moves no number.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

import pyarrow as pa

from sparktxn.format.schema import offset_column, timestamp_column

__all__ = ["OFFSET_ID", "TIMESTAMP_ID", "number_of", "numbered", "numbered_columns"]

TIMESTAMP_ID: Final = 1
OFFSET_ID: Final = 2
_FIRST_DECLARED_ID: Final = 4
"""The number before it is that of the table's partition, which is in no file."""

_NUMBER: Final = b"PARQUET:field_id"
"""Where pyarrow has a field's number in a Parquet file."""


def numbered_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a merged file with the numbers that Parquet's writer puts into the footer.

    Args:
        schema: that of `with_offsets`, for the topic's stored schema.

    >>> schema = pa.schema([("a", pa.list_(pa.int8())), ("_timestamp", pa.int64()), ("_offset", pa.int64())])
    >>> [number_of(field) for field in numbered_columns(schema)]
    [4, 1, 2]
    >>> number_of(numbered_columns(schema).field("a").type.value_field)
    5
    """
    own = {timestamp_column(schema): TIMESTAMP_ID, offset_column(schema): OFFSET_ID}
    ids = count(_FIRST_DECLARED_ID)
    return pa.schema([numbered(field, iter([own[field.name]]) if field.name in own else ids) for field in schema])


def number_of(field: pa.Field) -> int | None:
    """Return the number of a column or nested field; None if it has none, as in files of earlier versions."""
    text = (field.metadata or {}).get(_NUMBER)
    return None if text is None else int(text)


def numbered(field: pa.Field, ids: Iterator[int]) -> pa.Field:
    """Return a column with the next number, and its nested fields with those after it."""
    number = next(ids)
    return pa.field(field.name, _numbered_type(field.type, ids), field.nullable, {_NUMBER: str(number)})


def _numbered_type(data_type: pa.DataType, ids: Iterator[int]) -> pa.DataType:
    if pa.types.is_list(data_type):
        return pa.list_(numbered(data_type.value_field, ids))
    if pa.types.is_map(data_type):
        key = numbered(data_type.key_field, ids)
        return pa.map_(key, numbered(data_type.item_field, ids))
    if pa.types.is_struct(data_type):
        return pa.struct([numbered(field, ids) for field in data_type])
    return data_type
