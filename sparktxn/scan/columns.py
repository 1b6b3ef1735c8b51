"""The columns that readers get.

Kafka-record topics have Kafka's columns; typed topics have their own and ``_topic``, ``_partition``, ``_offset``,
``_timestamp``. Both have those of the record's transaction, which only a reader gets that names them:

* ``producer_id``, ``producer_epoch``: the producer's identity; null where no producer numbered the record.
* ``transactional_id``: null outside transactions, and where the log has forgotten the id of the producer.
* ``entry``: the log entry whose commit made the record visible; null while none has, and for aborted records.

A typed topic has them with a leading underscore, as its other reserved names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from sparktxn.errors import ConfigurationError, did_you_mean
from sparktxn.format.segment import RECORD_SCHEMA, TIMESTAMP_COLUMN, stored_schema
from sparktxn.values import arguments
from sparktxn.values.fieldtypes import Columns

__all__ = [
    "ENTRY",
    "OFFSET",
    "PARTITION",
    "PRODUCER_EPOCH",
    "PRODUCER_ID",
    "TIMESTAMP",
    "TIMESTAMP_TYPE",
    "TOPIC",
    "TRANSACTIONAL_ID",
    "known_columns",
    "metadata_names",
    "output_schema",
    "reserved_name",
]


TOPIC: Final = "topic"
PARTITION: Final = "partition"
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"
TIMESTAMP_TYPE: Final = "timestampType"
PRODUCER_ID: Final = "producer_id"
PRODUCER_EPOCH: Final = "producer_epoch"
TRANSACTIONAL_ID: Final = "transactional_id"
ENTRY: Final = "entry"

_RECORD_OUTPUT: Final = pa.schema(
    [
        RECORD_SCHEMA.field("key"),
        RECORD_SCHEMA.field("value"),
        pa.field(TOPIC, pa.string(), nullable=False),
        pa.field(PARTITION, pa.int32(), nullable=False),
        pa.field(OFFSET, pa.int64(), nullable=False),
        RECORD_SCHEMA.field(TIMESTAMP),
        pa.field(TIMESTAMP_TYPE, pa.int32(), nullable=False),
        RECORD_SCHEMA.field("headers"),
    ]
)

_METADATA: Final = pa.schema(
    [
        pa.field(PRODUCER_ID, pa.int64()),
        pa.field(PRODUCER_EPOCH, pa.int32()),
        pa.field(TRANSACTIONAL_ID, pa.string()),
        pa.field(ENTRY, pa.int64()),
    ]
)


def reserved_name(name: str, topic_schema: Columns | None) -> str:
    """Return what a typed topic, or Kafka's record (None), calls one of TOPIC, PARTITION, OFFSET and TIMESTAMP."""
    return name if topic_schema is None else f"_{name}"


def metadata_names(topic_schema: Columns | None) -> tuple[str, ...]:
    """Return the names of the columns of a record's transaction."""
    return tuple(reserved_name(name, topic_schema) for name in _METADATA.names)


def known_columns(topic_schema: Columns | None) -> pa.Schema:
    """Return all columns that `output_schema` knows, those of the record's transaction last."""
    return _known_output(None if topic_schema is None else _declared(topic_schema))


def output_schema(topic_schema: Columns | None, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of what `reader.read` gives: of `columns` in order, or of all but the transaction's (None).

    Raises:
        ConfigurationError: the topic has no such column, or one is named twice.
    """
    declared = None if topic_schema is None else _declared(topic_schema)
    if columns is None:
        return _whole_output(declared)
    whole = _known_output(declared)
    columns = arguments.items("columns", columns, str)
    for column in columns:
        if column not in whole.names:
            known = ", ".join(whole.names)
            raise ConfigurationError(
                f"column {column!r} is unknown: the topic has {known}{did_you_mean(column, whole.names)}"
            )
    if len(set(columns)) < len(columns):
        raise ConfigurationError(f"columns {', '.join(columns)}: one is named twice")
    return pa.schema([whole.field(column) for column in columns])


def _declared(topic_schema: object) -> Columns:
    declared = tuple(arguments.items("topic_schema", topic_schema, tuple))
    for place, column in enumerate(declared):
        if len(column) != 3 or not isinstance(column[0], str):
            raise TypeError(f"topic_schema[{place}] has {len(column)} items: expected (name, type, nullable)")
    return declared


@lru_cache(maxsize=256)
def _whole_output(topic_schema: Columns | None) -> pa.Schema:
    if topic_schema is None:
        return _RECORD_OUTPUT
    stored = stored_schema(topic_schema)
    reserved = [
        _RECORD_OUTPUT.field(name).with_name(reserved_name(name, topic_schema)) for name in (TOPIC, PARTITION, OFFSET)
    ]
    declared = [field for field in stored if field.name != TIMESTAMP_COLUMN]
    return pa.schema([*declared, *reserved, stored.field(TIMESTAMP_COLUMN)])


@lru_cache(maxsize=256)
def _known_output(topic_schema: Columns | None) -> pa.Schema:
    metadata = [field.with_name(reserved_name(field.name, topic_schema)) for field in _METADATA]
    return pa.schema([*_whole_output(topic_schema), *metadata])
