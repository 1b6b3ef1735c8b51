"""Columns that all rows of a segment share, found by a row's offset: the values travel in Spark's plan.

A join by range of offsets would cost each query that reads the data frame, also one that uses no such column. Spark
keeps a join unless the other side has one row for each key, and a range is no key. Here a column is an expression: a
search in the sorted first offsets of segments, then an item of an array. Spark computes it for the queries that use it,
with generated code, and searches once for all columns of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

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
    columns = [ordered[BASE], pa.array(firsts), *(_plain(ordered[name]) for name in values)]
    bases, first, *found = _arrays(spark, columns)
    place = _place(spark, bases, _item(spark, first, group), _item(spark, first, group + 1), offset)
    return {
        name: _of_microseconds(_item(spark, array, place), ordered.schema.field(name).type)
        for name, array in zip(values, found, strict=True)
    }


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without times, whose zone Spark would have a say in."""
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _of_microseconds(column: Column, arrow_type: pa.DataType) -> Column:
    return F.timestamp_micros(column) if pa.types.is_timestamp(arrow_type) else column


def _arrays(spark: SparkSession, columns: Sequence[pa.ChunkedArray | pa.Array]) -> list[Any]:
    """Return literals of Spark's, each an array with one of `columns`: they pass the border to the JVM as one row."""
    lists = {str(place): _in_a_list(column) for place, column in enumerate(columns)}
    row = spark.createDataFrame(pa.table(lists))
    [stored] = row._jdf.queryExecution().executedPlan().executeCollect()
    types = row._jdf.schema()
    literal = _jvm(spark).org.apache.spark.sql.catalyst.expressions.Literal
    return [literal(stored.getArray(place).copy(), types.apply(place).dataType()) for place in range(len(columns))]


def _in_a_list(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    items = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), items)


def _place(spark: SparkSession, bases: Any, start: Column, end: Column, offset: Column) -> Column:
    """Return the place of the last of `bases` that is not above `offset`, among those from `start` to `end`."""
    jvm = _jvm(spark)
    expressions, types = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.types
    class_of = jvm.java.lang.Class.forName
    sorted_bases = expressions.Literal(bases.value().toLongArray(), types.ObjectType(class_of("[J")))
    given = [sorted_bases, *(_expression(spark, column) for column in (start, end, offset))]
    sequence = jvm.PythonUtils.toSeq
    search = expressions.objects.StaticInvoke(
        class_of("java.util.Arrays"),
        types.DataTypes.IntegerType,
        "binarySearch",
        sequence(given),
        sequence([]),
        True,  # null for a null
        False,  # and only then
        True,  # deterministic
        jvm.scala.Option.empty(),
    )
    found = _column(spark, search)
    # Of an offset between two bases, Java gives -(the place of the second) - 1.
    return F.when(found < 0, -found - 2).otherwise(found)


def _item(spark: SparkSession, array: Any, place: Column) -> Column:
    """Return the item of an array: null where it has no such place, whatever the session says."""
    made = _jvm(spark).org.apache.spark.sql.catalyst.expressions.GetArrayItem
    return _column(spark, made(array, _expression(spark, place), False))


def _expression(spark: SparkSession, column: Column) -> Any:
    jc: Any = column
    return _jvm(spark).org.apache.spark.sql.classic.ExpressionUtils.expression(jc._jc)


def _column(spark: SparkSession, expression: Any) -> Column:
    return ClassicColumn(_jvm(spark).org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def _jvm(spark: SparkSession) -> Any:
    jvm = spark._jvm
    assert jvm is not None  # narrows the type: a classic session has one
    return jvm
