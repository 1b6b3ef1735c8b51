"""The topics a consumer subscribes to, the partitions it reads, and how far it is in each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from sparktxn._engine.format.names import check_topic_name
from sparktxn._engine.log.views.readview import PartitionView
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._kafka.message import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
    topic_partitions,
)
from sparktxn.errors import ErrorCode, KafkaError, KafkaException

_OFFSET_TAIL_BASE: Final = -2000
"""librdkafka's OFFSET_TAIL: -2000 - n is n records before the end."""

NO_TOPIC_ID: Final = -1

NOT_STARTED: Final = -1
"""The consumer has not begun to read from any committed offset: its offset commits are compared with nothing."""


class Stored(NamedTuple):
    """What the next offset commit of a partition takes."""

    offset: int = OFFSET_INVALID
    metadata: str | None = None
    leader_epoch: int | None = None


class Progress:
    """One assigned partition: the position is the next offset to hand out, or a logical one until it is resolved.

    `assigned_at` is the offset that it was assigned with.
    `stored` is what the next offset commit takes, `committed` what this consumer has committed last.
    `found_committed` is what the group had committed when the position was found, if it was asked for. `started_from`
    names the committed offset of the group that it began to read from, by the entry that made it take effect. It is 0
    if there was none, NOT_STARTED until a position is found. `begins` is True from a seek until the position is found.
    `received` counts the records that were read for it.
    `seen_entry` is an entry up to which what was read is what the log then had, 0 if none is known.
    `began_at` is the first position that was found since a transaction's block began, None if there was none.
    """

    __slots__ = (
        "assigned_at",
        "began_at",
        "begins",
        "committed",
        "eof_reported_at",
        "found_committed",
        "halted",
        "key",
        "paused",
        "position",
        "received",
        "retry_at_s",
        "seen_entry",
        "started_from",
        "stored",
        "topic_id",
    )

    def __init__(self, key: TopicPartitionKey, position: int) -> None:
        self.key = key
        self.assigned_at = position
        self.position = position
        self.topic_id = NO_TOPIC_ID
        self.stored = Stored()
        self.committed = OFFSET_INVALID
        self.found_committed = OFFSET_INVALID
        self.paused = False
        self.halted = False
        self.retry_at_s = 0.0
        self.eof_reported_at = OFFSET_INVALID
        self.started_from = NOT_STARTED
        self.begins = True
        self.began_at: int | None = None
        self.seen_entry = 0
        self.received = 0

    @property
    def resolved(self) -> bool:
        """True once the position is an offset."""
        return self.position >= 0

    def seek(self, position: int) -> None:
        """Go on at `position`, which the user has chosen, also after an error that had stopped the partition."""
        self.go_to(position)
        self.begins = True

    def go_to(self, position: int) -> None:
        """Go on at `position`, from where this consumer has read before."""
        self.position = position
        self.halted = False
        self.retry_at_s = 0.0
        self.eof_reported_at = OFFSET_INVALID

    def found(self, position: int) -> None:
        """Take the offset that the position means."""
        self.position = position
        if self.began_at is None:
            self.began_at = position

    def readable(self, now_s: float) -> bool:
        """Return True if records may be read for it now."""
        return self.position >= 0 and not self.paused and not self.halted and self.retry_at_s <= now_s

    def uncommitted(self) -> TopicPartition | None:
        """Return what there is to commit: the stored offset, if it is not the one committed last."""
        stored = self.stored
        if stored.offset < 0 or stored.offset == self.committed:
            return None
        return TopicPartition(*self.key, stored.offset, stored.metadata, stored.leader_epoch)


