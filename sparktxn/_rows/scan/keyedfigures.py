"""What is known of a keyed topic as a table: its tail, by when a deleted row is gone, and what is superseded."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
from msgspec import Struct

from sparktxn._engine.log.views.readview import ReadView
from sparktxn._engine.state.keyed import key_columns
from sparktxn._foundation.config.topic import topic_setting
from sparktxn._foundation.values.structs import TopicState
from sparktxn._rows.scan.latestrows import base_end
from sparktxn._rows.scan.latesttask import LatestTask
from sparktxn._rows.scan.plan import ReadTask

_NEVER_MS = 2**53
_DAY_MS = 86_400_000


class KeyedFigures(Struct, frozen=True):
    """A keyed topic in a view, as the log knows it.

    `tail_rows` are the rows that no compaction has taken yet, `rows_without_base` those of partitions without any. At
    most so many rows of all are superseded, as each supersedes one. `gone_after_ms` is the longest that a row which is
    deleted now stays in an object, if `maintain` runs once a day; None: there is no end.
    """

    key: tuple[str, ...]
    tail_rows: int
    rows_without_base: int
    gone_after_ms: int | None


class KeyedCounts(Struct, frozen=True):
    """The rows of a keyed topic in a view: `rows` are in its files, of which some are superseded, and some deletes."""

    rows: int
    superseded: int
    deletes: int

    @property
    def latest(self) -> int:
        """How many are latest rows."""
        return self.rows - self.superseded - self.deletes


def keyed_figures(view: ReadView, topic: TopicState, history_ms: int) -> KeyedFigures:
    """Return what is known of a keyed topic without reading any of its rows.

    Args:
        view: the topic.
        topic: it has a key.
        history_ms: how far back time travel reaches: the vacuum's setting.
    """
    partitions = [view.partitions[topic.name, number] for number in range(topic.partition_count)]
    lags = [topic_setting(topic.settings, f"{end}.compaction.lag.ms") for end in ("min", "max")]
    # A day until a maintenance compacts it, and one until a later one deletes what has come of age.
    gone_after_ms = max(lags) + history_ms + 2 * _DAY_MS
    return KeyedFigures(
        key=key_columns(topic.settings),
        tail_rows=sum(each.log_end_offset - base_end(each) for each in partitions),
        rows_without_base=sum(each.log_end_offset for each in partitions if not base_end(each)),
        gone_after_ms=None if max(lags) >= _NEVER_MS else gone_after_ms,
    )


def keyed_rows(tasks: Iterable[LatestTask], read: Callable[[ReadTask], Iterable[pa.RecordBatch]]) -> KeyedCounts:
    """Count rows by the columns of their keys.

    Args:
        tasks: those that read the latest rows of a topic.
        read: as `LatestTask.plan` takes it.

    Raises:
        DamagedObject, ViewExpired: as `read_task`.
    """
    rows = superseded = deletes = 0
    for task in tasks:
        plan = task.plan(read)
        rows += sum(segment.row_count for part in task.parts for segment in part.segments)
        superseded += len(plan.superseded)
        deletes += len(plan.deletes)
    return KeyedCounts(rows, superseded, deletes)
