"""System tables: what a store's state and history say, as rows (docs/spark.md, "System tables").

Tables of the state are computed where they are planned, for tasks never open the log. `segments` and `entries` may be
long: their tasks name a partition's read view, or a range of entries, and need only the object store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import force_setattr

from sparktxn._engine.format.segment import parse_type
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.entryhistory import first_entry as first_entry_of
from sparktxn._engine.log.views.entrysummary import EntrySummary, summaries, transaction_name
from sparktxn._engine.log.views.readview import PartitionView
from sparktxn._engine.log.views.viewing import Snapshot
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import (
    CommittedOffset,
    MemberState,
    PendingOffsets,
    ProducerState,
    SinkState,
    TransactionState,
    TransactionStatus,
)
from sparktxn._rows.scan.aborted import AbortedRanges
from sparktxn._rows.scan.internalrows import kafka_name, timestamp_us
from sparktxn._rows.scan.plan import aborted_between, object_of, segments_between
from sparktxn._rows.scan.transactioncolumns import committed_ranges, transactional_ids_of
from sparktxn.errors import ConfigurationError, did_you_mean

Row = dict[str, Any]

_BATCH_ROWS: Final = 5_000
_TIMESTAMP: Final = "timestamp[us, tz=UTC]"
_PARTITIONS: Final = "list<struct<topic: string, partition: int32>>"


def _schema(**columns: str) -> pa.Schema:
    return pa.schema([pa.field(name, parse_type(text)) for name, text in columns.items()])


SYSTEM_TABLES: Final[dict[str, pa.Schema]] = {
    "transactions": _schema(
        transactional_id="string",
        state="string",
        producer_id="int64",
        producer_epoch="int32",
        transaction="string",
        start_timestamp=_TIMESTAMP,
        age_ms="int64",
        timeout_ms="int64",
        prepared="bool",
        partitions=_PARTITIONS,
        groups="list<string>",
        query_id="string",
        run_id="string",
        batch_id="int64",
        batch_entry="int64",
    ),
    "producers": _schema(
        topic="string",
        partition="int32",
        producer_id="int64",
        producer_epoch="int32",
        transactional_id="string",
        last_sequence="int64",
        last_timestamp=_TIMESTAMP,
        coordinator_epoch="int32",
        current_transaction_start_offset="int64",
    ),
    "groups": _schema(
        group_id="string",
        topic="string",
        partition="int32",
        offset="int64",
        log_end_offset="int64",
        lag="int64",
        metadata="string",
        commit_timestamp=_TIMESTAMP,
        entry="int64",
        pending_transactional_ids="list<string>",
        member_id="string",
        group_instance_id="string",
        client_id="string",
        host="string",
        member_epoch="int64",
        member_overdue="bool",
        member_last_seen=_TIMESTAMP,
    ),
    "entries": _schema(
        entry="int64",
        timestamp=_TIMESTAMP,
        operations="list<string>",
        transactions=(
            "list<struct<transaction: string, committed: bool, transactional_id: string, producer_id: int64, "
            "producer_epoch: int32, query_id: string, run_id: string, batch_id: int64>>"
        ),
        topics="list<string>",
        record_count="int64",
        records="list<struct<topic: string, record_count: int64>>",
        groups="list<string>",
    ),
    "segments": _schema(
        topic="string",
        partition="int32",
        base_offset="int64",
        record_count="int64",
        size_bytes="int64",
        file="string",
        state="string",
        entry="int64",
        committed_entry="int64",
        producer_id="int64",
        producer_epoch="int32",
        timestamp_min=_TIMESTAMP,
        timestamp_max=_TIMESTAMP,
    ),
}
"""The tables by name, with their columns."""


class TableSelection(Struct, frozen=True, kw_only=True):
    """What to list of a system table: the store as of an entry or a time, None for now, and which rows.

    `topics` restricts ``segments``; None means all. ``entries`` has the entries from `first_entry` to `last_entry`, and
    of these the newest `limit`.
    """

    topics: tuple[str, ...] | None = None
    entry: int | None = None
    timestamp_ms: int | None = None
    first_entry: int | None = None
    last_entry: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.topics is not None:
            force_setattr(self, "topics", tuple(arguments.identifiers("topics", self.topics)))
        for name, minimum in (("entry", 0), ("timestamp_ms", 0), ("first_entry", 1), ("last_entry", 1), ("limit", 1)):
            force_setattr(self, name, arguments.integer_or_none(name, getattr(self, name), minimum))


class TableTask(Struct, frozen=True):
    """A part of a system table: rows, or what any process that can reach the store's objects makes them from."""

    store_uri: str
    table: str
    rows: pa.RecordBatch | None = None
    partition: PartitionView | None = None
    entries: tuple[int, int] | None = None


