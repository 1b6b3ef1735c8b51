"""The streaming source: micro-batches that end at transaction-aligned cuts.

An offset is JSON: the entry of the read view that chose it, the ids of the topics, and an offset for every partition.
A reader that knows less of the log than the offset it is given follows the log first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_txnlog.batch_reader import plan_partitions, read_partition, readable_ends
from pyspark_txnlog.offsets import EARLIEST, Partition, explicit_offset, partitions_of, within_log
from pyspark_txnlog.options import ReadOptions
from pyspark_txnlog.schema import arrow_of, read_columns
from pyspark_txnlog.stores import open_store
from sparktxn import ConfigurationError, ViewExpired

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparktxn import ReadView, Store

__all__ = ["TxnLogStreamReader"]

_log = logging.getLogger("sparktxn.spark")

Offset = dict[str, Any]


class TxnLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as its query runs; tasks get one of their own, which only reads."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target = arrow_of(schema)
        self._view: ReadView | None = None
        self._last_view: ReadView | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_view": None, "_last_view": None}

    def initialOffset(self) -> Offset:
        """Where a new query starts."""
        view = self._newest_view(0)
        partitions = partitions_of(view, self._options.assigned)
        log_starts = {partition: view.partitions[partition].log_start_offset for partition in partitions}
        latest = self._latest(view, log_starts)
        offsets = {
            partition: explicit_offset(
                "startingOffsets", self._options.starting_offsets, view, partition, latest=latest, missing=EARLIEST
            )
            for partition in partitions
        }
        return _offset(view, offsets)

    def _latest(self, view: ReadView, log_starts: dict[Partition, int]) -> dict[Partition, int]:
        ends = {partition: view.partitions[partition].log_end_offset for partition in log_starts}
        if all(view.partitions[partition].last_stable_offset == end for partition, end in ends.items()):
            return ends
        # A transaction that reaches over the last stable offset is then read whole when it can be.
        return readable_ends(self._store(), view, log_starts, self._options)

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the option maxOffsetsPerTrigger says."""
        rows = self._options.rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Pins the view that an AvailableNow query reads to its end."""
        self._last_view = self._newest_view(0)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch; `start` itself if there is no whole transaction to read."""
        view = self._last_view
        if view is None or view.entry < start["entry"]:
            view = self._newest_view(start["entry"])
        starts = self._starts(view, start)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ends = readable_ends(self._store(), view, starts, self._options, rows_max=rows_max)
        self._view = view
        if all(ends[partition] == _offset_in(start, partition) for partition in ends):
            return start
        return _offset(view, ends)

    def reportLatestOffset(self) -> Offset | None:
        """The ends of the log, as last seen: for the query's progress."""
        if self._view is None:
            return None
        return _offset(self._view, {key: part.log_end_offset for key, part in self._view.partitions.items()})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One part per task of the micro-batch from `start` to `end`, read in the view that chose `end`."""
        view = self._view_at(end["entry"])
        starts = self._starts(view, start)
        ranges = {
            partition: (first, max(first, _offset_in(end, partition, first))) for partition, first in starts.items()
        }
        columns = read_columns(view.topics.values(), self._schema)
        return plan_partitions(self._store(), view, ranges, columns, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in offset order."""
        return read_partition(partition, self._options, self._target)

    def _store(self) -> Store:
        return open_store(self._options.path, self._options.store)

    def _newest_view(self, entry: int) -> ReadView:
        return self._store().view(self._options.topics, at_least_entry=entry)

    def _view_at(self, entry: int) -> ReadView:
        if self._view is not None and self._view.entry == entry:
            return self._view
        try:
            return self._store().view(self._options.topics, entry=entry)
        except ViewExpired:
            # The rows are the same unless retention or compaction has removed some of them since.
            _log.warning("the view at entry %d has expired: its micro-batch is read in the newest one", entry)
            return self._newest_view(entry)

    def _starts(self, view: ReadView, start: Offset) -> dict[Partition, int]:
        """Where each partition goes on: partitions that are new since `start` begin at their earliest record."""
        _check_topics(view, start)
        return {
            partition: within_log(
                view,
                partition,
                _offset_in(start, partition, view.partitions[partition].log_start_offset),
                fail=self._options.fail_on_data_loss,
            )
            for partition in partitions_of(view, self._options.assigned)
        }


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


def _check_topics(view: ReadView, start: Offset) -> None:
    for topic, topic_id in start["topicIds"].items():
        known = view.topics.get(topic)
        if known is not None and known.topic_id != topic_id:
            raise ConfigurationError(
                f"topic {topic!r} was deleted and created again since the query's checkpoint was written: its offsets "
                "mean other records now. Start the query with a new checkpoint"
            )
