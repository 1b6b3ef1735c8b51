"""What clients hand to users, in confluent-kafka's shapes: messages, partitions with offsets, group metadata."""

from __future__ import annotations

from collections.abc import Sized
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct, StructMeta, ValidationError, convert
from msgspec.structs import force_setattr

from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import Int64, Natural
from sparktxn.errors import KafkaError

OFFSET_BEGINNING: Final = -2
OFFSET_END: Final = -1
OFFSET_STORED: Final = -1000
OFFSET_INVALID: Final = -1001

TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2

Headers = list[tuple[str, bytes | None]]


class IsolationLevel(IntEnum):
    """Which records a reader sees (Kafka's ids)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class _MessageType(type):
    """Makes messages with the keywords of confluent-kafka: ``Message(topic="t", value=b"x")``."""

    def __call__(
        cls,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Headers | None = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] | None = None,
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> Message:
        kind, time_ms = (TIMESTAMP_NOT_AVAILABLE, 0) if timestamp is None else _checked_timestamp(timestamp)
        fields = (topic, partition, offset, key, value, headers, kind, time_ms, error, leader_epoch, latency)
        return ErrorMessage(*fields)


def _checked_timestamp(timestamp: object) -> tuple[int, int]:
    if isinstance(timestamp, tuple) and len(timestamp) == 2 and all(isinstance(number, int) for number in timestamp):
        return timestamp
    raise TypeError(f"timestamp is {arguments.described(timestamp)}: expected a tuple (type, milliseconds)")


class Message(metaclass=_MessageType):
    """One record, or an error where one would be (`error()` is then not None).

    Clients make their messages themselves. Tests of programs make others, with the keywords of confluent-kafka:
    nothing that they give is copied, and only `timestamp` is checked. `delivery_count` means nothing here.
    """

    if not TYPE_CHECKING:
        __slots__ = ()
    else:
        _topic: str | None
        _partition: int | None
        _offset: int | None
        _key: bytes | None
        _value: bytes | None
        _headers: Headers | None
        _timestamp_type: int
        _timestamp_ms: int
        _error: KafkaError | None
        _leader_epoch: int | None
        _latency_s: float | None

        def __init__(
            self,
            topic: str | None = None,
            partition: int | None = None,
            offset: int | None = None,
            key: Any = None,
            value: Any = None,
            headers: Headers | None = None,
            error: KafkaError | None = None,
            timestamp: tuple[int, int] | None = None,
            latency: float | None = None,
            leader_epoch: int | None = None,
            delivery_count: int | None = None,
        ) -> None: ...

    def __class_getitem__(cls, _: object) -> type[Message]:
        """Return the class: the types of key and value are for type checkers."""
        return cls

    def topic(self) -> str | None:
        """Return the topic's name."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition's number."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset; None while it is not known."""
        return self._offset

    def key(self) -> bytes | None:
        """Return the key's bytes."""
        return self._key

    def value(self) -> bytes | None:
        """Return the value's bytes, or None (a tombstone)."""
        return self._value

    def headers(self) -> Headers | None:
        """Return the headers in order, as (name, bytes or None); None if there are none."""
        return self._headers

    def error(self) -> KafkaError | None:
        """Return the error that stands in this message's place, or None."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return (TIMESTAMP_CREATE_TIME or TIMESTAMP_LOG_APPEND_TIME, milliseconds since the epoch)."""
        return (self._timestamp_type, self._timestamp_ms)

    def latency(self) -> float | None:
        """Return seconds from `produce()` to the delivery report; None for a consumed message."""
        return self._latency_s

    def leader_epoch(self) -> int | None:
        """Return None, always: a partition has no leaders."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """Return None, always: there are no share groups."""
        return None

    def deserialized_key(self) -> Any:
        """Return the key as a deserializer has left it; without one, its bytes."""
        return self._key

    def deserialized_value(self) -> Any:
        """Return the value as a deserializer has left it; without one, its bytes."""
        return self._value

    def set_topic(self, topic: str | None) -> None:
        """Replace the topic's name in this object."""
        self._topic = topic

    def set_key(self, key: Any) -> None:
        """Replace the key in this object, for deserializers."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value in this object, for deserializers."""
        self._value = value

    def set_headers(self, headers: Headers | None) -> None:
        """Replace the headers in this object, for deserializers."""
        self._headers = headers

    def set_error(self, error: KafkaError | None) -> None:
        """Replace the error in this object."""
        self._error = error

    def __repr__(self) -> str:
        """Return where the record is; of its key and value only how long they are: they are the application's."""
        sizes = [f"{name}={_shown(content)}" for name, content in (("key", self._key), ("value", self._value))]
        error = "" if self._error is None else f", error={self._error}"
        place = f"topic={self._topic!r}, partition={self._partition}, offset={self._offset}"
        return f"Message({place}, {', '.join(sizes)}{error})"

    def __len__(self) -> int:
        """Return the value's length in bytes; 0 for what a deserializer has made and has no length."""
        return len(self._value) if isinstance(self._value, Sized) else 0

    def __bool__(self) -> bool:
        """Always True: a message with an empty value is a message."""
        return True


