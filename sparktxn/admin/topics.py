"""Topics: creating, deleting, growing and describing them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from sparktxn._engine.format.commands import CreatePartitions, CreateTopic, DeleteTopic
from sparktxn._engine.format.schema import check_schema
from sparktxn._engine.log.log import Log
from sparktxn._engine.state.keyed import as_keyed, refuse_partitions
from sparktxn._engine.state.limits import PARTITION_COUNT_MAX
from sparktxn._engine.state.topics import check_new_name
from sparktxn._foundation.config.topic import check_topic_settings
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import TopicState
from sparktxn._kafka.admin import (
    NewPartitions,
    NewTopic,
    TopicDescription,
    TopicPartitionInfo,
    node_of,
)
from sparktxn._kafka.unsupported import TOPIC_OPERATIONS
from sparktxn._rows.stage import newcolumns
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode, KafkaError, KafkaException, did_you_mean

_DEFAULT_PARTITIONS: Final = 1


def refusal(code: ErrorCode, reason: str) -> KafkaException:
    """Return an exception with one of Kafka's codes."""
    return KafkaException(KafkaError(code, reason))


def changeable_topic(log: Log, name: str) -> TopicState:
    """Return a topic of the user's as last known.

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``; ``INVALID_TOPIC``: it is internal.
    """
    return _existing(log, name, log.changeable_topic(name))


def existing_topic(log: Log, name: str) -> TopicState:
    """Return the topic as last known, internal ones too.

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``.
    """
    return _existing(log, name, log.topic(name))


def _existing(log: Log, name: str, topic: TopicState | None) -> TopicState:
    if topic is None:
        known = did_you_mean(name, [topic.name for topic in log.topics()])
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist{known}")
    return topic


def checked(new: NewTopic, request_id: str) -> CreateTopic:
    """Return the command that creates a topic; check all that can be checked without the store.

    Raises:
        KafkaException: ``INVALID_TOPIC``, ``INVALID_PARTITIONS``, ``INVALID_CONFIG``.
    """
    check_new_name(new.topic)
    count = _DEFAULT_PARTITIONS if new.num_partitions == -1 else new.num_partitions
    if not 1 <= count <= PARTITION_COUNT_MAX:
        reason = f"topic {new.topic!r} would have {count} partitions: expected 1 to {PARTITION_COUNT_MAX}"
        raise refusal(ErrorCode.INVALID_PARTITIONS, reason)
    try:
        settings = check_topic_settings(new.config)
        columns = None if new.schema is None else check_schema(new.schema)
        settings, columns = as_keyed(settings, columns)
    except ConfigurationError as error:
        raise refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
    key = settings.get("partition.key")
    if key and (columns is None or key not in [name for name, _, _ in columns]):
        reason = f"setting 'partition.key' is {key!r}: expected one of the topic's declared columns"
        raise refusal(ErrorCode.INVALID_CONFIG, reason)
    return CreateTopic(request_id, new.topic, count, settings, columns)


def create_topic(log: Log, new: NewTopic, *, validate_only: bool) -> None:
    """Create a topic, or raise the reason why it could not be created.

    Raises:
        KafkaException: what `checked` raises, and ``TOPIC_ALREADY_EXISTS``.
    """
    command = checked(new, log.ids.token())
    if not validate_only:
        newcolumns.create_topic(log, command)
        return
    log.refresh()
    if log.topic(new.topic) is not None:
        raise CommandRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {new.topic!r} already exists")


def delete_topic(log: Log, name: str) -> None:
    """Delete a topic with all its records."""
    log.refresh()
    topic = changeable_topic(log, name)
    log.submit([DeleteTopic(log.ids.token(), name, topic.topic_id)])


def create_partitions(log: Log, new: NewPartitions, *, validate_only: bool) -> None:
    """Add empty partitions.

    Raises:
        KafkaException: ``INVALID_PARTITIONS``: the count is not above the present one.
    """
    log.refresh()
    topic = changeable_topic(log, new.topic)
    if not topic.partition_count < new.new_total_count <= PARTITION_COUNT_MAX:
        reason = (
            f"topic {new.topic!r} has {counted(topic.partition_count, 'partition')}: expected a count above "
            "that and up to "
            f"{PARTITION_COUNT_MAX}, not {new.new_total_count}"
        )
        raise refusal(ErrorCode.INVALID_PARTITIONS, reason)
    if refused := refuse_partitions(topic):
        raise CommandRefused(refused.code, refused.reason)
    if not validate_only:
        command = CreatePartitions(log.ids.token(), new.topic, topic.topic_id, new.new_total_count)
        log.submit([command])


def add_columns(log: Log, name: str, schema: pa.Schema, *, validate_only: bool) -> None:
    """Add nullable columns to a typed topic; those that it has with the same type are left as they are.

    Raises:
        KafkaException: ``INVALID_CONFIG``, ``UNKNOWN_TOPIC_OR_PARTITION``.
    """
    try:
        newcolumns.add_columns(log, name, check_schema(schema), validate_only=validate_only)
    except ConfigurationError as error:
        raise refusal(ErrorCode.INVALID_CONFIG, str(error)) from None


def describe_topic(log: Log, uri: str, name: str, *, operations: bool) -> TopicDescription:
    """Return a topic as last known; with `operations` its description has what a program may do with it."""
    topic = existing_topic(log, name)
    node = node_of(uri)
    partitions = [TopicPartitionInfo(number, node, [node], [node]) for number in range(topic.partition_count)]
    authorized = list(TOPIC_OPERATIONS) if operations else None
    return TopicDescription(name, topic.topic_id, topic.is_internal, partitions, topic.schema, authorized)