class Assignment:
    """The assigned partitions, taken in turn."""

    def __init__(self) -> None:
        self._by_key: dict[TopicPartitionKey, Progress] = {}
        self._turn: list[TopicPartitionKey] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: TopicPartitionKey) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Progress]:
        return iter(list(self._by_key.values()))

    def get(self, key: TopicPartitionKey) -> Progress | None:
        """Return the partition's progress, or None if it is not assigned."""
        return self._by_key.get(key)

    def require(self, partition: TopicPartition, code: ErrorCode = ErrorCode.LOCAL_STATE) -> Progress:
        """Return the partition's progress.

        Raises:
            KafkaException: `code`: the partition is not assigned.
        """
        progress = self._by_key.get((partition.topic, partition.partition))
        if progress is None:
            reason = f"partition {partition.partition} of topic {partition.topic!r} is not assigned to this consumer"
            raise KafkaException(KafkaError(code, reason))
        return progress

    def those_of(self, partitions: Iterable[TopicPartition]) -> list[Progress]:
        """Return the progress of those of `partitions` that are assigned."""
        found = (self._by_key.get((partition.topic, partition.partition)) for partition in partitions)
        return [progress for progress in found if progress is not None]

    def add(self, progress: Progress) -> None:
        """Assign one more partition, last in turn; one that is assigned already is replaced."""
        if progress.key not in self._by_key:
            self._turn.append(progress.key)
        self._by_key[progress.key] = progress

    def remove(self, key: TopicPartitionKey) -> None:
        """Take a partition away."""
        if self._by_key.pop(key, None) is not None:
            self._turn.remove(key)

    def clear(self) -> None:
        """Take all away."""
        self._by_key.clear()
        self._turn.clear()

    def topics(self) -> set[str]:
        """Return the topics of the assigned partitions."""
        return {topic for topic, _ in self._by_key}

    def in_turn(self) -> list[Progress]:
        """Return all partitions, the one that has waited longest first."""
        return [self._by_key[key] for key in self._turn]

    def served(self, key: TopicPartitionKey) -> None:
        """Put a partition at the end of the turn."""
        if key in self._by_key:
            self._turn.remove(key)
            self._turn.append(key)

    def take_turns(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Take the partitions in the order of `keys`; those that are not among them come last."""
        places = {key: place for place, key in enumerate(keys)}
        self._turn.sort(key=lambda key: places.get(key, len(places)))

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions as users get them, in order, with the offsets that they were assigned with."""
        return [TopicPartition(*key, self._by_key[key].assigned_at) for key in sorted(self._by_key)]


def distinct_partitions(partitions: object) -> list[TopicPartition]:
    """Return what a call is given to assign.

    Raises:
        TypeError: it is not a list of TopicPartition.
        KafkaException: ``_INVALID_ARG``: a partition is named twice, or an offset means nothing.
    """
    given = topic_partitions("partitions", partitions)
    check_offset(given)
    if len(set(given)) < len(given):
        reason = f"a partition is named twice in {given}"
        raise KafkaException(KafkaError(ErrorCode.LOCAL_INVALID_ARG, reason))
    return given


def check_offset(partitions: Iterable[TopicPartition]) -> None:
    """Refuse what is not a place to read from.

    Raises:
        KafkaException: ``_INVALID_ARG``: a partition below 0 or an offset that means nothing.
    """
    for partition in partitions:
        logical = (OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, OFFSET_INVALID)
        if partition.partition < 0:
            what = f"partition {partition.partition} of topic {partition.topic!r}: expected 0 or more"
        elif partition.offset < 0 and partition.offset not in logical and partition.offset > _OFFSET_TAIL_BASE:
            what = f"offset {partition.offset} of {partition}: expected 0 or more, or one of the OFFSET_ constants"
        else:
            continue
        raise KafkaException(KafkaError(ErrorCode.LOCAL_INVALID_ARG, what))


def logical_position(position: int, view: PartitionView, end_offset: int) -> int | None:
    """Return the offset that OFFSET_BEGINNING, OFFSET_END or a tail offset means in a view; None for any other."""
    if position == OFFSET_BEGINNING:
        return view.log_start_offset
    if position == OFFSET_END:
        return end_offset
    if position <= _OFFSET_TAIL_BASE:
        return max(view.log_start_offset, end_offset - (_OFFSET_TAIL_BASE - position))
    return None


# What a consumer has subscribed to: topics by name, or by a pattern that begins with ``^``.

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
