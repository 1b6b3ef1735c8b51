"""Records of one partition that leave together: rows or columns, then a segment that is uploaded and not yet named."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait as wait_for_futures
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from sparktxn._engine.format.segment import record_columns
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.writehealth import with_last_error
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.process.clock import Clock, Deadline, Ids, time_left_s
from sparktxn._foundation.values.quantities import counted
from sparktxn._kafka.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    ErrorMessage,
    Headers,
    Message,
    ReadMessage,
)
from sparktxn._rows.stage.stagedsegment import StagedSegment, StageTopic, may_be_carried
from sparktxn._rows.stage.uploading import inline_segment, upload_segment
from sparktxn.errors import ErrorCode, KafkaError, OutcomeUnknown

if TYPE_CHECKING:
    from sparktxn._engine.log.log import Log

DeliveryCallback = Callable[[KafkaError | None, Message], Any]

Row = tuple[bytes | None, bytes | None, int, Headers | None, tuple[DeliveryCallback, int] | None]
"""(key, value, timestamp in milliseconds, headers, None or the callback and when it was given)."""

_TIMESTAMP: Final = 2
_REPORT: Final = 4


class Uploads(NamedTuple):
    """Where segments are uploaded to, and how.

    `born` returns the newest entry that the writer knows. `timeout_s` is what one request may take. `threads` uploads
    run at a time. With `counts_payload` the staged segments have their payload's size. Segments of at most
    `inline_bytes` may be left to the entry that names them.
    """

    objects: ObjectStore
    ids: Ids
    clock: Clock
    background: Background
    born: Callable[[], int]
    timeout_s: float
    threads: int
    counts_payload: bool
    inline_bytes: int = 0

    @classmethod
    def of(cls, log: Log) -> Uploads:
        """Return how a client of `log` uploads, by the settings of its handle."""
        return cls(
            log.objects,
            log.ids,
            log.clock,
            log.background,
            log.born,
            log.settings.request_timeout_ms / 1000,
            log.settings.upload_threads,
            counts_payload=False,
            inline_bytes=log.settings.inline_bytes,
        )


class _Reportable(NamedTuple):
    """A record that has a callback, and its `place` in the segment."""

    place: int
    row: Row


def _columns(records: Sequence[Row] | pa.Table) -> tuple[pa.Table, tuple[int, int] | None]:
    """Return the records as columns, and their least and greatest timestamps where a loop over rows finds them.

    Rows become columns of Kafka's record, without headers where no row has any, as segments store them.
    """
    if isinstance(records, pa.Table):
        return records, None
    # One pass a column: unpacking with zip(*rows) would make an iterator of every row, ten times slower.
    milliseconds = [row[_TIMESTAMP] for row in records]
    keys, values = [row[0] for row in records], [row[1] for row in records]
    table = record_columns(keys, values, [row[3] for row in records], milliseconds)
    return table, (min(milliseconds), max(milliseconds))


class PendingSegment:
    """Records on their way into one segment. Made with rows or a table; both are let go once it is uploaded.

    What a delivery report needs is kept only for the rows that have a callback.
    """

    __slots__ = (
        "_future",
        "_lock",
        "_records",
        "_reportable",
        "_uploads",
        "made_s",
        "partition",
        "record_count",
        "size_bytes",
        "staged",
        "topic",
    )

    def __init__(
        self, uploads: Uploads, topic: StageTopic, partition: int, records: Sequence[Row] | pa.Table, size_bytes: int
    ) -> None:
        self._uploads = uploads
        self.topic = topic
        self.partition = partition
        self.size_bytes = size_bytes
        self.made_s = uploads.clock.monotonic_s()
        self.staged: StagedSegment | None = None
        self._future: Future[None] | None = None
        self._lock = threading.Lock()
        self._records: Sequence[Row] | pa.Table | None = records
        self._reportable: list[_Reportable] = []
        if isinstance(records, pa.Table):
            self.record_count: int = records.num_rows
        else:
            self.record_count = len(records)
            self._reportable = [
                _Reportable(place, row) for place, row in enumerate(records) if row[_REPORT] is not None
            ]

    @property
    def report_count(self) -> int:
        """How many of its records have a callback that waits."""
        return len(self._reportable)

    def start(self) -> None:
        """Upload in the background, unless that is done or under way."""
        if self.staged is None and self._future is None:
            self._future = self._uploads.background.submit(self._upload)

    @property
    def is_under_way(self) -> bool:
        """Whether the background has its upload and has not ended it."""
        return self._future is not None and not self._future.done()

    @property
    def may_be_inline(self) -> bool:
        """Whether the entry that names it may carry its records: they are few, and not on their way into the store."""
        if self.staged is not None or self._future is not None:
            return False
        return may_be_carried(self.size_bytes, self.topic.inline_bytes, self._uploads.inline_bytes)

    def stage_inline(self, bytes_max: int) -> int:
        """Encode its records for the entry that is to name it; return how many bytes that is, 0 if it must be uploaded.

        It must if they are more than `bytes_max`.

        Raises:
            CommandRefused: INVALID_TIMESTAMP, a record is dated before 1970.
        """
        with self._lock:
            if self.staged is not None or self._records is None:
                return 0
            records, timestamps_ms = _columns(self._records)
            self.staged = inline_segment(
                self._uploads.ids,
                self.topic,
                self.partition,
                records,
                bytes_max,
                timestamps_ms=timestamps_ms,
                count_payload=self._uploads.counts_payload,
            )
            if self.staged is None:
                return 0
            self._records = None
            return self.staged.size_bytes

    def finish(self) -> StagedSegment:
        """Return the uploaded segment: wait for the background, or upload on this thread; again after an error.

        An upload that the deadline might cut short is left to the background, where it goes on for the next call.

        Raises:
            OutcomeUnknown: the deadline passed while it was under way.
            StoreUnavailable: the object store does not answer, or refuses it. No entry names the segment: it is not
                stored.
        """
        remaining_s = time_left_s()
        is_patient = remaining_s is None or remaining_s >= self._uploads.timeout_s
        if not is_patient:
            self.start()
        future = self._future
        if future is None or (is_patient and future.cancel()):
            # Not begun yet: this thread would only wait for it.
            self._future = None
            self._upload()
        else:
            try:
                future.result(remaining_s)
            except FutureTimeoutError:
                reason = (
                    f"{self.describe()} was not uploaded by the deadline, after {remaining_s:.1f} s: call again, which "
                    "waits for the upload"
                )
                raise OutcomeUnknown(with_last_error(reason, self._uploads.objects)) from None
            finally:
                if future.done():
                    self._future = None
        if self.staged is None:
            raise AssertionError(f"{self.describe()} was uploaded without a result")
        return self.staged

    def wait(self, timeout_s: float) -> None:
        """Wait for an upload under way; `finish` returns its outcome."""
        future = self._future
        if future is not None:
            wait_for_futures([future], timeout_s)

    def describe(self) -> str:
        """Return the segment in an error's words."""
        return (
            f"a segment of {counted(self.record_count, 'record')} for topic {self.topic.name!r}, partition "
            f"{self.partition}"
        )

    def _upload(self) -> None:
        with self._lock:
            if self.staged is not None or self._records is None:
                return
            uploads = self._uploads
            with Deadline(uploads.clock, uploads.timeout_s).governs():
                born = uploads.born()
            self.staged = self._uploaded(self._records, born)
            self._records = None

    def _uploaded(self, given: Sequence[Row] | pa.Table, born: int) -> StagedSegment:
        """Encode the records and put them into the store."""
        uploads = self._uploads
        records, timestamps_ms = _columns(given)
        return upload_segment(
            uploads.objects,
            uploads.ids,
            born,
            self.topic,
            self.partition,
            records,
            timestamps_ms=timestamps_ms,
            clock=uploads.clock,
            count_payload=uploads.counts_payload,
        )

    def delivered(
        self, base_offset: int, append_timestamp_ms: int | None
    ) -> list[tuple[DeliveryCallback, KafkaError | None, Message]]:
        """Return the reports of its records, whose first one has `base_offset`, or -1 if that is not known any more.

        `append_timestamp_ms` is their entry's time, if they have that.
        """
        kind = TIMESTAMP_CREATE_TIME if append_timestamp_ms is None else TIMESTAMP_LOG_APPEND_TIME
        now_ms = self._uploads.clock.wall_ms()
        reports: list[tuple[DeliveryCallback, KafkaError | None, Message]] = []
        for place, row in self._take_reportable():
            offset = base_offset + place if base_offset >= 0 else -1
            timestamp_ms = row[2] if append_timestamp_ms is None else append_timestamp_ms
            reports.append(self._report(row, None, offset, (kind, timestamp_ms), now_ms))
        return reports

    def failed(self, error: KafkaError) -> list[tuple[DeliveryCallback, KafkaError | None, Message]]:
        """Return the reports of its records, all with `error`; let its records go."""
        now_ms = self._uploads.clock.wall_ms()
        return [
            self._report(row, error, None, (TIMESTAMP_CREATE_TIME, row[2]), now_ms)
            for _, row in self._take_reportable()
        ]

    def drop(self) -> None:
        """Let the records go: they will not be stored."""
        if self._future is not None:
            self._future.cancel()
        if self._lock.acquire(blocking=False):
            self._records = None
            self._lock.release()

    def _take_reportable(self) -> list[_Reportable]:
        reportable, self._reportable = self._reportable, []
        return reportable

    def _report(
        self, row: Row, error: KafkaError | None, offset: int | None, timestamp: tuple[int, int], now_ms: int
    ) -> tuple[DeliveryCallback, KafkaError | None, Message]:
        key, value, _, headers, waiting = row
        assert waiting is not None  # narrows the type: only rows with a callback are reportable
        callback, given_ms = waiting
        latency_s = max(0, now_ms - given_ms) / 1000
        kind = ReadMessage if error is None else ErrorMessage
        message = kind(self.topic.name, self.partition, offset, key, value, headers, *timestamp, error, None, latency_s)
        return callback, error, message


def stage_inline(segments: Iterable[PendingSegment], bytes_max: int) -> None:
    """Encode those that are small for the entry that is to name them, the first ones until they have `bytes_max`.

    Raises:
        CommandRefused: INVALID_TIMESTAMP, a record is dated before 1970.
    """
    left_bytes = bytes_max
    for segment in segments:
        if left_bytes > 0 and segment.may_be_inline:
            carried_bytes = segment.stage_inline(left_bytes)
            # Those that follow would be encoded in vain.
            left_bytes = left_bytes - carried_bytes if carried_bytes else 0


def upload_missing(segments: Iterable[PendingSegment]) -> None:
    """Upload those that are neither in the store nor carried, in parallel if it is more than one.

    Raises:
        OutcomeUnknown, StoreUnavailable: some is not uploaded; call again.
    """
    missing = [segment for segment in segments if segment.staged is None]
    for segment in missing[1:]:
        segment.start()
    for segment in missing:
        segment.finish()


def purged(reason: str) -> KafkaError:
    """Return the error in the reports of records that an abort or a purge has removed."""
    return KafkaError(ErrorCode.LOCAL_PURGE_QUEUE, reason)
