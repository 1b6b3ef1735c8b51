"""Columns: what Spark sees of a topic, and what a topic takes from Spark, as Arrow.

A topic without declared columns has Kafka's record. One with declared columns has those, and for reads ``_topic``,
``_partition``, ``_offset`` and ``_timestamp`` when the option `columns` names them. Both have the columns of the
record's transaction when `includeTxnMetadata` is true, or `columns` or a schema of the user's names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
)

from pyspark_txnlog.options.catalog import keep_options
from pyspark_txnlog.options.options import ReadOptions
from sparktxn import ConfigurationError
from sparktxn.errors import did_you_mean
from sparktxn.store import check_columns, output_schema
from sparktxn.store.options import (
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    known_columns,
    metadata_names,
    one_layout,
    reserved_name,
)

if TYPE_CHECKING:
    from sparktxn import TopicState

_HEADERS: Final = "headers"

DELETED: Final = "_deleted"
"""The column of a topic with a key that is true in a row which deletes its key."""

_SCALARS: Final[frozenset[type[DataType]]] = frozenset(
    {
        BinaryType,
        BooleanType,
        ByteType,
        DateType,
        DecimalType,
        DoubleType,
        FloatType,
        IntegerType,
        LongType,
        ShortType,
        StringType,
        TimestampNTZType,
        TimestampType,
    }
)
"""Spark's types of one value that Arrow has too, and nothing but them: not their subclasses."""


