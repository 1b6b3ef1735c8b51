"""A version of a published topic as table formats need it: which files it adds and removes, and what the topic is.

The log decides what a version holds (PROTOCOL.md, "Tables"). A format writes the same bytes for it in each process.
"""

from __future__ import annotations

import pyarrow as pa
from msgspec import Struct

from sparktxn.format.names import PARTITION_COLUMN
from sparktxn.format.schema import stored_schema, with_offsets
from sparktxn.tableformats.columnstatistics import ColumnStatistics
from sparktxn.values.fieldtypes import Columns

__all__ = ["TableFile", "TableVersion", "table_schema"]


class TableFile(Struct, frozen=True, gc=False):
    """A Parquet file of which every row is in the table.

    `path` is below the topic's folder, `kafka_partition=<partition>/<file>`. Its rows have offsets from `offset_min` to
    `offset_max`, both of which exist, and timestamps that are not outside of the other two. `changes_data` is False if
    the version only moves rows: those of an added file were in files that it removes, or the other way round.
    `statistics` are those of its footer; None where it has not been read, or as earlier versions described files.
    """

    path: str
    partition: int
    size_bytes: int
    record_count: int
    offset_min: int
    offset_max: int
    timestamp_min_ms: int
    timestamp_max_ms: int
    changes_data: bool = True
    statistics: tuple[ColumnStatistics, ...] | None = None


class TableVersion(Struct, frozen=True, kw_only=True):
    """A version of a topic's table.

    It shows what entries up to `entry` have committed; `published_entry`, of the time `timestamp_ms`, has published it.
    `table_id` is a UUID that no other table has. `location` is the address of the topic's folder, as other engines
    reach it, without a slash at the end. `columns` are the declared ones, None for Kafka's record. `is_new_schema` is
    True for version 0, and where `columns` differ from those of the version before. `added` and `removed` are in the
    order of their paths, and have no file in common.
    """

    topic: str
    topic_id: int
    table_id: str
    location: str
    columns: Columns | None
    is_new_schema: bool
    version: int
    entry: int
    published_entry: int
    timestamp_ms: int
    added: tuple[TableFile, ...]
    removed: tuple[TableFile, ...]


def table_schema(columns: Columns | None) -> pa.Schema:
    """Return the columns of a topic's table: those of its files, and the partition, which is in no file."""
    stored = with_offsets(stored_schema(columns))
    return stored.append(pa.field(PARTITION_COLUMN, pa.int32(), nullable=False))
