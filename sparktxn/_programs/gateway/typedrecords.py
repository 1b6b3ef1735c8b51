"""Topics that declare columns, for Kafka's clients: values are rows as JSON objects, as `txnlog consume` prints them.

Of a keyed topic a record's key is that of its row as text (PROTOCOL.md, "Keyed topics"), and null deletes it.

This is the one place where records are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.schema import (
    DELETED_COLUMN,
    RECORD_SCHEMA,
    TIMESTAMP_COLUMN,
    TYPED_OFFSET_COLUMN,
    stored_schema,
)
from sparktxn._foundation.values.quantities import counted
from sparktxn._rows.stage.recordsizes import row_bytes
from sparktxn.errors import CommandRefused, ErrorCode, KafkaException
from sparktxn.store.options import arguments
from sparktxn.store.staging import StageTopic
from sparktxn.transfer.exactvalues import WrongLine, shown
from sparktxn.transfer.jsonrows import JsonRows, encoded, json_values, key_reader

# Refusals of a batch that name the records which caused them (KIP-467). Found once a batch is refused as a whole.

NAMED_MAX: Final = 1_000
"""How many records of a batch a refusal names."""
_NOT_KEPT: Final = "which the topic does not keep"

Refused = tuple[int, str]
"""A record's place in its batch, and why it is refused."""


class RecordsRefused(CommandRefused):
    """A batch is refused because of `records`, in their order; none of the batch is stored."""

    def __init__(self, code: int, records: Sequence[Refused]) -> None:
        more = f" ({counted(len(records), 'record')} of the batch)" if len(records) > 1 else ""
        super().__init__(code, f"{records[0][1]}{more}")
        self.records = tuple(records)

    def __reduce__(self) -> tuple[object, ...]:
        return (RecordsRefused, (self.error.code(), self.records))


def with_records(topic: StageTopic, records: pa.Table, error: KafkaException) -> KafkaException:
    """Return a refusal that names the records with a time that cannot be, or without a key that they need.

    Return the error itself if it is another one.
    """
    times = records.column("timestamp").cast(pa.int64())
    wrong = _places(pc.or_(pc.less(times, 0), pc.greater(times, arguments.TIMESTAMP_MS_MAX)))
    if wrong:
        reason = f"a timestamp is {{}} ms: expected 0 (1970) to {arguments.TIMESTAMP_MS_MAX}"
        return RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP, [(place, reason.format(times[place].as_py())) for place in wrong]
        )
    if topic.schema is None and topic.is_compacted and (wrong := _places(pc.is_null(records.column("key")))):
        reason = f"topic {topic.name!r} is compacted by key, and a record has none"
        return RecordsRefused(ErrorCode.INVALID_RECORD, [(place, reason) for place in wrong])
    return error


def without_large_records(rows: pa.Table, bytes_max: int) -> RecordsRefused:
    """Return the refusal of the rows that are larger than `bytes_max`, of which there is at least one."""
    sizes = row_bytes(rows.select(rows.column_names[:-1]))
    reason = f"a record of {{}} bytes is larger than {bytes_max}"
    wrong = _places(pc.greater(sizes, bytes_max))
    return RecordsRefused(
        ErrorCode.MESSAGE_TOO_LARGE, [(place, reason.format(sizes[place].as_py())) for place in wrong]
    )


def _places(is_wrong: pa.Array | pa.ChunkedArray) -> list[int]:
    places: list[int] = pc.indices_nonzero(is_wrong).to_pylist()
    return places[:NAMED_MAX]


def rows_of(topic: StageTopic, partition: int, records: pa.Table) -> pa.Table:
    """Return the rows that records of a partition have as their values, with the records' timestamps.

    Of a keyed topic a record without a value deletes its key.

    Raises:
        RecordsRefused: INVALID_RECORD: a value is not a JSON object with the topic's columns, or a record has headers,
            or a key although the topic has none. Or the topic has a key, and the record's is not that of its row, or
            belongs to another partition.
    """
    if wrong := _misplaced(topic, records):
        raise _refused(topic, wrong)
    if topic.primary_key:
        rows, wrong = _keyed_rows(topic, partition, records)
    else:
        rows, wrong = _read_values(_declared(topic), enumerate(records.column("value").to_pylist()))
    if wrong:
        raise _refused(topic, wrong)
    return rows.append_column(TIMESTAMP_COLUMN, records.column("timestamp"))


