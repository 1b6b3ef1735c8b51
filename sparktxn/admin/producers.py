"""Producers of a partition, as its log knows them (KIP-664)."""

from __future__ import annotations

from msgspec import Struct

from sparktxn.admin.topics import existing_topic, refusal
from sparktxn.errors import ErrorCode
from sparktxn.kafka.message import TopicPartition
from sparktxn.log.log import Log

__all__ = ["PartitionProducerState", "ProducerState", "describe_producers"]


class ProducerState(Struct, frozen=True):
    """A producer in a partition. `coordinator_epoch` is the entry that last ended a transaction of it, -1 for none.

    `current_transaction_start_offset` is None while it has no open transaction there.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int | None


class PartitionProducerState(Struct, frozen=True):
    """The producers of a partition that have not expired, by producer id."""

    active_producers: list[ProducerState]


def describe_producers(log: Log, partition: TopicPartition) -> PartitionProducerState:
    """Return a partition's producers as last known (K124).

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``.
    """
    topic = existing_topic(log, partition.topic)
    if not 0 <= partition.partition < topic.partition_count:
        reason = f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, not {partition.partition}"
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    found = log.producers(topic.topic_id, partition.partition)
    return PartitionProducerState(
        [
            ProducerState(
                known.producer_id,
                known.producer_epoch,
                known.last_sequence,
                known.timestamp_ms,
                known.coordinator_epoch,
                None if known.current_transaction_first_offset < 0 else known.current_transaction_first_offset,
            )
            for known in found
        ]
    )
