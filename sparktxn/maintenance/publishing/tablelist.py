"""Which tables a store has, and what each of them does not show yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from sparktxn._engine.format import names
from sparktxn._engine.format.entry import decode_entry
from sparktxn._engine.log.keep.sealedruns import committed_from
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.knownstate import KnownState
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._foundation.config.topic import table_formats
from sparktxn._foundation.process.clock import in_time
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import TableState, TopicState
from sparktxn._rows.scan.commitorder import committed_between
from sparktxn.errors import CommandRefused, ViewExpired
from sparktxn.maintenance.attempts import in_attempts
from sparktxn.maintenance.publishing.tableobjects import check_tables
from sparktxn.store import Store


class TableInfo(Struct, frozen=True, kw_only=True):
    """A topic's table: its newest version, and the committed records that the version does not show yet.

    `formats` are those of the topic's setting. They are empty for a topic that is not a table any more: its versions
    stay as they are. Of a deleted topic they are those of its newest version, and the next one is empty. `version`,
    `entry` (what the version shows), `published_timestamp_ms` and `location` are None before the first version.

    `waiting_records` counts records of open transactions only once these commit. `waiting_ms` is how long ago the
    oldest of them was committed, or longer if a vacuum has deleted its entry; None if none waits.
    """

    topic: str
    topic_id: int
    formats: tuple[str, ...]
    version: int | None = None
    entry: int | None = None
    published_timestamp_ms: int | None = None
    waiting_records: int = 0
    waiting_ms: int | None = None
    deleted: bool = False
    location: str | None = None


@in_time("timeout_s", lambda store: store.log.clock)
def list_tables(
    store: Store, topics: Iterable[str] | None = None, *, timeout_s: float | None = None
) -> list[TableInfo]:
    """Return the tables of topics, those of deleted topics too, by the names of the topics. It writes nothing.

    Args:
        store: an open store.
        topics: names of topics with the setting ``table.formats``, or with a table; None for all of them.
        timeout_s: how long all of it may take.

    Raises:
        ConfigurationError: a topic is not a table.
        CommandRefused: a topic does not exist, nor its table (UNKNOWN_TOPIC_OR_PARTITION).
        ViewExpired: vacuums have passed each view that was tried.
        StoreUnavailable, DamagedObject, OutcomeUnknown: the log or a manifest cannot be read.
    """
    log = arguments.instance("store", store, Store).log
    wanted = None if topics is None else arguments.identifiers("topics", topics)
    # CommandRefused: a topic was deleted meanwhile.
    return in_attempts(lambda: _listed(log, wanted), (CommandRefused, ViewExpired))


def has_tables(state: KnownState) -> bool:
    """Return whether a topic is a table, or was one."""
    return any(table_formats(topic.settings) for topic in state.topics()) or bool(state.tables())


def _listed(log: Log, wanted: Sequence[str] | None) -> list[TableInfo]:
    with log.known() as state:
        topics = {topic.topic_id: topic for topic in state.topics()}
        tables = {table.topic_id: table for table in state.tables()}
    shown = [topic.name for topic in topics.values() if table_formats(topic.settings) or topic.topic_id in tables]
    gone = [table for id_, table in tables.items() if id_ not in topics]
    if wanted is not None:
        check_tables(log, wanted, {*shown, *(table.name for table in gone)})
        shown = [name for name in shown if name in wanted]
        gone = [table for table in gone if table.name in wanted]
    found = [_deleted(table) for table in gone]
    if shown:
        view = log.view(shown)
        found += [_existing(log, view, topic, tables.get(topic.topic_id)) for topic in view.topics.values()]
    return sorted(found, key=lambda info: (info.topic, info.topic_id))


def _deleted(table: TableState) -> TableInfo:
    return TableInfo(
        topic=table.name,
        topic_id=table.topic_id,
        formats=table.formats,
        version=table.version,
        entry=table.entry,
        published_timestamp_ms=table.timestamp_ms,
        deleted=True,
        location=table.location,
    )


def _existing(log: Log, view: ReadView, topic: TopicState, table: TableState | None) -> TableInfo:
    after = table.entry if table is not None else 0
    records, oldest = 0, view.entry
    for (name, _), partition in view.partitions.items():
        if name == topic.name:
            count, entry = waiting_records(log, partition, after, view.entry)
            records, oldest = records + count, min(oldest, entry)
    return TableInfo(
        topic=topic.name,
        topic_id=topic.topic_id,
        formats=table_formats(topic.settings),
        version=table.version if table is not None else None,
        entry=table.entry if table is not None else None,
        published_timestamp_ms=table.timestamp_ms if table is not None else None,
        waiting_records=records,
        waiting_ms=_age_ms(log, view, oldest) if records else None,
        location=table.location if table is not None else None,
    )


def waiting_records(log: Log, view: PartitionView, after: int, to: int) -> tuple[int, int]:
    """Return how many records entries `after` + 1 to `to` committed, and the first of these entries; `to` if none."""
    records, oldest = 0, to
    for entry, segment in committed_between(log.objects, view, after, to, by_segment=False):
        count = segment.rows_between(view.log_start_offset, view.log_end_offset)
        if count:
            records, oldest = records + count, min(oldest, committed_from(segment) or entry)
    return records, oldest


def _age_ms(log: Log, view: ReadView, entry: int) -> int:
    """Return how long ago an entry was put; of one that a vacuum has deleted, how long ago the first one left was."""
    entry = max(entry, log.store_state().horizon + 1)
    name = names.entry(entry)
    data = log.objects.get(name) if entry <= view.entry else None
    timestamp_ms = view.timestamp_ms if data is None else decode_entry(data, name, entry).timestamp_ms
    return max(0, log.clock.wall_ms() - timestamp_ms)
