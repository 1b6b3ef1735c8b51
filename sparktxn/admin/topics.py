"""Topics: creating, deleting, growing, describing, and their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from sparktxn import arguments
from sparktxn.clock import Deadline
from sparktxn.config.topic import IGNORED_TOPIC_SETTINGS, TOPIC_SETTINGS, check_topic_settings
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode, KafkaError, KafkaException, did_you_mean
from sparktxn.format.commands import AlterTopic, CreatePartitions, CreateTopic, DeleteTopic
from sparktxn.format.names import check_topic_name
from sparktxn.format.schema import check_schema
from sparktxn.internaltopics import refuse_change
from sparktxn.kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
    TopicPartitionInfo,
    node_of,
)
from sparktxn.kafka.operations import TOPIC_OPERATIONS
from sparktxn.log.log import Log
from sparktxn.stage import newcolumns
from sparktxn.state.limits import PARTITION_COUNT_MAX
from sparktxn.structs import TopicState

__all__ = [
    "add_columns",
    "alter_configs",
    "changeable_topic",
    "checked",
    "create_partitions",
    "create_topic",
    "delete_topic",
    "describe_configs",
    "describe_topic",
    "existing_topic",
    "refusal",
    "replace_configs",
]

_DEFAULT_PARTITIONS: Final = 1


def refusal(code: ErrorCode, reason: str) -> KafkaException:
    """An exception with one of Kafka's codes."""
    return KafkaException(KafkaError(code, reason))


def changeable_topic(log: Log, name: str) -> TopicState:
    """A topic of the user's as last known.

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``; ``INVALID_TOPIC``: it is internal.
    """
    refuse_change(name)
    return existing_topic(log, name)


def existing_topic(log: Log, name: str) -> TopicState:
    """The topic as last known, internal ones too.

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``.
    """
    topic = log.topic(name)
    if topic is None:
        known = did_you_mean(name, [topic.name for topic in log.topics()])
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist{known}")
    return topic


def checked(new: NewTopic, request_id: str) -> CreateTopic:
    """The command that creates a topic; checks all that can be checked without the store.

    Raises:
        KafkaException: ``INVALID_TOPIC``, ``INVALID_PARTITIONS``, ``INVALID_CONFIG``.
    """
    check_topic_name(new.topic)
    refuse_change(new.topic)
    count = _DEFAULT_PARTITIONS if new.num_partitions == -1 else new.num_partitions
    if not 1 <= count <= PARTITION_COUNT_MAX:
        reason = f"topic {new.topic!r} would have {count} partitions: expected 1 to {PARTITION_COUNT_MAX}"
        raise refusal(ErrorCode.INVALID_PARTITIONS, reason)
    try:
        settings = check_topic_settings(new.config)
        columns = None if new.schema is None else check_schema(new.schema)
    except ConfigurationError as error:
        raise refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
    key = settings.get("partition.key")
    if key and (columns is None or key not in [name for name, _, _ in columns]):
        reason = f"setting 'partition.key' is {key!r}: expected one of the topic's declared columns"
        raise refusal(ErrorCode.INVALID_CONFIG, reason)
    return CreateTopic(request_id, new.topic, count, settings, columns)


def create_topic(log: Log, new: NewTopic, deadline: Deadline, *, validate_only: bool) -> None:
    """Create a topic, or raise the reason why it could not be created.

    Raises:
        KafkaException: what `checked` raises, and ``TOPIC_ALREADY_EXISTS``.
    """
    command = checked(new, log.ids.token())
    if not validate_only:
        log.submit([command], deadline)
        return
    log.refresh(deadline)
    if log.topic(new.topic) is not None:
        raise CommandRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {new.topic!r} already exists")


def delete_topic(log: Log, name: str, deadline: Deadline) -> None:
    """Deletes a topic with all its records."""
    log.refresh(deadline)
    topic = changeable_topic(log, name)
    log.submit([DeleteTopic(log.ids.token(), name, topic.topic_id)], deadline)


def create_partitions(log: Log, new: NewPartitions, deadline: Deadline, *, validate_only: bool) -> None:
    """Adds empty partitions.

    Raises:
        KafkaException: ``INVALID_PARTITIONS``: the count is not above the present one.
    """
    log.refresh(deadline)
    topic = changeable_topic(log, new.topic)
    if not topic.partition_count < new.new_total_count <= PARTITION_COUNT_MAX:
        reason = (
            f"topic {new.topic!r} has {topic.partition_count} partitions: expected a count above that and up to "
            f"{PARTITION_COUNT_MAX}, not {new.new_total_count}"
        )
        raise refusal(ErrorCode.INVALID_PARTITIONS, reason)
    if not validate_only:
        command = CreatePartitions(log.ids.token(), new.topic, topic.topic_id, new.new_total_count)
        log.submit([command], deadline)