def _declared(topic: StageTopic) -> pa.Schema:
    """Return the columns of rows as their writers have them."""
    hidden = (TIMESTAMP_COLUMN, DELETED_COLUMN) if topic.primary_key else (TIMESTAMP_COLUMN,)
    columns = (column for column in stored_schema(topic.schema) if column.name not in hidden)
    return pa.schema(
        [column.with_nullable(column.nullable and column.name not in topic.required_columns) for column in columns]
    )


def _misplaced(topic: StageTopic, records: pa.Table) -> dict[int, str]:
    """Return the places of records that have what they may not have, or lack what they need, with the reasons."""
    found: dict[int, str] = {}
    keys, is_empty = records.column("key"), pc.is_null(records.column("value"))
    if "headers" in records.column_names:
        found |= _reasons(pc.greater(pc.list_value_length(records.column("headers")), 0), f"headers, {_NOT_KEPT}")
    if topic.primary_key:
        found |= _reasons(
            pc.and_(is_empty, pc.is_null(keys)), "neither a key nor a value: expected a row, or the key of a delete"
        )
    else:
        found |= _reasons(pc.is_valid(keys), f"a key, {_NOT_KEPT}")
        found |= _reasons(is_empty, "no value")
    return found


def _reasons(has: pa.ChunkedArray, what: str) -> dict[int, str]:
    return dict.fromkeys(pc.indices_nonzero(has).to_pylist(), f"a record has {what}")


def _read_values(
    schema: pa.Schema, values: Iterator[tuple[int, bytes]], whole: Sequence[str] = ()
) -> tuple[pa.Table, dict[int, str]]:
    """Return values as rows, or the places of those that are none, with the reasons."""
    reader = JsonRows(schema, whole=whole)
    try:
        return reader.table(values), {}
    except WrongLine as error:
        expected = ", ".join(f"{field.name} {field.type}" for field in schema)
        found = _no_rows(reader, values, error)
        return schema.empty_table(), {place: f"{reason}; expected {expected}" for place, reason in found.items()}


def _no_rows(reader: JsonRows, left: Iterator[tuple[int, bytes]], first: WrongLine) -> dict[int, str]:
    """Return the places of values that are not rows, with the reasons; `left` has those after the first such one."""
    found = {first.line: first.reason}
    while len(found) < NAMED_MAX:
        try:
            reader.table(left)
        except WrongLine as error:
            found[error.line] = error.reason
        else:
            break
    return found


# Records of keyed topics: a key is given as text, and may be left out where there is a row.


def _keyed_rows(topic: StageTopic, partition: int, records: pa.Table) -> tuple[pa.Table, dict[int, str]]:
    """Return the upserts and deletes that records are, or the places of those that are none, with the reasons."""
    keys, values = records.column("key").to_pylist(), records.column("value").to_pylist()
    schema = _declared(topic)
    own = pa.schema([schema.field(name) for name in topic.primary_key])
    upserts = [place for place, value in enumerate(values) if value is not None]
    deletes = [place for place, value in enumerate(values) if value is None]
    rows, wrong = _read_values(schema, ((place, values[place]) for place in upserts), topic.whole_columns)
    deleted, unread = _read_keys(own, ((place, keys[place]) for place in deletes))
    if wrong or unread:
        return rows, wrong | unread
    deleted = deleted.append_column(DELETED_COLUMN, pa.repeat(True, len(deletes)))
    found = pa.concat_tables([rows, deleted], promote_options="default")
    order = pc.sort_indices(pa.array(upserts + deletes, pa.int32()))
    found = found.take(order).combine_chunks()
    return found, _misdirected(topic, partition, own, keys, found)


