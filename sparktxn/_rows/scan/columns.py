"""The columns that readers get, those of a view's topics among them.

Kafka-record topics have Kafka's columns; typed topics have their own and ``_topic``, ``_partition``, ``_offset``,
``_timestamp``. Both have those of the record's transaction, which only a reader gets that names them:

* ``producer_id``, ``producer_epoch``: the producer's identity; null where no producer numbered the record.
* ``transactional_id``: null if no transactional producer wrote the record, and where the log has forgotten its id.
* ``entry``: the log entry whose commit made the record visible; null while none has, and for aborted records.

A typed topic has them with a leading underscore, as its other reserved names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from msgspec.structs import replace

from sparktxn._engine.format.segment import RECORD_SCHEMA, TIMESTAMP_COLUMN, stored_schema
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._foundation.values.structs import TopicState
from sparktxn.errors import ConfigurationError, did_you_mean

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log
    from sparktxn._engine.log.views.readview import ReadView


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


# Nested columns taken apart, down to the arrays that hold values.


def leaves(column: pa.Array) -> list[pa.Array]:
    """Return the arrays of values that are not nested, in the order of their types; those of null rows are left out."""
    kind = column.type
    if pa.types.is_map(kind):
        # Keys and items of a slice are those of the whole.
        pair = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
        return leaves(column.cast(pa.list_(pair)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return leaves(column.flatten())
    if pa.types.is_struct(kind):
        return [leaf for part in column.flatten() for leaf in leaves(part)]
    return [column]


# Which columns a read has: those of its topics in the view, and those that they have gained elsewhere, null there.
#
# Every reader that names columns asks this module: batches, streams, reads of the past, exports. A column is known if
# a topic has it in the view or has it now. Only nullable columns are added, so a topic without one reads as null.

_Layout: TypeAlias = dict[str, tuple[str, str, bool]]


def one_layout(topics: Iterable[TopicState]) -> Columns | None:
    """Return the declared columns of a read of all `topics`; None for Kafka's record, or for no topic.

    Topics of one read begin with the same columns. What only some of them have gained since is null in the others.

    Raises:
        ConfigurationError: they do not begin alike, or have a column with two types, or one that is not nullable.
    """
    first: TopicState | None = None
    layout: _Layout | None = None
    for topic in topics:
        own = None if topic.schema is None else {column[0].lower(): column for column in topic.schema}
        if first is None:
            first, layout = topic, own
        elif layout is None or own is None or _differ(layout, own):
            if first.schema == topic.schema:
                continue
            raise ConfigurationError(
                f"topics {first.name!r} and {topic.name!r} do not have the same columns: one read takes topics of one "
                "layout, whose later columns are nullable and of one type; read them one by one"
            )
        else:
            layout = layout | {name: column for name, column in own.items() if name not in layout}
    return None if layout is None else tuple(layout.values())


def _differ(layout: _Layout, own: _Layout) -> bool:
    """Return whether one read cannot take both: by names in lower case, as engines compare them."""
    both = layout | own
    return (
        next(iter(layout.values())) != next(iter(own.values()))
        or any(layout[name] != own[name] for name in layout.keys() & own.keys())
        or not all(both[name][2] for name in layout.keys() ^ own.keys())
    )


def with_columns(view: ReadView, names: Sequence[str] | None, log: Log) -> ReadView:
    """Return `view` with the columns of `names` in each topic with declared columns that lacks some; they are null.

    Args:
        view: topics at an entry.
        names: what a read asks for; None: all columns that a topic of the view has, or has gained since. A name that
            no topic has is left to the error of the read.
        log: the log of the view, which is followed only for what the view does not have.

    Raises:
        OutcomeUnknown, StoreUnavailable, DamagedObject: as `Log.refresh`.
    """
    typed = [topic for topic in view.topics.values() if topic.schema is not None]
    if names is not None and all(_has(topic, names) for topic in typed):
        return view
    log.refresh()
    later = [topic for topic in (log.topic(topic.name) for topic in typed) if topic is not None]
    gained: dict[str, tuple[str, str, bool]] = {}
    for topic in (*typed, *later):
        for name, declared, _ in topic.schema or ():
            gained.setdefault(name, (name, declared, True))
    added = [gained[name] for name in (gained if names is None else dict.fromkeys(names)) if name in gained]
    topics = {name: _widened(topic, added) for name, topic in view.topics.items()}
    partitions = {key: replace(part, topic=topics[key[0]]) for key, part in view.partitions.items()}
    return replace(view, topics=topics, partitions=partitions)


def _has(topic: TopicState, names: Sequence[str]) -> bool:
    return set(names) <= set(known_columns(topic.schema).names)


def _widened(topic: TopicState, columns: Iterable[tuple[str, str, bool]]) -> TopicState:
    if topic.schema is None:
        return topic
    own = {name for name, _, _ in topic.schema}
    return replace(topic, schema=(*topic.schema, *(column for column in columns if column[0] not in own)))
