"""The topics that a producer has written to, as the log knew them when they were looked up."""

from __future__ import annotations

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
from sparktxn.values.structs import TopicState

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["Topics", "too_large", "without_key"]

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
        except (OutcomeUnknown, StoreUnavailable) as error:
            # What has changed is noticed by the next look, or refused by the log.
            log_event("topics_not_refreshed", error=error)

    def find(self, log: Log, name: str) -> TopicBuffer:
        """Return a topic by its name.

        Raises:
            KafkaException: _UNKNOWN_TOPIC, which names the call that creates one; INVALID_TOPIC, it is internal.
        """
        known = self._known.get(name)
        if known is not None:
            return known.buffer
        state = log.changeable_topic(name)
        if state is None:
            _refresh(log)
            state = log.topic(name)
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

    def find_for_records(self, log: Log, name: str) -> TopicBuffer:
        """Return a topic that takes produce()'s records.

        Raises:
            KafkaException: _UNKNOWN_TOPIC.
            ConfigurationError: the topic has declared columns.
        """
        topic = self.find(log, name)
        if topic.stage.schema is not None:
            columns = ", ".join(column[0] for column in topic.stage.schema)
            raise ConfigurationError(
                f"topic {name!r} has declared columns ({columns}): write to it with produce_arrow(topic, batch)"
            )
        return topic

    def find_wider(self, log: Log, name: str, partition: int) -> TopicBuffer:
        """Return the topic with a partition that it lacked when it was resolved.

        Raises:
            KafkaException: _UNKNOWN_PARTITION, it has not been given one since.
        """
        _refresh(log)
        self.forget_changed(log)
        topic = self.find(log, name)
        if partition >= topic.partition_count:
            reason = f"partition {partition} of topic {name!r} does not exist: it has 0 to {topic.partition_count - 1}"
            raise KafkaException(KafkaError(ErrorCode.LOCAL_UNKNOWN_PARTITION, reason))
        return topic


def _refresh(log: Log) -> None:
    with log.within(log.settings.request_timeout_ms / 1000):
        log.refresh()


def too_large(topic: TopicBuffer, size: int) -> KafkaException:
    """Return the refusal of a record of `size` bytes."""
    advice = (
        "that is what one request can store: send smaller records"
        if topic.size_max == RECORD_BYTES_MAX
        else f"raise message.max.bytes of the producer and max.message.bytes of topic {topic.stage.name!r}"
    )
    reason = f"a record of {size} bytes is larger than {topic.size_max}: {advice}"
    return KafkaException(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, reason))
