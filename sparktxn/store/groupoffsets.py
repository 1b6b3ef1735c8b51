"""The offsets of consumer groups, for engines that keep a group's progress: read by group, and made into commands."""

from __future__ import annotations

from collections.abc import Sequence

from sparktxn.errors import ConfigurationError, ErrorCode, KafkaError, KafkaException
from sparktxn.format.commands import OffsetToCommit
from sparktxn.kafka.groups import ConsumerGroupTopicPartitions
from sparktxn.kafka.message import TopicPartition, topic_partitions
from sparktxn.log.log import Log
from sparktxn.values import arguments

__all__ = ["committed_offsets", "offsets_to_commit"]


def committed_offsets(log: Log, group_id: str) -> ConsumerGroupTopicPartitions:
    """Return all offsets that a group has committed for existing partitions, as last known, by topic and partition."""
    topic_names = log.topic_names()
    found = [
        TopicPartition(
            topic_names[offset.topic_id],
            offset.partition,
            offset.offset,
            offset.metadata,
            offset.leader_epoch if offset.leader_epoch >= 0 else None,
        )
        for offset in log.group_offsets(group_id)
        if offset.topic_id in topic_names
    ]
    return ConsumerGroupTopicPartitions(group_id, sorted(found))


def offsets_to_commit(log: Log, given: object) -> tuple[str, tuple[OffsetToCommit, ...]]:
    """Return a group and its offsets as commands name them, after the caller has refreshed the log.

    Raises:
        TypeError: `given` is not a ConsumerGroupTopicPartitions.
        ConfigurationError: it names no group, no offset, or a partition twice.
        KafkaException: a partition does not exist (UNKNOWN_TOPIC_OR_PARTITION).
    """
    asked = arguments.instance("offsets", given, ConsumerGroupTopicPartitions)
    group_id = arguments.identifier("the group id of offsets", asked.group_id)
    partitions = topic_partitions("the topic_partitions of offsets", asked.topic_partitions or [])
    if not partitions:
        raise ConfigurationError(f"offsets name no partition for group {group_id!r}: expected at least one")
    if len(set(partitions)) < len(partitions):
        raise ConfigurationError(f"offsets name a partition twice for group {group_id!r}: expected each once")
    return group_id, tuple(_to_commit(log, partition) for partition in _sorted(partitions))


def _sorted(partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    return sorted(partitions, key=lambda partition: (partition.topic, partition.partition))


def _to_commit(log: Log, partition: TopicPartition) -> OffsetToCommit:
    topic = log.topic(partition.topic)
    if topic is None or not 0 <= partition.partition < topic.partition_count:
        reason = f"topic {partition.topic!r} does not exist or has no partition {partition.partition}"
        raise KafkaException(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason))
    leader_epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
    return OffsetToCommit(topic.topic_id, partition.partition, partition.offset, partition.metadata, leader_epoch)
