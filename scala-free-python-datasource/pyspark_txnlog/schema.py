"""Columns: what Spark sees of a topic, and what a topic takes from Spark, as Arrow.

A topic without declared columns has Kafka's record; one with them has those, and for reads ``_topic``, ``_partition``,
``_offset`` and ``_timestamp`` when the option `columns` names them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_txnlog.options import TABLE_OPTIONS_KEY, ReadOptions
from sparktxn import ConfigurationError, did_you_mean, output_schema

if TYPE_CHECKING:
    from sparktxn import TopicState

__all__ = ["WriteLayout", "arrow_of", "conform", "declared_columns", "read_columns", "schema_of", "write_layout"]

_TIMESTAMP_MS: Final = pa.timestamp("ms", tz="UTC")
_HEADERS: Final = "headers"

_RECORD_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    _HEADERS: pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())]))),
    "timestamp": _TIMESTAMP_MS,
}
_READ_ONLY_COLUMNS: Final = ("offset", "timestampType")
"""Columns of a record that was read: writing gives it new ones, so that what was read can be written as it is."""


def _spark_type(arrow_type: pa.DataType) -> DataType:
    """Spark's type of a column; every part of it may be null, as in Spark's own Kafka source."""
    if pa.types.is_list(arrow_type):
        return ArrayType(_spark_type(arrow_type.value_type))
    if pa.types.is_struct(arrow_type):
        fields = (arrow_type.field(index) for index in range(arrow_type.num_fields))
        return StructType([StructField(field.name, _spark_type(field.type)) for field in fields])
    return from_arrow_type(arrow_type)


def _one_layout(topics: Iterable[TopicState]) -> tuple[tuple[str, str, bool], ...] | None:
    layouts = {topic.name: topic.schema for topic in topics}
    first = next(iter(layouts))
    for name, layout in layouts.items():
        if layout != layouts[first]:
            raise ConfigurationError(
                f"topics {first!r} and {name!r} do not have the same columns: one read takes topics of one layout"
            )
    return layouts[first]


def schema_of(topics: Iterable[TopicState], options: ReadOptions) -> StructType:
    """The columns that a read of `topics` has.

    Raises:
        ConfigurationError: the topics differ in their columns, or the option `columns` names one that they do not have.
    """
    layout = _one_layout(topics)
    arrow = output_schema(layout)
    names: Sequence[str]
    if options.columns is not None:
        names = options.columns
    elif layout is None:
        names = [name for name in arrow.names if name != _HEADERS or options.include_headers]
    else:
        names = [name for name, _, _ in layout]
    arrow = output_schema(layout, names)
    fields = [StructField(field.name, _spark_type(field.type)) for field in arrow]
    if options.table_options is not None:
        fields[0].metadata = {TABLE_OPTIONS_KEY: json.dumps(options.table_options)}
    return StructType(fields)


def read_columns(topics: Iterable[TopicState], schema: StructType) -> tuple[str, ...]:
    """The columns that `schema`, the user's or our own, asks for.

    Raises:
        ConfigurationError: the topics do not have one of them, or have it with another type.
    """
    arrow = output_schema(_one_layout(topics))
    for field in schema.fields:
        if field.name not in arrow.names:
            raise ConfigurationError(
                f"column {field.name!r} of the given schema is unknown: the topic has {', '.join(arrow.names)}"
                f"{did_you_mean(field.name, arrow.names)}"
            )
        have = _spark_type(arrow.field(field.name).type).simpleString()
        if field.dataType.simpleString() != have:
            raise ConfigurationError(
                f"column {field.name!r} of the given schema is {field.dataType.simpleString()}: expected {have}"
            )
    return tuple(schema.fieldNames())


def arrow_of(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark wants for `schema`, to the letter."""
    return to_arrow_schema(schema, timezone="UTC")


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """`batch` with the exact types and nullability of `target`, whose columns it has in that order."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


class WriteLayout:
    """How batches of a DataFrame become batches that a topic takes. Picklable: made on the driver, used by tasks."""

    def __init__(self, target: pa.Schema) -> None:
        self._target = target

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are written, in the topic's types.

        Raises:
            ConfigurationError: a column that must not be null has nulls.
        """
        columns = []
        for field in self._target:
            column = batch.column(field.name)
            if not field.nullable and column.null_count:
                raise ConfigurationError(f"column {field.name!r} of the topic must not be null, and {column.null_count} rows have null")
            columns.append(_cast(column, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._target)


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    if column.type == target:
        return column
    # Spark counts microseconds, Kafka's records milliseconds: the rest is dropped, and that is no error.
    return pc.cast(column, target, safe=target != _TIMESTAMP_MS)


def write_layout(schema: StructType, topic: TopicState | None, *, topic_from_option: bool) -> WriteLayout:
    """The layout of a write of `schema` to `topic`, or, for None, to the topics that the rows name.

    Raises:
        ConfigurationError: a column is missing, unknown, or of another type than the topic has.
    """
    if topic is None or topic.schema is None:
        return WriteLayout(_record_target(schema, topic_from_option=topic_from_option))
    return WriteLayout(_typed_target(schema, topic))


def _record_target(schema: StructType, *, topic_from_option: bool) -> pa.Schema:
    names = schema.fieldNames()
    for name in names:
        if name not in _RECORD_TYPES and name not in _READ_ONLY_COLUMNS:
            raise ConfigurationError(
                f"column {name!r} cannot be written: Kafka's record has {', '.join(_RECORD_TYPES)}"
                f"{did_you_mean(name, _RECORD_TYPES)}"
            )
    if "value" not in names:
        raise ConfigurationError("column 'value' is missing: Kafka's record needs it (string or binary)")
    if not topic_from_option and "topic" not in names:
        raise ConfigurationError("no topic to write to: give the option 'topic' or a column 'topic'")
    for field in schema.fields:
        _check_record_type(field)
    return pa.schema(
        [
            pa.field(name, arrow_type)
            for name, arrow_type in _RECORD_TYPES.items()
            if name in names and not (name == "topic" and topic_from_option)
        ]
    )


_HEADER_TYPE: Final = "array<struct<key:string,value:binary>>"
_ACCEPTED: Final[dict[str, tuple[str, ...]]] = {
    "key": (BinaryType().simpleString(), StringType().simpleString()),
    "value": (BinaryType().simpleString(), StringType().simpleString()),
    "topic": (StringType().simpleString(),),
    "partition": (IntegerType().simpleString(), LongType().simpleString()),
    _HEADERS: (_HEADER_TYPE,),
    "timestamp": (TimestampType().simpleString(),),
}


def _check_record_type(field: StructField) -> None:
    accepted = _ACCEPTED.get(field.name)
    found = field.dataType.simpleString()
    if accepted is not None and found not in accepted:
        raise ConfigurationError(f"column {field.name!r} is {found}: expected {' or '.join(accepted)}")


def _typed_target(schema: StructType, topic: TopicState) -> pa.Schema:
    whole = output_schema(topic.schema)
    declared = [name for name, _, _ in topic.schema or ()]
    writable = [*declared, "_timestamp"]
    for field in schema.fields:
        if field.name not in writable:
            raise ConfigurationError(
                f"column {field.name!r} cannot be written: topic {topic.name!r} declares {', '.join(declared)}"
                f"{did_you_mean(field.name, declared)}"
            )
        expected = _spark_type(whole.field(field.name).type).simpleString()
        if field.dataType.simpleString() != expected:
            raise ConfigurationError(
                f"column {field.name!r} is {field.dataType.simpleString()}: topic {topic.name!r} declares {expected}"
            )
    names = schema.fieldNames()
    for name in declared:
        if name not in names and not whole.field(name).nullable:
            raise ConfigurationError(f"column {name!r} is missing: topic {topic.name!r} declares it not null")
    return pa.schema([whole.field(name) for name in writable if name in names])


def declared_columns(schema: StructType) -> pa.Schema | None:
    """The columns to declare for a new topic that takes `schema`; None if it is Kafka's record."""
    names = set(schema.fieldNames())
    if "value" in names and names <= {*_RECORD_TYPES, *_READ_ONLY_COLUMNS}:
        return None
    return pa.schema([pa.field(field.name, to_arrow_type(field.dataType, timezone="UTC"), field.nullable) for field in schema.fields])
