"""Share groups (KIP-932), in confluent-kafka's shapes: programs can name them, a store has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

from sparktxn.kafka.message import Message
from sparktxn.kafka.unsupported import not_implemented

__all__ = ["AcknowledgeType", "DeserializingShareConsumer", "Messages", "ShareConsumer"]

_REASON: Final = "a store has consumer groups and no share groups: use Consumer"


class AcknowledgeType(IntEnum):
    """What became of a message of a share group (Kafka's ids)."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


class Messages:
    """A batch of messages that cannot be changed."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages = list(messages)

    def records(self) -> list[Message]:
        """Return the messages, as a list of the caller's own."""
        return list(self._messages)

    def count(self) -> int:
        """Return how many there are."""
        return len(self._messages)

    def is_empty(self) -> bool:
        """Return True if there are none."""
        return not self._messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __getitem__(self, index: int | slice) -> Message | Messages:
        return Messages(self._messages[index]) if isinstance(index, slice) else self._messages[index]

    def __repr__(self) -> str:
        return f"Messages({self._messages!r})"


class ShareConsumer:
    """confluent-kafka's share consumer: it cannot be made.

    Raises:
        KafkaException: ``_NOT_IMPLEMENTED``.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        raise not_implemented(f"{type(self).__name__}()", _REASON)


class DeserializingShareConsumer(ShareConsumer):
    """confluent-kafka's share consumer with deserializers: it cannot be made.

    Raises:
        KafkaException: ``_NOT_IMPLEMENTED``.
    """
