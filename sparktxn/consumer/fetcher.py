"""Read views → chunks of records, partition by partition in turn.

A view is pinned until it is used up, so that one poll of the log serves many records. What is held in memory is bounded
by `fetch.max.bytes`: no further partition is opened while those that are open hold more.

Requests to the object store are made by a worker, one partition at a time. The caller's thread takes what has arrived,
and never waits for a store that does not answer. It reads by itself what the log's follower has kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from sparktxn._engine.log.views.entryhistory import History
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.process.background import Background
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._kafka.settings.consumer import ConsumerSettings
from sparktxn._rows.scan.plan import Isolation, ReadTask, end_of, plan_ranges
from sparktxn._rows.scan.reader import read
from sparktxn._rows.scan.segmentbytes import are_kept
from sparktxn.consumer.assignment import Assignment, Progress
from sparktxn.errors import StoreError, ViewExpired

_RANGE_OFFSETS_MAX: Final = 200_000
"""How far ahead one partition is planned: it bounds the plan, and what the reader fetches ahead."""

_READ_AHEAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""What the reader of one range holds at most, whatever the range's size."""

_AHEAD_ROWS: Final = 10_000
_AHEAD_BYTES: Final = 8 * 1024 * 1024
"""A worker stops once it has read so much of a range, until that is used up."""


