"""What the streaming source's readers share: their view of the log, the topics they lost, and their progress.

A progress is JSON. It has its order, the id of the store, an entry and the ids of the topics. For every partition it
has the offset below which all has been read. The end of a micro-batch names the view in which it was chosen, and in
which it is read. So a micro-batch that is repeated has the same rows, whatever jobs have removed or replaced since. A
reader that knows less of the log than the progress it is given follows the log first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from pyspark_txnlog.connecting.errorlines import with_one_line_errors
from pyspark_txnlog.connecting.storehandles import open_store
from pyspark_txnlog.options.bounds import Pace
from pyspark_txnlog.options.groups import offsets_of_progress
from pyspark_txnlog.options.offsets import partitions_of, within_log
from pyspark_txnlog.options.options import ReadOptions
from pyspark_txnlog.options.spark_columns import arrow_of, read_columns
from pyspark_txnlog.options.sparkevents import log_event
from pyspark_txnlog.reading.batch_reader import TaskPartition, read_partition
from pyspark_txnlog.reading.views import NewColumns, check_all_rows, names_topic, open_view, open_view_of_existing
from sparktxn import ConfigurationError, KafkaException, RetentionPassed, StoreError, ViewExpired
from sparktxn.store.options import SystemClock, TopicPartitionKey
from sparktxn.store.reading import lacks_deletes

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_txnlog.reading.views import PinnedView
    from sparktxn import ReadTask, ReadView, Store
    from sparktxn.store.options import Clock

Progress = dict[str, Any]

_ALIGNED: Final = (
    "the query's checkpoint says no order: an earlier version wrote it for micro-batches in offset order that ended at "
    "whole transactions, which are gone. Start the query with a new checkpoint: order=commit reads whole transactions, "
    "order=offset reads as Kafka does. The checkpoint's offsets, given as startingOffsets, go on where it stopped"
)


@with_one_line_errors
class TxnLogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as its query runs; tasks get one of their own, which only reads."""

    _order: ClassVar[Literal["commit", "offset"]]

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        clock: Clock | None = None,
        *,
        pinned: PinnedView | None = None,
    ) -> None:
        self._options = options
        self._schema = schema
        self._new_columns = NewColumns(options, schema, pinned)
        self._target = arrow_of(schema)
        self._view: ReadView | None = None
        self._last_view: ReadView | None = None
        self._clock = clock or SystemClock()
        self._pace = Pace(options.trigger, self._clock)
        self._lost: set[TopicPartitionKey] = set()
        self._deletes_missed: set[tuple[str, int, int]] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_view": None, "_last_view": None}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what the options maxOffsetsPerTrigger, maxBytesPerTrigger and minOffsetsPerTrigger say."""
        return self._options.trigger.default_limit()

    def prepareForTriggerAvailableNow(self) -> None:
        """Pin the view that an AvailableNow query reads to its end."""
        self._last_view = self._newest_view(0)

    def partitions(self, start: Progress, end: Progress) -> Sequence[InputPartition]:
        """Return one part per task of the micro-batch from `start` to `end`, read in the view that chose `end`.

        Raises:
            ConfigurationError: a row has a value in a column that the stream does not have, see `NewColumns`; or `end`
                is not of this query, see `_starts_between`.
            RetentionPassed: see `_starts_between`.
        """
        view = self._store().with_columns(self._view_of(end), self._schema.names)
        check_all_rows(view.topics.values(), self._options)
        columns = read_columns(view.topics.values(), self._schema)
        starts = self._starts_between(view, start, end)
        self._new_columns.check(
            view,
            lambda: self._view_before(start),
            lambda names: self._tasks(view, start, end, starts, names, by_segment=True),
        )
        return [TaskPartition(task) for task in self._tasks(view, start, end, starts, columns)]

    @abstractmethod
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
        """Return the tasks of a micro-batch whose partitions go on at `starts`; `by_segment` is as in `plan_view`."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one part, in offset order."""
        return read_partition(partition, self._options, self._target)

    def commit(self, end: Progress) -> None:
        """Commit the offsets of a micro-batch that the sink has written, if `commitOffsetsOnCheckpoint` asks for it.

        Spark calls this when it begins the next one. A failure is logged: the checkpoint has the query's own progress.
        """
        group_id = self._options.commit_group
        offsets = None if group_id is None else offsets_of_progress([end], group_id)
        if offsets is None or not offsets.topic_partitions:
            return
        try:
            self._store().commit_offsets(offsets)
        except (KafkaException, StoreError) as error:
            log_event("spark_group_offsets_not_committed", group_id=group_id, error=error)

    def _progress(self, view: ReadView, entry: int, offsets: dict[TopicPartitionKey, int]) -> Progress:
        """Return the JSON of a progress; equal ones have equal text."""
        topics: dict[str, dict[str, int]] = {}
        for topic, partition in sorted(offsets):
            topics.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
        return {
            "order": self._order,
            "storeId": self._store().store_id,
            "entry": entry,
            "topicIds": {topic: view.topics[topic].topic_id for topic in topics},
            "topics": topics,
        }

    def _age_ms(self, timestamp_ms: int | None) -> int:
        return 0 if timestamp_ms is None else max(0, self._clock.wall_ms() - timestamp_ms)

    def _store(self) -> Store:
        return open_store(self._options.path, self._options.store)

    def _newest_view(self, entry: int) -> ReadView:
        """Return the newest view, which is of `entry` or a later one.

        Raises:
            CommandRefused: a topic that is named does not exist, and failOnDataLoss is set.
            ConfigurationError: a topic has a key, and the option `rows` does not ask for all rows.
        """
        opened = open_view if self._options.fail_on_data_loss else open_view_of_existing
        view = opened(self._store(), self._options, at_least_entry=entry)
        check_all_rows(view.topics.values(), self._options)
        return view

    def _view_after(self, start: Progress) -> ReadView:
        """Return the view in which the next micro-batch is chosen: an AvailableNow query's pinned one, or the newest.

        Raises:
            ConfigurationError: `start` is a progress in another order, or of another store.
        """
        self._check_origin(start)
        view, least = self._last_view, view_entry(start)
        return self._newest_view(least) if view is None or view.entry < least else view

    def _check_origin(self, progress: Progress) -> None:
        """Raise unless the query goes on from `progress`.

        Raises:
            ConfigurationError: it is a progress in another order, or of another store. Or it is of other partitions,
                none of which this query reads, and failOnDataLoss is set: it would be lost.
        """
        store_id = self._store().store_id
        # A checkpoint of an earlier version does not name its store.
        if progress.get("storeId", store_id) != store_id:
            raise ConfigurationError(
                f"the query's checkpoint belongs to another store than {self._options.path!r}: expected the one with "
                f"the id {progress['storeId']}, found {store_id}. Give its address, or start with a new checkpoint"
            )
        order = progress.get("order")
        if order is None:
            raise ConfigurationError(_ALIGNED)
        if order != self._order:
            raise ConfigurationError(
                f"the query's checkpoint was written in {order} order: set the option order to {order}, or start the "
                "query with a new checkpoint"
            )
        if self._options.fail_on_data_loss:
            self._check_goes_on(progress)

    def _check_goes_on(self, progress: Progress) -> None:
        """Raise if the query reads no partition of a progress.

        Raises:
            ConfigurationError: that is so.
        """
        others: list[str] = []
        for topic, numbers in sorted(progress["topics"].items()):
            if not names_topic(self._options, topic):
                others.append(topic)
            elif any(self._is_assigned(topic, int(number)) for number in numbers):
                return
            else:
                others += (f"{topic}-{number}" for number in numbers)
        if others:
            raise ConfigurationError(
                f"the query's checkpoint is of a query that reads {others}, and this one reads none of them: expected "
                "one of its topics and partitions. Start the query with a new checkpoint, or set the option "
                "failOnDataLoss to false to give that progress up"
            )

    def _view_of(self, end: Progress) -> ReadView:
        """Return the view that a micro-batch is read in, at each attempt the same.

        One that a vacuum has passed is replaced by the newest, with a warning: there is none with the same rows.
        """
        entry = view_entry(end)
        if self._view is not None and self._view.entry == entry:
            return self._view
        try:
            # A topic that was deleted before may be named by the options.
            return open_view_of_existing(self._store(), self._options, entry=entry)
        except ViewExpired:
            log_event("spark_view_expired", entry=entry)
            return self._newest_view(entry)

    def _view_before(self, start: Progress) -> ReadView | None:
        """Return the view in which the micro-batch up to `start` was chosen; None if there is none, or no more."""
        try:
            return (
                open_view_of_existing(self._store(), self._options, entry=view_entry(start))
                if view_entry(start)
                else None
            )
        except ViewExpired:
            return None

    def _starts(self, view: ReadView, start: Progress) -> dict[TopicPartitionKey, int]:
        """Return where each partition goes on: partitions that are new since `start` begin at their earliest record.

        Raises:
            ConfigurationError: a topic was deleted since `start`, and failOnDataLoss is set.
            RetentionPassed: records that were not read were removed since `start`, or deletes were, and failOnDataLoss
                is set.
        """
        for topic, topic_id in start["topicIds"].items():
            # A topic that is not there and not asked for is no longer subscribed.
            if topic_id_of(view, topic) != topic_id and names_topic(self._options, topic):
                self._report_loss(view, topic, topic_id)
        starts = {key: self._start_of(view, key, start) for key in partitions_of(view, self._options.assigned)}
        for key in starts:
            if is_known(view, key, start):
                self._check_deletes(view, key, start)
        return starts

    def _check_deletes(self, view: ReadView, key: TopicPartitionKey, start: Progress) -> None:
        """Raise if deletes are gone that follow what the query has read, or warn once.

        Raises:
            RetentionPassed: that is so, and failOnDataLoss is set.
        """
        seen_entry, offset = view_entry(start), offset_in(start, key)
        # A query that has read nothing has entry 0.
        if not seen_entry or not lacks_deletes(view.partitions[key], offset, seen_entry):
            return
        topic, number = key
        if self._options.fail_on_data_loss:
            raise RetentionPassed(
                f"a compaction has removed deletes from partition {number} of topic {topic!r} that follow offset "
                f"{offset}, which the query has not read: what is made of its rows may have deleted rows. Start the "
                "query with a new checkpoint and make it anew, or set the option failOnDataLoss to false to go on"
            )
        if (*key, offset) not in self._deletes_missed:
            self._deletes_missed.add((*key, offset))
            log_event("spark_deletes_missed", topic=topic, partition=number, offset=offset)

    def _starts_between(self, view: ReadView, start: Progress, end: Progress) -> dict[TopicPartitionKey, int]:
        """Return where each partition of the micro-batch from `start` to `end` goes on: only those that `end` names.

        The query may have been started again with others: the next micro-batch reads these from their start. `view` may
        be older than a topic or partition that `end` names, and has no record of it then.

        Raises:
            ConfigurationError: `end` is not of this query. Or its view has expired, a topic was deleted since, and
                failOnDataLoss is set.
            RetentionPassed: the same of removed records.
        """
        # Spark repeats a micro-batch that was not finished before it asks for the next one.
        self._check_origin(end)
        starts = {}
        for topic, topic_id in end["topicIds"].items():
            if topic_id_of(view, topic) != topic_id:
                if view.entry > view_entry(end) and names_topic(self._options, topic):
                    self._report_loss(view, topic, topic_id)
                continue
            for number in map(int, end["topics"][topic]):
                key = (topic, number)
                if key in view.partitions and self._is_assigned(topic, number):
                    starts[key] = self._start_of(view, key, start)
        return starts

    def _start_of(self, view: ReadView, key: TopicPartitionKey, start: Progress) -> int:
        earliest = view.partitions[key].log_start_offset
        offset = offset_in(start, key, earliest) if is_known(view, key, start) else earliest
        return within_log(view, key, offset, fail=self._options.fail_on_data_loss)

    def _is_assigned(self, topic: str, number: int) -> bool:
        return self._options.assigned is None or number in self._options.assigned.get(topic, ())

    def _report_loss(self, view: ReadView, topic: str, topic_id: int) -> None:
        """Warn once that the topic with the id no longer exists: its offsets mean nothing to one of the same name.

        Raises:
            ConfigurationError: failOnDataLoss is set.
        """
        what = "was deleted" if topic_id_of(view, topic) is None else "was deleted and created again"
        if self._options.fail_on_data_loss:
            raise ConfigurationError(
                f"topic {topic!r} {what} since the query's checkpoint was written: records may be lost, and its "
                "offsets mean other records now. Set the option failOnDataLoss to false to continue with the "
                "records of existing topics, or start the query with a new checkpoint"
            )
        if (topic, topic_id) not in self._lost:
            self._lost.add((topic, topic_id))
            log_event("spark_topic_lost", topic=topic, what=what)


