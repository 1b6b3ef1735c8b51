"""What a consumer has subscribed to: topics by name, or by a pattern that begins with ``^``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sparktxn.errors import ErrorCode, KafkaError, KafkaException
from sparktxn.format.names import check_topic_name
from sparktxn.values import arguments

__all__ = ["RebalanceCallback", "Subscription"]

RebalanceCallback = Callable[[Any, Any], None]
"""Called as (consumer, [TopicPartition])."""


class Subscription:
    """Names, patterns, and the functions to call when partitions come and go."""

    def __init__(
        self,
        topics: Sequence[str],
        on_assign: RebalanceCallback | None,
        on_revoke: RebalanceCallback | None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Check the topics.

        Raises:
            TypeError: `topics` is not a list of text, or a callback is not a function.
            ConfigurationError: Kafka would refuse a topic's name.
            KafkaException: ``_INVALID_ARG``: a pattern is not a regular expression.
        """
        topics = arguments.identifiers("topics", topics)
        self.on_assign: RebalanceCallback | None = arguments.function("on_assign", on_assign)
        self.on_revoke: RebalanceCallback | None = arguments.function("on_revoke", on_revoke)
        self.on_lost: RebalanceCallback | None = arguments.function("on_lost", on_lost) or self.on_revoke
        self.names = frozenset(check_topic_name(topic) for topic in topics if not topic.startswith("^"))
        self._patterns = [_compiled(topic) for topic in topics if topic.startswith("^")]

    @property
    def has_patterns(self) -> bool:
        """True if new topics may belong to it."""
        return bool(self._patterns)

    def matching(self, topics: Iterable[str]) -> set[str]:
        """Return those of the existing `topics` that are subscribed."""
        return {topic for topic in topics if topic in self.names or any(p.search(topic) for p in self._patterns)}


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        reason = f"topic pattern {pattern!r} is not a regular expression: {error}"
        raise KafkaException(KafkaError(ErrorCode.LOCAL_INVALID_ARG, reason)) from None
