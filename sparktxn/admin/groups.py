"""Consumer groups: here, the offsets that were committed under a name."""

from __future__ import annotations

from sparktxn.admin.topics import existing_topic, refusal
from sparktxn.clock import Deadline
from sparktxn.errors import ErrorCode, KafkaError
from sparktxn.format.commands import DeleteGroup, OffsetCommit, OffsetToCommit
from sparktxn.kafka.admin import ConsumerGroupDescription, ConsumerGroupState, ConsumerGroupTopicPartitions, node_of
from sparktxn.kafka.message import TopicPartition, topic_partitions
from sparktxn.log.log import Log
from sparktxn.state.internal import INTERNAL_TOPICS

__all__ = ["alter_group_offsets", "delete_group", "describe_group", "group_offsets"]


def describe_group(log: Log, uri: str, group_id: str) -> ConsumerGroupDescription:
    """A group as last known.

    Raises:
        KafkaException: ``GROUP_ID_NOT_FOUND``: it has committed nothing.
    """
    if not log.group_offsets(group_id) and not log.group_pending_offsets(group_id):
        raise refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} has committed no offsets")
    return ConsumerGroupDescription(group_id, ConsumerGroupState.EMPTY, node_of(uri))


def group_offsets(
    log: Log, asked: ConsumerGroupTopicPartitions, *, require_stable: bool
) -> ConsumerGroupTopicPartitions:
    """A group's committed offsets, as last known.

    With `require_stable`, a partition whose offset is in an open transaction gets the error ``UNSTABLE_OFFSET_COMMIT``.
    """
    group_id = asked.group_id
    if asked.topic_partitions is not None:
        named = topic_partitions("topic_partitions", asked.topic_partitions)
        found = [_offset_of(log, group_id, partition, require_stable) for partition in named]
        return ConsumerGroupTopicPartitions(group_id, found)
    topic_names = {topic.topic_id: topic.name for topic in (*log.topics(), *INTERNAL_TOPICS.values())}
    partitions = [
        TopicPartition(topic_names[found.topic_id], found.partition)
        for found in log.group_offsets(group_id)
        if found.topic_id in topic_names
    ]
    answers = [_offset_of(log, group_id, partition, require_stable) for partition in sorted(partitions)]
    return ConsumerGroupTopicPartitions(group_id, answers)


def _offset_of(log: Log, group_id: str, partition: TopicPartition, require_stable: bool) -> TopicPartition:
    answer = TopicPartition(partition.topic, partition.partition)
    topic = log.topic(partition.topic)
    if topic is None or not 0 <= partition.partition < topic.partition_count:
        answer.error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
        return answer
    if require_stable and log.pending_offsets(group_id, topic.topic_id, partition.partition):
        reason = f"an open transaction holds group {group_id!r}'s offset for {partition}"
        answer.error = KafkaError(ErrorCode.UNSTABLE_OFFSET_COMMIT, reason, retriable=True)
        return answer
    found = log.committed_offset(group_id, topic.topic_id, partition.partition)
    if found is not None:
        answer.offset, answer.metadata = found.offset, found.metadata
        answer.leader_epoch = found.leader_epoch if found.leader_epoch >= 0 else None
    return answer


def alter_group_offsets(
    log: Log, wanted: ConsumerGroupTopicPartitions, deadline: Deadline
) -> ConsumerGroupTopicPartitions:
    """Sets a group's offsets, all or none.

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``; ``OFFSET_OUT_OF_RANGE``: an offset is below 0.
    """
    if not wanted.topic_partitions:
        raise refusal(ErrorCode.INVALID_REQUEST, f"no offsets are given for group {wanted.group_id!r}")
    partitions = topic_partitions("topic_partitions", wanted.topic_partitions)
    log.refresh(deadline)
    offsets = []
    for partition in partitions:
        topic = existing_topic(log, partition.topic)
        leader_epoch = -1 if partition.leader_epoch is None else partition.leader_epoch
        where = (topic.topic_id, partition.partition)
        offsets.append(OffsetToCommit(*where, partition.offset, partition.metadata, leader_epoch))
    log.submit([OffsetCommit(log.ids.token(), wanted.group_id, tuple(offsets))], deadline)
    return ConsumerGroupTopicPartitions(wanted.group_id, partitions)


def delete_group(log: Log, group_id: str, deadline: Deadline) -> None:
    """Forgets a group: its committed offsets, and those that wait for the end of a transaction (K109).

    Offsets that are committed while this runs make the group anew.

    Raises:
        KafkaException: ``GROUP_ID_NOT_FOUND``; ``INVALID_REQUEST``: the id is empty.
    """
    if not group_id:
        raise refusal(ErrorCode.INVALID_REQUEST, "the group id is empty")
    log.refresh(deadline)
    committed = [(known.topic_id, known.partition, known.entry) for known in log.group_offsets(group_id)]
    pending = [
        (known.topic_id, known.partition, pending.producer_id, pending.entry)
        for known in log.group_pending_offsets(group_id)
        for pending in known.offsets
    ]
    if not committed and not pending:
        raise refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} has committed no offsets")
    log.submit([DeleteGroup(log.ids.token(), group_id, tuple(committed), tuple(pending))], deadline)
