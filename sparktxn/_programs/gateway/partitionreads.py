"""Records for fetches: ranges of a partition as record batches, read on while clients come for what follows.

A segment is decoded as a whole. So a range that a fetch has not used up stays open for the one that continues it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from sparktxn import PartitionView, ReadView
from sparktxn._foundation.process.events import log_event
from sparktxn._programs.gateway.typedrecords import records_of
from sparktxn._programs.gateway.wire.recordbatches import UNCOMPRESSED, ZSTD, codec_of, control_batch, encode_batches
from sparktxn._rows.scan.offsets import view_of_existing
from sparktxn._rows.scan.plan import LOG_APPEND_TIME, Isolation, end_of, timestamp_type
from sparktxn._rows.stage.recordsizes import payload_bytes
from sparktxn.errors import CommandRefused, ErrorCode, ViewExpired
from sparktxn.store import Store, read_task
from sparktxn.store.reading import key_columns, lacks_deletes

_OPEN_MAX: Final = 256
_READ_TO_MAX: Final = 4_096
_RANGE_OFFSETS_MAX: Final = 200_000
_BATCH_ROWS: Final = 10_000
_NUMBERS: Final = frozenset({"offset", "timestamp"})
_RECORD_BYTES: Final = 26
"""What a record has in a batch apart from its key, value and headers, at most."""
_BATCH_BYTES: Final = 61
"""What a batch has apart from its records."""
_FILLED: Final = 0.75
"""A fetch of which so much is filled ends: ever smaller batches would follow for what is free."""
_RECORD_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")


class Fetched(NamedTuple):
    """What a partition has from an offset on: its record batches, and the offsets that a response names."""

    records: bytes
    log_start_offset: int
    last_stable_offset: int
    log_end_offset: int


class _Cursor:
    """A range that is read from its beginning on; `offset` is where the next read continues."""

    def __init__(self, rows: Iterator[pa.RecordBatch], end_offset: int) -> None:
        self._rows = rows
        self._batch: pa.RecordBatch | None = None
        self.end_offset = end_offset

    def take(self, bytes_max: int, *, whole_row: bool) -> pa.RecordBatch | None:
        """Return the next rows, about `bytes_max`, with `whole_row` at least one; None once the range is used up."""
        while self._batch is None or not self._batch.num_rows:
            self._batch = next(self._rows, None)
            if self._batch is None:
                return None
        head = self._batch.slice(0, _BATCH_ROWS)
        count = (bytes_max - _BATCH_BYTES) // _row_bytes(head)
        taken = head.slice(0, max(int(whole_row), count))
        self._batch = self._batch.slice(taken.num_rows)
        return taken


def _row_bytes(rows: pa.RecordBatch) -> int:
    """Return how many bytes a record of these rows has on average, rather too many than too few.

    Rows of a typed topic become longer than they are here.
    """
    sized = rows.select([name for name in rows.schema.names if name not in _NUMBERS])
    average: int = payload_bytes(pa.Table.from_batches([sized])) // rows.num_rows
    return average + _RECORD_BYTES


_Key = tuple[int, int, Isolation, int]


class Reads:
    """Reads partitions of a store from any offset on. Safe for several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._open: OrderedDict[_Key, _Cursor] = OrderedDict()
        # Where answers of keyed partitions have ended, and the entries of their views: such a client goes on there.
        self._read_to: OrderedDict[tuple[int, int, int], int] = OrderedDict()

    def view(self, topics: set[str]) -> ReadView:
        """Return the newest view of topics that exist; the others are left out."""
        return view_of_existing(self._store.log, topics)

    def fetch(
        self,
        view: ReadView,
        topic: str,
        partition: int,
        offset: int,
        isolation: Isolation,
        bytes_max: int,
        *,
        whole_record: bool = True,
        takes_zstd: bool = True,
    ) -> Fetched:
        """Return records of a partition from `offset` on, about `bytes_max`, with `whole_record` at least one.

        They are compressed as the topic's own ``compression.type`` says, and not with zstd unless the client
        `takes_zstd`.

        Raises:
            CommandRefused: UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OUT_OF_RANGE.
            StoreError: they cannot be read.
        """
        found = view.partitions.get((topic, partition))
        if found is None:
            raise CommandRefused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of {topic!r}"
            )
        if not found.log_start_offset <= offset <= found.log_end_offset:
            raise CommandRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset}: {topic!r} [{partition}] has {found.log_start_offset} to {found.log_end_offset}",
            )
        self._check_deletes(found, offset, view.entry)
        records = b""
        if bytes_max > 0 and offset < end_of(found, isolation):
            codec = codec_of(found.topic.settings.get("compression.type", ""))
            if codec == ZSTD and not takes_zstd:
                codec = UNCOMPRESSED
            try:
                records = self._records(view, found, offset, isolation, bytes_max, codec, whole_record)
            except ViewExpired:
                # A vacuum has passed the view of a range that was open, and not this newer one.
                self._forget(found)
                records = self._records(view, found, offset, isolation, bytes_max, codec, whole_record)
        return Fetched(records, found.log_start_offset, found.last_stable_offset, found.log_end_offset)

    def _records(
        self,
        view: ReadView,
        found: PartitionView,
        offset: int,
        isolation: Isolation,
        bytes_max: int,
        codec: int,
        whole_record: bool,
    ) -> bytes:
        parts: list[bytearray] = []
        size_bytes, next_offset = 0, offset
        end_offset = end_of(found, isolation)
        log_append_time = timestamp_type(found) == LOG_APPEND_TIME
        key = key_columns(found.topic.settings)
        while size_bytes <= _FILLED * bytes_max and next_offset < end_offset:
            cursor = self._take_cursor(view, found, next_offset, isolation)
            rows = cursor.take(bytes_max - size_bytes, whole_row=whole_record and not parts)
            if rows is not None and found.topic.schema is not None:
                rows = records_of(rows, key)
            if rows is None:
                # Nothing but aborted records and control records is left of the range.
                if not parts:
                    return bytes(control_batch(cursor.end_offset - 1, max(0, view.timestamp_ms)))
                next_offset = cursor.end_offset
                continue
            if not rows.num_rows:
                self._put_cursor(found, next_offset, isolation, cursor)
                break
            for batch in encode_batches(rows, log_append_time=log_append_time, codec=codec):
                parts.append(batch)
                size_bytes += len(batch)
            next_offset = rows.column("offset")[-1].as_py() + 1
            self._put_cursor(found, next_offset, isolation, cursor)
        if key:
            self._note_read(found, next_offset, view.entry)
        return b"".join(parts)

    def _check_deletes(self, found: PartitionView, offset: int, entry: int) -> None:
        """Say once that deletes are gone which a client that reads on at an offset may not have seen."""
        if not lacks_deletes(found, offset):
            return
        with self._lock:
            seen_entry = self._read_to.get((found.topic.topic_id, found.partition, offset), 0)
        if lacks_deletes(found, offset, seen_entry):
            topic, partition = found.topic.name, found.partition
            log_event("deletes_missed", reader="a client", topic=topic, partition=partition, position=offset)
            self._note_read(found, offset, entry)

    def _note_read(self, found: PartitionView, offset: int, entry: int) -> None:
        with self._lock:
            self._read_to[found.topic.topic_id, found.partition, offset] = entry
            while len(self._read_to) > _READ_TO_MAX:
                self._read_to.popitem(last=False)

    def _take_cursor(self, view: ReadView, found: PartitionView, offset: int, isolation: Isolation) -> _Cursor:
        with self._lock:
            cursor = self._open.pop((found.topic.topic_id, found.partition, isolation, offset), None)
        return cursor or self._opened(view, found, offset, isolation)

    def _put_cursor(self, found: PartitionView, offset: int, isolation: Isolation, cursor: _Cursor) -> None:
        """Keep a range for the fetch that continues it at `offset`, unless no offset of it is left.

        An answer begins at the offset that was asked for, or above. A client that gets only what lies below takes its
        limit for too small: librdkafka doubles it, and then reports MSG_SIZE_TOO_LARGE.
        """
        if offset >= cursor.end_offset:
            return
        with self._lock:
            self._open[found.topic.topic_id, found.partition, isolation, offset] = cursor
            while len(self._open) > _OPEN_MAX:
                self._open.popitem(last=False)

    def _forget(self, found: PartitionView) -> None:
        with self._lock:
            for key in [key for key in self._open if key[:2] == (found.topic.topic_id, found.partition)]:
                del self._open[key]

    def _opened(self, view: ReadView, found: PartitionView, offset: int, isolation: Isolation) -> _Cursor:
        key = (found.topic.name, found.partition)
        end = found.end_within(offset, end_of(found, isolation), _RANGE_OFFSETS_MAX, _RANGE_OFFSETS_MAX)
        columns = None if found.topic.schema is not None else _RECORD_COLUMNS
        tasks = self._store.plan(view, {key: (offset, end)}, isolation=isolation, columns=columns, rows="all")
        if tasks and tasks[0].segments and tasks[0].segments[-1].end_offset > end:
            end = min(end_of(found, isolation), tasks[0].segments[-1].end_offset)
            tasks = self._store.plan(view, {key: (offset, end)}, isolation=isolation, columns=columns, rows="all")
        options = self._store.options
        rows = (batch for task in tasks for batch in read_task(task, options))
        return _Cursor(rows, end)
