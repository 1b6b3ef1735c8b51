"""Topics: creating, altering, deleting, and moving the log start.

A command that changes which partitions exist divides them anew among the groups that subscribe to the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from sparktxn._engine.format.commands import (
    AlterTopic,
    CommandResult,
    CreatePartitions,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
)
from sparktxn._engine.format.names import check_topic_name
from sparktxn._engine.format.schema import check_columns
from sparktxn._engine.state import keyed
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.groups.reconciliation import rebalance_subscribers
from sparktxn._engine.state.internal import colliding_name, collision_key, refuse_change
from sparktxn._engine.state.limits import PARTITION_COUNT_MAX
from sparktxn._engine.state.requests import remember, remembered
from sparktxn._engine.state.settings import changed, check_values, unpublishable
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import PartitionSegments, PartitionState, TopicName, TopicState
from sparktxn.errors import ConfigurationError, ErrorCode

HIGH_WATERMARK: Final = -1
"""The offset that means "all records" in delete_records, as in Kafka's DeleteRecords."""


def _check_settings(
    name: str, settings: Mapping[str, str | None], *, typed: bool, has_key: bool = False
) -> Refusal | None:
    """Refuse a setting that would make the topic unreadable, or that means nothing for a topic with columns."""
    if typed and not has_key and "compact" in (settings.get("cleanup.policy") or ""):
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            f"topic {name!r} has declared columns and no key (primary.key), and cannot be compacted: set "
            "cleanup.policy to delete",
        )
    return check_values(f"topic {name!r}", settings)


def _refused_columns(name: str, check: Callable[..., None], *columns: Any) -> Refusal | None:
    """Refuse a schema that no reader would take."""
    try:
        check(*columns)
    except ConfigurationError as error:
        return Refusal(ErrorCode.INVALID_CONFIG, f"the schema of topic {name!r}: {error.error.str()}")
    return None


def _add_partitions(delta: Delta, topic_id: int, first: int, end: int, *, has_key: bool = False) -> None:
    for partition in range(first, end):
        delta.put(PartitionState(topic_id, partition, keyed=True if has_key else UNSET))
        delta.put(PartitionSegments(topic_id, partition))


def _known_topic(delta: Delta, name: str, topic_id: int) -> TopicState | Refusal:
    topic: TopicState | None = delta.get(("topic", name))
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    if topic.topic_id != topic_id:
        return Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {name!r} has been deleted and created again: its id is {topic.topic_id}, not {topic_id}",
        )
    return topic


def check_new_name(name: str) -> str:
    """Return the name of a topic that is to be created, or changed.

    Raises:
        ConfigurationError: Kafka would not take it.
        KafkaException: ``INVALID_TOPIC``: the topic is internal.
    """
    refuse_change(check_topic_name(name))
    return name


def create_topic(delta: Delta, command: CreateTopic, context: Context) -> CommandResult | Refusal:
    """Add a topic and its partitions; the id is the store's next one."""
    if known := remembered(delta, context, command.request_id):
        return known
    try:
        check_topic_name(command.name)
    except ConfigurationError as error:
        return Refusal(ErrorCode.INVALID_TOPIC, str(error))
    taken = colliding_name(delta.get, command.name)
    if taken == command.name:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {taken!r} already exists")
    if taken is not None:
        return Refusal(ErrorCode.INVALID_TOPIC, f"topic {command.name!r} collides with the existing topic {taken!r}")
    if not 1 <= command.partition_count <= PARTITION_COUNT_MAX:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {command.name!r} would have {command.partition_count} partitions: "
            f"expected 1 to {PARTITION_COUNT_MAX}",
        )
    has_key = keyed.has_key(command.settings)
    if refusal := _check_settings(command.name, command.settings, typed=command.schema is not None, has_key=has_key):
        return refusal
    if refusal := unpublishable(command.name, command.settings, delta.store()):
        return refusal
    if refusal := keyed.refuse_created(command, delta.store()):
        return refusal
    schema = command.schema
    if schema is not None and (
        refusal := _refused_columns(command.name, keyed.check_stored_columns, schema, command.settings)
    ):
        return refusal
    store = delta.store()
    topic_id = store.next_topic_id
    delta.put(replace(store, next_topic_id=topic_id + 1))
    delta.put(TopicName(collision_key(command.name), command.name))
    delta.put(
        TopicState(command.name, topic_id, command.partition_count, command.settings, command.schema, context.entry)
    )
    _add_partitions(delta, topic_id, 0, command.partition_count, has_key=has_key)
    rebalance_subscribers(delta, context, command.name)
    return remember(delta, context, command.request_id, CommandResult(topic_id=topic_id))


