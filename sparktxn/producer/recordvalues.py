"""Keys, values, headers, timestamps and callbacks as callers give them, and as records keep them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, runtime_checkable

from sparktxn._foundation.values import arguments
from sparktxn._kafka.message import ConsumerGroupMetadata, Headers, TopicPartition
from sparktxn.errors import ConfigurationError
from sparktxn.producer.reports import DeliveryCallback

record_bytes = arguments.bytes_like

_RECORD_ARGUMENTS: Final = ("value", "key", "partition", "callback", "on_delivery", "timestamp", "headers", "_error")


@runtime_checkable
class Positioned(Protocol):
    """What `Producer.transaction` needs of a consumer."""

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""

    def position(self, partitions: list[TopicPartition], /) -> list[TopicPartition]:
        """Return their next offsets."""

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Return the group."""


def batch_messages(given: object) -> list[dict[str, Any]]:
    """Return the records of produce_batch().

    Raises:
        TypeError: `given` is not a list of dictionaries, or one has a name that produce() does not know.
    """
    messages = arguments.items("messages", given, dict)
    for place, message in enumerate(messages):
        for name in message:
            if name not in _RECORD_ARGUMENTS:
                expected = ", ".join(_RECORD_ARGUMENTS[:-1])
                raise TypeError(f"messages[{place}] has {arguments.described(name)}: expected some of {expected}")
    return messages


def record_headers(given: object) -> tuple[Headers | None, int]:
    """Return the headers, None for none, and how many bytes they have.

    Raises:
        TypeError: `given` is not a mapping and no list of pairs, or a name is not text.
        ConfigurationError: a name, or a value given as text, holds half a surrogate pair.
    """
    if isinstance(given, Mapping):
        given = list(given.items())
    if not isinstance(given, list | tuple):
        raise TypeError(f"headers is {type(given).__name__}: expected a dict, or a list of (str, str or bytes or None)")
    pairs: Headers = []
    size = 0
    for place, header in enumerate(given):
        if not isinstance(header, tuple | list) or len(header) != 2 or not isinstance(header[0], str):
            raise TypeError(f"headers[{place}] is {type(header).__name__}: expected (str, str or bytes or None)")
        # Encoded here, so that a name which is not text is the caller's error and not that of a whole segment.
        name = arguments.text(f"the name of headers[{place}]", header[0])
        value = None if header[1] is None else record_bytes(f"header {name!r}", header[1])
        pairs.append((name, value))
        size += len(name.encode()) + (0 if value is None else len(value))
    return pairs or None, size


def record_timestamp(timestamp: object) -> int:
    """Return a record's own timestamp, in milliseconds.

    Raises:
        TypeError: it is not a whole number.
        ConfigurationError: it is before 1970, as Kafka's ProducerRecord refuses it, or after what Spark's timestamps
            can express.
    """
    try:
        return arguments.integer("timestamp", timestamp, 0, arguments.TIMESTAMP_MS_MAX)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error} ms, where 0 is now") from None


def delivery_callback(callback: object, on_delivery: object) -> DeliveryCallback | None:
    """Return the callback of a record that was given under either name.

    Raises:
        TypeError: it is not a function.
    """
    return arguments.function("callback", callback) or arguments.function("on_delivery", on_delivery)


def seconds(timeout: object, name: str = "timeout") -> float:
    """Return a time-out in seconds, below 0 for none.

    Raises:
        TypeError: it is not a number.
        ConfigurationError: it is NaN.
    """
    found = arguments.timeout_s(name, timeout)
    return -1.0 if found is None else found


def no_clock() -> int:
    """Replace the clock of a producer that has opened no store: no record may ask for it."""
    raise AssertionError("a record passed the topic check before the store was opened")
