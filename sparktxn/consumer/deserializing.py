"""`DeserializingConsumer`: a consumer that calls confluent-kafka's deserializers, or any function of their shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparktxn._foundation.values import arguments
from sparktxn._kafka.message import Message
from sparktxn._kafka.serialization import (
    KEY,
    VALUE,
    ConsumeError,
    KeyDeserializationError,
    SerializationContext,
    ValueDeserializationError,
)
from sparktxn._kafka.unsupported import not_implemented
from sparktxn.consumer.client import Consumer


class DeserializingConsumer(Consumer):
    """A Consumer with the settings ``key.deserializer`` and ``value.deserializer``: functions of (bytes, context).

    The context has the record's `topic`, `field` (``key`` or ``value``) and `headers`.

    Raises:
        TypeError: a deserializer is not a function.
        ConfigurationError, StoreNotFound: as Consumer.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given = arguments.mapping("config", config)
        self._deserialize_key = arguments.function("key.deserializer", given.pop("key.deserializer", None))
        self._deserialize_value = arguments.function("value.deserializer", given.pop("value.deserializer", None))
        super().__init__(given, **settings)

    def poll(self, timeout: float | None = -1.0) -> Message | None:
        """Return the next message with its key and value deserialized; None if none came within `timeout` seconds.

        Raises:
            KeyDeserializationError, ValueDeserializationError: a deserializer has failed. The next call goes on after
                the record.
            ConsumeError: what `Consumer.poll` returns as a message's error().
        """
        message = super().poll(timeout)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            raise ConsumeError(error, kafka_message=message)
        key = _deserialized(self._deserialize_key, message.key(), message, KEY, KeyDeserializationError)
        value = _deserialized(self._deserialize_value, message.value(), message, VALUE, ValueDeserializationError)
        message.set_key(key)
        message.set_value(value)
        return message

    def consume(self, num_messages: int = 1, timeout: float | None = -1.0) -> list[Message]:
        """Refuse the call, as confluent-kafka does: use `poll`.

        Raises:
            KafkaException: ``_NOT_IMPLEMENTED``.
        """
        raise not_implemented("DeserializingConsumer.consume()", "call poll()")


def _deserialized(
    deserialize: Callable[..., Any] | None,
    given: bytes | None,
    message: Message,
    field: str,
    failed: type[KeyDeserializationError | ValueDeserializationError],
) -> Any:
    if deserialize is None:
        return given
    try:
        return deserialize(given, SerializationContext(message.topic() or "", field, message.headers()))
    except Exception as error:
        raise failed(error, message) from error
