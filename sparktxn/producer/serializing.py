"""`SerializingProducer`: a producer that calls confluent-kafka's serializers, or any function of their shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparktxn._foundation.values import arguments
from sparktxn._kafka.serialization import (
    KEY,
    VALUE,
    KeySerializationError,
    SerializationContext,
    ValueSerializationError,
)
from sparktxn.producer.client import Producer
from sparktxn.producer.reports import DeliveryCallback


class SerializingProducer(Producer):
    """A Producer with the settings ``key.serializer`` and ``value.serializer``: functions of (object, context).

    The context has the record's `topic`, `field` (``key`` or ``value``) and `headers`.

    Raises:
        TypeError: a serializer is not a function.
        ConfigurationError: as Producer.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        given = arguments.mapping("config", config)
        self._serialize_key = arguments.function("key.serializer", given.pop("key.serializer", None))
        self._serialize_value = arguments.function("value.serializer", given.pop("value.serializer", None))
        super().__init__(given, **settings)

    def produce(  # type: ignore[override] # confluent-kafka's order, too
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Serialize the key and the value, and queue the record.

        Raises:
            KeySerializationError, ValueSerializationError: a serializer has failed; nothing was queued.
            KafkaException, BufferError, RuntimeError, TypeError: as `Producer.produce`.
        """
        self._check()
        topic = arguments.text("topic", topic)
        key = _serialized(self._serialize_key, key, SerializationContext(topic, KEY, headers), KeySerializationError)
        context = SerializationContext(topic, VALUE, headers)
        value = _serialized(self._serialize_value, value, context, ValueSerializationError)
        super().produce(topic, value, key, partition, None, on_delivery, timestamp, headers)


def _serialized(
    serialize: Callable[..., Any] | None,
    given: Any,
    context: SerializationContext,
    failed: type[KeySerializationError | ValueSerializationError],
) -> Any:
    if serialize is None:
        return given
    try:
        return serialize(given, context)
    except Exception as error:
        raise failed(error) from error
