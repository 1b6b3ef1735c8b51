"""Offsets by time (kafka ListOffsets, Consumer.offsets_for_times), and the entry that has committed one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn._engine.format.commands import EndTxn, SinkBatchCommit
from sparktxn._engine.format.schema import offset_column, with_offsets
from sparktxn._engine.format.segment import RECORD_SCHEMA, decode_segment, stored_schema
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.entryhistory import first_entry
from sparktxn._engine.log.views.entrysummary import Ending, find_ending
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.log.views.viewing import HistoryView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import ManifestRef, SegmentRef, TransactionState, TransactionStatus
from sparktxn._rows.scan.aborted import AbortedRanges
from sparktxn._rows.scan.columns import TIMESTAMP, reserved_name
from sparktxn._rows.scan.internalrows import offset_for_time_in_history
from sparktxn._rows.scan.plan import (
    LOG_APPEND_TIME,
    Isolation,
    Order,
    aborted_between,
    end_of,
    located_in,
    segments_between,
    timestamp_type,
)
from sparktxn._rows.scan.segmentbytes import fetch_segment
from sparktxn._rows.scan.transactioncolumns import committed_ranges
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode

_TIMESTAMP_TYPE: Final = RECORD_SCHEMA.field(TIMESTAMP).type


def offset_for_time(
    objects: ObjectStore,
    view: PartitionView,
    timestamp_ms: int,
    isolation: Isolation = "read_committed",
    order: Order = "offset",
) -> int | None:
    """Return the first offset whose record a read of `view` returns, and whose timestamp is `timestamp_ms` or later.

    None if there is none. Under read_committed it is never that of an aborted record. In offset order it is then below
    the last stable offset, in commit order it may be above that of an open transaction.

    Raises:
        DamagedObject: a manifest, an index or a segment is missing or altered.
        ViewExpired: it is missing because the vacuum has passed the view.
    """
    if isinstance(view, HistoryView):
        return offset_for_time_in_history(objects, view, timestamp_ms)
    start, end = view.log_start_offset, end_of(view, isolation, order)
    committed = committed_ranges(view) if order == "commit" else None
    aborted: AbortedRanges | None = None
    for segment in _candidates(objects, view, timestamp_ms, start, end):
        if committed is not None and not committed.entry_of(segment):
            continue
        if aborted is None:
            below = max(start, segment.base_offset)
            is_filtered = isolation == "read_committed" and committed is None
            aborted = AbortedRanges(aborted_between(objects, view, below, end) if is_filtered else ())
        offset = _first_in(objects, view, segment, timestamp_ms, aborted.kept(segment, start, end))
        if offset is not None:
            return offset
    return None


def _candidates(
    objects: ObjectStore, view: PartitionView, timestamp_ms: int, start: int, end: int
) -> Iterator[SegmentRef]:
    """Yield the segments in offset order whose newest record is new enough; only such runs' manifests are loaded."""
    parts: list[ManifestRef | SegmentRef] = [*view.sealed, *view.segments, *(each.run for each in view.rewritten)]
    read_end = start
    for part in sorted(parts, key=attrgetter("base_offset")):
        low, high = max(read_end, part.base_offset), min(end, part.end_offset)
        if part.timestamp_max_ms >= timestamp_ms and low < high:
            segments = segments_between(objects, view, low, high)
            yield from (segment for segment in segments if segment.timestamp_max_ms >= timestamp_ms)
            read_end = max([high, *(segment.end_offset for segment in segments)])


def _first_in(
    objects: ObjectStore, view: PartitionView, segment: SegmentRef, timestamp_ms: int, kept: list[tuple[int, int]]
) -> int | None:
    if not kept:
        return None
    is_new_enough = segment.timestamp_min_ms >= timestamp_ms or timestamp_type(view) == LOG_APPEND_TIME
    if segment.has_gaps:
        return _first_left(objects, view, segment, None if is_new_enough else timestamp_ms, kept)
    if is_new_enough:
        return kept[0][0]
    timestamps = _stored(objects, view, segment).column(0)
    new_enough = pc.greater_equal(timestamps, pa.scalar(timestamp_ms, _TIMESTAMP_TYPE))
    for start, end in kept:
        first = segment.first_row + start - segment.base_offset
        row = pc.index(new_enough.slice(first, end - start), value=True).as_py()
        if row >= 0:
            return int(start + row)
    return None


def _first_left(
    objects: ObjectStore,
    view: PartitionView,
    segment: SegmentRef,
    timestamp_ms: int | None,
    kept: list[tuple[int, int]],
) -> int | None:
    """Return the first offset that has a record, of `timestamp_ms` or later, of a segment with gaps."""
    rows = _stored(objects, view, segment).slice(segment.first_row, segment.row_count)
    if timestamp_ms is not None:
        rows = rows.filter(pc.greater_equal(rows.column(0), pa.scalar(timestamp_ms, _TIMESTAMP_TYPE)))
    offsets = rows.column(rows.num_columns - 1).to_pylist()
    return next((offset for offset in offsets if any(start <= offset < end for start, end in kept)), None)


