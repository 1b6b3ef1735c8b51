"""Reads of latest rows as tasks: a view of keyed topics → one task for each partition, planned and read in any process.

Which rows of a partition are the latest follows from all of its keys. So a task has a partition as a whole, and the
process that reads it makes the plan, too: the planning process reads no key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format.schema import DELETED_COLUMN, TYPED_OFFSET_COLUMN
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.state.keyed import is_keyed, key_columns
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.structs import SegmentRef, TopicState
from sparktxn._rows.scan.columns import known_columns, one_layout, output_schema
from sparktxn._rows.scan.conditions import Condition, matching
from sparktxn._rows.scan.latestrows import (
    LatestPlan,
    base_end,
    key_conditions,
    key_partitions,
    plan_columns,
    plan_latest,
    without_deletes,
)
from sparktxn._rows.scan.plan import ReadTask, by_file, by_partition, not_in_view
from sparktxn.errors import ConfigurationError


class LatestTask(Struct, frozen=True):
    """A read of a partition's latest rows in a view, by any process that can reach the store's objects.

    `parts` read all rows of the partition in their order, `key` are the columns of the topic's key, and `columns` those
    that are returned. Rows that do not meet all `conditions` are left out, once it is known which are the latest. Below
    the offset `base_end` no key is there twice.
    """

    parts: tuple[ReadTask, ...]
    key: tuple[str, ...]
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    base_end: int = 0

    @property
    def store_uri(self) -> str:
        """The address of the store."""
        return self.parts[0].store_uri

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.parts[0].topic

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self.parts[0].partition

    @property
    def segments(self) -> tuple[SegmentRef, ...]:
        """The segments of the partition, or the files that hold them."""
        return tuple(segment for part in self.parts for segment in part.segments)

    def plan(self, read: Callable[[ReadTask], Iterable[pa.RecordBatch]], *, finds_deletes: bool = True) -> LatestPlan:
        """Return which offsets are left out, of rows whose keys meet the conditions; the columns of the key are read.

        Args:
            read: returns the rows of a `ReadTask`. It may be called more than once for each part.
            finds_deletes: whether deletes are among them; a reader that sees which rows are deletes needs no plan of
                them, and without it less may be read.

        Raises:
            DamagedObject, ViewExpired: as `read_task`.
        """
        own = key_conditions(self.key, self.conditions)
        parts = [replace(part, conditions=own) for part in self.parts]
        return plan_latest(parts, self.key, read, self.base_end, finds_deletes=finds_deletes)

    def rows(self, read: Callable[[ReadTask], Iterable[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Yield the latest rows that meet the conditions, in the order of their offsets; `read` is as in `plan`."""
        plan = self.plan(read, finds_deletes=False)
        asked = (*self.columns, *(condition.column for condition in self.conditions))
        columns = tuple(dict.fromkeys([*asked, DELETED_COLUMN, TYPED_OFFSET_COLUMN]))
        for part in self.shown_parts(plan, columns):
            for rows in read(replace(part, conditions=self.conditions)):
                # Conditions come last: of a key that had met them once only the newest row counts.
                found = matching(without_deletes(plan.of(rows)), self.conditions) if rows.num_rows else rows
                if found.num_rows:
                    yield found.select(self.columns)

    def shown_parts(self, plan: LatestPlan, columns: Sequence[str]) -> Iterator[ReadTask]:
        """Yield what reads `columns` of the partition's rows, without the files that have no latest row.

        Other rows that `plan` leaves out are among those that are read.
        """
        for part in self.parts:
            files = [file for file in by_file(part.segments) if not all(_is_hidden(plan, segment) for segment in file)]
            if files:
                segments = tuple(segment for file in files for segment in file)
                yield replace(part, segments=segments, columns=tuple(columns))

    def kept_offsets(self, read: Callable[[ReadTask], Iterable[pa.RecordBatch]]) -> Iterator[tuple[int, int]]:
        """Yield the offsets of the rows as (start, end) ranges in order; `read` is as in `plan`."""
        import numpy as np

        for rows in replace(self, columns=(TYPED_OFFSET_COLUMN,)).rows(read):
            offsets = rows.column(0).to_numpy()
            breaks = np.flatnonzero(np.diff(offsets) != 1)
            starts, ends = [0, *(breaks + 1).tolist()], [*breaks.tolist(), len(offsets) - 1]
            for first, last in zip(starts, ends, strict=True):
                yield int(offsets[first]), int(offsets[last]) + 1


