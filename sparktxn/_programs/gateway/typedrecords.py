"""Topics that declare columns, for Kafka's clients: values are rows as JSON objects, as `txnlog consume` prints them.

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
from sparktxn.transfer.exactvalues import WrongLine
from sparktxn.transfer.jsonrows import JsonRows, encoded, json_values

# Refusals of a batch that name the records which caused them (KIP-467). Found once a batch is refused as a whole.

NAMED_MAX: Final = 1_000
"""How many records of a batch a refusal names."""

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


def rows_of(topic: StageTopic, records: pa.Table) -> pa.Table:
    """Return the rows that records have as their values, with the records' timestamps.

    Raises:
        RecordsRefused: INVALID_RECORD: a value is not a JSON object with the topic's columns. Or a record has a key or
            headers: the topic keeps none.
    """
    columns = [field for field in stored_schema(topic.schema) if field.name != TIMESTAMP_COLUMN]
    if wrong := _misplaced(records):
        raise _refused(topic, wrong)
    values = enumerate(records.column("value").to_pylist())
    reader = JsonRows(pa.schema(columns))
    try:
        rows = reader.table(values)
    except WrongLine as error:
        expected = ", ".join(f"{field.name} {field.type}" for field in columns)
        found = _no_rows(reader, values, error)
        raise _refused(topic, {place: f"{reason}; expected {expected}" for place, reason in found.items()}) from error
    return rows.append_column(TIMESTAMP_COLUMN, records.column("timestamp"))


def _misplaced(records: pa.Table) -> dict[int, str]:
    """Return the places of records that have what they may not have, or have no value, with the reasons."""
    found: dict[int, str] = {}
    if "headers" in records.column_names:
        found |= _reasons(pc.greater(pc.list_value_length(records.column("headers")), 0), "headers")
    if records.column("key").null_count < records.num_rows:
        found |= _reasons(pc.is_valid(records.column("key")), "a key")
    if records.column("value").null_count:
        missing = pc.indices_nonzero(pc.is_null(records.column("value"))).to_pylist()
        found |= dict.fromkeys(missing, "a record has no value")
    return found


def _reasons(has: pa.ChunkedArray, what: str) -> dict[int, str]:
    return dict.fromkeys(pc.indices_nonzero(has).to_pylist(), f"a record has {what}, which the topic does not keep")


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
