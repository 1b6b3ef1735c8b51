"""Tables: a version of topics for other engines is decided by an entry (PROTOCOL.md, "Tables").

A version names no file. It has those that rewrites had put in the places of a partition's segments when it was
published. What it may show is decided here: nothing that a later entry has committed. That it shows all that earlier
entries have committed is up to its publisher.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sparktxn._engine.format.commands import CommandResult, PublishTables, TableToPublish
from sparktxn._engine.format.decodeguard import TABLES
from sparktxn._engine.state.delta import Context, Delta, Refusal
from sparktxn._engine.state.requests import remember, remembered
from sparktxn._engine.state.settings import TABLE_FORMATS, unpublishable
from sparktxn._foundation.values.quantities import counted
from sparktxn._foundation.values.structs import (
    KeptVersion,
    PartitionSegments,
    PartitionState,
    PublishedPartition,
    PublishedPlaces,
    TableState,
    TopicState,
)
from sparktxn.errors import ErrorCode

_KEPT_MAX: Final = 128
_LOCATION_BYTES_MAX: Final = 4_096


def publish_tables(delta: Delta, command: PublishTables, context: Context) -> CommandResult | Refusal:
    """Make the files of merged records the next version of each table: of all of them, or of none."""
    if known := remembered(delta, context, command.request_id):
        return known
    if problem := _problem(command, context):
        return Refusal(ErrorCode.INVALID_REQUEST, f"a publication has {problem}")
    if TABLES not in delta.store().reader_features:
        return Refusal(ErrorCode.INVALID_REQUEST, f"the store does not require the feature {TABLES!r}")
    for wanted in command.tables:
        if refusal := _publish(delta, wanted, command, context):
            return refusal
    return remember(delta, context, command.request_id, CommandResult.EMPTY)


def _problem(command: PublishTables, context: Context) -> str | None:
    """Return what contradicts itself in a publication; None if nothing does."""
    if not 0 <= command.entry <= command.planned_entry < context.entry:
        return f"entries {command.entry} and {command.planned_entry}: expected 0 to {context.entry - 1}, in this order"
    ids = [wanted.topic_id for wanted in command.tables]
    if not ids or len(set(ids)) < len(ids):
        return "no table, or one twice"
    for wanted in command.tables:
        if not 0 < len(wanted.location.encode()) <= _LOCATION_BYTES_MAX:
            return f"a location of {len(wanted.location.encode())} bytes: expected 1 to {_LOCATION_BYTES_MAX}"
    return None


def _publish(delta: Delta, wanted: TableToPublish, command: PublishTables, context: Context) -> Refusal | None:
    table: TableState | None = delta.get(("table", wanted.topic_id))
    topic: TopicState | None = delta.get(("topic", wanted.name))
    if topic is None or topic.topic_id != wanted.topic_id:
        if table is None or table.name != wanted.name:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {wanted.name!r} does not exist, nor its table")
        topic = None
    elif not topic.settings.get(TABLE_FORMATS):
        return Refusal(ErrorCode.INVALID_CONFIG, f"topic {topic.name!r} is not a table: set its {TABLE_FORMATS}")
    elif refusal := unpublishable(topic.name, topic.settings, delta.store()):
        return refusal
    if (refusal := _outdated(delta, wanted, table, topic, command)) is not None:
        return refusal
    shown = TableState(
        topic_id=wanted.topic_id,
        name=wanted.name,
        partition_count=table.partition_count if table is not None else len(wanted.log_starts),
        version=wanted.version,
        entry=command.entry,
        entry_before=table.entry if table is not None else 0,
        published_entry=context.entry,
        timestamp_ms=context.timestamp_ms,
        location=wanted.location,
        columns=table.columns if table is not None else None,
        is_new_schema=False,
        changed_version=table.changed_version if table is not None else 0,
        formats=table.formats if table is not None else (),
        kept=_kept(table, wanted, context),
        is_deleted=topic is None,
    )
    if topic is not None:
        shown = replace(
            shown,
            partition_count=topic.partition_count,
            columns=topic.schema,
            is_new_schema=table is None or table.columns != topic.schema,
            formats=tuple(topic.settings[TABLE_FORMATS].split(",")),
        )
    changed = [
        _publish_partition(delta, wanted, partition, is_deleted=shown.is_deleted)
        for partition in range(shown.partition_count)
    ]
    if any(changed) or shown.is_new_schema:
        shown = replace(shown, changed_version=shown.version)
    delta.put(shown)
    return None


def _outdated(
    delta: Delta, wanted: TableToPublish, table: TableState | None, topic: TopicState | None, command: PublishTables
) -> Refusal | None:
    """Refuse a publication whose publisher has not seen what a table shows now."""

    def refusal(reason: str) -> Refusal:
        return Refusal(ErrorCode.TABLE_CHANGED, f"the table of topic {wanted.name!r} {reason}: publish again")

    version, shown = (table.version + 1, table.entry) if table is not None else (0, 0)
    if wanted.version != version:
        return refusal(f"has {version} as its next version, not {wanted.version}")
    known = (version,) if table is None else (*(each.version for each in table.kept), version)
    if wanted.first_version not in known:
        return refusal(f"can be read from one of the versions {known} on, not from {wanted.first_version}")
    if command.entry < shown:
        return refusal(f"shows entry {shown} already, which is above {command.entry}")
    if topic is None:
        is_empty = not wanted.column_count and not wanted.log_starts
        return None if is_empty else refusal("is that of a deleted topic, and ends with an empty version")
    if wanted.column_count != len(topic.schema or ()):
        return refusal(f"has {len(topic.schema or ())} declared columns, not {wanted.column_count}")
    if len(wanted.log_starts) != topic.partition_count:
        return refusal(f"has {counted(topic.partition_count, 'partition')}, not {len(wanted.log_starts)}")
    for partition, start in enumerate(wanted.log_starts):
        state: PartitionState = delta.get(("partition", topic.topic_id, partition))
        if state.log_start_offset != start:
            return refusal(f"begins at offset {state.log_start_offset} of partition {partition}, not {start}")
        located: PartitionSegments = delta.get(("segments", topic.topic_id, partition))
        for each in located.rewritten:
            if each.entry > command.planned_entry:
                return refusal(f"has other files in partition {partition} since entry {each.entry}")
            if each.run.committed_entry_max > command.entry:
                newer = each.run.committed_entry_max
                return refusal(f"has records of entry {newer} in files of partition {partition}")
    return None


def _kept(table: TableState | None, wanted: TableToPublish, context: Context) -> tuple[KeptVersion, ...]:
    """Return the versions to remember, from the first one that can be read on; of too many every second one."""
    known = table.kept if table is not None else ()
    kept = [each for each in known if each.version >= wanted.first_version]
    if len(kept) >= _KEPT_MAX:
        kept = kept[::2]
    return (*kept, KeptVersion(wanted.version, context.entry, context.timestamp_ms))


def _publish_partition(delta: Delta, wanted: TableToPublish, partition: int, *, is_deleted: bool) -> bool:
    """Note the places of a partition's files, if the version changes them; return whether it does."""
    current = PublishedPlaces()
    if not is_deleted:
        located: PartitionSegments = delta.get(("segments", wanted.topic_id, partition))
        current = PublishedPlaces(wanted.log_starts[partition], located.rewritten)
    known: PublishedPartition | None = delta.get(("published", wanted.topic_id, partition))
    before = known.current if known is not None else PublishedPlaces()
    if current == before:
        return False
    delta.put(PublishedPartition(wanted.topic_id, partition, wanted.version, current, before))
    return True