Sightings = Mapping[tuple[str, str], tuple[bool, int | None]]
"""Whether members of groups are overdue, and when they were last seen: by the log's group id and the member id."""


def plan_table(
    log: Log, table: str, selection: TableSelection | None, sightings: Callable[[], Sightings]
) -> list[TableTask]:
    """Return the tasks that give what is selected of a system table; None selects all of it, now.

    `sightings` looks for the members of groups. It is asked for the present alone.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: there is no such table, or a bound is not in the log.
        CommandRefused: a topic does not exist, or the entry is not in the log.
        ViewExpired: a vacuum has passed the entry.
    """
    table = arguments.text("table", table)
    if selection is None:
        selection = TableSelection()
    selection = arguments.instance("selection", selection, TableSelection)
    if table not in SYSTEM_TABLES:
        raise ConfigurationError(
            f"system table {table!r} is unknown: expected one of {', '.join(SYSTEM_TABLES)}"
            f"{did_you_mean(table, SYSTEM_TABLES)}"
        )
    uri, entry, timestamp_ms = log.objects.uri, selection.entry, selection.timestamp_ms
    if table == "segments":
        view = log.view(selection.topics, entry=entry, timestamp_ms=timestamp_ms)
        return [TableTask(uri, table, partition=partition) for partition in view.partitions.values()]
    if table == "entries":
        at = log.view([], entry=entry, timestamp_ms=timestamp_ms).entry
        first, last = _entries_of(log.objects, at, selection)
        return [TableTask(uri, table, entries=(first, last))] if first <= last else []
    prefixes, rows_of = _STATE_TABLES[table]
    snapshot = log.snapshot(prefixes, entry=entry, timestamp_ms=timestamp_ms)
    rows = rows_of(snapshot, log.clock.wall_ms())
    if table == "groups":
        rows = _with_sightings(rows, sightings() if entry is None and timestamp_ms is None else {})
    return [TableTask(uri, table, rows=batch) for batch in _batches(table, rows)]


def _entries_of(objects: ObjectStore, newest: int, selection: TableSelection) -> tuple[int, int]:
    last = newest if selection.last_entry is None else selection.last_entry
    if last > newest:
        raise ConfigurationError(f"the last entry to list is {last}: the log ends at entry {newest}")
    oldest = first_entry_of(objects)
    first = oldest if selection.first_entry is None else selection.first_entry
    if selection.limit is not None:
        first = max(first, last - selection.limit + 1)
    return first, last


