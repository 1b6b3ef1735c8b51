"""The offsets of consumer groups, for engines that keep a group's progress: read by group, and made into commands.

A broker takes any offset, also one below 0, such as -2 of a client that means "earliest". Consumers then go by their
``auto.offset.reset``, as if there were none. The log has no offsets below 0. So such a one is kept as `_NO_OFFSET`, an
offset that no partition has, with a leader epoch that says it: every consumer goes by its setting, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sparktxn._engine.format.commands import OffsetToCommit
from sparktxn._engine.log.log import Log
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import CommittedOffset
from sparktxn._kafka.groups import ConsumerGroupTopicPartitions
from sparktxn._kafka.message import TopicPartition, topic_partitions
from sparktxn.errors import ConfigurationError, ErrorCode, KafkaError, KafkaException

_NO_OFFSET: Final = 2**63 - 1
_NO_LEADER_EPOCH: Final = -1
_LEAST: Final = -(2**63) + 1


def any_offset_to_commit(
    topic_id: int, partition: int, offset: int, metadata: str, leader_epoch: int
) -> OffsetToCommit:
    """Return the command's form of an offset that a client of a broker commits, whatever it is."""
    if offset < 0:
        return OffsetToCommit(topic_id, partition, _NO_OFFSET, metadata, max(offset, _LEAST) - 1)
    return OffsetToCommit(topic_id, partition, offset, metadata, max(leader_epoch, _NO_LEADER_EPOCH))


class AnsweredOffset(NamedTuple):
    """A committed offset as it was given, and the leader epoch, which is -1 if there was none."""

    offset: int
    leader_epoch: int


def answered_offset(found: CommittedOffset) -> AnsweredOffset:
    """Return a committed offset as it was given."""
    if found.leader_epoch < _NO_LEADER_EPOCH:
        return AnsweredOffset(found.leader_epoch + 1, _NO_LEADER_EPOCH)
    return AnsweredOffset(found.offset, found.leader_epoch)


def committed_offsets(log: Log, group_id: str) -> ConsumerGroupTopicPartitions:
    """Return all offsets that a group has committed for existing partitions, as last known, by topic and partition.

    One below 0 is left out: the group starts there as if it had none.
    """
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
        if offset.topic_id in topic_names and answered_offset(offset).offset >= 0
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
