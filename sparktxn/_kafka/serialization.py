"""What serializing clients share: the context that serializers get, and the errors of serializers."""

from __future__ import annotations

from typing import Any, Final

from sparktxn._kafka.message import Message
from sparktxn.errors import KafkaError, KafkaException

KEY: Final = "key"
VALUE: Final = "value"

_KEY_SERIALIZATION: Final = -162
_VALUE_SERIALIZATION: Final = -161
_KEY_DESERIALIZATION: Final = -160
_VALUE_DESERIALIZATION: Final = -159


class SerializationContext:
    """The second argument of a serializer: the topic, the field (``key`` or ``value``) and the record's headers."""

    def __init__(self, topic: str, field: str, headers: Any = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers

    def __repr__(self) -> str:
        return f"SerializationContext({self.topic!r}, {self.field!r})"


class SerializationError(Exception):
    """A serializer or a deserializer has failed."""


class _ClientError(KafkaException):
    """An error with what has caused it: `exception`, and the record in `kafka_message`; either may be None."""

    def __init__(
        self, kafka_error: KafkaError, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        super().__init__(kafka_error)
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def code(self) -> int:
        """The numeric code."""
        return self.error.code()

    @property
    def name(self) -> str:
        """The code's name."""
        return self.error.name()


class ConsumeError(_ClientError):
    """A record could not be read, or `DeserializingConsumer.poll` has met an error."""


class ProduceError(_ClientError):
    """A record could not be queued."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception)


class KeySerializationError(ProduceError, SerializationError):
    """The serializer of keys has failed: the record was not queued."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(_KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """The serializer of values has failed: the record was not queued."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(_VALUE_SERIALIZATION, str(exception)), exception)


class KeyDeserializationError(ConsumeError, SerializationError):
    """The deserializer of keys has failed: `kafka_message` holds the record's bytes."""

    def __init__(self, exception: Exception | None = None, kafka_message: Message | None = None) -> None:
        super().__init__(KafkaError(_KEY_DESERIALIZATION, str(exception)), exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """The deserializer of values has failed: `kafka_message` holds the record's bytes."""

    def __init__(self, exception: Exception | None = None, kafka_message: Message | None = None) -> None:
        super().__init__(KafkaError(_VALUE_DESERIALIZATION, str(exception)), exception, kafka_message)