def hidden_ranges(plan: LatestPlan) -> pa.Array:
    """Return the offsets that a plan leaves out as ranges: the start and the end of the first, then of the next.

    An offset lies in a range if the greatest of these numbers that is not above it is a start.
    """
    import numpy as np

    hidden = np.sort(np.concatenate([plan.superseded, plan.deletes]))
    follows = np.diff(hidden) == 1
    starts, ends = np.ones(len(hidden), np.bool_), np.ones(len(hidden), np.bool_)
    starts[1:], ends[:-1] = ~follows, ~follows
    return pa.array(np.stack([hidden[starts], hidden[ends] + 1], axis=1).ravel())


def _is_hidden(plan: LatestPlan, segment: SegmentRef) -> bool:
    """Return whether no row of a segment is a latest row."""
    count = 0
    for hidden in (plan.superseded, plan.deletes):
        first, end = hidden.searchsorted((segment.base_offset, segment.end_offset))
        count += int(end - first)
    return count == segment.row_count


def check_keyed(view: ReadView) -> None:
    """Refuse a view of topics some of which have no key.

    Raises:
        ConfigurationError: it is one.
    """
    for topic in view.topics.values():
        if not is_keyed(topic):
            raise ConfigurationError(
                f"topic {topic.name!r} has no key (primary.key), so that no row of it supersedes another: plan_view() "
                "plans a read of all its rows"
            )


def latest_columns(view: ReadView) -> tuple[str, ...]:
    """Return the columns of latest rows: those of all rows but the one that says "deleted".

    Raises:
        ConfigurationError: the topics have different columns.
    """
    names = output_schema(one_layout(view.topics.values())).names
    return tuple(name for name in names if name != DELETED_COLUMN)


def columns_read(view: ReadView, columns: Iterable[str], conditions: Iterable[Condition]) -> tuple[str, ...]:
    """Return the columns that tasks of latest rows read to return `columns`: their parts are planned with them."""
    keys = (name for topic in view.topics.values() for name in plan_columns(key_columns(topic.settings)))
    return tuple(dict.fromkeys([*columns, *(condition.column for condition in conditions), *keys]))


def latest_bounds(
    view: ReadView, conditions: Sequence[Condition], partitions: Sequence[TopicPartitionKey] | None
) -> dict[TopicPartitionKey, tuple[int, int | None]]:
    """Return the partitions that may have latest rows which meet `conditions`, whole, in the order of the view.

    Args:
        view: keyed topics.
        conditions: conditions on their columns. Those that name whole keys leave partitions out.
        partitions: those to read; None: all.

    Raises:
        ConfigurationError: a partition is not in the view.
    """
    wanted = view.partitions if partitions is None else by_partition("partitions", dict.fromkeys(partitions))
    for key in wanted:
        if key not in view.partitions:
            raise not_in_view(view, *key)
    found = {topic.name: _partitions_of(topic, conditions) for topic in view.topics.values()}
    return {(topic, number): (0, None) for topic, number in wanted if number in found[topic]}


def _partitions_of(topic: TopicState, conditions: Sequence[Condition]) -> frozenset[int]:
    key = key_columns(topic.settings)
    own = key_conditions(key, conditions)
    return frozenset(key_partitions(key, own, known_columns(topic.schema), topic.partition_count))


def latest_tasks(
    view: ReadView, parts: Iterable[ReadTask], columns: Sequence[str], conditions: Sequence[Condition]
) -> list[LatestTask]:
    """Return one task for each partition that `parts` read, in their order.

    Args:
        view: keyed topics.
        parts: tasks that read whole partitions of the view, each partition's in the order of its offsets, planned with
            `columns_read`.
        columns: the columns that the tasks return.
        conditions: conditions on columns of the topics.
    """
    own: dict[TopicPartitionKey, list[ReadTask]] = defaultdict(list)
    for part in parts:
        own[part.topic, part.partition].append(part)
    return [
        LatestTask(
            parts=tuple(found),
            key=key_columns(view.topics[topic].settings),
            columns=tuple(columns),
            conditions=tuple(conditions),
            base_end=base_end(view.partitions[topic, number]),
        )
        for (topic, number), found in own.items()
    ]