def _spark_type(arrow_type: pa.DataType) -> DataType:
    """Return Spark's type of a column; every part of it may be null, as in Spark's own Kafka source."""
    if pa.types.is_list(arrow_type):
        return ArrayType(_spark_type(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return MapType(_spark_type(arrow_type.key_type), _spark_type(arrow_type.item_type))
    if pa.types.is_struct(arrow_type):
        fields = (arrow_type.field(index) for index in range(arrow_type.num_fields))
        return StructType([StructField(field.name, _spark_type(field.type)) for field in fields])
    return from_arrow_type(arrow_type)


def schema_of(topics: Iterable[TopicState], options: ReadOptions, *, is_latest: bool = False) -> StructType:
    """Return the columns that a read of `topics` has; latest rows lack the column that says "deleted", as none is.

    Raises:
        ConfigurationError: the topics differ in their columns, or the option `columns` names one that they do not have.
    """
    layout = one_layout(topics)
    names: Sequence[str]
    if options.columns is not None:
        names = options.columns
    else:
        if layout is None:
            names = [name for name in output_schema(None).names if name != _HEADERS or options.include_headers]
        else:
            names = [name for name, _, _ in layout if not (is_latest and name == DELETED)]
        names = [*names, *(metadata_names(layout) if options.include_txn_metadata else ())]
    arrow = output_schema(layout, names)
    return spark_schema(arrow, options.table_options)


def spark_schema(arrow: pa.Schema, table_options: Mapping[str, str] | None) -> StructType:
    """Return Spark's schema for `arrow`, with what a table of the catalog keeps (None for other reads)."""
    fields = [StructField(field.name, _spark_type(field.type)) for field in arrow]
    if table_options is not None:
        keep_options(fields, table_options)
    return StructType(fields)


def stored_columns(layout: tuple[tuple[str, str, bool], ...] | None) -> StructType:
    """Return Spark's types of the columns that a topic's segments may have; `layout` is the topic's schema."""
    made = {reserved_name(name, layout) for name in (TOPIC, PARTITION, OFFSET, TIMESTAMP_TYPE)}
    arrow = output_schema(layout)
    return StructType([StructField(field.name, _spark_type(field.type)) for field in arrow if field.name not in made])


def known_layout(topics: Iterable[TopicState]) -> pa.Schema:
    """Return all columns that a read of `topics` may name, those of the record's transaction last."""
    return known_columns(one_layout(topics))


def read_columns(topics: Iterable[TopicState], schema: StructType) -> tuple[str, ...]:
    """Return the columns that `schema`, the user's or our own, asks for.

    Raises:
        ConfigurationError: the topics do not have one of them, or have it with another type.
    """
    return known_names(schema, known_columns(one_layout(topics)), "the topic")


def known_names(schema: StructType, arrow: pa.Schema, owner: str) -> tuple[str, ...]:
    """Return the names of `schema`, the user's or our own, all of which `owner` has, with the types of `arrow`.

    Raises:
        ConfigurationError: `owner` does not have one of them, or has it with another type.
    """
    for field in schema.fields:
        if field.name not in arrow.names:
            raise ConfigurationError(
                f"column {field.name!r} of the given schema is unknown: {owner} has {', '.join(arrow.names)}"
                f"{did_you_mean(field.name, arrow.names)}"
            )
        have = _spark_type(arrow.field(field.name).type).simpleString()
        if field.dataType.simpleString() != have:
            raise ConfigurationError(
                f"column {field.name!r} of the given schema is {field.dataType.simpleString()}: expected {have}"
            )
    return tuple(schema.fieldNames())


def arrow_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark wants for `schema`, the user's or our own, to the letter.

    Raises:
        ConfigurationError: a column is named twice, or has a type that no topic has.
    """
    for place, field in enumerate(schema):
        if field.name in schema.names[:place]:
            raise ConfigurationError(f"column {field.name!r} of the given schema is there twice: name each column once")
        found = _not_kept(field.dataType)
        if found is not None:
            raise ConfigurationError(
                f"column {field.name!r} of the given schema has Spark's type {_shown(found)}, which no topic has: "
                "leave the schema out, and cast what is read"
            )
    return to_arrow_schema(schema, timezone="UTC")


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with the exact types and nullability of `target`, whose columns it has in that order."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def check_columns_to_write(schema: StructType, topic: TopicState | None) -> None:
    """Check a write of `schema` to `topic`, or, for None, to the topics that the rows name.

    Raises:
        ConfigurationError: a column is missing, unknown, or of another type than the topic has.
    """
    check_columns(_arrow_schema(schema), topic)
    _check_record_time(schema, reserved_name(TIMESTAMP, topic.schema if topic is not None else None))
    if topic is None and "topic" not in schema.fieldNames():
        raise ConfigurationError("no topic to write to: give the option 'topic' or a column 'topic'")


def _check_record_time(schema: StructType, name: str) -> None:
    # Arrow's times without a zone are in UTC, and Spark's are in no zone.
    if any(field.name == name and type(field.dataType) is TimestampNTZType for field in schema):
        raise ConfigurationError(
            f"column {name!r} has Spark's type timestamp_ntz, which has no zone, and it is the time of the record: "
            "cast it to timestamp, which takes the session's zone"
        )


def quoted(name: str) -> str:
    """Return a column's or a view's name as Spark takes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def is_scalar(data_type: DataType) -> bool:
    """Return whether a type is of one value, text with any collation among them, and Arrow has it too."""
    return type(data_type) in _SCALARS


def _not_kept(data_type: DataType) -> DataType | None:
    """Return the first type, at or below `data_type`, that a topic has not; Spark hands it over as another one."""
    if type(data_type) is StringType:
        return None if data_type == StringType() else data_type
    if is_scalar(data_type) or type(data_type) is NullType:
        return None
    if type(data_type) is ArrayType:
        return _not_kept(data_type.elementType)
    if type(data_type) is MapType:
        return _first_not_kept([data_type.keyType, data_type.valueType])
    if type(data_type) is StructType:
        return _first_not_kept([field.dataType for field in data_type])
    return data_type


def _first_not_kept(types: Iterable[DataType]) -> DataType | None:
    return next((found for one in types if (found := _not_kept(one)) is not None), None)


def _shown(data_type: DataType) -> str:
    return type(data_type).__name__ if isinstance(data_type, UserDefinedType) else data_type.simpleString()


def _arrow_schema(schema: StructType) -> pa.Schema:
    for field in schema:
        found = _not_kept(field.dataType)
        if found is not None:
            raise ConfigurationError(
                f"column {field.name!r} has Spark's type {_shown(found)}, which a topic does not keep: cast it to a "
                "type that it keeps, such as string (to_json() of a variant, COLLATE UTF8_BINARY of a collation)"
            )
    try:
        return pa.schema(
            [
                pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC"), field.nullable)
                for field in schema.fields
            ]
        )
    except PySparkException as error:
        raise ConfigurationError(f"a column cannot be written: {error}") from None


def new_columns(schema: StructType, topic: TopicState) -> pa.Schema | None:
    """Return the columns of `schema` that the typed `topic` lacks, nullable in all parts; None if it has them all.

    Raises:
        ConfigurationError: the topic has Kafka's record.
    """
    if topic.schema is None:
        raise ConfigurationError(
            f"option 'mergeSchema' is true, and topic {topic.name!r} has Kafka's record, which takes no columns: leave "
            "it out, or write to a topic with declared columns"
        )
    known = {name for name, _, _ in topic.schema}
    # Names that begin so belong to the store: rows that were read may have them.
    fields = [field for field in _arrow_schema(schema) if field.name not in known and not field.name.startswith("_")]
    # That no value of these rows is null says nothing about rows to come.
    columns = [pa.field(field.name, to_arrow_type(_spark_type(field.type), timezone="UTC")) for field in fields]
    return pa.schema(columns) if columns else None


def declared_columns(schema: StructType) -> pa.Schema | None:
    """Return the columns to declare for a new topic that takes `schema`; None if it is Kafka's record.

    Raises:
        ConfigurationError: it has the names of Kafka's record, but not the types.
    """
    columns = _arrow_schema(schema)
    names = set(columns.names)
    if "value" in names and names <= set(output_schema(None).names):
        check_columns(columns)
        _check_record_time(schema, TIMESTAMP)
        return None
    return columns
