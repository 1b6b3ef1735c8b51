"""The streaming source in offset order: micro-batches end at transaction-aligned cuts, or at last stable offsets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from pyspark_txnlog.admission import rows_within
from pyspark_txnlog.alignment import Stall, readable_ends
from pyspark_txnlog.batch_reader import plan_partitions
from pyspark_txnlog.bounds import resolved
from pyspark_txnlog.errorlines import with_one_line_errors
from pyspark_txnlog.offsets import Partition, partitions_of
from pyspark_txnlog.schema import read_columns
from pyspark_txnlog.stream_reader import Progress, TxnLogStreamReader, backlog, offset_in, progress_of
from pyspark_txnlog.views import pin_view
from sparktxn import INTERNAL_TOPICS, StoreError, ViewExpired, rows_at_most

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_txnlog.options import ReadOptions
    from sparktxn import ReadView
    from sparktxn.clock import Clock

__all__ = ["OffsetOrderStreamReader"]

_log = logging.getLogger("sparktxn.spark")


@with_one_line_errors
class OffsetOrderStreamReader(TxnLogStreamReader):
    """Reads each partition by its offsets, up to where the option `alignment` says."""

    _order = "offset"

    def __init__(self, options: ReadOptions, schema: StructType, clock: Clock | None = None) -> None:
        super().__init__(options, schema, clock)
        self._stall = Stall(options.alignment, clock)
        self._chosen_ends: dict[Partition, int] = {}

    def initialOffset(self) -> Progress:
        """Where a new query starts.

        Raises:
            ConfigurationError: an offset, a time or a partition that an option names does not exist.
        """
        view = self._newest_view(0)
        partitions = partitions_of(view, self._options.assigned)
        log_starts = {partition: view.partitions[partition].log_start_offset for partition in partitions}
        latest = self._latest(view, log_starts)
        options, isolation = self._options, self._options.isolation
        now_ms = pin_view(view).now_ms
        offsets = resolved(
            options.starting, self._store(), view, partitions, latest=latest, isolation=isolation, now_ms=now_ms
        )
        return progress_of(self._store(), view, view.entry, offsets)

    def _latest(self, view: ReadView, log_starts: dict[Partition, int]) -> dict[Partition, int]:
        ends = {partition: view.partitions[partition].log_end_offset for partition in log_starts}
        if all(view.partitions[partition].last_stable_offset == end for partition, end in ends.items()):
            return ends
        # A transaction that reaches over the last stable offset is then read whole when it can be.
        return readable_ends(self._store(), view, log_starts, self._options).offsets

    def latestOffset(self, start: Progress, limit: ReadLimit) -> Progress:
        """The end of the next micro-batch; `start` itself if there is no whole transaction to read, or too little.

        Spark reports a query's progress with a micro-batch only. So a stall makes one without rows, each 10 seconds.

        Raises:
            KafkaException: the query has stood still for `alignment.timeout.ms`.
            ConfigurationError: a topic was deleted since `start`, and failOnDataLoss is set.
            RetentionPassed: records were removed since `start`, and failOnDataLoss is set.
        """
        view = self._view_after(start)
        starts = self._starts(view, start)
        ends = self._ends(view, starts, limit)
        self._view = view
        self._chosen_ends = ends
        offset = progress_of(self._store(), view, view.entry, ends)
        if any(offset[name] != start[name] for name in ("topics", "topicIds")):
            return offset
        # A query that reads what is available now ends: it would report the stall without end.
        if self._last_view is None and self._stall.is_to_be_reported():
            return {**offset, "stalledMs": self._stall.duration_ms}
        return start

    def _ends(self, view: ReadView, starts: dict[Partition, int], limit: ReadLimit) -> dict[Partition, int]:
        """Where a micro-batch within the limits ends: at `starts` if it is to wait."""
        store, options = self._store(), self._options
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if not isinstance(limit, ReadAllAvailable):
            # A query that reads what is available now would wait without end: nothing more is to come.
            if self._last_view is None and self._waits(view, starts):
                return starts
            if options.trigger.bytes_max is not None:
                rows = rows_within(store, view, self._backlog(view, starts), options.trigger.bytes_max)
                rows_max = min((known for known in (rows_max, rows) if known is not None), default=None)
        ends = readable_ends(store, view, starts, options, rows_max=rows_max)
        if self._stall.is_given_up(ends, view.entry):
            ends = readable_ends(store, view, starts, options, rows_max=rows_max, cut="lso")
        return ends.offsets

    def _waits(self, view: ReadView, starts: dict[Partition, int]) -> bool:
        """Whether minOffsetsPerTrigger holds the micro-batch back."""

        def rows() -> int:
            ends = readable_ends(self._store(), view, starts, self._options).offsets
            return rows_at_most(view, {key: (start, ends[key]) for key, start in starts.items()})

        return self._pace.waits(rows)

    def _backlog(self, view: ReadView, starts: dict[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """The offsets from `starts` to what the isolation level shows."""
        ranges = self._store().ranges(view, isolation=self._options.isolation)
        return {key: (start, max(start, ranges[key][1])) for key, start in starts.items()}

    def reportLatestOffset(self) -> Progress | None:
        """The offsets up to which records can be read, as last seen: for the query's progress.

        They are the last stable offsets for read_committed, the ends of the log for read_uncommitted. `backlogRows` and
        `backlogMs` are of what follows the micro-batch. `stalledMs` is how long the query has stood still before
        transactions that overlap in a chain.
        """
        view = self._view
        if view is None:
            return None
        ranges = self._store().ranges(view, isolation=self._options.isolation)
        partitions = partitions_of(view, self._options.assigned)
        progress = progress_of(self._store(), view, view.entry, {key: ranges[key][1] for key in partitions})
        progress = {**progress, **self._report_backlog(view, {key: ranges[key][1] for key in partitions})}
        stalled_ms = self._stall.duration_ms
        return progress if stalled_ms is None else {**progress, "stalledMs": stalled_ms}

    def _report_backlog(self, view: ReadView, readable: dict[Partition, int]) -> Progress:
        """What `view` has after the last micro-batch, up to `readable`: aborted records too."""
        starts = {key: view.partitions[key].log_start_offset for key in readable}
        ranges = {key: (max(start, self._chosen_ends.get(key, start)), readable[key]) for key, start in starts.items()}
        ranges = {key: bounds for key, bounds in ranges.items() if bounds[0] < bounds[1]}
        try:
            tasks = self._store().plan(view, ranges, isolation="read_uncommitted") if ranges else []
        except (StoreError, ViewExpired) as error:
            _log.warning("the backlog of the query is not known: %s", error)
            return {}
        found = [(task, segment) for task in tasks for segment in task.segments]
        rows = sum(segment.rows_between(task.start_offset, task.end_offset) for task, segment in found)
        # An internal topic has no segments.
        rows += rows_at_most(view, {key: bounds for key, bounds in ranges.items() if key[0] in INTERNAL_TOPICS})
        oldest_ms = min((segment.timestamp_min_ms for _, segment in found), default=None)
        return backlog(rows=rows, age_ms=self._age_ms(oldest_ms))

    def partitions(self, start: Progress, end: Progress) -> Sequence[InputPartition]:
        """One part per task of the micro-batch from `start` to `end`, read in the view that chose `end`."""
        view = self._view_at(end["entry"])
        starts = self._starts_between(view, start, end)
        ranges = {key: (first, max(first, offset_in(end, key, first))) for key, first in starts.items()}
        columns = read_columns(view.topics.values(), self._schema)
        return plan_partitions(self._store(), view, ranges, columns, self._options)
