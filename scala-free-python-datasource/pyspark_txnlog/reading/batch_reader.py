"""Batch reads: one pinned read view, one task per range of segments."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pyspark_txnlog.connecting.errorlines import with_one_line_errors
from pyspark_txnlog.connecting.sessions import pass_over_modules
from pyspark_txnlog.connecting.storehandles import open_store
from pyspark_txnlog.options.bounds import AsOfPoint, check_ranges, resolved
from pyspark_txnlog.options.catalog import options_in
from pyspark_txnlog.options.filters import pushed_condition
from pyspark_txnlog.options.groups import CommittedStart, committed_start
from pyspark_txnlog.options.offsets import partitions_of, within_log
from pyspark_txnlog.options.options import READ_STREAM, ReadOptions
from pyspark_txnlog.options.spark_columns import arrow_of, conform, known_layout, read_columns, schema_of
from pyspark_txnlog.options.sparkevents import log_event
from pyspark_txnlog.reading.views import (
    PinnedView,
    check_all_rows,
    columns_left_out,
    open_view,
    pin_view,
    reads_latest,
    report_left_out,
)
from pyspark_txnlog.sparkinternals import takes_filters
from sparktxn import ReadTask, read_task
from sparktxn.store import LatestTask, rows_at_most
from sparktxn.store.options import Condition, ThreadBackground, TopicPartitionKey, matching, typed_conditions
from sparktxn.store.reading import end_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_txnlog.options.bounds import Bound
    from sparktxn import ReadView, Store


# Batches that are made ahead: while Spark takes some, a thread fetches and decodes the next ones.

_BLOCK_BYTES: Final = 4 * 1024 * 1024
"""What is made at a time. So much may be in memory next to the row group that is decoded."""


class _Block(NamedTuple):
    """Some batches, and the error that came instead of the next one."""

    batches: list[pa.RecordBatch]
    error: Exception | None = None


def made_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield `batches`, and raise what they raise at the same place; a thread makes those after the first block.

    Spark's JVM and its worker wait for each other: without the thread a core is idle while a batch is decoded. A read
    of one block starts no thread. A read that is given up does not wait for it: it ends after its block.
    """
    size_bytes = 0
    while size_bytes < _BLOCK_BYTES:
        batch = next(batches, None)
        if batch is None:
            return
        yield batch
        size_bytes += batch.nbytes
    background = ThreadBackground("txnlog-read", 1)
    try:
        following = background.submit(partial(_next_block, batches))
        while (made := following.result()).batches:
            if made.error is None:
                following = background.submit(partial(_next_block, batches))
            yield from made.batches
            if made.error is not None:
                break
        if made.error is not None:
            raise made.error
    finally:
        background.close(0)


def _next_block(batches: Iterator[pa.RecordBatch]) -> _Block:
    made: list[pa.RecordBatch] = []
    size_bytes = 0
    try:
        while size_bytes < _BLOCK_BYTES and (batch := next(batches, None)) is not None:
            made.append(batch)
            size_bytes += batch.nbytes
    except Exception as error:  # noqa: BLE001 - raised once the batches before it are taken
        return _Block(made, error)
    return _Block(made)


# Which segments a read leaves out, because no record of theirs can meet a condition on the timestamp.

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MAY_MEET: Final[dict[type, Callable[[int, int, int], bool]]] = {
    EqualTo: lambda first, last, value: first <= value <= last,
    GreaterThan: lambda first, last, value: last > value,
    GreaterThanOrEqual: lambda first, last, value: last >= value,
    LessThan: lambda first, last, value: first < value,
    LessThanOrEqual: lambda first, last, value: first <= value,
}
"""Whether a record from `first` to `last` can meet a comparison with `value`, all of them in microseconds."""


def is_on_timestamp(condition: Filter, name: str) -> bool:
    """Return True if `condition` compares the column `name`, a record's timestamp, with a moment."""
    if type(condition) not in _MAY_MEET:
        return False
    known: Any = condition
    return known.attribute == (name,) and isinstance(known.value, datetime) and known.value.tzinfo is not None


