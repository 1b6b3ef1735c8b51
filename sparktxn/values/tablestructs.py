"""Frozen values of published tables: which version a topic has, and where its records were then."""

from __future__ import annotations

from msgspec import Struct

from sparktxn.values.fieldtypes import Columns, Int64, Natural, Positive, StateKey, TopicNameText
from sparktxn.values.segmentstructs import RewrittenRange

__all__ = ["KeptVersion", "PublishedPartition", "PublishedPlaces", "TableState", "TableToPublish"]


class KeptVersion(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A version of a table, the entry that has published it, and the time of that entry."""

    version: Natural
    published_entry: Positive
    timestamp_ms: Int64


class TableState(Struct, frozen=True, gc=False, tag="table", forbid_unknown_fields=True):
    """The newest version of a topic's table: what entries up to `entry` have committed, published by `published_entry`.

    `name` and `partition_count` are the topic's, `formats` those of its setting. `columns` are the declared ones that
    the version has; None for Kafka's record. `is_new_schema` is True if the version before has other ones, or there is
    none. `changed_version` is the newest version with other files or columns than the one before it.
    `entry_before` is the entry that the version before shows, or 0. `location` is the address of the topic's
    folder for other engines. `kept` has the oldest version that can be read, the newest one, and some between them:
    all from the oldest on can be read. `is_deleted` is True once the topic is gone, and the table is empty.
    """

    topic_id: Positive
    name: TopicNameText
    partition_count: Positive
    version: Natural
    entry: Natural
    entry_before: Natural
    published_entry: Positive
    timestamp_ms: Int64
    location: str
    columns: Columns | None
    is_new_schema: bool
    changed_version: Natural
    formats: tuple[str, ...]
    kept: tuple[KeptVersion, ...]
    is_deleted: bool = False

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("table", self.topic_id)

    @property
    def needs_entry(self) -> int | None:
        """The entry from which on the log must be kept, for versions with other files than the newest one has.

        None if there is none.
        """
        oldest = self.kept[0]
        return oldest.published_entry if oldest.version < self.changed_version else None


class PublishedPlaces(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """What a version of a table has of a partition: the files of `ranges` with records from the log start on."""

    log_start_offset: Natural = 0
    ranges: tuple[RewrittenRange, ...] = ()


class PublishedPartition(Struct, frozen=True, gc=False, tag="published", forbid_unknown_fields=True):
    """A partition of a published table. `version` is the newest one that has changed it, from `before` to `current`."""

    topic_id: Positive
    partition: Natural
    version: Natural
    current: PublishedPlaces
    before: PublishedPlaces = PublishedPlaces()

    @property
    def key(self) -> StateKey:
        """The record's key."""
        return ("published", self.topic_id, self.partition)


class TableToPublish(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A topic, and what the publisher has seen of it: `version` is the next one of its table.

    `location` is the address of the topic's folder, as other engines reach it. `first_version` is the oldest one that
    can be read from then on. `column_count` is 0 for Kafka's record, `log_starts` has the log start of each partition.
    Of a deleted topic both are empty.
    """

    name: str
    topic_id: Int64
    version: Int64
    location: str
    first_version: Int64
    column_count: Int64 = 0
    log_starts: tuple[Int64, ...] = ()
