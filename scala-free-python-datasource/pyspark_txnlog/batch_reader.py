"""Batch reads: one pinned read view, whole transactions, one task per range of segments."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from pyspark_txnlog.offsets import EARLIEST, LATEST, Partition, explicit_offset, partitions_of, within_log
from pyspark_txnlog.options import ReadOptions
from pyspark_txnlog.schema import arrow_of, conform, read_columns, schema_of
from pyspark_txnlog.stores import open_store
from sparktxn import read_task, rows_at_most

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparktxn import ReadTask, ReadView, Store

__all__ = ["TaskPartition", "TxnLogReader", "make_reader", "plan_partitions", "read_partition", "read_schema"]

_log = logging.getLogger("sparktxn.spark")

_BATCH_ROWS: Final = 10_000
"""Spark takes batches of this size fastest."""

_PUSH_DOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class TaskPartition(InputPartition):
    """One Spark task's part of a read: needs no log to be read."""

    def __init__(self, task: ReadTask) -> None:
        self.task = task


def read_schema(options: ReadOptions) -> tuple[StructType, int]:
    """The columns of the topics that `options` name, and the entry of the view that has them."""
    view = _view(open_store(options.path, options.store), options, None)
    return schema_of(view.topics.values(), options), view.entry


def _view(store: Store, options: ReadOptions, entry: int | None) -> ReadView:
    if entry is None:
        entry = options.as_of_entry
    timestamp_ms = options.as_of_timestamp_ms if entry is None else None
    return store.view(options.topics, entry=entry, timestamp_ms=timestamp_ms)


def make_reader(options: ReadOptions, schema: StructType, entry: int | None) -> TxnLogReader:
    """A reader of the view at `entry`, or of the newest one if the DataFrame has pinned none.

    Spark refuses readers that take filters unless push-down is on; its push-down worker shows it. Filtered
    and unfiltered actions on one DataFrame are then planned apart, so without a pinned entry they could differ.
    """
    if _PUSH_DOWN_WORKER in sys.modules and entry is not None:
        return FilteringTxnLogReader(options, schema, entry)
    return TxnLogReader(options, schema, entry)


