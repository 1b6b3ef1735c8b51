"""Columns as users have them, brought to a topic's stored schema; every way into the store converts them here.

What is missing, extra or of another type is refused. Only what loses nothing is converted: other encodings of text and
bytes, narrower numbers, other units and zones of timestamps. Rows that were read can be written as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.segment import RECORD_SCHEMA, TIMESTAMP_COLUMN, stored_schema
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.arguments import TIMESTAMP_MS_MAX
from sparktxn._foundation.values.arrowvalues import empty_table, scalar_of
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import TopicState
from sparktxn._rows.stage.keyedrows import keyed_rows
from sparktxn._rows.stage.recordsizes import pairs_of
from sparktxn._rows.stage.stagedsegment import StageTopic
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode, did_you_mean

# Arrow's other layouts of the same values, brought to the plain one: dictionaries, run ends, views, lists as views.
#
# Polars writes text as views and its Categorical and Enum as dictionaries of views, for which Arrow has few
# functions: it decodes no dictionary of views, and concatenates none. So this is done by the parts of an array, at
# every depth.


def plain_type(found: pa.DataType) -> pa.DataType:
    """Return the type of the same values without dictionaries, run ends and views."""
    types = pa.types
    if types.is_dictionary(found) or types.is_run_end_encoded(found):
        return plain_type(found.value_type)
    if types.is_string_view(found):
        return pa.string()
    if types.is_binary_view(found):
        return pa.binary()
    if _is_any_list(found):
        item = found.value_field.with_type(plain_type(found.value_type))
        if item.type.equals(found.value_type) and not (types.is_list_view(found) or types.is_large_list_view(found)):
            return found
        return pa.list_(item)
    if types.is_map(found):
        key, item = plain_type(found.key_type), plain_type(found.item_type)
        same = key.equals(found.key_type) and item.equals(found.item_type)
        return found if same else pa.map_(key, found.item_field.with_type(item), found.keys_sorted)
    if types.is_struct(found):
        return pa.struct([field.with_type(plain_type(field.type)) for field in found])
    return found


def plain_array(array: pa.Array) -> pa.Array:
    """Return the same values in their plain layout; an array that has it is returned as it is.

    Raises:
        pyarrow.ArrowException: Arrow has no such values.
    """
    found, wanted = array.type, plain_type(array.type)
    types = pa.types
    if found.equals(wanted):
        return array
    if types.is_dictionary(found):
        return plain_array(array.dictionary).take(array.indices)
    if types.is_run_end_encoded(found):
        runs = pa.array(range(len(array.values)), pa.int32())
        which = pa.RunEndEncodedArray.from_arrays(array.run_ends, runs).slice(array.offset, len(array))
        return plain_array(array.values).take(pc.run_end_decode(which))
    if _is_any_list(found):
        return _list(array, wanted)
    if types.is_map(found):
        keys, items, offsets = _parts_of_map(array)
        return pa.MapArray.from_arrays(offsets, plain_array(keys), plain_array(items), type=wanted, mask=_nulls(array))
    if types.is_struct(found):
        parts = [plain_array(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=_nulls(array))
    return array.cast(wanted)


def nullable_type(found: pa.DataType) -> pa.DataType:
    """Return a plain type whose members, at every depth, may be null."""
    types = pa.types
    if types.is_list(found):
        return pa.list_(found.value_field.with_type(nullable_type(found.value_type)).with_nullable(True))
    if types.is_map(found):
        return pa.map_(found.key_type, found.item_field.with_type(nullable_type(found.item_type)).with_nullable(True))
    if types.is_struct(found):
        return pa.struct([field.with_type(nullable_type(field.type)).with_nullable(True) for field in found])
    return found


def with_members(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return an array of type `nullable_type(wanted)` as one of `wanted`.

    Arrow's cast counts members of structs that are null themselves, and refuses those that must not be null.
    """
    types = pa.types
    if array.type.equals(wanted):
        return array
    if types.is_list(wanted):
        items = with_members(array.flatten(), wanted.value_type)
        return pa.ListArray.from_arrays(_offsets(array), items, type=wanted, mask=_nulls(array))
    if types.is_map(wanted):
        keys, items, offsets = _parts_of_map(array)
        items = with_members(items, wanted.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=_nulls(array))
    parts = [with_members(part, field.type) for part, field in zip(array.flatten(), wanted, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=_nulls(array))


def _parts_of_map(array: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the keys and values of maps, and where each map begins among them.

    Not by a cast to lists of structs: Arrow takes the field of a slice from its beginning, if it has run ends.
    """
    first, count = array.offsets[0].as_py(), array.offsets[-1].as_py() - array.offsets[0].as_py()
    offsets = pc.subtract(array.offsets, pa.scalar(first, pa.int32()))
    return array.keys.slice(first, count), array.items.slice(first, count), offsets


def _list(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(array), plain_array(array.flatten()), type=wanted, mask=_nulls(array))


def _offsets(array: pa.Array) -> pa.Array:
    """Return where each list begins among the items of all of them; null ones have none."""
    lengths = pc.if_else(array.is_valid(), pc.list_value_length(array), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _is_any_list(found: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(found)
        or types.is_large_list(found)
        or types.is_fixed_size_list(found)
        or types.is_list_view(found)
        or types.is_large_list_view(found)
    )


TOPIC: Final = "topic"
PARTITION: Final = "partition"

RECORD_COLUMNS: Final = ("key", "value", "headers", "timestamp", TOPIC, PARTITION)
"""The columns of Kafka's record layout; only ``value`` is required."""

# Rows that were read have these too: the log assigns them anew, so that a copy needs no projection.
_ASSIGNED_COLUMNS: Final = ("offset", "timestampType")
_ASSIGNED_TYPED_COLUMNS: Final = ("_topic", "_partition", "_offset")

_SLICE_ROWS: Final = 65_536
_SLICE_BYTES: Final = 16 * 1024 * 1024

_TIMESTAMP_MS: Final = pa.timestamp("ms", tz="UTC")
_HEADERS: Final = RECORD_SCHEMA.field("headers").type


def tables_of(name: str, given: object) -> Iterator[pa.Table]:
    """Yield argument `name` as tables: a record batch or table as one, another library's rows batch by batch.

    Raises:
        TypeError: it is neither an Arrow table nor an object with ``__arrow_c_stream__`` that gives rows.
    """
    if isinstance(given, pa.Table):
        yield given
    elif isinstance(given, pa.RecordBatch):
        yield pa.Table.from_batches([given])
    elif hasattr(given, "__arrow_c_stream__") and not isinstance(given, type):
        try:
            reader = pa.RecordBatchReader.from_stream(given)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TypeError(f"{name} is {arguments.described(given)}, which gives no rows: {error}") from error
        # Without rows, so that the columns of a stream without batches are checked too.
        yield pa.Table.from_batches([], reader.schema)
        for batch in reader:
            yield pa.Table.from_batches([batch])
    else:
        raise TypeError(
            f"{name} is {arguments.described(given)}: expected a pyarrow.RecordBatch or pyarrow.Table, or an object "
            "with __arrow_c_stream__, such as a data frame"
        )


def check_columns(schema: pa.Schema, topic: TopicState | None = None) -> None:
    """Pass if rows with these columns can be written to `topic`; None means any topic of Kafka's record.

    Raises:
        ConfigurationError: a column is missing, unknown or of another type.
    """
    arguments.instance("schema", schema, pa.Schema)
    rows = empty_table(schema)
    if topic is None:
        _record_rows(rows, 0)
    else:
        conformed(StageTopic.of(arguments.instance("topic", topic, TopicState)), rows, 0)


def slices(table: pa.Table) -> Iterator[pa.Table]:
    """Yield `table` in pieces that may be copied without much memory; an empty one is one piece, to be checked.

    Raises:
        ConfigurationError: there are rows and no columns. Arrow's slices of such a table have any number of rows.
    """
    if not table.num_columns:
        if table.num_rows:
            raise ConfigurationError(
                f"no columns in {counted(table.num_rows, 'row')}: expected at least one column of the topic"
            )
        yield table
        return
    step = _SLICE_ROWS
    if table.nbytes > _SLICE_BYTES:
        step = min(step, max(1, table.num_rows * _SLICE_BYTES // table.nbytes))
    yield table.slice(0, step)
    for start in range(step, table.num_rows, step):
        yield table.slice(start, step)


def conformed(topic: StageTopic, table: pa.Table, now_ms: int) -> pa.Table:
    """Return rows as `topic` stores them; each column is one array. Rows without a timestamp get `now_ms`.

    A typed topic's nullable column that is missing is null, so that a writer goes on when its topic gains a column. A
    keyed topic's upsert that lacks one is refused.

    Raises:
        ConfigurationError: a column is missing, unknown or of another type, or holds what may not be stored.
        CommandRefused: INVALID_RECORD, a row has no key, and the topic is compacted by key.
    """
    if topic.schema is not None:
        return _readable(_typed_rows(table, topic, now_ms))
    rows = _readable(_record_rows(table, now_ms))
    if topic.is_compacted and (rows.column("key").null_count or "key" not in table.schema.names):
        raise without_key(topic.name)
    return rows


def _readable(rows: pa.Table) -> pa.Table:
    """Return the rows if readers will take them: they refuse a segment with a value that its type does not allow.

    Arrow's own readers and Spark's casts do not check text.
    """
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            reason = str(error).rpartition("Invalid: ")[2]
            raise ConfigurationError(
                f"column {name!r} has a value that its type does not allow ({reason}): expected text in UTF-8, and "
                "decimals with the digits of their type; bytes that are not text belong in a binary column"
            ) from None
    return rows


def without_key(topic: str) -> CommandRefused:
    """Return the refusal of a record without a key for a topic that is compacted by key."""
    return CommandRefused(
        ErrorCode.INVALID_RECORD,
        f"a record for topic {topic!r} has no key: the topic's cleanup.policy compacts it by key, so that each record "
        "needs one; nothing of this call was written",
    )


def _record_rows(table: pa.Table, now_ms: int) -> pa.Table:
    present = _checked_names(table)
    known = (*RECORD_COLUMNS, *_ASSIGNED_COLUMNS)
    for name in present:
        if name not in known:
            raise ConfigurationError(
                f"column {name!r} is not part of Kafka's record: expected {', '.join(RECORD_COLUMNS)}"
                f"{did_you_mean(name, RECORD_COLUMNS)}"
            )
    if "value" not in present:
        raise ConfigurationError(f"column 'value' is missing: found {', '.join(present) or 'no columns'}")
    convert: dict[str, Callable[[pa.Array], pa.Array]] = {
        "key": lambda column: _bytes("key", column),
        "value": lambda column: _bytes("value", column),
        "headers": _headers,
        "timestamp": lambda column: _timestamps_ms("timestamp", column, now_ms),
    }
    arrays = [
        convert[field.name](_array(table, field.name))
        if field.name in present
        else _absent(field, table.num_rows, now_ms)
        for field in RECORD_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=RECORD_SCHEMA)


def _typed_rows(table: pa.Table, topic: StageTopic, now_ms: int) -> pa.Table:
    schema = stored_schema(topic.schema)
    present = _checked_names(table)
    for name in present:
        if name not in schema.names and name not in _ASSIGNED_TYPED_COLUMNS:
            raise ConfigurationError(
                f"column {name!r} is not declared by topic {topic.name!r}: expected {', '.join(schema.names)}"
                f"{did_you_mean(name, schema.names)}"
            )
    arrays = []
    for field in schema:
        if field.name == TIMESTAMP_COLUMN and field.name in present:
            arrays.append(_timestamps_ms(field.name, _array(table, field.name), now_ms))
        elif field.name in present:
            arrays.append(_declared(topic.name, field, _array(table, field.name)))
        elif field.nullable or field.name == TIMESTAMP_COLUMN:
            arrays.append(_absent(field, table.num_rows, now_ms))
        else:
            raise ConfigurationError(
                f"column {field.name!r} of topic {topic.name!r} is missing and may not be null: "
                f"found {', '.join(present) or 'no columns'}"
            )
    rows = pa.Table.from_arrays(arrays, schema=schema)
    return keyed_rows(topic, rows, present) if topic.primary_key else rows


def topic_names(table: pa.Table) -> pa.Array:
    """Return the ``topic`` column as text without nulls.

    Raises:
        ConfigurationError: there is no such column, it is not text, or a row has none.
    """
    if TOPIC not in table.schema.names:
        raise ConfigurationError("no topic is given: add a column 'topic', or name one topic for all rows")
    column = _array(table, TOPIC)
    if not _is_text(column.type) and not pa.types.is_null(column.type):
        raise ConfigurationError(f"column 'topic' has type {column.type}: expected string")
    if column.null_count:
        row = pc.index(column.is_valid(), False).as_py()
        raise ConfigurationError(f"column 'topic' is null in row {row}: every row needs a topic")
    return column.cast(pa.string())


def _checked_names(table: pa.Table) -> Sequence[str]:
    names: list[str] = table.schema.names
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"column {name!r} is there {names.count(name)} times: expected once")
    return names


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    if not column.type.equals(plain_type(column.type)):
        column = pa.chunked_array(map(plain_array, column.chunks), plain_type(column.type))
    column = column.combine_chunks()
    # Of a column without chunks, or of more than one can hold, combine_chunks makes a chunked array.
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) and column.num_chunks else column


def _absent(field: pa.Field, count: int, now_ms: int) -> pa.Array:
    if field.nullable:
        return pa.nulls(count, field.type)
    return pa.repeat(scalar_of(now_ms, _TIMESTAMP_MS), count)


def _is_text(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(data_type) or types.is_large_string(data_type))


def _is_bytes(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(data_type) or types.is_large_binary(data_type) or types.is_fixed_size_binary(data_type))


def _bytes(name: str, column: pa.Array) -> pa.Array:
    found = column.type
    if not (_is_bytes(found) or _is_text(found) or pa.types.is_null(found)):
        raise ConfigurationError(f"column {name!r} has type {column.type}: expected binary or string; cast it")
    return _cast(name, column, pa.binary())


def _cast(name: str, column: pa.Array, data_type: pa.DataType) -> pa.Array:
    if column.type.equals(data_type):
        return column
    try:
        return column.cast(nullable_type(data_type))
    except pa.ArrowException as error:
        raise ConfigurationError(f"column {name!r} cannot be stored as {data_type}: {error}") from None


def _timestamps_ms(name: str, column: pa.Array, now_ms: int) -> pa.Array:
    found = column.type
    if not (pa.types.is_timestamp(found) or pa.types.is_int64(found) or pa.types.is_null(found)):
        raise ConfigurationError(
            f"column {name!r} has type {found}: expected a timestamp, or int64 milliseconds since the epoch"
        )
    if not found.equals(_TIMESTAMP_MS):
        # Finer units are cut off, as Kafka has milliseconds; a timestamp without a zone is UTC. Seconds may be too
        # many for milliseconds, which only a safe cast notices.
        try:
            column = column.cast(_TIMESTAMP_MS, safe=getattr(found, "unit", "") == "s")
        except pa.ArrowInvalid as error:
            raise ConfigurationError(f"column {name!r} cannot be milliseconds: {error}") from None
    column = pc.fill_null(column, scalar_of(now_ms, _TIMESTAMP_MS)) if column.null_count else column
    _check_timestamps(name, column)
    return column


def _check_timestamps(name: str, column: pa.Array) -> None:
    """Pass if every time of a column of milliseconds is from 1970 on, and one that Spark's timestamps can express."""
    if not len(column):
        return
    found = pc.min_max(column)
    for value in (found["min"].value, found["max"].value):
        if value is not None and not 0 <= value <= TIMESTAMP_MS_MAX:
            raise ConfigurationError(f"column {name!r} holds {value} ms: expected 0 (1970) to {TIMESTAMP_MS_MAX}")


def _headers(column: pa.Array) -> pa.Array:
    found = column.type
    if pa.types.is_null(found):
        return pa.nulls(len(column), _HEADERS)
    items_type = found.value_type if pa.types.is_list(found) or pa.types.is_large_list(found) else None
    names = [items_type.field(index).name for index in range(items_type.num_fields)] if items_type is not None else []
    if sorted(names) != ["key", "value"]:
        raise ConfigurationError(
            f"column 'headers' has type {found}: expected list<struct<key: string, value: binary>>"
        )
    items = column.flatten()
    keys, values = _header_part(items, "key"), _header_part(items, "value")
    if keys.null_count:
        raise ConfigurationError("column 'headers' has a header without a key: every header needs one")
    if found.equals(_HEADERS):
        return column
    lengths = pc.fill_null(pc.list_value_length(column).cast(pa.int32()), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    parts = pa.StructArray.from_arrays(
        [_text_of_headers(keys), _bytes("headers.value", values)], fields=list(_HEADERS.value_type)
    )
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(offsets, parts, type=_HEADERS, mask=mask)


def _header_part(items: pa.Array, name: str) -> pa.Array:
    return pc.struct_field(items, name)


def _text_of_headers(keys: pa.Array) -> pa.Array:
    if not _is_text(keys.type) and len(keys):
        raise ConfigurationError(f"column 'headers' has keys of type {keys.type}: expected string")
    return _cast("headers.key", keys, pa.string())


def _declared(topic: str, field: pa.Field, column: pa.Array) -> pa.Array:
    if not _is_same_kind(column.type, field.type):
        raise ConfigurationError(
            f"column {field.name!r} of topic {topic!r} has type {column.type}: expected {field.type}; cast it"
        )
    converted = _cast(field.name, column, field.type)
    if path := _null_path(converted, field, field.name):
        raise ConfigurationError(f"column {path!r} of topic {topic!r} may not be null, and it is in at least one row")
    return with_members(converted, field.type)


def _is_same_kind(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return True if values of type `found` are stored as `expected` without loss."""
    if found.equals(expected) or pa.types.is_null(found):
        return True
    if _is_text(expected):
        return _is_text(found)
    if _is_bytes(expected):
        return _is_bytes(found)
    if pa.types.is_timestamp(expected):
        return pa.types.is_timestamp(found) and (found.tz is None) is (expected.tz is None)
    if pa.types.is_list(expected):
        return _is_list(found) and _is_same_kind(found.value_type, expected.value_type)
    if pa.types.is_map(expected):
        parts = ((found.key_type, expected.key_type), (found.item_type, expected.item_type)) if _is_map(found) else ()
        return bool(parts) and all(_is_same_kind(*part) for part in parts)
    if pa.types.is_struct(expected):
        return pa.types.is_struct(found) and _is_same_struct(list(found), list(expected))
    return _is_narrower(found, expected)


def _is_narrower(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return True if every number of type `found` is one of type `expected`."""
    types = pa.types
    if types.is_integer(expected) and types.is_integer(found):
        unsigned = types.is_unsigned_integer(found)
        if unsigned is types.is_unsigned_integer(expected):
            return bool(found.bit_width <= expected.bit_width)
        return unsigned and bool(found.bit_width < expected.bit_width)
    if types.is_floating(expected) and types.is_floating(found):
        return bool(found.bit_width <= expected.bit_width)
    if types.is_decimal128(expected) and types.is_decimal(found):
        whole_digits = found.precision - found.scale <= expected.precision - expected.scale
        return bool(whole_digits and found.scale <= expected.scale)
    return False


def _is_list(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type))


def _is_map(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_map(data_type))


def _is_same_struct(found: Sequence[pa.Field], expected: Sequence[pa.Field]) -> bool:
    return len(found) == len(expected) and all(
        one.name == other.name and _is_same_kind(one.type, other.type)
        for one, other in zip(found, expected, strict=True)
    )


def _null_path(array: pa.Array, field: pa.Field, path: str) -> str | None:
    """Return the first place at or below `field` that has a null and may not."""
    if not field.nullable and array.null_count:
        return path
    inner: Iterable[tuple[pa.Array, pa.Field, str]] = ()
    if pa.types.is_list(field.type):
        inner = [(array.flatten(), field.type.value_field, f"{path}[]")]
    elif pa.types.is_map(field.type):
        items = pairs_of(array).flatten()
        inner = [(pc.struct_field(items, "value"), field.type.item_field, f"{path}[]")]
    elif pa.types.is_struct(field.type):
        # A null struct has null fields: only those of the others count.
        parts = array.drop_null().flatten()
        inner = [(part, child, f"{path}.{child.name}") for part, child in zip(parts, field.type, strict=True)]
    return next((found for below in inner if (found := _null_path(*below))), None)
