"""Which partition a record without an explicit one goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparktxn.process.clock import Ids
from sparktxn.stage.partitioner import partitioner, partitions_of_keys

if TYPE_CHECKING:
    from sparktxn.stage.buffers import TopicBuffer

__all__ = ["PartitionChoice"]


class PartitionChoice:
    """librdkafka's partitioner of one producer.

    Where it would choose at random, records stay in one partition until its segment is sent off, then go to the next.
    This makes fewer, larger segments (sticky partitioning, KIP-480).
    """

    __slots__ = ("_choose", "_first", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._choose = partitioner(name)
        self._first = 0

    def seed(self, ids: Ids) -> None:
        """Let producers begin in different partitions."""
        self._first = int(ids.token()[:8], 32)

    def prepare(self, topic: TopicBuffer) -> None:
        """Choose the partition that takes the topic's first records without a key."""
        topic.shared.sticky = self._first % topic.partition_count

    def partition(self, topic: TopicBuffer, key: bytes | None) -> int:
        """Return the partition of a record with this key."""
        return self._choose(key, topic.partition_count, lambda _: topic.shared.sticky)

    def column(self, topic: TopicBuffer, keys: pa.Array) -> pa.Array:
        """Return the partitions of rows with these keys."""
        if keys.null_count == len(keys) or topic.partition_count == 1:
            return pa.repeat(pa.scalar(self.partition(topic, None), pa.int32()), len(keys))
        return partitions_of_keys(self._name, keys, topic.partition_count, lambda _: topic.shared.sticky)
