"""Topics that are made, and columns that they gain: nullable ones, at the end, null in records from before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec.structs import replace

from sparktxn._engine.format.commands import AlterTopic, CreateTopic, RequireFeatures
from sparktxn._engine.format.decodeguard import KEYED_TOPICS
from sparktxn._engine.format.schema import check_columns, check_schema
from sparktxn._engine.state.keyed import feature_missing
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._foundation.values.structs import TopicState
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode, did_you_mean

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log


_ATTEMPTS: Final = 3


def create_topic(log: Log, command: CreateTopic) -> None:
    """Create a topic, whose settings and columns are as the log keeps them (`keyed.as_keyed`).

    Raises:
        CommandRefused: the state refuses it.
    """
    if feature_missing(log.store_state(), command):
        log.submit([RequireFeatures((KEYED_TOPICS,))])
    log.submit([command])


def columns_to_add(topic: TopicState, columns: Columns) -> Columns:
    """Return those of `columns` that `topic` does not have.

    Raises:
        ConfigurationError: the topic has Kafka's record, or one of them with another type. Or a new one is not
            nullable, or its name differs from another one in case only.
    """
    if topic.schema is None:
        raise ConfigurationError(
            f"topic {topic.name!r} has Kafka's record, which takes no columns: expected a topic with declared columns"
        )
    existing = {name: declared for name, declared, _ in topic.schema}
    found = []
    for name, declared, nullable in columns:
        if name in existing:
            if existing[name] != declared:
                raise ConfigurationError(
                    f"column {name!r} of topic {topic.name!r} has type {existing[name]}: it cannot become {declared}; "
                    "add a column of another name"
                )
        elif not nullable:
            raise ConfigurationError(
                f"column {name!r} is new to topic {topic.name!r} and not nullable: expected a nullable column, because "
                "the records before have none"
            )
        else:
            found.append((name, declared, nullable))
    if found:
        # As the state checks them, so that nothing is written, of what a caller changes at the same time, either.
        check_columns(tuple(found), topic.schema)
    return tuple(found)


def with_columns(topic: TopicState, schema: pa.Schema) -> TopicState:
    """Return the topic as it is once it has gained these columns.

    Raises:
        ConfigurationError: a name is reserved or a type not kept, or see `columns_to_add`.
    """
    return replace(topic, schema=(*(topic.schema or ()), *columns_to_add(topic, check_schema(schema))))


def add_columns(log: Log, name: str, columns: Columns, *, validate_only: bool = False) -> None:
    """Add those of `columns` that the topic lacks; if it has them all, nothing is written.

    Another writer may add some of them at the same time: what is missing is then found again.

    Raises:
        ConfigurationError: see `columns_to_add`.
        CommandRefused: there is no such topic.
        KafkaException: ``INVALID_TOPIC``: it is internal.
    """
    for attempt in range(_ATTEMPTS):
        log.refresh()
        topic = log.changeable_topic(name)
        if topic is None:
            known = did_you_mean(name, [known.name for known in log.topics()])
            raise CommandRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist{known}")
        missing = columns_to_add(topic, columns)
        if not missing or validate_only:
            return
        try:
            log.submit([AlterTopic(log.ids.token(), name, topic.topic_id, {}, missing)])
        except CommandRefused as refused:
            if refused.error.code() != ErrorCode.INVALID_CONFIG or attempt == _ATTEMPTS - 1:
                raise
        else:
            return
