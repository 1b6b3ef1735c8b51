"""The streaming source: micro-batches that end at transaction-aligned cuts.

An offset is JSON: the entry of the read view that chose it, the ids of the topics, and an offset for every partition.
A reader that knows less of the log than the offset it is given follows the log first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_txnlog.admission import Pace, rows_within
from pyspark_txnlog.batch_reader import plan_partitions, read_partition, readable_ends
from pyspark_txnlog.bounds import resolved
from pyspark_txnlog.errorlines import with_one_line_errors
from pyspark_txnlog.offsets import Partition, partitions_of, within_log
from pyspark_txnlog.options import READ_STREAM, ReadOptions
from pyspark_txnlog.schema import arrow_of, read_columns
from pyspark_txnlog.stores import open_store
from pyspark_txnlog.views import open_view, pin_view
from sparktxn import ConfigurationError, ViewExpired

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparktxn import ReadView, Store
    from sparktxn.clock import Clock

__all__ = ["RefusedStreamReader", "TxnLogStreamReader", "make_stream_reader"]

_log = logging.getLogger("sparktxn.spark")

Offset = dict[str, Any]


def make_stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """Make the reader for the options in `given`, or for wrong ones a reader that raises the error when it is used.

    An error raised here would be followed by one of Spark's own, about a variable `reader`, which then is what a user
    sees.
    """
    try:
        return TxnLogStreamReader(ReadOptions.parse(given, READ_STREAM), schema)
    except ConfigurationError as error:
        return RefusedStreamReader(error)


@with_one_line_errors
class TxnLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as its query runs; tasks get one of their own, which only reads."""

    def __init__(self, options: ReadOptions, schema: StructType, clock: Clock | None = None) -> None:
        self._options = options
        self._schema = schema
        self._target = arrow_of(schema)
        self._view: ReadView | None = None
        self._last_view: ReadView | None = None
        self._pace = Pace(options.trigger, clock)
        self._lost: set[tuple[str, int]] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_view": None, "_last_view": None}

    def initialOffset(self) -> Offset:
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
        return _offset(view, offsets)

    def _latest(self, view: ReadView, log_starts: dict[Partition, int]) -> dict[Partition, int]:
        ends = {partition: view.partitions[partition].log_end_offset for partition in log_starts}
        if all(view.partitions[partition].last_stable_offset == end for partition, end in ends.items()):
            return ends
        # A transaction that reaches over the last stable offset is then read whole when it can be.
        return readable_ends(self._store(), view, log_starts, self._options)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options maxOffsetsPerTrigger, maxBytesPerTrigger and minOffsetsPerTrigger say."""
        return self._options.trigger.default_limit()

    def prepareForTriggerAvailableNow(self) -> None:
        """Pins the view that an AvailableNow query reads to its end."""
        self._last_view = self._newest_view(0)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch; `start` itself if there is no whole transaction to read, or too little.

        Raises:
            ConfigurationError: a topic was deleted since `start`, and failOnDataLoss is set.
            RetentionPassed: records were removed since `start`, and failOnDataLoss is set.
        """
        view = self._last_view
        if view is None or view.entry < start["entry"]:
            view = self._newest_view(start["entry"])
        starts = self._starts(view, start)
        ends = self._ends(view, starts, limit)
        self._view = view
        offset = _offset(view, ends)
        return start if all(offset[name] == start[name] for name in ("topics", "topicIds")) else offset

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
        return readable_ends(store, view, starts, options, rows_max=rows_max)

    def _waits(self, view: ReadView, starts: dict[Partition, int]) -> bool:
        """Whether minOffsetsPerTrigger holds the micro-batch back."""
        if self._options.trigger.rows_min is None:
            return False
        ends = readable_ends(self._store(), view, starts, self._options)
        return self._pace.waits(view, {key: (start, ends[key]) for key, start in starts.items()})

    def _backlog(self, view: ReadView, starts: dict[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """The offsets from `starts` to what the isolation level shows."""
        ranges = self._store().ranges(view, isolation=self._options.isolation)
        return {key: (start, max(start, ranges[key][1])) for key, start in starts.items()}

    def reportLatestOffset(self) -> Offset | None:
        """The offsets up to which records can be read, as last seen: for the query's progress.

        They are the last stable offsets for read_committed, the ends of the log for read_uncommitted.
        """
        view = self._view
        if view is None:
            return None
        ranges = self._store().ranges(view, isolation=self._options.isolation)
        return _offset(view, {key: ranges[key][1] for key in partitions_of(view, self._options.assigned)})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One part per task of the micro-batch from `start` to `end`, read in the view that chose `end`."""
        view = self._view_at(end["entry"])
        starts = self._starts(view, start)
        # Only an expired view can have a topic with another id than `end`: its offsets say nothing of that one.
        known = {topic for topic, topic_id in end["topicIds"].items() if _topic_id(view, topic) == topic_id}
        ranges = {
            key: (first, max(first, _offset_in(end, key, first)) if key[0] in known else first)
            for key, first in starts.items()
        }
        columns = read_columns(view.topics.values(), self._schema)
        return plan_partitions(self._store(), view, ranges, columns, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in offset order."""
        return read_partition(partition, self._options, self._target)

    def _store(self) -> Store:
        return open_store(self._options.path, self._options.store)

    def _newest_view(self, entry: int) -> ReadView:
        return open_view(self._store(), self._options, at_least_entry=entry)

    def _view_at(self, entry: int) -> ReadView:
        if self._view is not None and self._view.entry == entry:
            return self._view
        try:
            return open_view(self._store(), self._options, entry=entry)
        except ViewExpired:
            # The rows are the same unless retention or compaction has removed some of them since.
            _log.warning("the view at entry %d has expired: its micro-batch is read in the newest one", entry)
            return self._newest_view(entry)

    def _starts(self, view: ReadView, start: Offset) -> dict[Partition, int]:
        """Where each partition goes on: partitions that are new since `start` begin at their earliest record."""
        lost = self._lost_topics(view, start)
        fail = self._options.fail_on_data_loss
        starts = {}
        for key in partitions_of(view, self._options.assigned):
            earliest = view.partitions[key].log_start_offset
            offset = earliest if key[0] in lost else _offset_in(start, key, earliest)
            starts[key] = within_log(view, key, offset, fail=fail)
        return starts

    def _lost_topics(self, view: ReadView, start: Offset) -> set[str]:
        """The topics of `start` that no longer exist: their offsets mean nothing to a topic of the same name.

        Raises:
            ConfigurationError: there are some, and failOnDataLoss is set.
        """
        lost = set()
        for topic, topic_id in start["topicIds"].items():
            found = _topic_id(view, topic)
            # A topic that is named exists, or there is no view: this one is no longer subscribed.
            if found == topic_id or (found is None and self._options.pattern is None):
                continue
            what = "was deleted" if found is None else "was deleted and created again"
            if self._options.fail_on_data_loss:
                raise ConfigurationError(
                    f"topic {topic!r} {what} since the query's checkpoint was written: records may be lost, and its "
                    "offsets mean other records now. Set the option failOnDataLoss to false to continue with the "
                    "records of existing topics, or start the query with a new checkpoint"
                )
            if (topic, topic_id) not in self._lost:
                self._lost.add((topic, topic_id))
                _log.warning("topic %r %s: the query continues with the records of existing topics", topic, what)
            lost.add(topic)
        return lost


@with_one_line_errors
class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises, whatever Spark asks for, why there is no reader."""

    def __init__(self, error: ConfigurationError) -> None:
        self._error = error

    def initialOffset(self) -> Offset:
        """Raise the error."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raise the error."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        """Raise the error."""
        raise self._error

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Raise the error."""
        raise self._error

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        raise self._error


def _offset(view: ReadView, offsets: dict[Partition, int]) -> Offset:
    """The JSON of an offset; equal offsets have equal text."""
    topics: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        topics.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return {
        "entry": view.entry,
        "topicIds": {topic: view.topics[topic].topic_id for topic in topics},
        "topics": topics,
    }


def _offset_in(offset: Offset, partition: Partition, missing: int = -1) -> int:
    topic, number = partition
    return int(offset["topics"].get(topic, {}).get(str(number), missing))


def _topic_id(view: ReadView, topic: str) -> int | None:
    return view.topics[topic].topic_id if topic in view.topics else None