class TxnLogReader(DataSourceReader):
    """Plans on the driver, where it pins its view; `read` runs in tasks and opens the object store alone."""

    def __init__(self, options: ReadOptions, schema: StructType, entry: int | None) -> None:
        self._options = options
        self._target = arrow_of(schema)
        self._store = open_store(options.path, options.store)
        self._view = _view(self._store, options, entry)
        self._columns = read_columns(self._view.topics.values(), schema)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get the reader with their part; the view may be large, and handles cannot travel.
        return {name: value for name, value in self.__dict__.items() if name not in ("_store", "_view")}

    def partitions(self) -> Sequence[InputPartition]:
        """One part per task.

        Raises:
            ConfigurationError: an offset or partition that an option names does not exist.
        """
        return plan_partitions(self._store, self._view, self._ranges(), self._columns, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in offset order."""
        return read_partition(partition, self._options, self._target)

    def _ranges(self) -> dict[Partition, tuple[int, int]]:
        """Offsets (start, end) of every partition that is read."""
        options, view = self._options, self._view
        partitions = partitions_of(view, options.assigned)
        log_ends = {partition: view.partitions[partition].log_end_offset for partition in partitions}
        starts = {
            partition: within_log(
                view,
                partition,
                explicit_offset(
                    "startingOffsets", options.starting_offsets, view, partition, latest=log_ends, missing=EARLIEST
                ),
                fail=options.fail_on_data_loss,
            )
            for partition in partitions
        }
        last = readable_ends(self._store, view, starts, options)
        ends = {
            partition: explicit_offset(
                "endingOffsets", options.ending_offsets, view, partition, latest=last, missing=LATEST
            )
            for partition in partitions
        }
        return {partition: (starts[partition], max(starts[partition], ends[partition])) for partition in partitions}


def readable_ends(
    store: Store, view: ReadView, starts: dict[Partition, int], options: ReadOptions, *, rows_max: int | None = None
) -> dict[Partition, int]:
    """How far a read from `starts` may go at `view`: to an end of whole transactions, if the options want it."""
    if options.isolation == "read_uncommitted":
        ends = {partition: max(start, view.partitions[partition].log_end_offset) for partition, start in starts.items()}
        return ends if rows_max is None else _shared_out(starts, ends, rows_max)
    unread = {key: part.log_end_offset for key, part in view.partitions.items()}
    cut = store.cut(view, {**unread, **starts}, rows_max=rows_max, alignment=options.alignment)
    if cut.stalled:
        _log.warning(
            "transactions that overlap in a chain keep the read at entry %d: no end of whole transactions is above %s "
            "(option alignment=lso goes on without them)",
            view.entry,
            starts,
        )
    return {partition: cut.offsets[partition] for partition in starts}


def _shared_out(starts: dict[Partition, int], ends: dict[Partition, int], rows_max: int) -> dict[Partition, int]:
    """Ends lowered to `rows_max` offsets in all, in proportion to what each partition has (Kafka's rule)."""
    total = sum(ends[partition] - start for partition, start in starts.items())
    if total <= rows_max:
        return ends
    return {
        partition: min(ends[partition], start + math.ceil(rows_max * (ends[partition] - start) / total))
        for partition, start in starts.items()
    }


def plan_partitions(
    store: Store,
    view: ReadView,
    ranges: dict[Partition, tuple[int, int]],
    columns: tuple[str, ...],
    options: ReadOptions,
) -> list[InputPartition]:
    """The tasks of a read of `ranges`; none for ranges without records."""
    rows_per_task = options.rows_per_task
    if options.partitions_min is not None:
        total = rows_at_most(view, ranges)
        rows_per_task = min(rows_per_task or total + 1, max(1, math.ceil(total / options.partitions_min)))
    tasks = store.plan(view, ranges, isolation=options.isolation, columns=columns, rows_per_task=rows_per_task)
    return [TaskPartition(task) for task in tasks]


def read_partition(partition: InputPartition, options: ReadOptions, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one task as Spark wants them. Spark makes a part of its own, with no task, where there is none."""
    if isinstance(partition, TaskPartition):
        for batch in read_task(partition.task, options.store, batch_rows=_BATCH_ROWS):
            yield conform(batch, target)


class FilteringTxnLogReader(TxnLogReader):
    """Takes conditions on `topic`, `partition` and `offset` out of Spark's plan and reads only what meets them."""

    def __init__(self, options: ReadOptions, schema: StructType, entry: int) -> None:
        super().__init__(options, schema, entry)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keeps the filters that ranges of offsets can express exactly, and gives back the others."""
        # A topic with declared columns may call one "offset": its own reserved names begin with "_".
        typed = any(topic.schema is not None for topic in self._view.topics.values())
        for condition in filters:
            if _is_range(condition, "_" if typed else ""):
                self._filters.append(condition)
            else:
                yield condition

    def _ranges(self) -> dict[Partition, tuple[int, int]]:
        ranges = super()._ranges()
        for condition in self._filters:
            ranges = {partition: _narrowed(partition, bounds, condition) for partition, bounds in ranges.items()}
        return {partition: bounds for partition, bounds in ranges.items() if bounds[0] < bounds[1]}


_COMPARISONS: Final = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def _is_range(condition: Filter, prefix: str) -> bool:
    if not isinstance(condition, _COMPARISONS) or len(condition.attribute) != 1 or condition.value is None:
        return False
    name = condition.attribute[0]
    return name == f"{prefix}offset" or (
        isinstance(condition, EqualTo) and name in (f"{prefix}topic", f"{prefix}partition")
    )


def _narrowed(partition: Partition, bounds: tuple[int, int], condition: Any) -> tuple[int, int]:
    name, value = condition.attribute[0].removeprefix("_"), condition.value
    start, end = bounds
    if name != "offset":
        return bounds if partition[0 if name == "topic" else 1] == value else (start, start)
    if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
        start = max(start, value + isinstance(condition, GreaterThan))
    if isinstance(condition, EqualTo | LessThan | LessThanOrEqual):
        end = min(end, value + (not isinstance(condition, LessThan)))
    return start, max(start, end)