def view_entry(progress: Progress) -> int:
    """Return the entry of the view that a micro-batch with this end is read in.

    In commit order that of an earlier version does not say it, and is read in the view at its last entry.
    """
    entry: int = progress["view" if "view" in progress else "entry"]
    return entry


def backlog(*, rows: int, age_ms: int, transactions: int | None = None) -> Progress:
    """Return what a query's progress says of what it has not read."""
    counted = {} if transactions is None else {"backlogTransactions": transactions}
    return {"backlogRows": rows, **counted, "backlogMs": age_ms}


def offset_in(progress: Progress, partition: TopicPartitionKey, missing: int = -1) -> int:
    """Return the offset of a partition in a progress, or `missing`."""
    topic, number = partition
    return int(progress["topics"].get(topic, {}).get(str(number), missing))


def topic_id_of(view: ReadView, topic: str) -> int | None:
    """Return the id of a topic in a view; None if it is not there."""
    return view.topics[topic].topic_id if topic in view.topics else None


def is_known(view: ReadView, partition: TopicPartitionKey, progress: Progress) -> bool:
    """Return whether a progress has an offset of the partition, of this topic and not of a deleted one of its name."""
    topic = partition[0]
    return progress["topicIds"].get(topic) == topic_id_of(view, topic) and offset_in(progress, partition) >= 0
