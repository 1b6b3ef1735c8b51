"""The topics that a producer has written to, as the log knew them, and the partition that a key belongs to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from sparktxn._foundation.process.clock import Ids
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import Result
from sparktxn._foundation.values.structs import TopicState
from sparktxn._kafka.settings.producer import ProducerSettings
from sparktxn._rows.stage.buffers import TopicBuffer
from sparktxn._rows.stage.columnconversion import without_key
from sparktxn._rows.stage.partitioner import Partitioner, partitioner, partitions_of_keys
from sparktxn._rows.stage.stagedsegment import StageTopic
from sparktxn._rows.stage.uploading import RECORD_BYTES_MAX
from sparktxn.errors import (
    ConfigurationError,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    StoreUnavailable,
    did_you_mean,
)

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log


# Which partition a record without an explicit one goes to.


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


_READ_TIMEOUT_S: Final = 1.0
"""How long a producer waits for the log, between transactions, to see which of its topics have changed."""


class _Known(NamedTuple):
    """A topic as it was looked up, and its buffer."""

    state: TopicState
    buffer: TopicBuffer


class Topics:
    """Topic buffers by name. What has changed in the log is forgotten, and looked up again when it is written to."""

    def __init__(self, settings: ProducerSettings, choice: PartitionChoice) -> None:
        self._settings = settings
        self._choice = choice
        self._known: dict[str, _Known] = {}
        self.on_replaced: Callable[[TopicBuffer], object] = lambda _: None
        """Called with the buffer of a topic that is looked up again: it may still hold records."""

    def of_records(self) -> dict[object, TopicBuffer]:
        """Return the known topics that take produce()'s records."""
        # A copy: a thread that produces to a new topic adds it meanwhile.
        return {name: known.buffer for name, known in list(self._known.items()) if known.state.schema is None}

    def forget_changed(self, log: Log) -> None:
        """Forget topics that were deleted, made again, or given other partitions, settings or columns.

        Keep all of them if the log is busy with a store that does not answer.
        """
        try:
            with log.within(_READ_TIMEOUT_S):
                for name, known in list(self._known.items()):
                    if log.topic(name) != known.state and self._known.get(name) is known:
                        self._known.pop(name, None)
                        self.on_replaced(known.buffer)
        except (OutcomeUnknown, StoreUnavailable) as error:
            # What has changed is noticed by the next look, or refused by the log.
            log_event("topics_not_refreshed", error=error)

    def decide(self, log: Log, name: str, by_topic: Callable[[TopicBuffer], Result]) -> Result:
        """Return what `by_topic` makes of a topic as last known; where it refuses, of the topic as the log has it now.

        Raises:
            KafkaException: the refusal; _UNKNOWN_TOPIC, which names the call that creates one; INVALID_TOPIC, it is
                internal.
        """
        return log.decide(lambda: by_topic(self._find(log, name)), partial(self.forget_changed, log))

    def find(self, log: Log, name: str, *, has_key: bool = True, size: int = 0, partition: int = -1) -> TopicBuffer:
        """Return a topic that takes a record of produce(), of `size` bytes, for the partition; below 0 for any.

        Raises:
            KafkaException: as `decide`; _UNKNOWN_PARTITION, INVALID_RECORD, MSG_SIZE_TOO_LARGE.
            ConfigurationError: the topic has declared columns.
        """
        return self.decide(log, name, partial(_checked, has_key=has_key, size=size, partition=partition))

    def _find(self, log: Log, name: str) -> TopicBuffer:
        known = self._known.get(name)
        if known is not None:
            return known.buffer
        state = log.changeable_topic(name)
        if state is None:
            names = [topic.name for topic in log.topics()]
            reason = (
                f"topic {name!r} does not exist in {log.objects.uri}{did_you_mean(name, names) or '.'} "
                "Topics are created with AdminClient.create_topics([NewTopic(...)])"
            )
            raise KafkaException(KafkaError(ErrorCode.LOCAL_UNKNOWN_TOPIC, reason))
        topic = TopicBuffer(StageTopic.of(state), self._settings.message_bytes_max)
        self._choice.prepare(topic)
        self._known[name] = _Known(state, topic)
        return topic


def check_partition(topic: TopicBuffer, partition: int) -> None:
    """Pass if the topic has the partition, or it is below 0.

    Raises:
        KafkaException: _UNKNOWN_PARTITION.
    """
    if partition >= topic.partition_count:
        last = topic.partition_count - 1
        reason = f"partition {partition} of topic {topic.stage.name!r} does not exist: it has 0 to {last}"
        raise KafkaException(KafkaError(ErrorCode.LOCAL_UNKNOWN_PARTITION, reason))


def _checked(topic: TopicBuffer, *, has_key: bool, size: int, partition: int) -> TopicBuffer:
    name, schema = topic.stage.name, topic.stage.schema
    if schema is not None:
        columns = ", ".join(column[0] for column in schema)
        raise ConfigurationError(
            f"topic {name!r} has declared columns ({columns}): write to it with produce_arrow(topic, batch)"
        )
    if topic.requires_key and not has_key:
        raise without_key(name)
    if size > topic.size_max:
        raise too_large(topic, size)
    check_partition(topic, partition)
    return topic


def too_large(topic: TopicBuffer, size: int) -> KafkaException:
    """Return the refusal of a record of `size` bytes."""
    advice = (
        "that is what one request can store: send smaller records"
        if topic.size_max == RECORD_BYTES_MAX
        else f"raise message.max.bytes of the producer and max.message.bytes of topic {topic.stage.name!r}"
    )
    reason = f"a record of {size} bytes is larger than {topic.size_max}: {advice}"
    return KafkaException(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, reason))


# confluent-kafka's functions that choose a partition by a key, as the partitioners of the same names do.


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
