"""The streaming source in offset order: micro-batches end at last stable offsets, or at the ends of the log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from pyspark_txnlog.connecting.errorlines import with_one_line_errors
from pyspark_txnlog.options.bounds import resolved, rows_within
from pyspark_txnlog.options.offsets import partitions_of, readable_ranges
from pyspark_txnlog.options.sparkevents import log_event
from pyspark_txnlog.reading.batch_reader import plan_tasks
from pyspark_txnlog.reading.stream_reader import Progress, TxnLogStreamReader, backlog, offset_in
from pyspark_txnlog.reading.views import pin_view
from sparktxn import StoreError, ViewExpired
from sparktxn.store import ranges_within, rows_at_most
from sparktxn.store.options import TopicPartitionKey

if TYPE_CHECKING:
    from sparktxn import ReadTask, ReadView


@with_one_line_errors
class OffsetOrderStreamReader(TxnLogStreamReader):
    """Reads each partition by its offsets: a micro-batch may split a transaction, as those of Kafka's source do."""

    _order = "offset"

    _chosen_ends: dict[TopicPartitionKey, int] | None = None

    def initialOffset(self) -> Progress:
        """Return where a new query starts.

        Raises:
            ConfigurationError: an offset, a time or a partition that an option names does not exist.
        """
        view = self._newest_view(0)
        partitions = partitions_of(view, self._options.assigned)
        log_starts = {partition: view.partitions[partition].log_start_offset for partition in partitions}
        options, isolation = self._options, self._options.isolation
        now_ms = pin_view(view).now_ms
        ranges = readable_ranges(self._store(), view, log_starts, isolation)
        latest = {key: end for key, (_, end) in ranges.items()}
        offsets = resolved(
            options.starting,
            self._store(),
            view,
            partitions,
            latest=latest,
            order=options.order,
            isolation=isolation,
            now_ms=now_ms,
        )
        return self._progress(view, view.entry, offsets)

    def latestOffset(self, start: Progress, limit: ReadLimit) -> Progress:
        """Return the end of the next micro-batch; `start` itself if there is nothing to read, or too little.

        Raises:
            ConfigurationError: a topic was deleted since `start`, and failOnDataLoss is set.
            RetentionPassed: records were removed since `start`, and failOnDataLoss is set.
        """
        view = self._view_after(start)
        starts = self._starts(view, start)
        ends = self._ends(view, starts, limit)
        self._view = view
        self._chosen_ends = ends
        offset = self._progress(view, view.entry, ends)
        return offset if any(offset[name] != start[name] for name in ("topics", "topicIds")) else start

    def _ends(
        self, view: ReadView, starts: dict[TopicPartitionKey, int], limit: ReadLimit
    ) -> dict[TopicPartitionKey, int]:
        """Return where a micro-batch within the limits ends: at `starts` if it is to wait."""
        store = self._store()
        ranges = readable_ranges(store, view, starts, self._options.isolation)
        if not isinstance(limit, ReadAllAvailable):
            # A query that reads what is available now would wait without end: nothing more is to come.
            if self._last_view is None and self._pace.waits(lambda: rows_at_most(view, ranges)):
                return starts
            rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            if self._options.trigger.bytes_max is not None:
                rows = rows_within(store, view, ranges, self._options.trigger.bytes_max)
                rows_max = min((known for known in (rows_max, rows) if known is not None), default=None)
            if rows_max is not None:
                ranges = ranges_within(view, ranges, rows_max)
        return {key: end for key, (_, end) in ranges.items()}

    def reportLatestOffset(self) -> Progress | None:
        """Return the offsets up to which records can be read, as last seen: for the query's progress.

        They are the last stable offsets for read_committed, the ends of the log for read_uncommitted. `backlogRows` and
        `backlogMs` are of what follows the micro-batch.
        """
        view = self._view
        if view is None:
            return None
        ranges = self._store().ranges(view, isolation=self._options.isolation)
        partitions = partitions_of(view, self._options.assigned)
        readable = {key: ranges[key][1] for key in partitions}
        return {**self._progress(view, view.entry, readable), **self._report_backlog(view, readable)}

    def _report_backlog(self, view: ReadView, readable: dict[TopicPartitionKey, int]) -> Progress:
        """Return what `view` has after the last micro-batch, up to `readable`: aborted records too."""
        starts = {key: view.partitions[key].log_start_offset for key in readable}
        read = self._chosen_ends or {}
        ranges = {key: (max(start, read.get(key, start)), readable[key]) for key, start in starts.items()}
        ranges = {key: bounds for key, bounds in ranges.items() if bounds[0] < bounds[1]}
        try:
            plan = partial(self._store().plan, isolation="read_uncommitted", by_segment=True, rows=self._options.rows)
            tasks = plan(view, ranges) if ranges else []
        except (StoreError, ViewExpired) as error:
            log_event("spark_backlog_unknown", error=error)
            return {}
        found = [(task, segment) for task in tasks for segment in task.segments]
        rows = sum(segment.rows_between(task.start_offset, task.end_offset) for task, segment in found)
        # Rows that are computed have no segments.
        computed = {(task.topic, task.partition) for task in tasks if not task.segments}
        rows += rows_at_most(view, {key: bounds for key, bounds in ranges.items() if key in computed})
        oldest_ms = min((segment.timestamp_min_ms for _, segment in found), default=None)
        return backlog(rows=rows, age_ms=self._age_ms(oldest_ms))

    def _tasks(
        self,
        view: ReadView,
        start: Progress,
        end: Progress,
        starts: dict[TopicPartitionKey, int],
        columns: Sequence[str],
        *,
        by_segment: bool = False,
    ) -> list[ReadTask]:
        ranges = {key: (first, max(first, offset_in(end, key, first))) for key, first in starts.items()}
        return plan_tasks(self._store(), view, ranges, columns, self._options, by_segment=by_segment)
