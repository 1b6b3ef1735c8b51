"""Records of the whole state at one entry, for what lists them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparktxn.log.follow.tail import Tail
from sparktxn.log.views.known import topics_of
from sparktxn.state.internal import INTERNAL_TOPIC_IDS, partition_at
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import PartitionState, StateRecord, TopicState

__all__ = ["Snapshot", "take_snapshot"]


class Snapshot(Struct, frozen=True):
    """The topics, their partitions by (topic id, partition), and the records that were asked for, at `entry`.

    Internal topics are among them.
    """

    entry: int
    timestamp_ms: int
    topics: dict[int, TopicState]
    partitions: dict[TopicIdPartition, PartitionState]
    records: tuple[StateRecord, ...]


def take_snapshot(tail: Tail, prefixes: Sequence[str]) -> Snapshot:
    """Return the state of a replica, with the records of the parts whose names start with one of `prefixes`."""
    parts = [part for prefix in prefixes for part in tail.parts.names(prefix)]
    tail.load(parts)
    records = [record for part in parts for record in tail.parts.part(part).values() if record is not None]
    by_id = {topic.topic_id: topic for topic in topics_of(tail)} | INTERNAL_TOPIC_IDS
    partitions = {
        (topic_id, number): state
        for topic_id, topic in by_id.items()
        for number in range(topic.partition_count)
        if (state := partition_at(tail.parts.get, tail.entry, topic_id, number)) is not None
    }
    return Snapshot(tail.entry, tail.timestamp_ms, by_id, partitions, tuple(records))
