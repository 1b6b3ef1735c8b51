"""Records that wait in memory, per partition, and how many may; a segment that grows past one part.

`produce` appends to a partition's list without a lock: it only compares the list's length with an allowance. The caller
that comes to the end of one calls `add`, which counts what waits, sends full segments off, and gives the next
allowance. The allowances of all partitions together never pass the queue's limit. A list is emptied from its front,
never replaced, so that a row appended meanwhile by another thread stays in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from sparktxn._engine.objectstore.contract import OBJECT_SIZE_MAX
from sparktxn._rows.stage.pendingsegment import PendingSegment, Row, Uploads
from sparktxn._rows.stage.recordsizes import payload_bytes, rows_that_fit
from sparktxn._rows.stage.rowpartitions import key_column
from sparktxn._rows.stage.segmentwriter import FILE_BYTES, ROW_GROUP_BYTES, ROW_GROUP_ROWS, SegmentWriter
from sparktxn._rows.stage.stagedsegment import StagedSegment, StageTopic
from sparktxn._rows.stage.uploading import NOT_COUNTED, RECORD_BYTES_MAX, upload_encoded

# A segment that is encoded while its records still come: row group by row group, so that only the file waits.


class GrowingSegment(PendingSegment):
    """A Parquet segment that takes row groups until it is closed; then it is uploaded as others are.

    One thread at a time adds and closes.
    """

    __slots__ = ("_data", "_payload_bytes", "_writer", "is_open", "noted_bytes")

    def __init__(self, uploads: Uploads, topic: StageTopic, partition: int) -> None:
        super().__init__(uploads, topic, partition, (), 0)
        self.is_open = True
        self.noted_bytes = 0
        """What its buffer has counted of `memory_bytes`."""
        self._writer: SegmentWriter | None = SegmentWriter(topic.compression, uploads.background, is_fresh=True)
        self._data: bytes | None = None
        self._payload_bytes = 0

    def add(self, rows: pa.Table, size_bytes: int) -> None:
        """Have a row group encoded in the background, once the one before it is."""
        self._take(rows, size_bytes).end_row_group()

    def close(self, rows: pa.Table | None, size_bytes: int) -> None:
        """Take the last rows, which are encoded with the upload; no others come."""
        if rows is not None:
            self._take(rows, size_bytes)
        self.is_open = False

    def _take(self, rows: pa.Table, size_bytes: int) -> SegmentWriter:
        if self._writer is None or not self.is_open:
            raise AssertionError(f"{self.describe()} takes no more rows")
        if self._uploads.counts_payload:
            self._payload_bytes += payload_bytes(rows)
        self.record_count += rows.num_rows
        self.size_bytes += size_bytes
        self._writer.add(rows, size_bytes)
        return self._writer

    def written_bytes(self) -> int:
        """Wait for the row group that is being encoded; return what the row groups take in the file."""
        return 0 if self._writer is None else self._writer.written_bytes()

    @property
    def memory_bytes(self) -> int:
        """What it has in memory: the file so far, and the row group that is being encoded as it is."""
        return 0 if self._writer is None else self._writer.size_bytes_max

    def start(self) -> None:
        """Upload in the background, unless rows may still come, or that is done or under way."""
        if not self.is_open:
            super().start()

    @property
    def may_be_inline(self) -> bool:
        """Return False: it has more than an entry carries."""
        return False

    def drop(self) -> None:
        """Let the records go: they will not be stored."""
        self.is_open = False
        super().drop()

    def _uploaded(self, given: Sequence[Row] | pa.Table, born: int) -> StagedSegment:
        if self._writer is None or self.is_open:
            raise AssertionError(f"{self.describe()} is uploaded before it is complete, or again")
        if self._data is None:
            # Kept, so that an upload after an error has the same bytes.
            self._data = self._writer.finish()
        staged = upload_encoded(
            self._uploads.objects,
            self._uploads.ids,
            born,
            self.topic,
            self.partition,
            self._data,
            record_count=self.record_count,
            timestamps_ms=self._writer.timestamp_bounds_ms,
            payload=self._payload_bytes if self._uploads.counts_payload else NOT_COUNTED,
            clock=self._uploads.clock,
        )
        self._writer = self._data = None
        return staged


_SEGMENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""What goes at most into a segment that is encoded at once, before compression: well below what one put can carry."""

_FILE_BYTES_MAX: Final = OBJECT_SIZE_MAX - 1024 * 1024
"""How large a file may become if its next row group does not compress."""

_ROOM_WAIT_S: Final = 1.0
"""How long produce() waits for an upload under way before it says that the queue is full."""


