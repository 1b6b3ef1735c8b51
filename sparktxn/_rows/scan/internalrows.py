"""The rows of the internal topics: a task's entries replayed, as Arrow batches or as messages of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparktxn._engine.log.views.entryhistory import EntryHistory, History, entry_not_before
from sparktxn._engine.log.views.readview import PartitionView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.internal import (
    CONSUMER_OFFSETS,
    HALF_DISCARDED,
    HALF_MESSAGES,
    HALF_SETTLED,
    HISTORY_TABLES,
    INTERNAL_TOPIC_IDS,
    TRANSACTION_STATE,
    HistoryChange,
    entry_of,
    first_offset,
)
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import (
    CommittedOffset,
    HalfOutcome,
    HalfState,
    MemberState,
    SettledHalf,
    TopicState,
    TransactionState,
    TransactionStatus,
)
from sparktxn._kafka.message import TIMESTAMP_CREATE_TIME, Message, ReadMessage
from sparktxn._rows.scan.columns import ENTRY, OFFSET, PARTITION, TIMESTAMP, TOPIC, output_schema, reserved_name
from sparktxn._rows.scan.plan import ReadTask

_BATCH_ROWS: Final = 5_000
_OUTCOMES: Final = {
    HalfOutcome.COMMITTED: "Committed",
    HalfOutcome.ROLLED_BACK: "RolledBack",
    HalfOutcome.DELETED: "Deleted",
}


class _Kind(NamedTuple):
    """A kind of rows: the columns of its key, one that is null in a tombstone alone, and those of other kinds."""

    key: tuple[str, ...]
    never_null: str
    others: frozenset[str] = frozenset()


_OFFSET_COLUMNS: Final = ("offset", "metadata", "leader_epoch", "commit_timestamp", "transactional_id", "producer_id")
_MEMBER_COLUMNS: Final = ("group_instance_id", "client_id", "host", "member_epoch", "topics", "assigned", "revoking")
_OF_TRANSACTIONS: Final = _Kind(("transactional_id",), "producer_id")
_OF_OFFSETS: Final = _Kind(
    ("group_id", "topic", "topic_id", "partition"), "offset", frozenset({*_MEMBER_COLUMNS, "member_id", "is_away"})
)
_OF_MEMBERS: Final = _Kind(
    ("group_id", "member_id"), "member_epoch", frozenset({*_OFFSET_COLUMNS, "topic", "topic_id", "partition"})
)
_OF_HALVES: Final = ("group_id", "transaction_id")
_KINDS: Final = {
    TRANSACTION_STATE.name: _OF_TRANSACTIONS,
    CONSUMER_OFFSETS.name: _OF_OFFSETS,
    HALF_MESSAGES.name: _Kind(_OF_HALVES, "state"),
    HALF_SETTLED.name: _Kind(_OF_HALVES, "outcome"),
    HALF_DISCARDED.name: _Kind(_OF_HALVES, "checks"),
}

Row = dict[str, Any]


def _history_of(objects: ObjectStore, topic: TopicState) -> History:
    """Return what computes an internal topic's rows."""
    return History(objects, *HISTORY_TABLES[topic.topic_id])