def _shown(content: object) -> str:
    """Return how long `content` is, or its type if a deserializer has made it."""
    if isinstance(content, bytes):
        return counted(len(content), "byte")
    return "None" if content is None else type(content).__name__


class _ReadMessageType(StructMeta, _MessageType):
    """Leaves the making of clients' messages to msgspec: a consumer makes one for every record."""


class ReadMessage(Struct, Message, metaclass=_ReadMessageType, gc=False):
    """A message as clients make it, with positional arguments in the order of the fields."""

    __repr__ = Message.__repr__

    # The leading underscores leave the plain names to the methods, which are confluent-kafka's. Without `gc` a million
    # live messages cost the collector nothing: a message refers to no container that could refer back to it.
    _topic: str | None
    _partition: int | None
    _offset: int | None
    _key: bytes | None = None
    _value: bytes | None = None
    _headers: Headers | None = None
    _timestamp_type: int = TIMESTAMP_NOT_AVAILABLE
    _timestamp_ms: int = 0
    _error: KafkaError | None = None
    _leader_epoch: int | None = None
    _latency_s: float | None = None


class ErrorMessage(ReadMessage, gc=True):
    """A message that has, or may get, an error: when a program raises that, its traceback may refer to the message."""


class TopicPartition(arguments.Checked):
    """A partition, with an offset where one is meant. Equal and ordered by topic and partition alone.

    Every attribute is checked when it is set, also after the construction; numpy's integers become plain ones.

    Raises:
        TypeError: the topic or the metadata is not a str, or a number is not a whole one.
        ConfigurationError: a number does not fit into Kafka's field, or text cannot be stored as UTF-8. Partition and
            leader epoch have 32 bits, the offset 64.
    """

    __slots__ = ("error", "leader_epoch", "metadata", "offset", "partition", "topic")
    _checks: ClassVar = {
        "topic": lambda value: arguments.text("topic", value),
        "partition": lambda value: arguments.integer("partition", value, arguments.INT32_MIN, arguments.INT32_MAX),
        "offset": lambda value: arguments.integer("offset", value),
        "metadata": lambda value: arguments.text_or_none("metadata", value),
        "leader_epoch": lambda value: arguments.integer_or_none("leader_epoch", value, -1, arguments.INT32_MAX),
    }

    topic: str
    partition: int
    offset: int
    metadata: str | None
    leader_epoch: int | None
    error: KafkaError | None

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error = None

    def _place(self) -> TopicPartitionKey:
        return (self.topic, self.partition)

    def __eq__(self, other: object) -> bool:
        return self._place() == other._place() if isinstance(other, TopicPartition) else NotImplemented

    def __lt__(self, other: TopicPartition) -> bool:
        return self._place() < other._place() if isinstance(other, TopicPartition) else NotImplemented

    def __le__(self, other: TopicPartition) -> bool:
        return self._place() <= other._place() if isinstance(other, TopicPartition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._place())

    def __repr__(self) -> str:
        place = f"topic={self.topic},partition={self.partition},offset={self.offset},leader_epoch={self.leader_epoch}"
        return f"TopicPartition{{{place},error={self.error}}}"


def topic_partitions(name: str, given: object) -> list[TopicPartition]:
    """Return the partitions that a caller passes as the argument `name`.

    Raises:
        TypeError: `given` is not a list of TopicPartition.
    """
    return arguments.items(name, given, TopicPartition)


_StartedFrom = tuple[tuple[str, Natural, Int64, Natural], ...]


class ConsumerGroupMetadata(Struct, frozen=True):
    """A consumer's place in its group, for `Producer.send_offsets_to_transaction`: opaque, may be pickled.

    `owner` names the consumer, and `started_from` is (topic, partition, topic id, entry of the committed offset that it
    has started from) for each of its partitions.

    Raises:
        TypeError: an id is not a str, the generation is not a whole number, or `started_from` is anything else.
        ConfigurationError: an id is too long or not UTF-8, or the generation has more than 32 bits.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    owner: str = ""
    started_from: tuple[tuple[str, int, int, int], ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "group_id", arguments.identifier("group_id", self.group_id, may_be_empty=True))
        generation_id = arguments.integer("generation_id", self.generation_id, -1, arguments.INT32_MAX)
        force_setattr(self, "generation_id", generation_id)
        force_setattr(self, "member_id", arguments.identifier("member_id", self.member_id, may_be_empty=True))
        if self.group_instance_id is not None:
            instance_id = arguments.identifier("group_instance_id", self.group_instance_id)
            force_setattr(self, "group_instance_id", instance_id)
        force_setattr(self, "owner", arguments.identifier("owner", self.owner, may_be_empty=True))
        try:
            force_setattr(self, "started_from", convert(self.started_from, _StartedFrom))
        except (ValidationError, UnicodeEncodeError) as error:
            expected = "expected what Consumer.consumer_group_metadata() gives"
            raise TypeError(f"started_from is wrong: {error}: {expected}") from None
