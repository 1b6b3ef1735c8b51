"""Where a consumer was when a transaction's block began, and the way back there if the block fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from sparktxn.consumer.assignment import NO_TOPIC_ID, Assignment, Stored
from sparktxn.values.fieldtypes import TopicPartitionKey

if TYPE_CHECKING:
    from sparktxn.consumer.polling import Reading
    from sparktxn.kafka.message import Message

__all__ = ["Bookmark", "bookmark", "rewind", "unread"]


class _Place(Struct, frozen=True):
    """One partition's position and its stored offset, with the topic's id."""

    topic_id: int
    position: int
    stored: Stored


class Bookmark(Struct, frozen=True):
    """The places of a consumer in its partitions, in turn: opaque, for `Consumer.end_block`."""

    places: dict[TopicPartitionKey, _Place]


def bookmark(assignment: Assignment, reading: Reading) -> Bookmark:
    """Note where the consumer is; a position that is not found yet is noted when it is."""
    reading.settle()
    places = {}
    under_way = reading.partition_under_way()
    for progress in sorted(assignment.in_turn(), key=lambda progress: progress.key != under_way):
        places[progress.key] = _Place(progress.topic_id, progress.position, progress.stored)
        progress.began_at = None
    return Bookmark(places)


def rewind(assignment: Assignment, reading: Reading, began: Bookmark) -> None:
    """Move positions and stored offsets back to where they were; messages that were fetched are read again.

    A partition that was assigned later returns to its first position. One whose topic was created again stays.
    """
    reading.give_back()
    for progress in assignment:
        place = began.places.get(progress.key)
        if place is not None and place.topic_id not in (NO_TOPIC_ID, progress.topic_id):
            continue
        position = place.position if place is not None and place.position >= 0 else progress.began_at
        if position is None:
            continue
        reading.discard(progress.key)
        progress.go_to(position)
        progress.stored = Stored() if place is None else place.stored
    assignment.take_turns(began.places)
    reading.poll_again()


def unread(assignment: Assignment, reading: Reading, messages: Iterable[Message]) -> None:
    """Go back before `messages`, the last ones that were handed out: they are read again, and count as not read."""
    reading.give_back()
    first: dict[TopicPartitionKey, int] = {}
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if message.error() is None and topic is not None and partition is not None and offset is not None:
            first.setdefault((topic, partition), offset)
    for key, position in first.items():
        progress = assignment.get(key)
        if progress is None or progress.position <= position:
            continue  # it has another owner now, or was sought elsewhere
        reading.discard(key)
        progress.go_to(position)
        if progress.stored.offset > position:
            progress.stored = Stored(position)
    reading.poll_again()