def without_skipped(tasks: Iterable[ReadTask], conditions: Sequence[Any]) -> list[ReadTask]:
    """Return `tasks` without segments none of whose records can meet all `conditions`, and without empty tasks.

    The log has the least and the greatest timestamp of each segment, in milliseconds. A task of an internal topic has
    no segments, and stays as it is.
    """
    checks = [(_MAY_MEET[type(condition)], _microseconds(condition.value)) for condition in conditions]
    kept = []
    for task in tasks:
        segments = tuple(
            segment
            for segment in task.segments
            if all(
                check(segment.timestamp_min_ms * 1_000, segment.timestamp_max_ms * 1_000, at) for check, at in checks
            )
        )
        if len(segments) == len(task.segments):
            kept.append(task)
        elif segments:
            kept.append(replace(task, segments=segments))
    return kept


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


_BATCH_ROWS: Final = 10_000
"""Spark takes batches of this size fastest."""

_TASK_ROWS_MIN: Final = 50_000
"""A task with fewer rows costs more than it saves; a full segment has as many by default."""

_SCANS_ARE_PLANNED_APART: Final = hasattr(DataSourceReader, "pushLimit")
"""Whether each scan of a DataFrame keeps its own plan, as in releases of Spark whose readers take limits, too.

Spark 4.3 gives all scans of a DataFrame the plan that it has made last, whether they are parts of one query or of
several. The conditions of one scan would take rows from another.
"""


class TaskPartition(InputPartition):
    """One Spark task's part of a read: needs no log to be read."""

    def __init__(self, task: ReadTask | LatestTask) -> None:
        self.task = task


def read_schema(options: ReadOptions) -> tuple[StructType, PinnedView]:
    """Return the columns of the topics that `options` name, and what pins the view that has them."""
    store = open_store(options.path, options.store)
    view = _view(store, options, None)
    topics = view.topics if options.columns is None else store.with_columns(view, options.columns).topics
    is_latest = False
    for topic in topics.values():
        # Without a key a read costs no more than this.
        if options.rows is not None or "primary.key" in topic.settings:
            if options.use == READ_STREAM:
                check_all_rows(topics.values(), options)
            else:
                is_latest = reads_latest(topics.values(), options)
            break
    schema = schema_of(topics.values(), options, is_latest=is_latest)
    return schema, replace(pin_view(view), committed=_committed(store, view, options), is_latest=is_latest)


def _committed(store: Store, view: ReadView, options: ReadOptions) -> CommittedStart | None:
    """Return where the read starts if that is at the offsets of a group."""
    if options.starting.group is None:
        return None
    latest = {key: view.partitions[key].log_end_offset for key in partitions_of(view, options.assigned)}
    return committed_start(store, view, list(latest), options.starting.group, latest)


def _view(store: Store, options: ReadOptions, pinned: PinnedView | None) -> ReadView:
    point = options.as_of.resolved(store) if pinned is None else AsOfPoint(entry=pinned.entry)
    return open_view(store, options, entry=point.entry, timestamp_ms=point.timestamp_ms)


def make_reader(options: ReadOptions, schema: StructType, pinned: PinnedView | None) -> TxnLogReader:
    """Return a reader of the pinned view, or of the newest one if the DataFrame has pinned none.

    Spark refuses readers that take filters unless push-down is on; its push-down worker shows it. Filtered
    and unfiltered actions on one DataFrame are then planned apart, so without a pinned view they could differ.
    Where scans share a plan, no reader takes filters: it only says that it could.
    """
    if not takes_filters():
        return TxnLogReader(options, schema, pinned)
    if _SCANS_ARE_PLANNED_APART and pinned is not None:
        return FilteringTxnLogReader(options, schema, pinned)
    return NoticingTxnLogReader(options, schema, pinned)