def alter_topic(delta: Delta, command: AlterTopic, context: Context) -> CommandResult | Refusal:
    """Set settings and add nullable columns; a column that exists already is refused."""
    if known := remembered(delta, context, command.request_id):
        return known
    topic = _known_topic(delta, command.name, command.topic_id)
    if isinstance(topic, Refusal):
        return topic
    typed, has_key = topic.schema is not None, keyed.is_keyed(topic)
    if refusal := _check_settings(command.name, command.settings, typed=typed, has_key=has_key):
        return refusal
    if refusal := unpublishable(topic.name, changed(topic.settings, command.settings), delta.store()):
        return refusal
    if refusal := keyed.refuse_altered(topic, changed(topic.settings, command.settings)):
        return refusal
    schema = topic.schema
    if command.new_columns:
        if schema is None:
            return Refusal(ErrorCode.INVALID_CONFIG, f"topic {command.name!r} has Kafka's record: it takes no columns")
        for name, _, nullable in command.new_columns:
            if not nullable:
                why = "must be nullable: older records do not have it"
                return Refusal(ErrorCode.INVALID_CONFIG, f"column {name!r} of topic {command.name!r} {why}")
        if refusal := _refused_columns(command.name, check_columns, command.new_columns, schema):
            return refusal
        schema = (*schema, *command.new_columns)
    delta.put(replace(topic, settings=changed(topic.settings, command.settings), schema=schema))
    return remember(delta, context, command.request_id, CommandResult(topic_id=topic.topic_id))


def create_partitions(delta: Delta, command: CreatePartitions, context: Context) -> CommandResult | Refusal:
    """Add empty partitions at the end."""
    if known := remembered(delta, context, command.request_id):
        return known
    topic = _known_topic(delta, command.name, command.topic_id)
    if isinstance(topic, Refusal):
        return topic
    if not topic.partition_count < command.partition_count <= PARTITION_COUNT_MAX:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {command.name!r} has {counted(topic.partition_count, 'partition')}: expected a count "
            "above that and up to "
            f"{PARTITION_COUNT_MAX}, not {command.partition_count}",
        )
    if refusal := keyed.refuse_partitions(topic):
        return refusal
    _add_partitions(delta, topic.topic_id, topic.partition_count, command.partition_count)
    delta.put(replace(topic, partition_count=command.partition_count))
    rebalance_subscribers(delta, context, topic.name)
    return remember(delta, context, command.request_id, CommandResult(topic_id=topic.topic_id))


def delete_topic(delta: Delta, command: DeleteTopic, context: Context) -> CommandResult | Refusal:
    """Remove a topic and its partitions; open transactions simply lose them (K55)."""
    if known := remembered(delta, context, command.request_id):
        return known
    topic = _known_topic(delta, command.name, command.topic_id)
    if isinstance(topic, Refusal):
        return topic
    for partition in range(topic.partition_count):
        delta.remove(("partition", topic.topic_id, partition))
        delta.remove(("segments", topic.topic_id, partition))
    delta.remove(("topic_name", collision_key(topic.name)))
    delta.remove(topic.key)
    rebalance_subscribers(delta, context, topic.name, topic.topic_id)
    return remember(delta, context, command.request_id, CommandResult(topic_id=topic.topic_id))


def delete_records(delta: Delta, command: DeleteRecords, context: Context) -> CommandResult | Refusal:
    """Move the log start up to `before_offset`; what lies wholly below it is no longer named."""
    partition: PartitionState | None = delta.get(("partition", command.topic_id, command.partition))
    if known := remembered(delta, context, command.request_id):
        return known if partition is None else replace(known, base_offset=partition.log_start_offset)
    if partition is None:
        where = f"partition {command.partition} of topic id {command.topic_id}"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{where} does not exist")
    end = partition.log_end_offset
    before = end if command.before_offset == HIGH_WATERMARK else command.before_offset
    if not 0 <= before <= end:
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {before} to delete before is not within 0 to {end}")
    if refusal := keyed.refuse_deleted_records(partition):
        return refusal
    if before > partition.log_start_offset:
        delta.put(replace(partition, log_start_offset=before))
        located: PartitionSegments = delta.get(("segments", command.topic_id, command.partition))
        delta.put(
            replace(
                located,
                sealed=tuple(run for run in located.sealed if run.end_offset > before),
                segments=tuple(segment for segment in located.segments if segment.end_offset > before),
                aborted=tuple(aborted for aborted in located.aborted if aborted.last_offset >= before),
                committed=tuple(committed for committed in located.committed if committed.last_offset >= before),
                rewritten=tuple(rewritten for rewritten in located.rewritten if rewritten.end_offset > before),
            )
        )
    return remember(
        delta, context, command.request_id, CommandResult(base_offset=max(before, partition.log_start_offset))
    )
