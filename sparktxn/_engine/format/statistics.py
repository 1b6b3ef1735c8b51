"""Columns of Parquet files: their field ids, and statistics where none is a NaN (PROTOCOL.md, "Segments").

A least and a greatest value leave NaN out. An engine that skips by them misses rows for which a condition holds. NaN
differs from every number, and to SQL engines it is greater than all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparktxn._engine.format.schema import OFFSET_COLUMN, TIMESTAMP_COLUMN, offset_column, timestamp_column

_RECORD_STATISTICS: Final = ["key", "timestamp"]
_FRACTIONS: Final = ("FLOAT", "DOUBLE")

TIMESTAMP_BOUNDS_KEY: Final = "txnlog.timestamp_bounds_ms"
"""The key in a merged file's footer of the least and the greatest timestamp, which has no statistics there.

Iceberg's reader in Java takes statistics in milliseconds for microseconds, and skips row groups by them.
"""


def columns_with_statistics(table: pa.Table) -> list[str]:
    """Return the columns of a segment whose least and greatest values the footer has, as Parquet's paths.

    These are all columns of a typed topic and fields of its structs, but bytes, and those that hold a NaN. What is in
    a list or a map has none.

    Args:
        table: rows of the segment, in the topic's `stored_schema`, with offsets or without.
    """
    schema = table.schema
    if TIMESTAMP_COLUMN not in schema.names:
        return [*_RECORD_STATISTICS, OFFSET_COLUMN] if OFFSET_COLUMN in schema.names else _RECORD_STATISTICS
    paths = Counter(leaf.path for leaf in leaves(schema))
    return [
        leaf.path
        for leaf in leaves(schema)
        if leaf.names is not None
        and not pa.types.is_binary(leaf.type)
        # Parquet's writer takes paths, so what is said of one of two such columns is said of the other.
        and paths[leaf.path] == 1
        and not (pa.types.is_floating(leaf.type) and _holds_nan(_values(table, leaf.names)))
    ]


class Leaf(NamedTuple):
    """A column of a Parquet file: its path there, and the names that lead to it.

    `names` is None for what is in a list or a map.
    """

    path: str
    names: tuple[str, ...] | None
    type: pa.DataType


def leaves(schema: pa.Schema) -> list[Leaf]:
    """Return the columns that a Parquet file with `schema` has, in their order there."""
    found: list[Leaf] = []
    for field in schema:
        if pa.types.is_nested(field.type):
            _add_leaves(found, field.type, (field.name,), (field.name,))
        else:
            found.append(Leaf(field.name, (field.name,), field.type))
    return found


def _add_leaves(
    found: list[Leaf], data_type: pa.DataType, path: tuple[str, ...], names: tuple[str, ...] | None
) -> None:
    if pa.types.is_list(data_type):
        _add_leaves(found, data_type.value_type, (*path, "list", "element"), None)
    elif pa.types.is_map(data_type):
        _add_leaves(found, data_type.key_type, (*path, "key_value", "key"), None)
        _add_leaves(found, data_type.item_type, (*path, "key_value", "value"), None)
    elif pa.types.is_struct(data_type):
        for field in data_type:
            _add_leaves(found, field.type, (*path, field.name), None if names is None else (*names, field.name))
    else:
        found.append(Leaf(".".join(path), names, data_type))


def _values(table: pa.Table, names: tuple[str, ...]) -> pa.ChunkedArray:
    column = table.column(names[0])
    return pc.struct_field(column, list(names[1:])) if len(names) > 1 else column


def shares_its_path(schema: pa.Schema) -> set[str]:
    """Return the columns whose names may be the path of a nested column's field, such as ``a.b``.

    Parquet's writer takes paths, so what is said of such a column is said of the field too.
    """
    nested = tuple(f"{field.name}." for field in schema if pa.types.is_nested(field.type))
    return {name for name in schema.names if name.startswith(nested)} if nested else set()


def timestamp_bounds(footer: pq.FileMetaData) -> tuple[int, int] | None:
    """Return the least and the greatest timestamp that a merged file's footer names; None if it names none."""
    text = (footer.metadata or {}).get(TIMESTAMP_BOUNDS_KEY.encode(), b"")
    try:
        low, high = map(int, text.split())
    except ValueError:
        return None
    return low, high


def _holds_nan(column: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.is_nan(column)).as_py())


def paths_without_fractions(schema: pa.Schema) -> list[str]:
    """Return the paths of a Parquet file's columns and fields that cannot hold a NaN.

    For files that are written row by row, where a NaN may come after the statistics of others were written.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    parquet = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    leaves = [parquet.column(index) for index in range(len(parquet.names))]
    fractions = {leaf.path for leaf in leaves if leaf.physical_type in _FRACTIONS}
    return [leaf.path for leaf in leaves if leaf.path not in fractions]


# Numbers of columns in merged files, which are those of a topic's Iceberg table (PROTOCOL.md, "Tables").
#
# Numbers follow from the columns alone. The columns of each table have the first ones, and declared columns have
# those after them, each with its nested fields. So a column that is declared later moves no number.

TIMESTAMP_ID: Final = 1
OFFSET_ID: Final = 2
_FIRST_DECLARED_ID: Final = 4
"""The number before it is that of the table's partition, which is in no file."""

_NUMBER: Final = b"PARQUET:field_id"
"""Where pyarrow has a field's number in a Parquet file."""


@lru_cache
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
