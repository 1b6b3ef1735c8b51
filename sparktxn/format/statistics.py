"""Which columns of Parquet files have statistics: no column that holds a NaN (PROTOCOL.md, "Segments").

A least and a greatest value leave NaN out. An engine that skips by them misses rows for which a condition holds. NaN
differs from every number, and to SQL engines it is greater than all of them.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparktxn.format.schema import OFFSET_COLUMN, TIMESTAMP_COLUMN

__all__ = ["columns_with_statistics", "paths_without_fractions", "shares_its_path"]

_RECORD_STATISTICS: Final = ["key", "timestamp"]
_FRACTIONS: Final = ("FLOAT", "DOUBLE")


def columns_with_statistics(table: pa.Table) -> list[str]:
    """Return the columns of a segment whose least and greatest values the footer has.

    These are all columns of a typed topic but nested ones, bytes, and those that hold a NaN.

    Args:
        table: rows of the segment, in the topic's `stored_schema`, with offsets or without.
    """
    schema = table.schema
    if TIMESTAMP_COLUMN not in schema.names:
        return [*_RECORD_STATISTICS, OFFSET_COLUMN] if OFFSET_COLUMN in schema.names else _RECORD_STATISTICS
    shared = shares_its_path(schema)
    return [
        field.name
        for field in schema
        if not (pa.types.is_nested(field.type) or pa.types.is_binary(field.type) or field.name in shared)
        and not (pa.types.is_floating(field.type) and _holds_nan(table.column(field.name)))
    ]


def shares_its_path(schema: pa.Schema) -> set[str]:
    """Return the columns whose names may be the path of a nested column's field, such as ``a.b``.

    Parquet's writer takes paths, so what is said of such a column is said of the field too.
    """
    nested = tuple(f"{field.name}." for field in schema if pa.types.is_nested(field.type))
    return {name for name in schema.names if name.startswith(nested)} if nested else set()


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
