"""A segment that is encoded while its records still come: row group by row group, so that only the file waits."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparktxn.stage.pendingsegment import PendingSegment, Row, Uploads
from sparktxn.stage.recordsizes import payload_bytes
from sparktxn.stage.segmentwriter import SegmentWriter
from sparktxn.stage.stagedsegment import StagedSegment, StageTopic
from sparktxn.stage.uploading import NOT_COUNTED, upload_encoded

__all__ = ["GrowingSegment"]


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