@with_one_line_errors
class TxnLogReader(DataSourceReader):
    """Plans on the driver, where it pins its view; `read` runs in tasks and opens the object store alone.

    `target` is the Arrow schema of what it reads. With `by_segment` its tasks name each segment of merged files, and
    not such a file once, as `Store.plan_view` says.
    """

    def __init__(
        self, options: ReadOptions, schema: StructType, pinned: PinnedView | None, *, by_segment: bool = False
    ) -> None:
        self._options = options
        self._by_segment = by_segment
        self.target = arrow_of(schema)
        self._store = open_store(options.path, options.store)
        asked = [*schema.names, *(condition.column for condition in options.filters)]
        self._view = self._store.with_columns(_view(self._store, options, pinned), asked)
        self._is_latest = reads_latest(self._view.topics.values(), options) if pinned is None else pinned.is_latest
        if options_in(schema) and options.columns is None and not self._is_latest:
            report_left_out(self._view.topics, columns_left_out(self._view, schema))
        self._now_ms = (pinned or pin_view(self._view)).now_ms
        self._columns = read_columns(self._view.topics.values(), schema)
        self._known = known_layout(self._view.topics.values())
        self._conditions = typed_conditions(options.filters, self._known, self._now_ms)
        self._committed = pinned.committed if pinned is not None else _committed(self._store, self._view, options)
        if self._committed is not None and options.order == "commit":
            entries = replace(options.entries, first=self._committed.after_entry + 1)
            self._options = replace(options, entries=entries)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get the reader with their part; the view may be large, and handles cannot travel.
        return {name: value for name, value in self.__dict__.items() if name not in ("_store", "_view", "_known")}

    def partitions(self) -> Sequence[InputPartition]:
        """Return one part per task.

        Raises:
            ConfigurationError: an offset or partition that an option names does not exist.
        """
        if self._is_latest:
            return [TaskPartition(task) for task in self._latest_tasks()]
        # The columns of conditions are read too, though not returned.
        columns = tuple(dict.fromkeys([*self._columns, *(condition.column for condition in self._conditions)]))
        tasks = plan_tasks(self._store, self._view, self._ranges(), columns, self._options, by_segment=self._by_segment)
        return [TaskPartition(task) for task in _with_conditions(tasks, self._conditions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one part, in offset order, that meet the option `filters`."""
        return read_partition(partition, self._options, self.target, self._conditions)

    def _latest_tasks(self, more: Sequence[Condition] = ()) -> list[LatestTask]:
        """Return the tasks of a read of latest rows, which meet the option `filters` and `more` conditions."""
        return self._store.plan_latest(
            self._view,
            columns=self._columns,
            conditions=[*self._conditions, *more],
            partitions=partitions_of(self._view, self._options.assigned),
        )

    def _ranges(self) -> dict[TopicPartitionKey, tuple[int, int]]:
        """Return offsets (start, end) of every partition that is read."""
        options, view = self._options, self._view
        partitions = partitions_of(view, options.assigned)
        asked = self._resolved(options.starting, {key: view.partitions[key].log_end_offset for key in partitions})
        fail = options.fail_on_data_loss
        starts = {partition: within_log(view, partition, offset, fail=fail) for partition, offset in asked.items()}
        last = {
            key: max(start, end_of(view.partitions[key], options.isolation, options.order))
            for key, start in starts.items()
        }
        ends = self._resolved(options.ending, last)
        check_ranges(options.starting, asked, options.ending, ends)
        # An end by time may lie where a transaction is still open; a start may have been removed.
        return {key: (start, max(start, min(ends[key], last[key]))) for key, start in starts.items()}

    def _prefix(self) -> str:
        """Return how the columns that a topic with declared columns does not declare begin."""
        return "_" if any(topic.schema is not None for topic in self._view.topics.values()) else ""

    def _resolved(self, bound: Bound, latest: dict[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int]:
        options = self._options
        if bound.group is not None and self._committed is not None:
            return self._committed.offsets
        return resolved(
            bound,
            self._store,
            self._view,
            list(latest),
            latest=latest,
            order=options.order,
            isolation=options.isolation,
            now_ms=self._now_ms,
        )


def plan_tasks(
    store: Store,
    view: ReadView,
    ranges: dict[TopicPartitionKey, tuple[int, int]],
    columns: Sequence[str],
    options: ReadOptions,
    *,
    by_segment: bool = False,
) -> list[ReadTask]:
    """Return the tasks that read `ranges`; none for ranges without records. `by_segment` is as in `Store.plan_view`."""
    rows_per_task = task_rows(rows_at_most(view, ranges), options)
    if options.order == "commit":
        entries = options.entries
        return store.plan_commits(
            view,
            entries.after,
            to_entry=entries.last_in(view),
            bounds=ranges,
            columns=columns,
            rows_per_task=rows_per_task,
            by_segment=by_segment,
            rows=options.rows,
        )
    return store.plan(
        view,
        ranges,
        isolation=options.isolation,
        columns=columns,
        rows_per_task=rows_per_task,
        by_segment=by_segment,
        rows=options.rows,
    )


def task_rows(total: int, options: ReadOptions) -> int:
    """Return how many of `total` rows a task takes at most.

    A planning process of Spark cannot ask the session how parallel it is. The number that `register` has noted counts
    the executors of that moment, which may have been few: the machine's cores are the least.
    """
    if options.partitions_min is None:
        tasks = max(os.cpu_count() or 1, options.parallelism)
        spread = max(_TASK_ROWS_MIN, math.ceil(total / tasks))
    else:
        spread = max(1, math.ceil(total / options.partitions_min))
    return spread if options.rows_per_task is None else min(spread, options.rows_per_task)


def _with_conditions(tasks: Iterable[ReadTask], conditions: Sequence[Condition]) -> list[ReadTask]:
    """Return `tasks` whose readers leave out segments that hold no record which meets all `conditions`."""
    return [replace(task, conditions=(*task.conditions, *conditions)) if conditions else task for task in tasks]


def read_partition(
    partition: InputPartition, options: ReadOptions, target: pa.Schema, conditions: Sequence[Condition] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task that meet `conditions`, as Spark wants them.

    Spark makes a part of its own, with no task, where there is none.
    """
    pass_over_modules()
    if isinstance(partition, TaskPartition):
        yield from made_ahead(_batches(partition.task, options, target, conditions))


def _batches(
    task: ReadTask | LatestTask, options: ReadOptions, target: pa.Schema, conditions: Sequence[Condition]
) -> Iterator[pa.RecordBatch]:
    if isinstance(task, LatestTask):
        conditions = ()  # its rows meet them
    # Columns that no segment stores, and casts, cost less for a whole row group than for each batch cut from it.
    for found in read_task(task, options.store):
        rows = conform(matching(found, conditions).select(target.names) if conditions else found, target)
        for first in range(0, rows.num_rows, _BATCH_ROWS):
            yield rows.slice(first, _BATCH_ROWS)


@with_one_line_errors
class FilteringTxnLogReader(TxnLogReader):
    """Takes conditions on `topic`, `partition` and `offset` out of Spark's plan and reads only what meets them.

    Conditions on the timestamp stay in Spark's plan. Segments that cannot meet them are not read. Those on other
    columns stay there too: segments without a record that meets them are not decoded.
    """

    def __init__(self, options: ReadOptions, schema: StructType, pinned: PinnedView) -> None:
        super().__init__(options, schema, pinned)
        self._filters: list[Filter] = []
        self._timestamp_conditions: list[Filter] = []
        self._pushed: list[Condition] = []

    def partitions(self) -> Sequence[InputPartition]:
        """Return one part per task, without segments that cannot meet a condition on the timestamp."""
        if self._is_latest:
            return [TaskPartition(task) for task in self._latest_tasks(self._pushed)]
        self._by_segment = bool(self._timestamp_conditions)
        parts = [part.task for part in super().partitions() if isinstance(part, TaskPartition)]
        tasks = [task for task in parts if isinstance(task, ReadTask)]
        kept = without_skipped(tasks, self._timestamp_conditions)
        return [TaskPartition(task) for task in _with_conditions(kept, self._pushed)]

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters that ranges of offsets can express exactly, and give back the others."""
        # A topic with declared columns may call one "offset": its own reserved names begin with "_".
        prefix = self._prefix()
        for condition in filters:
            if _is_range(condition, prefix) and not self._is_latest:
                self._filters.append(condition)
                continue
            if is_on_timestamp(condition, f"{prefix}timestamp") and not self._is_latest:
                self._timestamp_conditions.append(condition)
            elif pushed := pushed_condition(condition, self._known):
                self._pushed.append(pushed)
            yield condition

    def _ranges(self) -> dict[TopicPartitionKey, tuple[int, int]]:
        ranges = super()._ranges()
        for condition in self._filters:
            ranges = {partition: _narrowed(partition, bounds, condition) for partition, bounds in ranges.items()}
        return {partition: bounds for partition, bounds in ranges.items() if bounds[0] < bounds[1]}


_SHARED_PLAN: Final = "this release of Spark gives all scans of a DataFrame one plan"
_NOT_PINNED: Final = "a DataFrame with a schema of its own has no view that all of its plans share"

_noticed: set[tuple[str, tuple[str, ...]]] = set()


@with_one_line_errors
class NoticingTxnLogReader(TxnLogReader):
    """Leaves all conditions to Spark, and logs that it could have left out segments by them: once in a process."""

    def __init__(self, options: ReadOptions, schema: StructType, pinned: PinnedView | None) -> None:
        super().__init__(options, schema, pinned)
        self._unused: tuple[str, ...] = ()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Give back all filters."""
        prefix = self._prefix()
        usable = [
            condition
            for condition in filters
            if _is_range(condition, prefix)
            or is_on_timestamp(condition, f"{prefix}timestamp")
            or pushed_condition(condition, self._known)
        ]
        found: Any = usable
        # Spark adds `is not null` to a comparison: alone it leaves out hardly anything.
        self._unused = tuple(sorted({each.attribute[0] for each in found if not isinstance(each, IsNotNull)}))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Return one part per task, of all segments."""
        parts = super().partitions()
        topics = ", ".join(sorted(self._view.topics))
        segments = sum(len(part.task.segments) for part in parts if isinstance(part, TaskPartition))
        if self._unused and segments > 1 and (topics, self._unused) not in _noticed:
            _noticed.add((topics, self._unused))
            log_event(
                "spark_conditions_not_used",
                topics=topics,
                segments=segments,
                columns=", ".join(self._unused),
                reason=_NOT_PINNED if _SCANS_ARE_PLANNED_APART else _SHARED_PLAN,
            )
        return parts


_COMPARISONS: Final = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def _is_range(condition: Filter, prefix: str) -> bool:
    if not isinstance(condition, _COMPARISONS) or len(condition.attribute) != 1 or condition.value is None:
        return False
    name = condition.attribute[0]
    return name == f"{prefix}offset" or (
        isinstance(condition, EqualTo) and name in (f"{prefix}topic", f"{prefix}partition")
    )


def _narrowed(partition: TopicPartitionKey, bounds: tuple[int, int], condition: Any) -> tuple[int, int]:
    name, value = condition.attribute[0].removeprefix("_"), condition.value
    start, end = bounds
    if name != "offset":
        return bounds if partition[0 if name == "topic" else 1] == value else (start, start)
    if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
        start = max(start, value + isinstance(condition, GreaterThan))
    if isinstance(condition, EqualTo | LessThan | LessThanOrEqual):
        end = min(end, value + (not isinstance(condition, LessThan)))
    return start, max(start, end)
