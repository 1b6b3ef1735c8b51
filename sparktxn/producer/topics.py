"""The topics that a producer has written to, as the log knew them when they were looked up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from sparktxn.errors import (
    ConfigurationError,
    ErrorCode,
    KafkaError,
    KafkaException,
    OutcomeUnknown,
    StoreUnavailable,
    did_you_mean,
)
from sparktxn.kafka.settings.producer import ProducerSettings
from sparktxn.process.events import log_event
from sparktxn.producer.partitionchoice import PartitionChoice
from sparktxn.stage.buffers import TopicBuffer
from sparktxn.stage.columnconversion import without_key
from sparktxn.stage.stagedsegment import StageTopic
from sparktxn.stage.uploading import RECORD_BYTES_MAX
from sparktxn.values.fieldtypes import Result
from sparktxn.values.structs import TopicState

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["Topics", "check_partition", "too_large"]


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
