"""What a caller expects of the ends of partitions, checked and named by topic ids."""

from __future__ import annotations

from collections.abc import Mapping

from sparktxn.errors import CommandRefused, ErrorCode
from sparktxn.log.log import Log
from sparktxn.values import arguments
from sparktxn.values.fieldtypes import TopicPartitionKey
from sparktxn.values.structs import TopicState

__all__ = ["expectations"]


def expectations(log: Log, expect: Mapping[TopicPartitionKey, int] | None) -> tuple[tuple[int, int, int], ...]:
    """Return argument `expect`, log end offsets by (topic, partition), as (topic id, partition, log end offset) each.

    Raises:
        TypeError: it is not a mapping with such keys and values.
        ConfigurationError: a number is out of range.
        CommandRefused: UNKNOWN_TOPIC_OR_PARTITION.
        KafkaException: INVALID_TOPIC, a topic is internal.
    """
    if expect is None:
        return ()
    found = []
    for key, end in arguments.instance("expect", expect, Mapping, "a dict of log end offsets").items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(f"a key of expect is {arguments.described(key)}: expected (topic, partition)")
        name = arguments.identifier("a topic in expect", key[0])
        partition = arguments.integer("a partition in expect", key[1], 0, arguments.INT32_MAX)
        log_end_offset = arguments.integer(f"expect[{name!r}, {partition}]", end, 0)
        found.append((_topic(log, name, partition).topic_id, partition, log_end_offset))
    return tuple(found)


def _topic(log: Log, name: str, partition: int) -> TopicState:
    def existing() -> TopicState:
        topic = log.changeable_topic(name)
        if topic is None or partition >= topic.partition_count:
            reason = f"expect names topic {name!r}, partition {partition}, which does not exist"
            raise CommandRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        return topic

    return log.decide(existing)
