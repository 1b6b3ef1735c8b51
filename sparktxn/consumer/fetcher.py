"""Read views → chunks of records, partition by partition in turn.

A view is pinned until it is used up, so that one look at the log serves many records. What is held in memory is bounded
by `fetch.max.bytes`: no further partition is opened while those that are open hold more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from sparktxn.config.consumer import ConsumerSettings
from sparktxn.consumer.assignment import Assignment, PartitionKey, Progress
from sparktxn.errors import StoreError, ViewExpired
from sparktxn.log.history import History
from sparktxn.log.views import PartitionView, ReadView
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.scan.history import history_of, read_history
from sparktxn.scan.plan import Isolation, ReadTask, end_of, plan_ranges
from sparktxn.scan.reader import read
from sparktxn.state.internal import INTERNAL_TOPIC_IDS, is_internal

__all__ = ["Chunk", "Fetcher"]

_RANGE_OFFSETS_MAX: Final = 200_000
"""How far ahead one partition is planned: it bounds the plan, and what the reader fetches ahead."""

_READ_AHEAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""What the reader of one range holds at the most, whatever the range's size."""


class _OpenRange:
    """A partition's range under way. It never changes a position: that is for whoever hands the records out."""

    __slots__ = ("_batch", "_batches", "_row", "end_offset", "internal", "key", "size_bytes", "typed")

    def __init__(self, key: PartitionKey, end_offset: int, task: ReadTask, batches: Iterator[pa.RecordBatch]) -> None:
        self.key = key
        self.end_offset = end_offset
        self.typed = task.schema is not None
        self.internal = task.topic_id in INTERNAL_TOPIC_IDS
        self.size_bytes = min(sum(segment.size_bytes for segment in task.segments), _READ_AHEAD_BYTES_MAX)
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._row = 0

    def take(self, rows_max: int, bytes_max: int | None) -> pa.RecordBatch | None:
        """The next rows, at least one; None when the range is read."""
        while self._batch is None or self._row >= self._batch.num_rows:
            self._batch, self._row = next(self._batches, None), 0
            if self._batch is None:
                return None
        batch = self._batch
        if bytes_max is not None:
            row_bytes = max(1, batch.nbytes // batch.num_rows)
            rows_max = min(rows_max, max(1, bytes_max // row_bytes))
        taken = batch.slice(self._row, rows_max)
        self._row += taken.num_rows
        return taken

    def give_back(self, rows: int) -> None:
        """The last `rows` of what was taken last were not handed out: they come again."""
        self._row -= rows


class Chunk(NamedTuple):
    """Rows of one partition, taken from its open range."""

    progress: Progress
    batch: pa.RecordBatch
    source: _OpenRange

    @property
    def typed(self) -> bool:
        """True if the topic declares columns."""
        return self.source.typed

    @property
    def internal(self) -> bool:
        """True if the topic is internal: it declares columns, and its rows are messages too."""
        return self.source.internal

    def offset(self, row: int) -> int:
        """The offset of one row."""
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
    ) -> None:
        self._objects = objects
        self._uri = uri
        self._settings = settings
        self._isolation: Isolation = "read_committed" if settings.read_committed else "read_uncommitted"
        self._assignment = assignment
        self._now_s = now_s
        self._open: dict[PartitionKey, _OpenRange] = {}
        self._histories: dict[PartitionKey, History] = {}
        self._advanced: Callable[[Progress, int], None] = _move
        self.view: ReadView | None = None

    def on_advance(self, advanced: Callable[[Progress, int], None]) -> None:
        """Sets what is called with (partition, offset) when everything below that offset has been handed out."""
        self._advanced = advanced

    def pin(self, view: ReadView) -> None:
        """Goes on with a newer view; ranges under way stay as they are, their records are the same in both."""
        self.view = view

    def forget(self) -> None:
        """Drops the view and all that is under way."""
        self.view = None
        self._open.clear()

    def discard(self, key: PartitionKey) -> None:
        """Drops what is under way for one partition: it is read again from its position."""
        self._open.pop(key, None)

    def partition_view(self, key: PartitionKey) -> PartitionView | None:
        """The partition in the pinned view."""
        return None if self.view is None else self.view.partitions.get(key)

    def end_offset(self, view: PartitionView) -> int:
        """The offset after the last one that this consumer's isolation level shows."""
        return end_of(view, self._isolation)

    def next_chunk(self, rows_max: int, bytes_max: int | None) -> Chunk | None:
        """The next rows of the partition whose turn it is; None when the view holds no more.

        Raises:
            DamagedObject: an object of one partition is damaged: it is set aside for a while, the others go on.
            ViewExpired: the vacuum has passed the view: forget it.
            StoreUnavailable: the object store did not answer.
        """
        now_s = self._now_s()
        for progress in self._assignment.in_turn():
            if not progress.readable(now_s):
                continue
            try:
                chunk = self._chunk_of(progress, rows_max, bytes_max)
            except StoreError as error:
                self.discard(progress.key)
                if not isinstance(error, ViewExpired):
                    self._assignment.served(progress.key)
                    progress.retry_at_s = now_s + self._settings.fetch_wait_ms_max / 1000
                raise
            if chunk is not None:
                self._assignment.served(progress.key)
                return chunk
        return None

    def _chunk_of(self, progress: Progress, rows_max: int, bytes_max: int | None) -> Chunk | None:
        while True:
            source = self._open.get(progress.key)
            if source is None:
                source = self._open_range(progress)
                if source is None:
                    return None
            batch = source.take(rows_max, bytes_max)
            if batch is not None:
                return Chunk(progress, batch, source)
            del self._open[progress.key]
            self._advanced(progress, source.end_offset)

    def _open_range(self, progress: Progress) -> _OpenRange | None:
        """Plans the next range; what holds nothing to hand out (aborted, control records) is passed over."""
        view = self.partition_view(progress.key)
        if view is None or self.view is None or view.topic.topic_id != progress.topic_id:
            return None
        end_offset = self.end_offset(view)
        if is_internal(view.topic):
            return self._open_history(self.view, progress, end_offset)
        while progress.position < end_offset:
            if self._open and sum(other.size_bytes for other in self._open.values()) >= self._settings.fetch_bytes_max:
                return None
            start = progress.position
            end = min(end_offset, start + _RANGE_OFFSETS_MAX)
            tasks = self._plan(self.view, progress.key, start, end)
            if tasks and tasks[0].segments[-1].end_offset > end:
                # A segment is decoded as a whole: ending inside one would decode it twice.
                end = min(end_offset, tasks[0].segments[-1].end_offset)
                tasks = self._plan(self.view, progress.key, start, end)
            if tasks:
                (task,) = tasks
                batches = read(self._objects, task, check_checksums=self._settings.check_crcs)
                opened = self._open[progress.key] = _OpenRange(progress.key, end, task, batches)
                return opened
            self._advanced(progress, end)
        return None

    def _open_history(self, view: ReadView, progress: Progress, end_offset: int) -> _OpenRange | None:
        """An internal topic's range; what computes it is kept, so that a look at news replays the news alone."""
        tasks = self._plan(view, progress.key, progress.position, end_offset)
        if not tasks:
            return None
        history = self._histories.get(progress.key)
        if history is None:
            topic = view.partitions[progress.key].topic
            history = self._histories[progress.key] = history_of(self._objects, topic)
        batches = read_history(self._objects, tasks[0], history=history)
        opened = self._open[progress.key] = _OpenRange(progress.key, end_offset, tasks[0], batches)
        return opened

    def _plan(self, view: ReadView, key: PartitionKey, start: int, end: int) -> list[ReadTask]:
        return plan_ranges(self._objects, self._uri, view, {key: (start, end)}, isolation=self._isolation)


def _move(progress: Progress, offset: int) -> None:
    progress.position = offset
