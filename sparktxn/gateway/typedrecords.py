"""Topics that declare columns, for Kafka's clients: values are rows as JSON objects, as `txnlog consume` prints them.

This is the one place where records are looked at one by one.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.format.schema import RECORD_SCHEMA, TIMESTAMP_COLUMN, TYPED_OFFSET_COLUMN, stored_schema
from sparktxn.stage.stagedsegment import StageTopic
from sparktxn.transfer.exactvalues import WrongLine
from sparktxn.transfer.jsonrows import JsonRows, encoded, json_values

__all__ = ["records_of", "rows_of"]


def rows_of(topic: StageTopic, records: pa.Table) -> pa.Table:
    """Return the rows that records have as their values, with the records' timestamps.

    Raises:
        CommandRefused: INVALID_RECORD: a value is no JSON object with the topic's columns. Or a record has a key or
            headers: the topic keeps none.
    """
    columns = [field for field in stored_schema(topic.schema) if field.name != TIMESTAMP_COLUMN]
    for name in ("key", "headers"):
        if name in records.column_names and records.column(name).null_count < records.num_rows:
            raise _refused(topic, f"a record has a {name.removesuffix('s')}, which the topic does not keep")
    values = records.column("value")
    if values.null_count:
        raise _refused(topic, "a record has no value")
    try:
        rows = JsonRows(pa.schema(columns)).table(enumerate(values.to_pylist()))
    except WrongLine as error:
        expected = ", ".join(f"{field.name} {field.type}" for field in columns)
        raise _refused(topic, f"record {error.line} of a batch: {error.reason}; expected {expected}") from error
    return rows.append_column(TIMESTAMP_COLUMN, records.column("timestamp"))


def records_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return typed rows with their offsets as Kafka's records.

    Raises:
        ConfigurationError: a time is outside the years 1 to 9999, which JSON's ISO 8601 cannot hold.
    """
    names = [name for name in rows.schema.names if not name.startswith("_")]
    columns: list[list[Any]] = [json_values(rows.schema.field(name), rows.column(name)) for name in names]
    values = [encoded(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    return pa.record_batch(
        {
            "offset": rows.column(TYPED_OFFSET_COLUMN),
            "key": pa.nulls(rows.num_rows, RECORD_SCHEMA.field("key").type),
            "value": pa.array(values, RECORD_SCHEMA.field("value").type),
            "timestamp": rows.column(TIMESTAMP_COLUMN),
        }
    )


def _refused(topic: StageTopic, reason: str) -> CommandRefused:
    return CommandRefused(ErrorCode.INVALID_RECORD, f"topic {topic.name!r} declares columns: {reason}")
