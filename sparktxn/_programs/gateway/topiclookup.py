"""Which topics there are: by name, and by the ids that they have on the wire.

What is not known here may have been made at another gateway a moment ago, and acknowledged. So the log is read on
before a client gets the answer that a topic or a partition does not exist.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from sparktxn import TopicState
from sparktxn._engine.log.log import Log
from sparktxn.errors import KafkaError, KafkaException
from sparktxn.store.options import TopicPartitionKey

UNKNOWN_TOPIC_ID: Final = 100
"""Kafka's code for an id that no topic has, or has any more."""


def unknown_id(wanted: uuid.UUID | None) -> KafkaException:
    """Return the error for an id that no topic has."""
    return KafkaException(KafkaError(UNKNOWN_TOPIC_ID, f"no topic has the id {wanted}"))


class AskedTopic(NamedTuple):
    """A topic of a request, with what is asked of its partitions: by its name, or by its id.

    `error` says that no topic has the id.
    """

    name: str
    partitions: Sequence[Any]
    uuid: uuid.UUID | None = None
    topic_id: int | None = None
    error: KafkaException | None = None


class _Known(NamedTuple):
    name: str
    topic_id: int


class TopicLookup:
    """Finds the topics of a store. Safe for several threads."""

    def __init__(self, log: Log, store_id: str) -> None:
        self._log = log
        self._store_id = store_id
        self._uuids: dict[int, uuid.UUID] = {}
        self._known: dict[uuid.UUID, _Known] = {}

    def has(self, name: str, partition: int = 0) -> bool:
        """Return whether a partition is known to exist. Nothing is read."""
        topic = self._log.topic(name)
        return topic is not None and 0 <= partition < topic.partition_count

    def read_on_for(self, places: Iterable[TopicPartitionKey]) -> None:
        """Read the log to its end unless all these partitions are known.

        Raises:
            StoreError: it cannot be read.
        """
        if not all(self.has(*place) for place in places):
            self._log.refresh()

    def uuid_of(self, topic_id: int) -> uuid.UUID:
        """Return a topic's id on the wire: the same at every gateway of the store, and never another topic's."""
        found = self._uuids.get(topic_id)
        if found is None:
            found = self._uuids[topic_id] = uuid.uuid5(uuid.NAMESPACE_OID, f"{self._store_id}/{topic_id}")
        return found

    def asked(self, wanted: uuid.UUID | None, partitions: Sequence[Any]) -> AskedTopic:
        """Return the topic that a request names by its id, as far as is known. Nothing is read."""
        known = self.known_by_uuid(wanted)
        if known is None:
            return AskedTopic("", partitions, wanted, error=unknown_id(wanted))
        return AskedTopic(known.name, partitions, wanted, known.topic_id)

    def known_by_uuid(self, wanted: uuid.UUID | None) -> TopicState | None:
        """Return the topic that has this id as far as is known. Nothing is read."""
        known = None if wanted is None else self._known.get(wanted)
        topic = None if known is None else self._log.topic(known.name)
        return topic if topic is not None and known is not None and topic.topic_id == known.topic_id else None

    def by_uuid(self, wanted: Iterable[uuid.UUID | None]) -> dict[uuid.UUID, TopicState]:
        """Return the topics that have these ids, by id; those of deleted topics are left out.

        Raises:
            StoreError: the log cannot be read.
        """
        ids = {each for each in wanted if each is not None}
        if any(self.known_by_uuid(each) is None for each in ids):
            self._log.refresh()
            topics = self._log.topics()
            self._known = {self.uuid_of(topic.topic_id): _Known(topic.name, topic.topic_id) for topic in topics}
            self._uuids = {known.topic_id: each for each, known in self._known.items()}
        found = {each: self.known_by_uuid(each) for each in ids}
        return {each: topic for each, topic in found.items() if topic is not None}