def read_table(objects: ObjectStore, task: TableTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task.

    Raises:
        DamagedObject: an entry, a manifest or an index is missing or altered.
        ViewExpired: it is missing because the vacuum has passed what the task names.
    """
    if task.rows is not None:
        yield task.rows
    elif task.partition is not None:
        yield from _batches(task.table, _segment_rows(objects, task.partition))
    elif task.entries is not None:
        first, last = task.entries
        yield from _batches(task.table, map(_entry_row, summaries(objects).entries(first, last)))


def _batches(table: str, rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    schema = SYSTEM_TABLES[table]
    some: list[Row] = []
    for row in rows:
        some.append(row)
        if len(some) >= _BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(some, schema)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema)


def _transaction_rows(snapshot: Snapshot, now_ms: int) -> Iterator[Row]:
    records = [record for record in snapshot.records if isinstance(record, TransactionState)]
    for record in sorted(records, key=lambda record: record.transactional_id):
        is_open = record.status is TransactionStatus.ONGOING
        name = transaction_name(record.transactional_id, record.producer_id, record.transaction)
        yield {
            "transactional_id": record.transactional_id,
            "state": kafka_name(record.status),
            "producer_id": record.producer_id,
            "producer_epoch": record.producer_epoch,
            "transaction": name if record.start_entry >= 0 else None,
            "start_timestamp": timestamp_us(record.start_timestamp_ms),
            "age_ms": max(0, now_ms - record.start_timestamp_ms) if is_open else None,
            "timeout_ms": record.timeout_ms,
            "prepared": record.prepared is not None,
            "partitions": [
                {"topic": _topic_name(snapshot, topic_id), "partition": partition}
                for topic_id, partition in sorted(record.partitions)
            ],
            "groups": sorted({group_id for group_id, _, _ in record.offsets}),
            **_sink_columns(record.sink),
            "batch_entry": record.sink.batches[-1].entry if record.sink and record.sink.batches else None,
        }


def _sink_columns(sink: SinkState | None) -> Row:
    if sink is None or not sink.batches:
        return {"query_id": None, "run_id": None, "batch_id": None}
    return {"query_id": sink.writer_id, "run_id": sink.run_id or None, "batch_id": sink.batches[-1].batch_id}


def _producer_rows(snapshot: Snapshot, now_ms: int) -> Iterator[Row]:
    ids = transactional_ids_of(record for record in snapshot.records if isinstance(record, TransactionState))
    for record in sorted(
        (record for record in snapshot.records if isinstance(record, ProducerState)),
        key=lambda record: (record.topic_id, record.partition, record.producer_id),
    ):
        if record.topic_id not in snapshot.topics:
            continue
        yield {
            "topic": snapshot.topics[record.topic_id].name,
            "partition": record.partition,
            "producer_id": record.producer_id,
            "producer_epoch": _or_none(record.producer_epoch),
            "transactional_id": ids.get(record.producer_id),
            "last_sequence": _or_none(record.last_sequence),
            "last_timestamp": timestamp_us(record.timestamp_ms),
            "coordinator_epoch": _or_none(record.coordinator_epoch),
            "current_transaction_start_offset": _or_none(record.current_transaction_first_offset),
        }


def _group_rows(snapshot: Snapshot, now_ms: int) -> Iterator[Row]:
    committed: dict[tuple[str, int, int], CommittedOffset] = {}
    pending: dict[tuple[str, int, int], PendingOffsets] = {}
    holders: dict[tuple[str, int, int], MemberState] = {}
    for record in snapshot.records:
        if isinstance(record, CommittedOffset):
            committed[record.group_id, record.topic_id, record.partition] = record
        elif isinstance(record, PendingOffsets):
            pending[record.group_id, record.topic_id, record.partition] = record
        elif isinstance(record, MemberState):
            for held in (*record.assigned, *record.revoking):
                holders[record.group_id, held.topic_id, held.partition] = record
    for key in sorted(committed.keys() | pending.keys() | holders.keys()):
        group_id, topic_id, partition = key
        topic, end = _topic_name(snapshot, topic_id), _log_end(snapshot, topic_id, partition)
        if topic is None or end is None:
            continue  # The topic was deleted: its offsets mean nothing, and a sweep forgets them.
        offset, waiting, member = committed.get(key), pending.get(key), holders.get(key)
        yield {
            "group_id": group_id,
            "topic": topic,
            "partition": partition,
            "offset": offset.offset if offset else None,
            "log_end_offset": end,
            "lag": max(0, end - offset.offset) if offset else None,
            "metadata": offset.metadata if offset else None,
            "commit_timestamp": timestamp_us(offset.commit_timestamp_ms) if offset else None,
            "entry": offset.effective_entry if offset else None,
            "pending_transactional_ids": [one.transactional_id for one in waiting.offsets] if waiting else [],
            "member_id": member.member_id if member else None,
            "group_instance_id": (member.instance_id or None) if member else None,
            "client_id": member.client_id if member else None,
            "host": member.host if member else None,
            "member_epoch": member.member_epoch if member else None,
        }


def _with_sightings(rows: Iterator[Row], sightings: Sightings) -> Iterator[Row]:
    for row in rows:
        overdue, last_seen_ms = sightings.get((row["group_id"], row["member_id"]), (None, None))
        last_seen = None if last_seen_ms is None else timestamp_us(last_seen_ms)
        yield row | {"member_overdue": overdue, "member_last_seen": last_seen}


def _log_end(snapshot: Snapshot, topic_id: int, partition: int) -> int | None:
    found = snapshot.partitions.get((topic_id, partition))
    return None if found is None else found.log_end_offset


def _segment_rows(objects: ObjectStore, view: PartitionView) -> Iterator[Row]:
    end = view.log_end_offset
    committed = committed_ranges(view)
    aborted = AbortedRanges(aborted_between(objects, view, 0, end))
    for segment in segments_between(objects, view, 0, end):
        committed_entry = committed.entry_of(segment)
        is_kept = bool(aborted.kept(segment, segment.base_offset, segment.end_offset))
        yield {
            "topic": view.topic.name,
            "partition": view.partition,
            "base_offset": segment.base_offset,
            "record_count": segment.row_count,
            "size_bytes": segment.file_share_bytes,
            "file": object_of(view, segment),
            "state": "committed" if committed_entry else "open" if is_kept else "aborted",
            "entry": segment.entry,
            "committed_entry": committed_entry or None,
            "producer_id": _or_none(segment.producer_id),
            "producer_epoch": _or_none(segment.producer_epoch),
            "timestamp_min": timestamp_us(segment.timestamp_min_ms),
            "timestamp_max": timestamp_us(segment.timestamp_max_ms),
        }


def _entry_row(summary: EntrySummary) -> Row:
    records = {_name_of(summary.topic_names, topic_id): one.record_count for topic_id, one in summary.appended.items()}
    return {
        "entry": summary.entry,
        "timestamp": timestamp_us(summary.timestamp_ms),
        "operations": summary.operations,
        "transactions": [
            {
                "transaction": ended.name,
                "committed": ended.committed,
                "transactional_id": ended.record.transactional_id,
                "producer_id": ended.record.producer_id,
                "producer_epoch": ended.record.producer_epoch,
                **_sink_columns(ended.sink),
            }
            for ended in summary.transactions
        ],
        "topics": sorted(records),
        "record_count": sum(records.values()),
        "records": [{"topic": topic, "record_count": records[topic]} for topic in sorted(records)],
        "groups": summary.groups,
    }


def _name_of(topic_names: Mapping[int, str], topic_id: int) -> str:
    return topic_names.get(topic_id, f"topic {topic_id}")


def _topic_name(snapshot: Snapshot, topic_id: int) -> str | None:
    topic = snapshot.topics.get(topic_id)
    return None if topic is None else topic.name


def _or_none(number: int) -> int | None:
    return None if number < 0 else number


_STATE_TABLES: Final[dict[str, tuple[tuple[str, ...], Callable[[Snapshot, int], Iterator[Row]]]]] = {
    "transactions": (("transactions/",), _transaction_rows),
    "producers": (("transactions/", "producers/"), _producer_rows),
    "groups": (("groups/",), _group_rows),
}
