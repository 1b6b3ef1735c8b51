"""Columns that a caller hands over: checked against the topic, given timestamps, and split by partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.config.topic import topic_setting
from sparktxn.errors import ConfigurationError, ErrorCode, KafkaError, KafkaException, did_you_mean
from sparktxn.format.schema import TIMESTAMP_COLUMN, stored_schema
from sparktxn.stage.layout import check_timestamps, null_path
from sparktxn.structs import TopicState

__all__ = ["key_column", "partition_slices", "stored_table"]

PARTITION_COLUMN = "partition"


def stored_table(topic: TopicState, given: pa.Table, timestamp_ms: int) -> tuple[pa.Table, pa.ChunkedArray | None]:
    """The table as the topic's segments store it, and the column ``partition`` if there is one.

    Missing nullable columns are null; a missing timestamp, or a null one, is `timestamp_ms`.

    Raises:
        ConfigurationError: a column is unknown, missing or of another type.
    """
    schema = stored_schema(topic.schema)
    stamp = TIMESTAMP_COLUMN if topic.schema is not None else "timestamp"
    partitions = None
    if given.column_names.count(PARTITION_COLUMN) == 1 and topic.schema is None:
        partitions = given.column(PARTITION_COLUMN)
        if not pa.types.is_integer(partitions.type):
            raise ConfigurationError(f"column {PARTITION_COLUMN!r} is {partitions.type}: expected int32")
        given = given.drop_columns([PARTITION_COLUMN])
    for name, count in Counter(given.column_names).items():
        if count > 1:
            raise ConfigurationError(f"column {name!r} is given {count} times: expected each column once")
        if schema.get_field_index(name) < 0:
            expected = ", ".join(schema.names)
            raise ConfigurationError(
                f"column {name!r} is not one of topic {topic.name!r}: expected {expected}"
                f"{did_you_mean(name, schema.names)}"
            )
    columns = []
    for field in schema:
        if field.name in given.column_names:
            column = _cast(topic, field, given.column(field.name))
        elif field.nullable or field.name == stamp:
            column = pa.chunked_array([pa.nulls(given.num_rows, field.type)])
        else:
            raise ConfigurationError(
                f"column {field.name!r} of topic {topic.name!r} is missing, and it may not be null"
            )
        if field.name == stamp and column.null_count:
            column = pc.fill_null(column, pa.scalar(timestamp_ms, pa.int64()).cast(field.type))
        if field.name == stamp:
            check_timestamps(stamp, column)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema), partitions


def _cast(topic: TopicState, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        cast = column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        raise ConfigurationError(
            f"column {field.name!r} of topic {topic.name!r} is {column.type}: expected {field.type} ({error})"
        ) from None
    if not field.nullable and cast.null_count and field.name not in (TIMESTAMP_COLUMN, "timestamp"):
        raise ConfigurationError(f"column {field.name!r} of topic {topic.name!r} holds a null, and it may not be null")
    for chunk in cast.chunks if pa.types.is_nested(field.type) else ():
        if (path := null_path(chunk, field, field.name)) is not None:
            raise ConfigurationError(f"column {path!r} of topic {topic.name!r} holds a null, and it may not be null")
    return cast


def key_column(topic: TopicState, table: pa.Table) -> pa.ChunkedArray | None:
    """The bytes that choose a row's partition: ``key``, or a typed topic's setting ``partition.key``, else None."""
    if topic.schema is None:
        return table.column("key")
    name: str = topic_setting(topic.settings, "partition.key")
    if not name:
        return None
    column = table.column(name)
    return column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())


def partition_slices(topic: TopicState, table: pa.Table, partitions: pa.Array) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each partition, in the order they were given.

    Raises:
        KafkaException: _UNKNOWN_PARTITION, a number is not one of the topic's.
    """
    lowest, highest = (pc.min_max(partitions)[bound].as_py() for bound in ("min", "max"))
    if partitions.null_count or lowest < 0 or highest >= topic.partition_count:
        found = "a null" if partitions.null_count else str(lowest if lowest < 0 else highest)
        reason = (
            f"column 'partition' holds {found}: topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}"
        )
        raise KafkaException(KafkaError(ErrorCode.LOCAL_UNKNOWN_PARTITION, reason))
    if lowest == highest:
        yield lowest, table
        return
    order = pc.array_sort_indices(partitions)
    table = table.take(order)
    counts = partitions.value_counts()
    start = 0
    for partition, count in sorted(
        zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
    ):
        yield partition, table.slice(start, count)
        start += count
