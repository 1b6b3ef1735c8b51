"""Merged files of a topic as other engines see them, written without a store; and times as the log counts them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._engine.format.schema import stored_schema, with_offsets
from sparktxn._engine.format.segment import parquet_options
from sparktxn._engine.format.statistics import numbered_columns
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._rows.tableformats.columnstatistics import statistics_of
from sparktxn._rows.tableformats.version import TableFile

__all__ = ["START", "merged_file", "milliseconds"]

START: Final = datetime(2026, 3, 1, tzinfo=UTC)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """Since the epoch."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def merged_file(
    folder: Path,
    name: str,
    columns: Columns | None,
    partition: int,
    base: int,
    rows: Iterable[dict[str, Any]],
    *,
    changes_data: bool = True,
) -> tuple[TableFile, list[dict[str, Any]]]:
    """Write a file of a partition with offsets from `base` on, and return it with its rows.

    Every third offset has no record. `name` is the file's, below the folder of the partition.
    """
    schema = with_offsets(stored_schema(columns))
    offset, timestamp = schema.names[-1], schema.names[-2]
    whole = [
        dict.fromkeys(schema.names)
        | {timestamp: START + timedelta(seconds=base + index), offset: base + index + index // 2}
        | row
        for index, row in enumerate(rows)
    ]
    path = f"{PARTITION_COLUMN}={partition}/{name}"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(whole, schema)
    options = parquet_options(table, "zstd")
    with pq.ParquetWriter(folder / path, numbered_columns(schema), **options) as writer:
        writer.write_table(table)
    times = [milliseconds(row[timestamp]) for row in whole]
    file = TableFile(
        path=path,
        partition=partition,
        size_bytes=(folder / path).stat().st_size,
        record_count=len(whole),
        offset_min=whole[0][offset],
        offset_max=whole[-1][offset],
        # The log knows bounds of a file's timestamps, and not always the timestamps at them.
        timestamp_min_ms=min(times) - 1,
        timestamp_max_ms=max(times) + 1,
        changes_data=changes_data,
        statistics=statistics_of(pq.read_metadata(folder / path)),
    )
    return file, [row | {PARTITION_COLUMN: partition} for row in table.to_pylist()]
