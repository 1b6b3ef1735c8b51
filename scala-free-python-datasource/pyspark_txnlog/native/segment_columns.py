"""Columns that all rows of a segment share, found by a row's offset: the values travel in Spark's plan.

A join by range of offsets would cost each query that reads the data frame, also one that uses no such column. Spark
keeps a join unless the other side has one row for each key, and a range is not a key. Here a column is an expression: a
search in the sorted first offsets of segments, then an item of an array. Spark computes it for the queries that use it,
with generated code, and searches once for all columns of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from pyspark_txnlog.sparkinternals import arrays, item, place_in_sorted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BASE", "GROUP", "segment_columns"]

GROUP: Final = "__group"
"""What has the segments of a row's column `group`: a file, or a partition."""
BASE: Final = "__base"
"""The first offset of a segment."""


def segment_columns(spark: SparkSession, segments: pa.Table, group: Column, offset: Column) -> dict[str, Column]:
    """Return the columns of `segments` but for `GROUP` and `BASE`, as expressions over rows of data.

    Args:
        spark: a session whose driver is this process.
        segments: a row for each segment: `GROUP` from 0 on, `BASE`, and its values.
        group: the number of a row's group, for which `segments` has some.
        offset: a row's offset. The row has the values of its group's last segment that begins there or before.
    """
    ordered = segments.sort_by([(GROUP, "ascending"), (BASE, "ascending")]).combine_chunks()
    groups = ordered[GROUP].to_numpy()
    firsts = np.searchsorted(groups, np.arange(int(groups[-1]) + 2)).astype(np.int32)
    values = [name for name in ordered.column_names if name not in (GROUP, BASE)]
    columns = [ordered[BASE].combine_chunks(), pa.array(firsts), *(_plain(ordered[name]) for name in values)]
    bases, first, *found = arrays(spark, columns)
    place = _place(spark, bases, item(spark, first, group), item(spark, first, group + 1), offset)
    return {
        name: _of_microseconds(item(spark, array, place), ordered.schema.field(name).type)
        for name, array in zip(values, found, strict=True)
    }


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Return a column without times, whose zone Spark would have a say in."""
    items = column.combine_chunks()
    if not pa.types.is_timestamp(items.type):
        return items
    return items.cast(pa.timestamp("us", items.type.tz)).cast(pa.int64())


def _of_microseconds(column: Column, arrow_type: pa.DataType) -> Column:
    return F.timestamp_micros(column) if pa.types.is_timestamp(arrow_type) else column


def _place(spark: SparkSession, bases: Any, start: Column, end: Column, offset: Column) -> Column:
    """Return the place of the last of `bases` that is not above `offset`, among those from `start` to `end`."""
    found = place_in_sorted(spark, bases, start, end, offset)
    return F.when(found < 0, -found - 2).otherwise(found)