def _stored(objects: ObjectStore, view: PartitionView, segment: SegmentRef) -> pa.Table:
    """Return the timestamps of a segment's file, with the offsets if the segment has gaps."""
    topic = view.topic
    located = located_in(view, segment)
    data = fetch_segment(objects, located, view.entry)
    columns = [reserved_name(TIMESTAMP, topic.schema)]
    schema = stored_schema(topic.schema)
    if segment.has_gaps:
        schema, columns = with_offsets(schema), [*columns, offset_column(schema)]
    name, count = located.object_name, segment.file_records
    return decode_segment(data, name, schema=schema, columns=columns, record_count=count, verified=True)


# Which entry committed a transaction that a user names: as the table ``entries`` shows it, or as a sink's batch.

# The digits of no number that a log may hold are more.
_TRANSACTION: Final = re.compile(r"(.+):([0-9]{1,19}):([0-9]{1,19})", re.DOTALL)
_BATCH: Final = re.compile(r"(.+):([0-9]{1,19})", re.DOTALL)


class _Named(NamedTuple):
    """What a name may mean: (transactional id, producer id, number), and (query id or txnAppId, batch id)."""

    transaction: tuple[str, int, int] | None
    batch: tuple[str, int] | None

    def is_ended_by(self, end: EndTxn, batch: SinkBatchCommit | None) -> bool:
        """Return whether `end`, which may have committed a sink's `batch`, ended what is named."""
        if (end.transactional_id, end.producer_id, end.transaction) == self.transaction:
            return True
        return end.committed and batch is not None and (batch.writer_id, batch.batch_id) == self.batch


def committing_entry(log: Log, name: str) -> int:
    """Return the entry that committed the transaction that `name` names.

    Recent ones are found in the state. For others the log's entries are read from the newest to the oldest.

    Raises:
        ConfigurationError: `name` names no transaction, or one that is open, aborted or not found.
        DamagedObject: an entry is missing or damaged.
    """
    named = _parsed(name)
    log.refresh()
    oldest, newest = first_entry(log.objects), log.entry
    start = oldest
    for record in log.transactions():
        entry = _remembered(record, named)
        if entry is not None:
            return entry
        if (record.transactional_id, record.producer_id, record.transaction) == named.transaction:
            if record.status is TransactionStatus.ONGOING:
                raise ConfigurationError(
                    f"transaction {arguments.shown(name)} is open: only a committed one can be read as of"
                )
            start = max(oldest, record.start_entry)
    found = find_ending(log.objects, start, newest, named.is_ended_by)
    return _committed(name, found, oldest, newest)


def _parsed(name: str) -> _Named:
    transaction, batch = _TRANSACTION.fullmatch(name), _BATCH.fullmatch(name)
    if batch is None:
        raise ConfigurationError(
            f"transaction {arguments.shown(name)} is not the name of one: expected "
            "transactionalId:producerId:number as the table 'entries' shows it, or queryId:batchId of a sink"
        )
    return _Named(
        None if transaction is None else (transaction[1], int(transaction[2]), int(transaction[3])),
        (batch[1], int(batch[2])),
    )


def _remembered(record: TransactionState, named: _Named) -> int | None:
    """Return the entry that committed the sink's batch, if the transactional id's state has it."""
    if record.sink is None or named.batch is None or record.sink.writer_id != named.batch[0]:
        return None
    return next((batch.entry for batch in record.sink.batches if batch.batch_id == named.batch[1]), None)


def _committed(name: str, found: Ending | None, oldest: int, newest: int) -> int:
    if found is None:
        passed = f", or an entry below {oldest}, which a vacuum may have passed, has" if oldest > 1 else ""
        raise ConfigurationError(
            f"transaction {arguments.shown(name)} is unknown: none of the entries {oldest} to {newest} has committed "
            f"it{passed}; the table 'entries' lists those that they have"
        )
    if not found.committed:
        raise ConfigurationError(
            f"transaction {arguments.shown(name)} was aborted, by entry {found.entry}: it has no records to read"
        )
    return found.entry


# One view for all that a request names, whichever of its topics exist.


def view_of_existing(log: Log, topics: Iterable[str]) -> ReadView:
    """Return the newest view of those of `topics` that exist; the others are left out.

    Raises:
        StoreError: the log cannot be read.
    """
    named = sorted(set(topics))
    while True:
        try:
            return log.view(named)
        except CommandRefused as refused:
            # One does not exist, or was deleted meanwhile: the view has made this known.
            existing = [name for name in named if log.topic(name) is not None]
            if refused.error.code() != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or existing == named:
                raise
            named = existing
