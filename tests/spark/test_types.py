"""Spark's types: what a topic does not keep exactly is refused by its name, wherever in a column it is."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.ml.linalg import VectorUDT
from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from pyspark_txnlog.options.spark_columns import declared_columns
from sparktxn import ConfigurationError

NOT_KEPT: list[tuple[DataType, str]] = [
    (types.VariantType(), "variant"),
    (StringType("UTF8_LCASE"), "string collate UTF8_LCASE"),
    (types.CharType(3), r"char\(3\)"),
    (types.VarcharType(3), r"varchar\(3\)"),
    (types.DayTimeIntervalType(), "interval day to second"),
    (types.YearMonthIntervalType(), "interval year to month"),
    (types.CalendarIntervalType(), "interval"),
    (types.TimeType(6), r"time\(6\)"),
    (types.GeometryType(4326), r"geometry\(4326\)"),
    (types.GeographyType(4326), r"geography\(4326\)"),
    (VectorUDT(), "VectorUDT"),
]


def nested(data_type: DataType) -> list[DataType]:
    return [
        data_type,
        ArrayType(data_type),
        MapType(LongType(), data_type),
        MapType(data_type, LongType()),
        StructType([StructField("a", LongType()), StructField("b", ArrayType(data_type))]),
    ]


@pytest.mark.parametrize(("data_type", "shown"), NOT_KEPT)
def test_a_type_that_is_not_kept_is_refused_by_name(data_type: DataType, shown: str) -> None:
    for found in nested(data_type):
        for name in ("v", "value"):
            schema = StructType([StructField(name, found)])
            with pytest.raises(ConfigurationError, match=f"column '{name}' has Spark's type {shown}, which"):
                declared_columns(schema)


def test_every_type_of_spark_is_kept_or_refused_by_name() -> None:
    """A type that a later Spark adds is refused until this list has it."""
    kept = [StringType(), types.BinaryType(), types.BooleanType(), types.TimestampNTZType(), types.DecimalType(10, 2)]
    schema = StructType([StructField(f"c{place}", found) for place, found in enumerate(kept)])
    columns = declared_columns(schema)
    assert columns is not None
    assert columns.types[:3] == [pa.string(), pa.binary(), pa.bool_()]

    class Later(LongType):
        pass

    with pytest.raises(ConfigurationError, match="which a topic does not keep"):
        declared_columns(StructType([StructField("v", Later())]))