def add_columns(log: Log, name: str, schema: pa.Schema, deadline: Deadline, *, validate_only: bool) -> None:
    """Add nullable columns to a typed topic; those that it has with the same type are left as they are.

    Raises:
        KafkaException: ``INVALID_CONFIG``, ``UNKNOWN_TOPIC_OR_PARTITION``.
    """
    refuse_change(name)
    try:
        newcolumns.add_columns(log, name, check_schema(schema), deadline, validate_only=validate_only)
    except ConfigurationError as error:
        raise refusal(ErrorCode.INVALID_CONFIG, str(error)) from None


def describe_topic(log: Log, uri: str, name: str, *, operations: bool) -> TopicDescription:
    """A topic as last known; with `operations` its description has what a program may do with it."""
    topic = existing_topic(log, name)
    node = node_of(uri)
    partitions = [TopicPartitionInfo(number, node, [node], [node]) for number in range(topic.partition_count)]
    authorized = list(TOPIC_OPERATIONS) if operations else None
    return TopicDescription(name, topic.topic_id, name.startswith("__"), partitions, topic.schema, authorized)


def _topic_of(resource: ConfigResource) -> str:
    if resource.restype is not ResourceType.TOPIC:
        raise refusal(ErrorCode.INVALID_REQUEST, f"{resource} has no settings here: expected ConfigResource.Type.TOPIC")
    return resource.name


def describe_configs(log: Log, resource: ConfigResource) -> dict[str, ConfigEntry]:
    """All settings of a topic, as last known, with their defaults."""
    topic = existing_topic(log, _topic_of(resource))
    entries = {}
    for setting in TOPIC_SETTINGS:
        given = setting.name in topic.settings
        entries[setting.name] = ConfigEntry(
            setting.name,
            topic.settings[setting.name] if given else str(setting.default),
            ConfigSource.DYNAMIC_TOPIC_CONFIG if given else ConfigSource.DEFAULT_CONFIG,
            is_default=not given,
        )
    for name in sorted(topic.settings.keys() & IGNORED_TOPIC_SETTINGS):
        entries[name] = ConfigEntry(name, topic.settings[name], ConfigSource.DYNAMIC_TOPIC_CONFIG, is_default=False)
    return entries


def alter_configs(log: Log, resource: ConfigResource, deadline: Deadline, *, validate_only: bool) -> None:
    """Sets and removes settings of a topic, all or none.

    Raises:
        KafkaException: ``INVALID_CONFIG``: a name or a value is wrong.
    """
    name = _topic_of(resource)
    log.refresh(deadline)
    topic = changeable_topic(log, name)
    changes = _changes(resource.incremental_configs)
    if not validate_only:
        log.submit([AlterTopic(log.ids.token(), name, topic.topic_id, changes)], deadline)


def replace_configs(log: Log, resource: ConfigResource, deadline: Deadline, *, validate_only: bool) -> None:
    """Give a topic the settings of `set_config` alone: its other settings return to their defaults.

    Raises:
        KafkaException: ``INVALID_CONFIG``: a name or a value is wrong.
    """
    name = _topic_of(resource)
    log.refresh(deadline)
    topic = changeable_topic(log, name)
    try:
        wanted = check_topic_settings(resource.set_config_dict)
    except ConfigurationError as error:
        raise refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
    changes: dict[str, str | None] = {**dict.fromkeys(topic.settings), **wanted}
    if changes and not validate_only:
        log.submit([AlterTopic(log.ids.token(), name, topic.topic_id, changes)], deadline)


def _changes(entries: Sequence[ConfigEntry]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    if not entries:
        raise refusal(ErrorCode.INVALID_REQUEST, "no setting is given: pass incremental_configs=[ConfigEntry(…)]")
    for entry in arguments.items("incremental_configs", entries, ConfigEntry):
        operation = entry.incremental_operation
        try:
            if operation is AlterConfigOpType.SET:
                changes |= check_topic_settings({entry.name: entry.value})
            elif operation is AlterConfigOpType.DELETE:
                if entry.name not in IGNORED_TOPIC_SETTINGS:
                    check_topic_settings({entry.name: _default_of(entry.name)})
                changes[entry.name] = None
            else:
                reason = f"incremental_operation is {operation!r} for {entry}: expected AlterConfigOpType.SET or DELETE"
                raise refusal(ErrorCode.INVALID_REQUEST, reason)
        except ConfigurationError as error:
            raise refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
    return changes


def _default_of(name: str) -> object:
    return next((setting.default for setting in TOPIC_SETTINGS if setting.name == name), None)
