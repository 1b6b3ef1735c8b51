"""The streaming source in commit order: micro-batches of what some entries of the log have committed.

Its progress is the last entry whose transactions have been read. The offsets with it are a floor for each partition:
what was not read lies from there on. New partitions catch up within the limits: ``behind`` says how far they have come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from pyspark_txnlog.connecting.errorlines import with_one_line_errors
from pyspark_txnlog.options.bounds import resolved
from pyspark_txnlog.options.groups import committed_start, entry_behind
from pyspark_txnlog.options.offsets import LATEST, partitions_of
from pyspark_txnlog.options.sparkevents import log_event
from pyspark_txnlog.reading.batch_reader import task_rows
from pyspark_txnlog.reading.compactedcut import compacted_ends
from pyspark_txnlog.reading.stream_reader import (
    Progress,
    TxnLogStreamReader,
    backlog,
    is_known,
    offset_in,
)
from pyspark_txnlog.reading.views import pin_view
from sparktxn import StoreError, ViewExpired
from sparktxn.store.options import TopicPartitionKey
from sparktxn.store.reading import compacted_entry, key_columns

if TYPE_CHECKING:
    from sparktxn import ReadTask, ReadView
    from sparktxn.store.reading import CommitCut

_Group = tuple[int, dict["TopicPartitionKey", int]]
"""Partitions with the offset from which they are read, after the entry up to which they have been read."""

_Place = TypeVar("_Place", int, tuple[int, int])


@with_one_line_errors
class CommitOrderStreamReader(TxnLogStreamReader):
    """Reads whole transactions, entry by entry: no open transaction holds it back."""

    _order = "commit"
    _chosen: tuple[Progress, int] | None = None
    """Where the last micro-batch ends, and how many transactions it has."""

    def initialOffset(self) -> Progress:
        """Return where a new query starts: at `startingEntry`, for `latest` after the newest entry, or at the first.

        An offset or a time that an option gives for a partition is a lower bound: what lies below it is never read.

        Raises:
            ConfigurationError: an entry, offset, time or partition that an option names does not exist.
        """
        after_entry = self._options.entries.after
        view = self._newest_view(0)
        self._options.entries.check_first(view)
        partitions = partitions_of(view, self._options.assigned)
        if after_entry:
            return self._progress(view, after_entry, {key: view.partitions[key].log_start_offset for key in partitions})
        starting = self._options.starting
        # Transactions that are open now are read whole when they are committed.
        latest = {key: view.partitions[key].last_stable_offset for key in partitions}
        if starting.offsets == "latest":
            return self._progress(view, view.entry, latest)
        if starting.group is not None:
            found = committed_start(self._store(), view, partitions, starting.group, latest)
            return self._progress(view, found.after_entry, found.offsets)
        offsets = resolved(
            starting,
            self._store(),
            view,
            partitions,
            latest={key: view.partitions[key].log_end_offset for key in partitions},
            order=self._options.order,
            isolation=self._options.isolation,
            now_ms=pin_view(view).now_ms,
        )
        for topic, number in partitions:
            explicit = starting.offsets
            if not isinstance(explicit, dict) or explicit[topic][number] == LATEST:
                offsets[topic, number] = min(offsets[topic, number], latest[topic, number])
        return self._progress(view, 0, offsets)

    def latestOffset(self, start: Progress, limit: ReadLimit) -> Progress:
        """Return the end of the next micro-batch; `start` itself if nothing was committed since, or too little.

        Raises:
            ConfigurationError: a topic was deleted since `start`, and failOnDataLoss is set.
            RetentionPassed: records that were not read were removed since `start`, and failOnDataLoss is set.
        """
        view = self._view_after(start)
        self._view = view
        groups = _by_entry(view, start, self._starts(view, start))
        self._chosen = (start, 0)
        if isinstance(limit, ReadAllAvailable):
            cuts = [self._cut(view, after_entry, some) for after_entry, some in groups]
            unread = {key: offset for cut in cuts for key, offset in cut.unread.items()}
            return self._choose(start, self._end(view, view.entry, unread), cuts)
        # A query that reads what is available now would wait without end: nothing more is to come.
        if self._last_view is None and self._pace.waits(
            lambda: sum(self._cut(view, after_entry, some).rows for after_entry, some in groups)
        ):
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._limited(view, start, groups, rows_max=rows_max, bytes_max=self._options.trigger.bytes_max)

    def _limited(self, view: ReadView, start: Progress, groups: list[_Group], **limits: int | None) -> Progress:
        """Return where a micro-batch within the limits ends.

        Partitions that are behind the others, such as those of a new topic, catch up before the others go on.
        """
        entry = start["entry"]
        whole_to = max(
            (
                compacted_entry(view.partitions[key], floor)
                for key, floor in _behind_of(groups, entry)
                if not key_columns(view.topics[key[0]].settings)
            ),
            default=0,
        )
        if whole_to > entry:
            # A transaction of the others may be in a compaction that goes further: all partitions catch up with it.
            cuts = [self._cut(view, after_entry, some, to_entry=whole_to) for after_entry, some in groups]
            unread = {key: offset for cut in cuts for key, offset in cut.unread.items()}
            return self._choose(start, self._end(view, whole_to, unread), cuts)
        level: dict[TopicPartitionKey, int] = {}
        for after_entry, some in groups:
            if after_entry < entry:
                if ends := self._compacted_ends(view, after_entry, some, **limits):
                    offsets = {**level, **some, **ends}
                    return self._choose(start, {**self._by_offset(view, entry, offsets), **_behind(after_entry, some)})
                cut = self._cut(view, after_entry, some, to_entry=entry, **limits)
                if cut.rows:
                    rest = _behind(cut.entry, some) if cut.entry < entry else {}
                    return self._choose(start, {**self._end(view, entry, {**level, **cut.unread}), **rest}, [cut])
            level.update(some)
        if ends := self._compacted_ends(view, entry, level, **limits):
            return self._choose(start, self._by_offset(view, entry, {**level, **ends}))
        cut = self._cut(view, entry, level, **limits)
        return self._choose(start, self._end(view, cut.entry, cut.unread), [cut])

    def _end(self, view: ReadView, entry: int, offsets: dict[TopicPartitionKey, int]) -> Progress:
        """Return the end of a micro-batch; its view is as a rule newer than its last entry."""
        return {**self._progress(view, entry, offsets), "view": view.entry}

    def _by_offset(self, view: ReadView, entry: int, offsets: dict[TopicPartitionKey, int]) -> Progress:
        """Return the end of a micro-batch that reads up to some offsets, and has not come further than `entry`."""
        return {**self._end(view, entry, offsets), "byOffset": True}

    def _compacted_ends(
        self,
        view: ReadView,
        after_entry: int,
        floors: dict[TopicPartitionKey, int],
        *,
        rows_max: int | None,
        bytes_max: int | None,
    ) -> dict[TopicPartitionKey, int]:
        if rows_max is None and bytes_max is None:
            return {}
        return compacted_ends(self._store(), view, after_entry, floors, rows_max=rows_max, bytes_max=bytes_max)

    def _choose(self, start: Progress, end: Progress, cuts: Iterable[CommitCut] = ()) -> Progress:
        """Return `end`, or `start` if there is nothing between them.

        Without rows too, where the offsets move past aborted records: what was removed below them is then no loss.
        """
        moved = any(end[name] != start[name] for name in ("topics", "topicIds"))
        if not moved and not any(cut.rows for cut in cuts):
            return start
        self._chosen = (end, sum(cut.transactions for cut in cuts))
        return end

    def _cut(
        self, view: ReadView, after_entry: int, floors: dict[TopicPartitionKey, int], **limits: int | None
    ) -> CommitCut:
        return self._store().commit_cut(view, after_entry, bounds=_bounds(floors), **limits)

    def reportLatestOffset(self) -> Progress | None:
        """Return the log's newest entry, as last seen, and what the query has not read of it: for the query's progress.

        `batchTransactions` are those of the micro-batch. `backlogRows`, `backlogTransactions` and `backlogMs`, the age
        of the oldest record by its timestamp, are of what follows it.
        """
        view = self._view
        if view is None:
            return None
        partitions = partitions_of(view, self._options.assigned)
        newest = self._progress(view, view.entry, {key: view.partitions[key].last_stable_offset for key in partitions})
        if self._chosen is None:
            return newest
        end, transactions = self._chosen
        return {**newest, "batchTransactions": transactions, **self._backlog(view, partitions, end)}

    def _backlog(self, view: ReadView, partitions: Iterable[TopicPartitionKey], end: Progress) -> Progress:
        """Return what `view` has after the progress `end`."""
        log_starts = {key: view.partitions[key].log_start_offset for key in partitions}
        floors = {key: max(log_start, offset_in(end, key, log_start)) for key, log_start in log_starts.items()}
        groups = _by_entry(view, end, floors)
        try:
            cuts = [self._cut(view, after_entry, some) for after_entry, some in groups if after_entry < view.entry]
        except (StoreError, ViewExpired) as error:
            log_event("spark_backlog_unknown", error=error)
            return {}
        oldest_ms = min((cut.oldest_ms for cut in cuts if cut.oldest_ms is not None), default=None)
        return backlog(
            rows=sum(cut.rows for cut in cuts),
            transactions=sum(cut.transactions for cut in cuts),
            age_ms=self._age_ms(oldest_ms),
        )

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
        tasks: list[ReadTask] = []
        if end.get("byOffset"):
            for after_entry, some in _by_entry(view, start, starts):
                ends = {key: offset_in(end, key) for key in some}
                bounds = {key: (floor, ends[key]) for key, floor in some.items() if floor < ends[key]}
                rows = self._store().commit_cut(view, after_entry, bounds=bounds).rows
                tasks += self._store().plan_commits(
                    view,
                    after_entry,
                    bounds=bounds,
                    columns=columns,
                    rows_per_task=task_rows(rows, self._options),
                    by_segment=by_segment,
                    rows=self._options.rows,
                )
            return tasks
        for (to_entry, after_entry), some in _grouped(
            starts, lambda key: (_read_to(view, end, key), _read_to(view, start, key))
        ):
            if after_entry >= to_entry:
                continue
            rows = self._cut(view, after_entry, some, to_entry=to_entry).rows
            tasks += self._store().plan_commits(
                view,
                after_entry,
                to_entry=to_entry,
                bounds=_bounds(some),
                columns=columns,
                rows_per_task=task_rows(rows, self._options),
                by_segment=by_segment,
                rows=self._options.rows,
            )
        return tasks


def _bounds(floors: dict[TopicPartitionKey, int]) -> dict[TopicPartitionKey, tuple[int, int | None]]:
    return {key: (floor, None) for key, floor in floors.items()}


def _read_to(view: ReadView, progress: Progress, key: TopicPartitionKey) -> int:
    """Return the entry up to which a progress has read a partition: 0 for one that is new since."""
    if not is_known(view, key, progress):
        return 0
    entry: int = progress["entry"]
    return entry_behind(progress, key, entry)


def _behind(entry: int, floors: Iterable[TopicPartitionKey]) -> Progress:
    """Return what a progress says of partitions that it has read up to `entry` only, and the others further."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(floors):
        topics.setdefault(topic, []).append(number)
    return {"behind": {"entry": entry, "topics": topics}}


def _by_entry(view: ReadView, progress: Progress, floors: dict[TopicPartitionKey, int]) -> list[_Group]:
    """Return the partitions by the entry up to which `progress` has read them, those that are read furthest first."""
    return _grouped(floors, lambda key: _read_to(view, progress, key))


def _behind_of(groups: Iterable[_Group], entry: int) -> Iterator[tuple[TopicPartitionKey, int]]:
    """Yield the partitions that are read up to an entry before `entry`, with the offsets from which they are read."""
    for after_entry, some in groups:
        if after_entry < entry:
            yield from some.items()


def _grouped(
    floors: dict[TopicPartitionKey, int], place: Callable[[TopicPartitionKey], _Place]
) -> list[tuple[_Place, dict[TopicPartitionKey, int]]]:
    groups: dict[_Place, dict[TopicPartitionKey, int]] = {}
    for key, floor in floors.items():
        groups.setdefault(place(key), {})[key] = floor
    return sorted(groups.items(), key=lambda group: group[0], reverse=True)
