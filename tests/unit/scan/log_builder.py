"""Builds a partition's log by hand, segment by segment, with real objects in a memory store."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow as pa

from sparktxn._engine.format import names
from sparktxn._engine.format.manifest import encode_manifest
from sparktxn._engine.format.schema import OFFSET_COLUMN
from sparktxn._engine.format.segment import RECORD_SCHEMA, checksum, encode_segment, stored_schema
from sparktxn._engine.format.txnindex import encode_transaction_index
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._foundation.values.structs import (
    NO_TRANSACTION,
    AbortedTransaction,
    CompactedSegment,
    ManifestRef,
    SegmentRef,
    TopicState,
)

_numbers = count(1)


def memory_store() -> MemoryStore:
    """A new, empty store."""
    return MemoryStore(f"scan-{next(_numbers)}", SystemClock())


def token() -> str:
    return f"{next(_numbers):020x}"


class CountingStore(MemoryStore):
    """Remembers which objects were asked for."""

    def __init__(self) -> None:
        super().__init__(f"scan-{next(_numbers)}", SystemClock())
        self.asked: list[str] = []

    def get(self, name: str) -> bytes | None:
        self.asked.append(name)
        return super().get(name)


class PartitionLog:
    """One partition. Values are ``v<offset>``, keys ``k<offset>``; the timestamp is 1000 + offset unless given."""

    def __init__(
        self,
        objects: MemoryStore,
        *,
        topic: str = "orders",
        partition: int = 0,
        settings: dict[str, str] | None = None,
        schema: tuple[tuple[str, str, bool], ...] | None = None,
        segment_format: str = "parquet",
    ) -> None:
        self.objects = objects
        self.topic = TopicState(topic, 7, 8, settings or {}, schema, 1)
        self.partition = partition
        self.folder = names.partition_folder(topic, 7, partition)
        self.segment_format = segment_format
        self.entry = 1
        self.end = 0
        self.log_start = 0
        self.sealed: list[ManifestRef] = []
        self.segments: list[SegmentRef] = []
        self.aborted: list[AbortedTransaction] = []

    def append(
        self,
        rows: int,
        producer_id: int = 1,
        *,
        transaction: int = NO_TRANSACTION,
        timestamps: Sequence[int] | None = None,
        timestamp_max_ms: int | None = None,
    ) -> SegmentRef:
        times = list(timestamps) if timestamps is not None else [1000 + self.end + row for row in range(rows)]
        data = encode_segment(self._table(rows, times), segment_format=self.segment_format, compression="zstd")
        name = names.segment_file(0, token(), self.segment_format)
        self.objects.put(self.folder + name, data)
        self.entry += 1
        segment = SegmentRef(
            name=name,
            base_offset=self.end,
            record_count=rows,
            size_bytes=len(data),
            checksum=checksum(data),
            entry=self.entry,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transaction=transaction,
            timestamp_min_ms=min(times),
            timestamp_max_ms=max(times) if timestamp_max_ms is None else timestamp_max_ms,
        )
        self.segments.append(segment)
        self.end = segment.end_offset
        return segment

    def _table(self, rows: int, times: list[int]) -> pa.Table:
        offsets = range(self.end, self.end + rows)
        stamps = pa.array(times, pa.int64()).cast(RECORD_SCHEMA.field("timestamp").type)
        if self.topic.schema is not None:
            schema = stored_schema(self.topic.schema)
            return pa.table([pa.array(offsets, schema.field(0).type), stamps], schema=schema)
        return pa.table(
            {
                "key": [b"k%d" % offset for offset in offsets],
                "value": [b"v%d" % offset for offset in offsets],
                "headers": pa.array([[{"key": "h", "value": b"%d" % offset}] for offset in offsets],
                                    RECORD_SCHEMA.field("headers").type),
                "timestamp": stamps,
            },
            schema=RECORD_SCHEMA,
        )  # fmt: skip

    def control(self, rows: int = 1) -> int:
        """Offsets that hold control records; the offset of the last one."""
        self.end += rows
        return self.end - 1

    def abort(
        self, producer_id: int, first_offset: int, *, last_stable_offset: int | None = None
    ) -> AbortedTransaction:
        """Ends a producer's transaction with an abort's control record."""
        last = self.control()
        stable = last + 1 if last_stable_offset is None else last_stable_offset
        aborted = AbortedTransaction(producer_id, first_offset, last, stable)
        self.aborted.append(aborted)
        return aborted

    def seal(self) -> ManifestRef:
        """All single segments so far become a sealed run, with the transactions that were aborted among them."""
        folder = names.sealed_folder(self.segments[0].base_offset, self.entry, token())
        base = self.segments[0].base_offset
        data = encode_manifest(self.segments)
        self.objects.put(names.manifest(self.folder, folder), data)
        if self.aborted:
            index = names.transaction_index(self.folder, folder, base)
            self.objects.put(index, encode_transaction_index(self.aborted))
        run = ManifestRef(
            folder=folder,
            base_offset=base,
            end_offset=self.end,
            segment_count=len(self.segments),
            level=0,
            entry_min=self.segments[0].entry,
            entry_max=self.segments[-1].entry,
            timestamp_min_ms=min(segment.timestamp_min_ms for segment in self.segments),
            timestamp_max_ms=max(segment.timestamp_max_ms for segment in self.segments),
            size_bytes=len(data),
            checksum=checksum(data),
            aborted_count=len(self.aborted),
        )
        self.sealed.append(run)
        self.segments, self.aborted = [], []
        return run

    def name(self, segment: SegmentRef) -> str:
        return self.folder + segment.name

    def view(self, *, last_stable_offset: int | None = None) -> PartitionView:
        return PartitionView(
            topic=self.topic,
            partition=self.partition,
            entry=self.entry,
            log_start_offset=self.log_start,
            last_stable_offset=self.end if last_stable_offset is None else last_stable_offset,
            log_end_offset=self.end,
            sealed=tuple(self.sealed),
            segments=tuple(self.segments),
            aborted=tuple(self.aborted),
        )


def compacted(**options: Any) -> PartitionLog:
    """Offsets 0 to 5 and 6 to 9 in one file, of which a compaction has left 0, 2, 5 and 6, 8."""
    left, times, rows_of_first = [0, 2, 5, 6, 8], [10, 30, 20, 40, 60], 3
    log = PartitionLog(memory_store(), **options)
    column = RECORD_SCHEMA.field("timestamp")
    table = pa.table({column.name: pa.array(times, pa.int64()).cast(column.type), OFFSET_COLUMN: left})
    data = encode_segment(table, segment_format="parquet", compression="zstd")
    name = names.merged_segment_file(0, token())
    log.objects.put(log.folder + name, data)
    for base, end, first_row, row_count in ((0, 6, 0, rows_of_first), (6, 10, rows_of_first, 2)):
        some = times[first_row : first_row + row_count]
        log.segments.append(
            CompactedSegment(
                *(name, base, end - base, len(data), checksum(data), 2, 1, 0, 0, NO_TRANSACTION, min(some), max(some)),
                committed_entry=2,
                first_row=first_row,
                file_records=len(left),
                row_count=row_count,
            )
        )
    log.end = 10
    return log


def read_view(*partitions: PartitionView) -> ReadView:
    return ReadView(
        entry=max(view.entry for view in partitions),
        timestamp_ms=0,
        topics={view.topic.name: view.topic for view in partitions},
        partitions={(view.topic.name, view.partition): view for view in partitions},
    )