_ROW_GROUP_BYTES_MIN: Final = 256 * 1024
"""Fewer columns do not become a row group: when memory is full, a file of their own leaves with them."""


class BufferedTopic:
    """What the buffers of a topic's partitions know of it. They do not know each other: so records are in no cycle.

    `sticky` is the partition that records without a key go to.
    """

    __slots__ = ("column_bytes_max", "grows", "segment_bytes", "segment_rows", "stage", "sticky")

    def __init__(self, stage: StageTopic) -> None:
        self.stage = stage
        self.segment_rows = stage.segment_rows
        self.segment_bytes = min(_SEGMENT_BYTES_MAX, stage.segment_bytes)
        self.grows = stage.segment_format == "parquet"
        """Whether columns become a file row group by row group, so that its own size can say when it ends."""
        self.column_bytes_max = stage.segment_bytes if self.grows else self.segment_bytes
        self.sticky = 0


class Room(NamedTuple):
    """How many more rows and bytes go into what waits; with `ends_segment` nothing follows them in its segment."""

    rows: int
    size_bytes: int
    ends_segment: bool


class PartitionBuffer:
    """What waits for one partition: columns first, then rows, in the order they were produced."""

    __slots__ = (
        "bytes_max",
        "growing",
        "partition",
        "rows",
        "rows_max",
        "seen_bytes",
        "seen_rows",
        "size_bytes",
        "table_bytes",
        "table_rows",
        "tables",
        "topic",
    )

    def __init__(self, topic: BufferedTopic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.rows: list[Row] = []
        # Counted without a lock: two threads may lose a record's bytes between them. It only decides when to send.
        self.size_bytes = 0
        self.rows_max = 0
        self.bytes_max = 0
        self.growing: GrowingSegment | None = None
        self.tables: list[pa.Table] = []
        self.table_rows = 0
        self.table_bytes = 0
        self.seen_rows = 0
        self.seen_bytes = 0

    def record_count(self) -> int:
        """Return how many records wait."""
        return len(self.rows) + self.table_rows

    def file_bytes(self) -> int:
        """Return what the file has in memory that its first columns are becoming."""
        return 0 if self.growing is None else self.growing.noted_bytes

    def room(self) -> Room:
        """Return how many more rows and bytes go into the row group that waits."""
        topic, growing = self.topic, self.growing
        of_segment = Room(
            topic.segment_rows - self.table_rows - (0 if growing is None else growing.record_count),
            topic.column_bytes_max - self.table_bytes - (0 if growing is None else growing.size_bytes),
            ends_segment=True,
        )
        if not topic.grows:
            return of_segment
        rows, size_bytes = ROW_GROUP_ROWS - self.table_rows, ROW_GROUP_BYTES - self.table_bytes
        ends_segment = of_segment.rows <= rows or of_segment.size_bytes <= size_bytes
        return Room(min(rows, of_segment.rows), min(size_bytes, of_segment.size_bytes), ends_segment)


class _PartitionBuffers(dict[int, PartitionBuffer]):
    """The buffers of a topic's partitions, each made when it is first asked for: few writers write to all of many."""

    __slots__ = ("_partition_count", "_topic")

    def __init__(self, topic: BufferedTopic, partition_count: int) -> None:
        super().__init__()
        self._topic = topic
        self._partition_count = partition_count

    def __missing__(self, partition: int) -> PartitionBuffer:
        if not 0 <= partition < self._partition_count:
            raise IndexError(f"partition {partition} of {self._partition_count}")
        # Of two threads that ask at once both get the same.
        return self.setdefault(partition, PartitionBuffer(self._topic, partition))


class TopicBuffer:
    """A topic as the producer knows it, with its partitions' buffers."""

    __slots__ = ("key_column", "partition_count", "partitions", "requires_key", "shared", "size_max", "stage")

    def __init__(self, stage: StageTopic, message_bytes_max: int = RECORD_BYTES_MAX) -> None:
        self.stage = stage
        self.shared = BufferedTopic(stage)
        self.key_column = key_column(stage)
        self.partition_count = stage.partition_count
        self.partitions = _PartitionBuffers(self.shared, stage.partition_count)
        self.size_max = min(RECORD_BYTES_MAX, message_bytes_max, stage.message_bytes_max)
        self.requires_key = stage.is_compacted


def _all_records(segment: PendingSegment) -> int:
    return segment.record_count


def _nothing() -> int:
    return 0


class Limits(NamedTuple):
    """How much may wait: half of the records and of the bytes in buffers, the rest in segments on their way.

    Files that columns are becoming are on their way, too.

    A partition gets at most `batch_records_max` rows before it asks again.
    """

    records_max: int
    batch_records_max: int
    bytes_max: int


class Buffers:
    """All records of one writer that wait, and the segments that they have become and no entry names yet.

    `on_waiting` is called when records wait, `served` returns how many reports wait, and `waiting_in` how many
    of a segment's records count as waiting.
    """

    def __init__(
        self,
        uploads: Uploads,
        limits: Limits,
        *,
        on_waiting: Callable[[], object] = _nothing,
        served: Callable[[], int] = _nothing,
        waiting_in: Callable[[PendingSegment], int] = _all_records,
    ) -> None:
        self._uploads = uploads
        self._limits = limits
        self._waiting_in = waiting_in
        self._on_waiting = on_waiting
        self._served = served
        self._lock = threading.Lock()
        self._active: dict[PartitionBuffer, None] = {}
        self._segments: list[PendingSegment] = []
        self._table_bytes = 0
        self._file_bytes = 0
        # What waited in the active buffers when each was looked at.
        self._seen_rows = 0
        self._seen_bytes = 0
        self._checks_left = 0

    def __len__(self) -> int:
        """Records that wait: not durable yet, or with a report that is still to come."""
        with self._lock:
            return self._buffered() + self._leaving()

    def buffered(self) -> int:
        """Count the records that are in no segment yet."""
        with self._lock:
            return self._buffered()

    def buffered_bytes(self) -> int:
        """Return their bytes."""
        with self._lock:
            return self._buffered_bytes()

    def has_records(self) -> bool:
        """Return True if anything waits, or has been uploaded and is not named."""
        with self._lock:
            return bool(self._segments) or self._buffered() > 0

    def topics(self) -> list[StageTopic]:
        """Return the topics of the records that wait."""
        with self._lock:
            waiting = [buffer.topic.stage for buffer in self._active if buffer.record_count()]
            return [*waiting, *(segment.topic for segment in self._segments)]

    def not_stored(self) -> int:
        """Count the records that no entry is known to hold, uploaded ones among them."""
        with self._lock:
            return self._buffered() + sum(segment.record_count for segment in self._segments)

    def add(self, buffer: PartitionBuffer, row: Row, size_bytes: int) -> None:
        """Append a row that `buffer`'s allowance does not cover, and give it the next allowance.

        Raises:
            BufferError: the queue is full, and stayed so while an upload was waited for.
        """
        self._make_room(buffer, size_bytes)
        buffer.rows.append(row)
        self._on_waiting()

    def _make_room(self, buffer: PartitionBuffer, size_bytes: int) -> None:
        while True:
            with self._lock:
                self._active[buffer] = None
                if buffer.size_bytes + size_bytes > buffer.topic.segment_bytes and buffer.rows:
                    self._roll(buffer)
                self._check_room(buffer, size_bytes)
                self._send_full(buffer)
                granted = self._grant(buffer)
                uploading = next((segment for segment in self._segments if segment.staged is None), None)
            if granted:
                return
            before = len(self)
            if uploading is not None:
                self._wait_for(uploading)
            if uploading is None or len(self) >= before:
                raise BufferError(
                    f"Local: Queue full: {before} records wait and queue.buffering.max.messages is "
                    f"{self._limits.records_max}: call poll() and produce again"
                )

    def add_table(self, buffer: PartitionBuffer, table: pa.Table) -> list[PendingSegment]:
        """Append columns, and return the segments that have become full; their uploads have begun.

        Waits while two uploads per thread are under way, so that memory stays bounded.
        """
        with self._lock:
            made = self._roll(buffer) if buffer.rows else []
            self._active[buffer] = None
            made += self._fill(buffer, table)
            made += self._within_memory()
            uploading = [segment for segment in self._segments if segment.is_under_way]
        for segment in uploading[: len(uploading) - 2 * self._uploads.threads]:
            self._wait_for(segment)
        self._on_waiting()
        return made

    def _fill(self, buffer: PartitionBuffer, table: pa.Table) -> list[PendingSegment]:
        """Append columns, and make a segment at each limit, whatever the tables' sizes."""
        made = []
        start = 0
        while start < table.num_rows:
            room = buffer.room()
            rows = table.slice(start, room.rows)
            if rows.nbytes > room.size_bytes:
                fitting = rows_that_fit(rows, room.size_bytes)
                if not fitting and (buffer.table_rows or buffer.growing is not None):
                    made += self._end_row_group(buffer, ends_segment=room.ends_segment)
                    continue
                rows = rows.slice(0, max(1, fitting))
            start += rows.num_rows
            size_bytes = rows.nbytes
            buffer.tables.append(rows)
            buffer.table_rows += rows.num_rows
            buffer.table_bytes += size_bytes
            self._table_bytes += size_bytes
            left = buffer.room()
            if start < table.num_rows or left.rows <= 0 or left.size_bytes <= 0:
                made += self._end_row_group(buffer, ends_segment=room.ends_segment)
        return made

    def _end_row_group(self, buffer: PartitionBuffer, *, ends_segment: bool) -> list[PendingSegment]:
        """Have the columns that wait encoded as the next row group of a file; return what is complete by that."""
        if ends_segment:
            return self._roll(buffer)
        made: list[PendingSegment] = []
        if buffer.growing is not None and not self._has_room(buffer, buffer.growing):
            made.append(self._complete(buffer, buffer.growing))
        if buffer.tables:
            if buffer.growing is None:
                buffer.growing = GrowingSegment(self._uploads, buffer.topic.stage, buffer.partition)
                self._segments.append(buffer.growing)
            buffer.growing.add(*self._taken(buffer))
            self._note(buffer.growing)
        return made

    def _has_room(self, buffer: PartitionBuffer, growing: GrowingSegment) -> bool:
        """Return whether the columns that wait may be the next row group of a file."""
        file_bytes = growing.written_bytes()
        self._note(growing)
        return file_bytes < FILE_BYTES and file_bytes + buffer.table_bytes <= _FILE_BYTES_MAX

    def _taken(self, buffer: PartitionBuffer) -> tuple[pa.Table, int]:
        """Return the columns that wait in `buffer`, and their bytes; they wait no more."""
        table, size_bytes = pa.concat_tables(buffer.tables), buffer.table_bytes
        self._table_bytes -= size_bytes
        buffer.tables, buffer.table_rows, buffer.table_bytes = [], 0, 0
        return table, size_bytes

    def _complete(self, buffer: PartitionBuffer, growing: GrowingSegment, *, start: bool = True) -> GrowingSegment:
        """Close the file of `buffer`, with the columns that wait if they may be its last row group."""
        taken = self._taken(buffer) if buffer.tables and self._has_room(buffer, growing) else (None, 0)
        growing.close(*taken)
        self._file_bytes -= growing.noted_bytes
        buffer.growing = None
        if start:
            growing.start()
        return growing

    def _note(self, growing: GrowingSegment) -> None:
        """Count what a file has in memory now."""
        now_bytes = growing.memory_bytes
        self._file_bytes += now_bytes - growing.noted_bytes
        growing.noted_bytes = now_bytes

    def _within_memory(self) -> list[PendingSegment]:
        """Send off what is largest until no more waits than may: columns as a row group, if they are enough for one."""
        made: list[PendingSegment] = []
        half = self._limits.bytes_max // 2
        while self._table_bytes >= half:
            largest = max(self._active, key=lambda active: active.size_bytes + active.table_bytes)
            if largest.topic.grows and largest.table_bytes >= _ROW_GROUP_BYTES_MIN:
                made += self._end_row_group(largest, ends_segment=False)
            else:
                made += self._roll(largest)
        while self._file_bytes >= half:
            largest = max(self._active, key=PartitionBuffer.file_bytes)
            growing, noted_bytes = largest.growing, largest.file_bytes()
            assert growing is not None, "only files that grow are counted"
            # What has been encoded meanwhile takes less than it is counted with.
            growing.written_bytes()
            self._note(growing)
            if growing.noted_bytes >= noted_bytes:
                made += self._roll(largest)
        return made

    def close_topic(self, topic: TopicBuffer) -> None:
        """Make segments of what waits for a topic that another buffer takes the place of: what it gets comes after."""
        with self._lock:
            for buffer in [active for active in self._active if active.topic is topic.shared]:
                self._roll(buffer)

    def take(self) -> list[PendingSegment]:
        """Return all that waits, as segments in order; they count as waiting until `settle`."""
        with self._lock:
            for buffer in list(self._active):
                # An empty one stays for a round: a thread may be about to append what its allowance lets it.
                if buffer.rows_max == 0 and buffer.record_count() == 0 and buffer.growing is None:
                    self._forget(buffer)
                    del self._active[buffer]
                else:
                    self._roll(buffer, start=False)
            return list(self._segments)

    def settle(self, segments: Sequence[PendingSegment]) -> None:
        """Forget segments whose outcome is known."""
        with self._lock:
            gone = set(map(id, segments))
            self._segments = [segment for segment in self._segments if id(segment) not in gone]

    def _buffered(self) -> int:
        return sum(buffer.record_count() for buffer in self._active)

    def _buffered_bytes(self) -> int:
        return sum(buffer.size_bytes + buffer.table_bytes for buffer in self._active)

    def _check_room(self, buffer: PartitionBuffer, size_bytes: int) -> None:
        """Note what waits in `buffer`, with the row of `size_bytes` that comes; and in all others, if it is time to.

        It is once they all could have been looked at, and always from a quarter of a limit on. So a row costs the same
        over any number of partitions. What others have taken since is at most their allowances.
        """
        self._forget(buffer)
        self._see(buffer, buffer.record_count() + 1, buffer.size_bytes + buffer.table_bytes + size_bytes)
        self._checks_left -= 1
        limits = self._limits
        if (
            self._checks_left <= 0
            or self._seen_rows >= limits.records_max // 4
            or self._seen_bytes >= limits.bytes_max // 4
        ):
            self._seen_rows = self._seen_bytes = 0
            for active in self._active:
                self._see(active, active.record_count(), active.size_bytes + active.table_bytes)
            self._checks_left = len(self._active)

    def _see(self, buffer: PartitionBuffer, rows: int, size_bytes: int) -> None:
        buffer.seen_rows, buffer.seen_bytes = rows, size_bytes
        self._seen_rows += rows
        self._seen_bytes += size_bytes

    def _forget(self, buffer: PartitionBuffer) -> None:
        self._seen_rows -= buffer.seen_rows
        self._seen_bytes -= buffer.seen_bytes
        buffer.seen_rows = buffer.seen_bytes = 0

    def _leaving(self) -> int:
        return sum(map(self._waiting_in, self._segments))

    def _is_full(self, buffer: PartitionBuffer) -> bool:
        topic = buffer.topic
        return (
            buffer.record_count() >= topic.segment_rows or buffer.size_bytes + buffer.table_bytes >= topic.segment_bytes
        )

    def _send_full(self, buffer: PartitionBuffer) -> None:
        """Send off the full segment, or the largest one when half of what may wait does."""
        if self._is_full(buffer):
            self._roll(buffer)
        elif self._seen_rows >= max(1, self._limits.records_max // 2):
            self._roll(max(self._active, key=PartitionBuffer.record_count))
        elif self._seen_bytes >= self._limits.bytes_max // 2:
            self._roll(max(self._active, key=lambda active: active.size_bytes))

    def _grant(self, buffer: PartitionBuffer) -> bool:
        """Set how many rows and bytes `buffer` may take before it asks again; False if none."""
        queued = self._seen_rows
        room = self._limits.records_max - queued - self._leaving() - self._served()
        if room <= 0:
            return False
        sharing = 2 * len(self._active)
        half = max(1, self._limits.records_max // 2) - queued
        rows = max(1, min(room, half, self._limits.batch_records_max) // sharing)
        waiting_bytes = self._limits.bytes_max // 2 - self._seen_bytes
        buffer.rows_max = min(len(buffer.rows) + rows, buffer.topic.segment_rows)
        buffer.bytes_max = min(buffer.size_bytes + max(1, waiting_bytes // sharing), buffer.topic.segment_bytes)
        return True

    def _roll(self, buffer: PartitionBuffer, *, start: bool = True) -> list[PendingSegment]:
        """Make segments of what waits in `buffer`; with `start` their uploads begin in the background."""
        complete: list[PendingSegment] = []
        if buffer.growing is not None:
            complete.append(self._complete(buffer, buffer.growing, start=start))
        made = []
        if buffer.tables:
            made.append(PendingSegment(self._uploads, buffer.topic.stage, buffer.partition, *self._taken(buffer)))
        count = len(buffer.rows)
        if count:
            rows = buffer.rows[:count]
            size_bytes, buffer.size_bytes = buffer.size_bytes, 0
            del buffer.rows[:count]
            made.append(PendingSegment(self._uploads, buffer.topic.stage, buffer.partition, rows, size_bytes))
        buffer.rows_max = 0
        self._forget(buffer)
        if buffer.partition == buffer.topic.sticky and (complete or made):
            buffer.topic.sticky = (buffer.partition + 1) % buffer.topic.stage.partition_count
        self._segments.extend(made)
        if start:
            for segment in made:
                segment.start()
        return complete + made

    def _wait_for(self, segment: PendingSegment) -> None:
        """Wait for an upload that goes on; what it raises is reported by the call that publishes it."""
        segment.wait(_ROOM_WAIT_S)
