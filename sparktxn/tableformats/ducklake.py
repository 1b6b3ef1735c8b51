"""Tables of topics as a DuckLake catalog: a SQLite database that DuckDB attaches (format version 1.0 of DuckLake).

All tables are in one snapshot, whose number is the entry that they show. The catalog names the files where they are.
A trigger refuses any further snapshot: what DuckDB writes or cleans up would otherwise be the store's own files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final
from uuid import UUID, uuid5

import pyarrow as pa

from sparktxn.format.names import PARTITION_COLUMN
from sparktxn.tableformats.columntypes import names_of
from sparktxn.tableformats.version import TableFile, TableVersion, table_schema

__all__ = ["OFFSET_BITS", "catalog"]

OFFSET_BITS: Final = 48
"""A row's id is its partition, shifted by so many bits, and its offset in a file without gaps."""

_VERSION: Final = "1.0"
_SCHEMA_ID: Final = 0
_SCHEMA_VERSION: Final = 1
_MAPPING_ID: Final = 0
_EPOCH: Final = datetime(1970, 1, 1)
_SCHEMAS: Final = UUID("0d5cb0c8-3f52-4a3c-9c5e-52b8f1f6c7a4")
"""The namespace of the ids of catalogs' schemas."""

# SQLite's own types, as DuckDB declares them: it reads times, UUIDs and booleans from these.
_TABLES: Final = {
    "metadata": "key VARCHAR NOT NULL, value VARCHAR NOT NULL, scope VARCHAR, scope_id BIGINT",
    "snapshot": "snapshot_id BIGINT PRIMARY KEY, snapshot_time VARCHAR, schema_version BIGINT, next_catalog_id BIGINT, "
    "next_file_id BIGINT",
    "snapshot_changes": "snapshot_id BIGINT PRIMARY KEY, changes_made VARCHAR, author VARCHAR, commit_message VARCHAR, "
    "commit_extra_info VARCHAR",
    "schema": "schema_id BIGINT PRIMARY KEY, schema_uuid VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT, "
    "schema_name VARCHAR, path VARCHAR, path_is_relative BIGINT",
    "table": "table_id BIGINT, table_uuid VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, "
    "table_name VARCHAR, path VARCHAR, path_is_relative BIGINT",
    "view": "view_id BIGINT, view_uuid VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT, schema_id BIGINT, "
    "view_name VARCHAR, dialect VARCHAR, sql VARCHAR, column_aliases VARCHAR",
    "tag": "object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, value VARCHAR",
    "column_tag": "table_id BIGINT, column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, "
    "value VARCHAR",
    "data_file": "data_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, "
    "file_order BIGINT, path VARCHAR, path_is_relative BIGINT, file_format VARCHAR, record_count BIGINT, "
    "file_size_bytes BIGINT, footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, encryption_key VARCHAR, "
    "mapping_id BIGINT, partial_max BIGINT",
    "file_column_stats": "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, column_size_bytes BIGINT, "
    "value_count BIGINT, null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BIGINT, "
    "extra_stats VARCHAR",
    "file_variant_stats": "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, variant_path VARCHAR, "
    "shredded_type VARCHAR, column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR, "
    "max_value VARCHAR, contains_nan BIGINT, extra_stats VARCHAR",
    "delete_file": "delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, "
    "data_file_id BIGINT, path VARCHAR, path_is_relative BIGINT, format VARCHAR, delete_count BIGINT, "
    "file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR, partial_max BIGINT",
    "column": "column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT, column_order BIGINT, "
    "column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR, nulls_allowed BIGINT, "
    "parent_column BIGINT, default_value_type VARCHAR, default_value_dialect VARCHAR",
    "table_stats": "table_id BIGINT, record_count BIGINT, next_row_id BIGINT, file_size_bytes BIGINT",
    "table_column_stats": "table_id BIGINT, column_id BIGINT, contains_null BIGINT, contains_nan BIGINT, "
    "min_value VARCHAR, max_value VARCHAR, extra_stats VARCHAR",
    "partition_info": "partition_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT",
    "partition_column": "partition_id BIGINT, table_id BIGINT, partition_key_index BIGINT, column_id BIGINT, "
    "transform VARCHAR",
    "file_partition_value": "data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, partition_value VARCHAR",
    "files_scheduled_for_deletion": "data_file_id BIGINT, path VARCHAR, path_is_relative BIGINT, "
    "schedule_start VARCHAR",
    "inlined_data_tables": "table_id BIGINT, table_name VARCHAR, schema_version BIGINT",
    "column_mapping": "mapping_id BIGINT, table_id BIGINT, type VARCHAR",
    "name_mapping": "mapping_id BIGINT, column_id BIGINT, source_name VARCHAR, target_field_id BIGINT, "
    "parent_column BIGINT, is_partition BIGINT",
    "schema_versions": "begin_snapshot BIGINT, schema_version BIGINT, table_id BIGINT",
    "macro": "schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, begin_snapshot BIGINT, end_snapshot BIGINT",
    "macro_impl": "macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, sql VARCHAR, type VARCHAR",
    "macro_parameters": "macro_id BIGINT, impl_id BIGINT, column_id BIGINT, parameter_name VARCHAR, "
    "parameter_type VARCHAR, default_value VARCHAR, default_value_type VARCHAR",
    "sort_info": "sort_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT",
    "sort_expression": "sort_id BIGINT, table_id BIGINT, sort_key_index BIGINT, expression VARCHAR, dialect VARCHAR, "
    "sort_direction VARCHAR, null_order VARCHAR",
}
"""The columns of the catalog's tables, whose names begin with ``ducklake_``."""

