"""Spark's types: what a topic does not keep exactly is refused by its name, wherever in a column it is."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.ml.linalg import VectorUDT
from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructField, StructType

from pyspark_txnlog.options.spark_columns import arrow_of, check_columns_to_write, declared_columns
from sparktxn import ConfigurationError, Store

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
            with pytest.raises(ConfigurationError, match=f"'{name}' of the given schema has Spark's type {shown}"):
                arrow_of(schema)


def test_a_schema_that_names_a_column_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="column 'n' of the given schema is there twice"):
        arrow_of(StructType([StructField("n", LongType()), StructField("n", LongType())]))


def test_the_time_of_a_record_has_a_zone(store: Store) -> None:
    """Arrow's times without a zone are UTC's, so another moment than Spark shows would be stored."""
    typed = store.create_topic("typed", schema=pa.schema([("timestamp", pa.timestamp("us"))]))
    record = store.create_topic("record")
    local = types.TimestampNTZType()

    def schema(name: str, data_type: DataType) -> StructType:
        return StructType([StructField("value", StringType()), StructField(name, data_type)])

    def typed_schema(data_type: DataType) -> StructType:
        return StructType([StructField("timestamp", local), StructField("_timestamp", data_type)])

    for found, topic, name in [
        (schema("timestamp", local), record, "timestamp"),
        (typed_schema(local), typed, "_timestamp"),
    ]:
        with pytest.raises(ConfigurationError, match=f"column '{name}' has Spark's type timestamp_ntz"):
            check_columns_to_write(found, topic)
    with pytest.raises(ConfigurationError, match="column 'timestamp' has Spark's type timestamp_ntz"):
        declared_columns(schema("timestamp", local))
    check_columns_to_write(schema("timestamp", types.TimestampType()), record)
    check_columns_to_write(typed_schema(types.TimestampType()), typed)


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