def _read_keys(own: pa.Schema, keys: Iterator[tuple[int, bytes]]) -> tuple[pa.Table, dict[int, str]]:
    """Return keys as columns, or the places of those that are none, with the reasons."""
    read = key_reader(list(own))
    found, wrong = [], {}
    for place, key in keys:
        try:
            found.append(read(key))
        except ValueError as error:
            wrong[place] = f"a record's key is none of the topic's: {error}"
    columns = zip(*found, strict=True) if found else ((),) * len(own)
    return pa.table([pa.array(each, field.type) for each, field in zip(columns, own, strict=True)], own), wrong


def _misdirected(
    topic: StageTopic, partition: int, own: pa.Schema, keys: Sequence[bytes | None], rows: pa.Table
) -> dict[int, str]:
    """Return the places of records whose key is too long, not that of the row, or of another partition."""
    from sparktxn._engine.format import keytext  # numpy takes a tenth of a second to import

    texts = keytext.key_texts([rows.column(name).chunk(0) for name in own.names])
    others = [(place, key) for place, key in enumerate(keys) if key is not None and key != texts[place].as_py()]
    given, wrong = _read_keys(own, iter(others))
    if not wrong and others:
        also = keytext.key_texts([given.column(name).chunk(0) for name in own.names])
        for (place, key), text in zip(others, also.to_pylist(), strict=True):
            if text != (expected := texts[place].as_py()):
                wrong[place] = f"a record's key is {_shown(key)}, and its row has the key {_shown(expected)}"
    sizes = pc.binary_length(texts)
    for place in pc.indices_nonzero(pc.greater(sizes, keytext.KEY_BYTES_MAX)).to_pylist():
        wrong[place] = f"a key has {sizes[place]} bytes as text: expected at most {keytext.KEY_BYTES_MAX}"
    chosen = keytext.partitions_of_texts(texts, topic.partition_count)
    for place in pc.indices_nonzero(pc.not_equal(chosen, partition)).to_pylist():
        wrong.setdefault(
            place,
            f"the key {_shown(texts[place].as_py())} belongs to partition {chosen[place]}, and the record came for "
            f"{partition}: expected murmur2 of the key's text (of librdkafka partitioner=murmur2), or the partition",
        )
    return wrong


def _shown(key: bytes) -> str:
    return shown(key.decode(errors="backslashreplace"))


def records_of(rows: pa.RecordBatch, key: Sequence[str] = ()) -> pa.RecordBatch:
    """Return typed rows with their offsets as Kafka's records: of a keyed topic with keys, and null for a delete.

    `key` has the columns of the topic's key, none if it has no key.

    Raises:
        ConfigurationError: a time is outside the years 1 to 9999, which JSON's ISO 8601 cannot hold.
    """
    names = [name for name in rows.schema.names if not name.startswith("_")]
    columns: list[list[Any]] = [json_values(rows.schema.field(name), rows.column(name)) for name in names]
    values = pa.array(
        [encoded(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)],
        RECORD_SCHEMA.field("value").type,
    )
    keys = pa.nulls(rows.num_rows, RECORD_SCHEMA.field("key").type)
    if key:
        from sparktxn._engine.format.keytext import key_texts  # numpy takes a tenth of a second to import

        keys = key_texts([rows.column(name) for name in key])
        values = pc.if_else(rows.column(DELETED_COLUMN), None, values)
    return pa.record_batch(
        {
            "offset": rows.column(TYPED_OFFSET_COLUMN),
            "key": keys,
            "value": values,
            "timestamp": rows.column(TIMESTAMP_COLUMN),
        }
    )


def _refused(topic: StageTopic, wrong: Mapping[int, str]) -> RecordsRefused:
    named = sorted(wrong.items())[:NAMED_MAX]
    reasons = [(place, f"topic {topic.name!r} declares columns: {reason}") for place, reason in named]
    return RecordsRefused(ErrorCode.INVALID_RECORD, reasons)
