"""What clients show of the internal topics, and what they refuse to do with them."""

from __future__ import annotations

from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.state.internal import INTERNAL_TOPICS
from sparktxn.values.structs import TopicState

__all__ = ["listed", "refuse_change", "refuse_import"]


def listed(topics: list[TopicState], asked: str | None) -> list[TopicState]:
    """Return the topics that a listing shows: an internal one only if it is asked for by name."""
    return [*topics, INTERNAL_TOPICS[asked]] if asked in INTERNAL_TOPICS else topics


def refuse_change(name: str) -> None:
    """Raise for an internal topic.

    Raises:
        KafkaException: ``INVALID_TOPIC``: the topic is internal.
    """
    if name in INTERNAL_TOPICS:
        reason = (
            f"topic {name!r} is internal: it shows what the log says and can only be read, "
            "not created, written to, changed or deleted"
        )
        raise KafkaException(KafkaError(ErrorCode.INVALID_TOPIC, reason))


def refuse_import(name: str) -> None:
    """Raise for an internal topic that is to be imported from.

    Raises:
        KafkaException: ``INVALID_TOPIC``: the topic is internal.
    """
    if name in INTERNAL_TOPICS:
        reason = f"source topic {name!r} is internal: it shows what a log says, and has no records to import"
        raise KafkaException(KafkaError(ErrorCode.INVALID_TOPIC, reason))
