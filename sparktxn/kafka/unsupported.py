"""The refusal of what confluent-kafka has and a store has not."""

from __future__ import annotations

from sparktxn.errors import ErrorCode, KafkaError, KafkaException

__all__ = ["not_implemented"]


def not_implemented(call: str, reason: str) -> KafkaException:
    """Return the exception of a call that has no meaning here: ``_NOT_IMPLEMENTED``, with `reason`, a sentence.

    >>> not_implemented("elect_leaders()", "a store has no leaders").args[0].str()
    'elect_leaders() does not exist here: a store has no leaders'
    """
    return KafkaException(KafkaError(ErrorCode.LOCAL_NOT_IMPLEMENTED, f"{call} does not exist here: {reason}"))
