"""confluent-kafka's functions that choose a partition by a key, as the partitioners of the same names do."""

from __future__ import annotations

from sparktxn.stage.partitioner import Partitioner, partitioner
from sparktxn.values import arguments

__all__ = ["consistent", "fnv1a", "murmur2"]


def murmur2(key: bytes, partition_count: int) -> int:
    """Return the partition of `key` by Kafka's murmur2, as Java's producers choose it.

    >>> murmur2(b"abc", 7)
    4

    Raises:
        TypeError: the key is not bytes, or the count is not a whole number.
        ConfigurationError: the count is below 1.
    """
    return _partition(partitioner("murmur2"), key, partition_count)


def consistent(key: bytes, partition_count: int) -> int:
    """Return the partition of `key` by CRC32, as librdkafka chooses it by default; raises as `murmur2`.

    >>> consistent(b"abc", 7)
    5
    """
    return _partition(partitioner("consistent"), key, partition_count)


def fnv1a(key: bytes, partition_count: int) -> int:
    """Return the partition of `key` by FNV-1a, as Sarama chooses it; raises as `murmur2`.

    >>> fnv1a(b"abc", 7)
    5
    """
    return _partition(partitioner("fnv1a"), key, partition_count)


def _partition(choose: Partitioner, key: object, partition_count: object) -> int:
    count = arguments.integer("partition_count", partition_count, 1, arguments.INT32_MAX)
    return choose(arguments.bytes_like("key", key), count, lambda _: 0)