_NO_MORE: Final = """
CREATE TRIGGER ducklake_exported BEFORE INSERT ON ducklake_snapshot BEGIN
SELECT RAISE(ABORT, 'the catalog is an export of a store: only its topics can be written'); END
"""


def catalog(versions: Sequence[TableVersion], data_path: str) -> bytes:
    """Return the bytes of a catalog with the tables of `versions`, each of which adds all its files.

    Args:
        versions: one for each topic, in any order. The names of topics differ by more than case.
        data_path: where DuckDB would write files. It must be no folder of the store: DuckDB may clean it up.
    """
    with closing(sqlite3.connect(":memory:")) as database:
        for name, columns in _TABLES.items():
            database.execute(f"CREATE TABLE ducklake_{name}({columns})")
        for name, row in _rows(sorted(versions, key=lambda version: version.topic), data_path):
            marks = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO ducklake_{name} VALUES ({marks})", row)
        database.execute(_NO_MORE)
        database.commit()
        return bytes(database.serialize())


def _rows(versions: Sequence[TableVersion], data_path: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    snapshot = max(version.entry for version in versions)
    when = _timestamp(max(version.timestamp_ms for version in versions))
    settings = {"version": _VERSION, "created_by": "txnlog", "data_path": data_path, "encrypted": "false"}
    for key, value in settings.items():
        yield "metadata", (key, value, None, None)
    file_count = sum(len(version.added) for version in versions)
    yield "snapshot", (snapshot, when, _SCHEMA_VERSION, len(versions) + 1, file_count)
    changes = ['created_schema:"main"']
    file_ids = count()
    for table_id, version in enumerate(versions, 1):
        changes += [f'created_table:"main"."{version.topic}"', f"inserted_into_table:{table_id}"]
        yield from _table(version, table_id, snapshot, file_ids)
    shown = ", ".join(f"{version.topic} {version.version}" for version in versions)
    yield "snapshot_changes", (snapshot, ",".join(changes), "txnlog", f"versions of topics: {shown}", None)
    schema_id = str(uuid5(_SCHEMAS, " ".join(version.table_id for version in versions)))
    yield "schema", (_SCHEMA_ID, schema_id, snapshot, None, "main", "main/", 1)


def _table(
    version: TableVersion, table_id: int, snapshot: int, file_ids: Iterator[int]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    yield "table", (table_id, version.table_id, snapshot, None, _SCHEMA_ID, version.topic, f"{version.topic}/", 1)
    yield "schema_versions", (snapshot, _SCHEMA_VERSION, table_id)
    # Files have no numbers of columns, and a column that was declared later is null in those without it.
    mapping_id = _MAPPING_ID + table_id
    yield "column_mapping", (mapping_id, table_id, "map_by_name")
    schema = table_schema(version.columns)
    ids, top = count(1), []
    for field in schema:
        found = list(_columns(field, ids, None))
        top.append(found[0][0])
        for column_id, parent, name, source, type_name, nullable in found:
            default_type = "" if type_name in ("list", "struct", "map") else "literal"
            defaults = None, "NULL", int(nullable), parent, default_type, "duckdb"
            yield "column", (column_id, snapshot, None, table_id, column_id, name, type_name, *defaults)
            is_partition = int(parent is None and name == PARTITION_COLUMN)
            yield "name_mapping", (mapping_id, column_id, source, column_id, parent, is_partition)
    for file in version.added:
        yield from _file(version, file, (next(file_ids), table_id), (snapshot, mapping_id), top[-3:])
    partitions = max((file.partition for file in version.added), default=-1) + 1
    records = sum(file.record_count for file in version.added)
    size_bytes = sum(file.size_bytes for file in version.added)
    yield "table_stats", (table_id, records, partitions << OFFSET_BITS, size_bytes)


def _file(
    version: TableVersion, file: TableFile, ids: tuple[int, int], known: tuple[int, int], columns: Sequence[int]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the rows of a file, and what DuckDB may skip it by; `columns` are those of time, offset and partition."""
    snapshot, mapping_id = known
    path = f"{version.location.removeprefix('file://')}/{file.path}"
    row_id = (file.partition << OFFSET_BITS) + file.offset_min
    sizes = file.record_count, file.size_bytes, None
    place = path, 0, "parquet"
    yield "data_file", (*ids, snapshot, None, None, *place, *sizes, row_id, None, None, mapping_id, None)
    times = _timestamp(file.timestamp_min_ms), _timestamp(file.timestamp_max_ms)
    bounds: Iterable[tuple[Any, Any]] = (times, (file.offset_min, file.offset_max), (file.partition, file.partition))
    for column_id, (low, high) in zip(columns, bounds, strict=True):
        if low is not None and high is not None:
            counts = None, file.record_count, 0
            yield "file_column_stats", (*ids, column_id, *counts, str(low), str(high), None, None)


_Column = tuple[int, int | None, str, str, str, bool]
"""A column: its id and that of the one around it, its name here and in files, its type, and whether null is allowed."""


def _columns(field: pa.Field, ids: Iterator[int], parent: int | None, source: str | None = None) -> Iterator[_Column]:
    """Yield a column, then its nested ones."""
    own, data_type = next(ids), field.type
    # Of nested fields DuckDB keeps no such rule.
    nullable = field.nullable or parent is not None
    yield own, parent, field.name, source or field.name, _type(data_type), nullable
    if pa.types.is_list(data_type):
        yield from _columns(data_type.value_field.with_name("element"), ids, own, "list")
    elif pa.types.is_map(data_type):
        yield from _columns(data_type.key_field.with_name("key"), ids, own)
        yield from _columns(data_type.item_field.with_name("value"), ids, own)
    elif pa.types.is_struct(data_type):
        for index in range(data_type.num_fields):
            yield from _columns(data_type.field(index), ids, own)


def _type(data_type: pa.DataType) -> str:
    names = names_of(data_type)
    if names is not None:
        return names.ducklake
    if pa.types.is_list(data_type):
        return "list"
    if pa.types.is_map(data_type):
        return "map"
    return "struct"


def _timestamp(milliseconds: int) -> str | None:
    """Return a time as text; None outside of the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return moment.isoformat(" ", "milliseconds") + "+00"
