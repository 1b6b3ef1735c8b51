"""Columns to partitions: which partition each row goes to, and the rows of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from sparktxn._engine.format.schema import TIMESTAMP_COLUMN, stored_schema
from sparktxn._rows.stage.columnconversion import PARTITION, plain_array, plain_type
from sparktxn._rows.stage.keyedrows import key_partitions
from sparktxn._rows.stage.stagedsegment import StageTopic
from sparktxn.errors import ConfigurationError, ErrorCode, did_you_mean

Choose = Callable[[pa.Array], pa.Array]
"""Given the keys of rows as binary, their partitions as int32."""


def key_column(topic: StageTopic) -> str | None:
    """Return the column that chooses a row's partition; None if rows of a typed topic have none.

    Raises:
        ConfigurationError: the topic's setting ``partition.key`` contradicts its columns.
    """
    if topic.schema is None:
        return "key"
    name = topic.partition_key
    if not name:
        return None
    declared = [column for column in stored_schema(topic.schema).names if column != TIMESTAMP_COLUMN]
    if name not in declared:
        raise ConfigurationError(
            f"setting 'partition.key' of topic {topic.name!r} is {name!r}: expected one of its columns, "
            f"{', '.join(declared)}{did_you_mean(name, declared)}"
        )
    if pa.types.is_nested(stored_schema(topic.schema).field(name).type):
        raise ConfigurationError(
            f"setting 'partition.key' of topic {topic.name!r} is {name!r}: expected a column that is not nested"
        )
    return name


def with_partition_key(topic: StageTopic, name: str) -> StageTopic:
    """Return a typed topic whose rows the column `name` divides.

    Raises:
        ConfigurationError: the topic has Kafka's record or no such column, or its setting names another column.
    """
    if topic.schema is None:
        raise ConfigurationError(
            f"topic {topic.name!r} has Kafka's record, whose column 'key' chooses the partition: leave out the "
            f"partition key {name!r}"
        )
    if topic.primary_key:
        raise ConfigurationError(
            f"topic {topic.name!r} has a key (primary.key), which alone chooses the partition: leave out the partition "
            f"key {name!r}"
        )
    setting = topic.partition_key
    if setting and setting != name:
        raise ConfigurationError(
            f"setting 'partition.key' of topic {topic.name!r} is {setting!r}: with the partition key {name!r} equal "
            "keys would go to several partitions; leave it out"
        )
    keyed = replace(topic, partition_key=name)
    key_column(keyed)
    return keyed


def given_partitions(
    topic: StageTopic, table: pa.Table, records: pa.Table, partition: int | None = None
) -> pa.Array | None:
    """Return the column ``partition`` of rows of Kafka's record as int32, where null leaves the choice to the key.

    If `partition` is given, it is that of all rows, and the column is not looked at. Of a keyed topic the key alone
    chooses the partition; `records` are the rows as the topic stores them.

    Raises:
        ConfigurationError: it holds no whole numbers, or one that is not a partition (_UNKNOWN_PARTITION).
        CommandRefused: INVALID_RECORD, see `key_partitions`.
    """
    if topic.primary_key:
        if partition is not None and partition >= topic.partition_count:
            raise _no_partition("partition is", partition, topic)
        return key_partitions(topic, records, partition)
    if partition is not None:
        if partition >= topic.partition_count:
            raise _no_partition("partition is", partition, topic)
        return pa.repeat(pa.scalar(partition, pa.int32()), table.num_rows)
    if topic.schema is not None or PARTITION not in table.schema.names:
        return None
    column = table.column(PARTITION)
    column = pa.chunked_array(map(plain_array, column.chunks), plain_type(column.type))
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise ConfigurationError(f"column 'partition' has type {column.type}: expected int32")
    found = pc.min_max(column)
    least, greatest = found["min"].as_py(), found["max"].as_py()
    if least is not None and not 0 <= least <= greatest < topic.partition_count:
        raise _no_partition("column 'partition' has", least if least < 0 else greatest, topic)
    given = column.cast(pa.int32()).combine_chunks()
    return None if given.null_count == len(given) else given


def _no_partition(says: str, found: int, topic: StageTopic) -> ConfigurationError:
    return ConfigurationError(
        f"{says} {found}: topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}",
        ErrorCode.LOCAL_UNKNOWN_PARTITION,
    )


def row_partitions(rows: pa.Table, given: pa.Array | None, key: str | None, choose: Choose) -> pa.Array:
    """Return the partition of each row: the given one, else the one that `choose` finds for the column `key`."""
    if given is not None and not given.null_count:
        return given
    keys = pa.nulls(rows.num_rows, pa.binary()) if key is None else _as_bytes(rows.column(key).chunk(0))
    if given is None:
        return choose(keys)
    absent = given.is_null()
    return pc.replace_with_mask(given, absent, choose(keys.filter(absent)))


def _as_bytes(column: pa.Array) -> pa.Array:
    """Return the values as text, the same on every machine."""
    return column if pa.types.is_binary(column.type) else column.cast(pa.string()).cast(pa.binary())


def split(rows: pa.Table, partitions: pa.Array) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each partition, in their order, by partition; each part owns its memory."""
    counted = partitions.value_counts()
    counts = dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))
    if len(counts) == 1:
        yield next(iter(counts)), rows
        return
    # Not slices of one sorted copy: a partition with few rows would hold the whole copy in memory.
    order = pc.sort_indices(partitions)
    start = 0
    for partition, count in sorted(counts.items()):
        yield partition, _taken(rows, order.slice(start, count))
        start += count


def _taken(rows: pa.Table, places: pa.Array) -> pa.Table:
    """Return the rows at `places`. Taking nulls one by one would cost as much as taking values."""
    columns = [
        pa.nulls(len(places), column.type) if column.null_count == len(column) else column.take(places)
        for column in rows.columns
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)