def read_history(
    objects: ObjectStore, task: ReadTask, *, histories: dict[int, History] | None = None, batch_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the task's rows in offset order. With `histories` that a caller keeps, only new entries are replayed.

    Raises:
        ViewExpired: the vacuum has passed the task's first entry.
        DamagedObject: an entry is damaged.
    """
    topic = INTERNAL_TOPIC_IDS[task.topic_id]
    schema = output_schema(topic.schema, task.columns)
    histories = {} if histories is None else histories
    history = histories.get(topic.topic_id)
    if history is None:
        history = histories[topic.topic_id] = _history_of(objects, topic)
    rows_max = batch_rows or _BATCH_ROWS
    rows: list[Row] = []
    for row in _rows(history, topic, task.start_offset, task.end_offset):
        rows.append(row)
        if len(rows) >= rows_max:
            yield _batch(rows, schema)
            rows = []
    if rows:
        yield _batch(rows, schema)


def _rows(history: History, topic: TopicState, start: int, end: int) -> Iterator[Row]:
    if start >= end:
        return
    for found in history.entries(entry_of(start), entry_of(end - 1)):
        for offset, change in enumerate(found.changes, first_offset(found.entry)):
            if start <= offset < end:
                row = _ROWS[topic.name](change, found)
                reserved = {TOPIC: topic.name, PARTITION: 0, OFFSET: offset, TIMESTAMP: found.timestamp_ms}
                reserved[ENTRY] = found.entry
                row |= {reserved_name(name, topic.schema): value for name, value in reserved.items()}
                yield row | {"entry": found.entry}


def _transaction_row(change: HistoryChange, found: EntryHistory) -> Row:
    record = change.record
    if not isinstance(record, TransactionState):
        return {"transactional_id": change.key[1]}
    return {
        "transactional_id": record.transactional_id,
        "state": kafka_name(record.status),
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "transaction": record.transaction,
        "timeout_ms": record.timeout_ms,
        "partitions": _partitions(record.partitions, found),
        "groups": list(dict.fromkeys(group_id for group_id, _, _ in record.offsets)),
        "start_timestamp": timestamp_us(record.start_timestamp_ms),
        "last_update_timestamp": timestamp_us(record.last_update_timestamp_ms),
        "last_producer_epoch": record.last_producer_epoch,
        "previous_producer_id": record.previous_producer_id,
        "prepared": record.prepared is not None,
        "fence_reason": record.fence_reason or None,
    }


def _offset_row(change: HistoryChange, found: EntryHistory) -> Row:
    _, group_id, topic_id, partition = change.key
    row = {
        "group_id": group_id,
        "topic": found.topic_names.get(int(topic_id)),
        "topic_id": topic_id,
        "partition": partition,
    }
    record, ending = change.record, change.ending
    if isinstance(record, CommittedOffset):
        row |= {
            "offset": record.offset,
            "metadata": record.metadata,
            "leader_epoch": None if record.leader_epoch < 0 else record.leader_epoch,
            "commit_timestamp": timestamp_us(record.commit_timestamp_ms),
            "transactional_id": ending.transactional_id if ending is not None else None,
            "producer_id": ending.producer_id if ending is not None else None,
        }
    return row


def _half_row(change: HistoryChange, found: EntryHistory) -> Row:
    row: Row = {"group_id": change.key[1], "transaction_id": change.key[2]}
    half = change.record
    if not isinstance(half, HalfState):
        return row
    return row | {
        "state": "Discarded" if half.discarded_entry else "Pending",
        "due_timestamp": None if half.discarded_entry else timestamp_us(half.due_ms),
        "checks": half.checks,
        "topics": sorted({segment.topic for segment in half.segments}),
        "message_count": sum(segment.record_count for segment in half.segments),
        "prepared_timestamp": timestamp_us(half.prepared_timestamp_ms),
    }


def _settled_row(change: HistoryChange, found: EntryHistory) -> Row:
    settled = change.record
    assert isinstance(settled, SettledHalf)
    outcome = _OUTCOMES[settled.outcome]
    named = {"group_id": settled.group_id, "transaction_id": settled.transaction_id}
    return {**named, "outcome": outcome, "source": settled.source}


def _member_row(change: HistoryChange, found: EntryHistory) -> Row:
    _, group_id, member_id = change.key
    row: Row = {"group_id": group_id, "member_id": member_id}
    record = change.record
    if isinstance(record, MemberState):
        row |= {
            "group_instance_id": record.instance_id or None,
            "client_id": record.client_id,
            "host": record.host,
            "member_epoch": record.member_epoch,
            "topics": list(record.topics),
            "assigned": _partitions([(held.topic_id, held.partition) for held in record.assigned], found),
            "revoking": _partitions([(held.topic_id, held.partition) for held in record.revoking], found),
            "is_away": record.left,
        }
    return row


def _partitions(places: Iterable[TopicIdPartition], found: EntryHistory) -> list[Row]:
    return [{"topic": found.topic_names.get(topic_id), "partition": partition} for topic_id, partition in places]


def _group_row(change: HistoryChange, found: EntryHistory) -> Row:
    return _member_row(change, found) if change.key[0] == "member" else _offset_row(change, found)


_ROWS: Final = {
    TRANSACTION_STATE.name: _transaction_row,
    CONSUMER_OFFSETS.name: _group_row,
    HALF_MESSAGES.name: _half_row,
    HALF_SETTLED.name: _settled_row,
    HALF_DISCARDED.name: _half_row,
}


def kafka_name(status: TransactionStatus) -> str:
    """Return the name that Kafka's tools print: ``CompleteCommit``."""
    return "".join(word.capitalize() for word in status.name.split("_"))


def timestamp_us(timestamp_ms: int) -> int | None:
    """Return a time for a column of Arrow; None for a negative one, which means none."""
    return None if timestamp_ms < 0 else timestamp_ms * 1_000


def _batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    if not schema.names:
        # Arrow keeps the number of rows of a batch without columns only if it is cut out of another one.
        return pa.record_batch([pa.nulls(len(rows))], names=[OFFSET]).select([])
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def internal_messages(batch: pa.RecordBatch, topic: str) -> list[Message]:
    """Return the rows of an internal topic as messages: key and value are JSON, the value of a removal is None."""
    messages: list[Message] = []
    timestamps_ms = batch.column("_timestamp").cast(pa.int64()).to_pylist()
    for row, timestamp_ms in zip(batch.to_pylist(), timestamps_ms, strict=True):
        key, value = _key_and_value(topic, row)
        messages.append(ReadMessage(topic, 0, row["_offset"], key, value, None, TIMESTAMP_CREATE_TIME, timestamp_ms))
    return messages


def _key_and_value(topic: str, row: Mapping[str, Any]) -> tuple[bytes, bytes | None]:
    """Return a row, as `RecordBatch.to_pylist` gives it, as a message's key and value: JSON in UTF-8.

    The value is None, as in Kafka, where the record was removed. Times are in milliseconds.
    """
    kind = _KINDS[topic]
    if topic == CONSUMER_OFFSETS.name and row["member_id"] is not None:
        kind = _OF_MEMBERS
    key = {name: row[name] for name in kind.key}
    if row[kind.never_null] is None:
        return _json(key), None
    value = {}
    for name, cell in row.items():
        if name.startswith("_") or name in key or name in kind.others:
            continue
        if name.endswith("timestamp"):
            value[f"{name}_ms"] = None if cell is None else int(cell.timestamp() * 1_000)
        else:
            value[name] = cell
    return _json(key), _json(value)


def _json(members: Mapping[str, Any]) -> bytes:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def offset_for_time_in_history(objects: ObjectStore, view: PartitionView, timestamp_ms: int) -> int | None:
    """Return the offset of the first row of an entry that is not older than `timestamp_ms`; None if there is none.

    Raises:
        ViewExpired, DamagedObject: as `read_history`.
    """
    first = entry_not_before(objects, timestamp_ms, entry_of(view.log_start_offset), view.entry)
    start = max(view.log_start_offset, first_offset(first))
    for row in _rows(_history_of(objects, view.topic), view.topic, start, view.log_end_offset):
        return int(row[reserved_name(OFFSET, view.topic.schema)])
    return None