class _OpenRange:
    """A partition's range under way: a worker reads ahead, the caller's thread takes what has been read.

    It never changes a position: the caller does, when it hands the records out.
    """

    __slots__ = (
        "_ahead",
        "_batch",
        "_batches",
        "_row",
        "end_offset",
        "is_read",
        "key",
        "size_bytes",
        "typed",
    )

    def __init__(
        self, key: TopicPartitionKey, end_offset: int, task: ReadTask, batches: Iterator[pa.RecordBatch]
    ) -> None:
        self.key = key
        self.end_offset = end_offset
        self.typed = task.schema is not None
        self.size_bytes = min(sum(segment.size_bytes for segment in task.segments), _READ_AHEAD_BYTES_MAX)
        self.is_read = False
        self._batches = batches
        self._ahead: deque[pa.RecordBatch] = deque()
        self._batch: pa.RecordBatch | None = None
        self._row = 0

    def read_ahead(self, arrived: Callable[[], None]) -> None:
        """Read the next batches, on a worker thread; `arrived` is called for each."""
        rows = size_bytes = 0
        while rows < _AHEAD_ROWS and size_bytes < _AHEAD_BYTES:
            batch = next(self._batches, None)
            if batch is None:
                self.is_read = True
                return
            if batch.num_rows:
                self._ahead.append(batch)
                rows += batch.num_rows
                size_bytes += batch.nbytes
                arrived()

    def take(self, rows_max: int, bytes_max: int | None) -> pa.RecordBatch | None:
        """Return the next rows that have been read, at least one; None if there are none."""
        if self._batch is None or self._row >= self._batch.num_rows:
            if not self._ahead:
                return None
            self._batch, self._row = self._ahead.popleft(), 0
        batch = self._batch
        if bytes_max is not None:
            row_bytes = max(1, batch.nbytes // batch.num_rows)
            rows_max = min(rows_max, max(1, bytes_max // row_bytes))
        taken = batch.slice(self._row, rows_max)
        self._row += taken.num_rows
        return taken

    def give_back(self, rows: int) -> None:
        """Take back the last `rows` of what was taken last, which were not handed out: they come again."""
        self._row -= rows


class _Fetch:
    """One piece of a worker's work: reads ahead in an open range, or opens the next one, from `position` on.

    The worker sets `source` and `passed_to` (offsets below it hold nothing to hand out), `error` and, last, `ended`.
    `is_wanted` ends when the caller drops what is under way for the partition.
    """

    __slots__ = ("end_offset", "ended", "error", "is_wanted", "passed_to", "position", "progress", "source", "view")

    def __init__(self, progress: Progress, source: _OpenRange | None, view: ReadView, end_offset: int) -> None:
        self.progress = progress
        self.source = source
        self.view = view
        self.position = self.passed_to = progress.position
        self.end_offset = end_offset
        self.error: Exception | None = None
        self.is_wanted = True
        self.ended = False


class Chunk(NamedTuple):
    """Rows of one partition, taken from its open range."""

    progress: Progress
    batch: pa.RecordBatch
    source: _OpenRange

    @property
    def typed(self) -> bool:
        """True if the topic declares columns."""
        return self.source.typed

    def offset(self, row: int) -> int:
        """Return the offset of one row."""
        column = self.batch.column("_offset" if self.typed else "offset")
        return int(column[row].as_py())


class Fetcher:
    """Reads what the assignment asks for from one view after another."""

    def __init__(
        self,
        objects: ObjectStore,
        uri: str,
        settings: ConsumerSettings,
        assignment: Assignment,
        now_s: Callable[[], float],
        background: Background,
        arrived: Callable[[], None],
    ) -> None:
        self._objects = objects
        self._uri = uri
        self._settings = settings
        self._isolation: Isolation = "read_committed" if settings.read_committed else "read_uncommitted"
        self._assignment = assignment
        self._now_s = now_s
        self._background = background
        self._arrived = arrived
        self._fetch: _Fetch | None = None
        self._open: dict[TopicPartitionKey, _OpenRange] = {}
        self._histories: dict[int, History] = {}
        self._advanced: Callable[[Progress, int], None] = _move
        self.view: ReadView | None = None

    def on_advance(self, advanced: Callable[[Progress, int], None]) -> None:
        """Set what is called with (partition, offset) when everything below that offset has been handed out."""
        self._advanced = advanced

    def pin(self, view: ReadView) -> None:
        """Continue with a newer view; ranges under way stay as they are, their records are the same in both."""
        self.view = view

    def forget(self) -> None:
        """Drop the view and all that is under way."""
        self.view = None
        self._open.clear()
        if self._fetch is not None:
            self._fetch.is_wanted = False

    def discard(self, key: TopicPartitionKey) -> None:
        """Drop what is under way for one partition: it is read again from its position."""
        self._open.pop(key, None)
        if self._fetch is not None and self._fetch.progress.key == key:
            self._fetch.is_wanted = False

    @property
    def is_busy(self) -> bool:
        """True while a worker reads."""
        return self._fetch is not None

    def partition_view(self, key: TopicPartitionKey) -> PartitionView | None:
        """Return the partition in the pinned view."""
        return None if self.view is None else self.view.partitions.get(key)

    def end_offset(self, view: PartitionView) -> int:
        """Return the offset after the last one that this consumer's isolation level shows."""
        return end_of(view, self._isolation)

    def next_chunk(self, rows_max: int, bytes_max: int | None) -> Chunk | None:
        """Return the next rows of the partition whose turn it is; None if the view holds no more, or while `is_busy`.

        Raises:
            DamagedObject: an object of one partition is damaged: it is set aside for a while, the others go on.
            ViewExpired: the vacuum has passed the view: forget it.
            StoreUnavailable: the object store did not answer.
        """
        self._pick_up()
        now_s = self._now_s()
        for progress in self._assignment.in_turn():
            if not progress.readable(now_s):
                continue
            chunk = self._chunk_of(progress, rows_max, bytes_max)
            if chunk is not None:
                self._assignment.served(progress.key)
                return chunk
        return None

    def _chunk_of(self, progress: Progress, rows_max: int, bytes_max: int | None) -> Chunk | None:
        while True:
            source = self._open.get(progress.key)
            if source is not None:
                # Asked before the rows: a worker that has said so adds no more.
                is_read = source.is_read
                batch = source.take(rows_max, bytes_max)
                if batch is not None:
                    return Chunk(progress, batch, source)
                if is_read:
                    del self._open[progress.key]
                    self._advanced(progress, source.end_offset)
                    continue
            if self._fetch is not None or not self._begin(progress, source):
                return None
            self._pick_up()

    def _begin(self, progress: Progress, source: _OpenRange | None) -> bool:
        """Let a worker read for a partition; False if there is nothing to read, or no room for it."""
        view = self.partition_view(progress.key)
        if view is None or self.view is None or view.topic.topic_id != progress.topic_id:
            return False
        end_offset = self.end_offset(view)
        if source is None:
            if progress.position >= end_offset:
                return False
            if self._open and sum(other.size_bytes for other in self._open.values()) >= self._settings.fetch_bytes_max:
                return False
        fetch = self._fetch = _Fetch(progress, source, self.view, end_offset)
        if source is None and are_kept(self._objects, view, progress.position, end_offset):
            self._work(fetch)
        else:
            self._background.submit(lambda: self._work(fetch))
        return True

    def _work(self, fetch: _Fetch) -> None:
        """Fetch, on a worker, which touches nothing but `fetch` and what that names."""
        try:
            if fetch.source is None:
                self._open_range(fetch)
            if fetch.source is not None:
                fetch.source.read_ahead(self._arrived)
        except Exception as error:  # noqa: BLE001 - the caller's thread raises it
            fetch.error = error
        finally:
            fetch.ended = True
            self._arrived()

    def _pick_up(self) -> None:
        """Take over what the worker has found so far.

        Raises:
            StoreError: as `next_chunk`.
        """
        fetch = self._fetch
        if fetch is None:
            return
        ended, source, progress = fetch.ended, fetch.source, fetch.progress
        if ended:
            self._fetch = None
        if not fetch.is_wanted or self._assignment.get(progress.key) is not progress:
            return
        if source is not None or ended:
            if progress.position == fetch.position < fetch.passed_to:
                self._advanced(progress, fetch.passed_to)
            fetch.position = fetch.passed_to
        if source is not None:
            self._open.setdefault(progress.key, source)
        if ended and fetch.error is not None:
            self.discard(progress.key)
            if isinstance(fetch.error, StoreError) and not isinstance(fetch.error, ViewExpired):
                self._assignment.served(progress.key)
                progress.retry_at_s = self._now_s() + self._settings.fetch_wait_ms_max / 1000
            raise fetch.error

    def _open_range(self, fetch: _Fetch) -> None:
        """Plan the next range; what holds nothing to hand out (aborted, control records) is passed over."""
        key, view = fetch.progress.key, fetch.view
        while fetch.passed_to < fetch.end_offset:
            start = fetch.passed_to
            end = view.partitions[key].end_within(start, fetch.end_offset, _RANGE_OFFSETS_MAX, fetch.end_offset - start)
            tasks = self._plan(view, key, start, end)
            if tasks and tasks[0].segments and tasks[0].segments[-1].end_offset > end:
                # A segment is decoded as a whole: ending inside one would decode it twice.
                end = min(fetch.end_offset, tasks[0].segments[-1].end_offset)
                tasks = self._plan(view, key, start, end)
            if tasks:
                (task,) = tasks
                batches = read(
                    self._objects, task, check_checksums=self._settings.check_crcs, histories=self._histories
                )
                fetch.source = _OpenRange(key, end, task, batches)
                return
            fetch.passed_to = end

    def _plan(self, view: ReadView, key: TopicPartitionKey, start: int, end: int) -> list[ReadTask]:
        return plan_ranges(self._objects, self._uri, view, {key: (start, end)}, isolation=self._isolation)


def _move(progress: Progress, offset: int) -> None:
    progress.position = offset
