"""The public surface below the clients: for engines that read and write a store in many processes at once.

The process that opens a `Store` plans and commits; others get picklable values and never open the log::

    store = Store.open("/data/log")
    view = store.view(["flights"])
    tasks = store.plan_view(view)                           # → executors: read_task(task, store.options)
    plan = store.stage_plan(["delays", "late"])             # → executors: plan.open().write(batch) … finish()
    store.commit(staged, transactional_id="job-7")          # one transaction, one entry
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, Final

import pyarrow as pa

from sparktxn._engine.format.commands import CreateTopic, OffsetCommit
from sparktxn._engine.format.schema import check_schema
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.knownstate import unknown_topic
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.state.keyed import as_keyed
from sparktxn._engine.state.topics import check_new_name
from sparktxn._foundation.config.store import StoreOptions
from sparktxn._foundation.config.topic import check_topic_settings
from sparktxn._foundation.process.clock import Clock, acquired_in_time, in_time
from sparktxn._foundation.process.handles import ForkGuard, NoCopies, give_back_later
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.quantities import html_table
from sparktxn._foundation.values.structs import TopicState
from sparktxn._kafka.groups import ConsumerGroupTopicPartitions
from sparktxn._rows.scan.columns import known_columns, one_layout, with_columns
from sparktxn._rows.scan.commitorder import checked_commits, plan_commits
from sparktxn._rows.scan.conditions import Condition, checked_condition
from sparktxn._rows.scan.content import (
    Asked,
    Rows,
    check_all_rows,
    checked_asked,
    checked_order,
    plan_view,
)
from sparktxn._rows.scan.latesttask import (
    LatestTask,
    check_keyed,
    columns_read,
    latest_bounds,
    latest_columns,
    latest_tasks,
)
from sparktxn._rows.scan.microbatchcut import CommitCut, commit_cut
from sparktxn._rows.scan.offsets import committing_entry, offset_for_time
from sparktxn._rows.scan.plan import ISOLATIONS, Isolation, Order, ReadTask, checked_ranges, end_of, plan_ranges
from sparktxn._rows.scan.storedfiles import CommittedFile, committed_files, have_cut_parts
from sparktxn._rows.scan.systemtables import SYSTEM_TABLES, TableSelection, TableTask, plan_table, read_table
from sparktxn._rows.scan.transactioncolumns import with_metadata
from sparktxn._rows.stage.batchcommits import (
    BatchCommits,
    CommitResult,
    OnReplayMismatch,
    SinkCommit,
    TransactionOffsets,
    checked,
)
from sparktxn._rows.stage.newcolumns import add_columns, create_topic
from sparktxn._rows.stage.rowpartitions import with_partition_key
from sparktxn._rows.stage.stager import StagedSegment, StageTopic
from sparktxn.errors import CommandRefused, ConfigurationError, ErrorCode, KafkaException, OutcomeUnknown
from sparktxn.metrics.process import PROCESS, Call
from sparktxn.store.groupoffsets import committed_offsets, offsets_to_commit
from sparktxn.store.memberexpiry import expire_overdue
from sparktxn.store.memberwatch import sightings
from sparktxn.store.registry import acquire_log, objects_of, release_dropped, release_log
from sparktxn.store.stageplan import StagePlan

__all__ = [
    "SYSTEM_TABLES",
    "Store",
    "TableSelection",
    "TableTask",
    "expectations",
    "read_table_task",
    "shown_in_a_notebook",
]


# A store as a cell of a notebook shows it.

"""How long a notebook waits for a store that it shows."""


def shown_in_a_notebook(title: str, view: Callable[[float], ReadView]) -> str:
    """Return HTML of what `view` returns within the seconds that it is called with, below `title`.

    A cell that ends with a store does not fail, whatever is wrong with the store: the error is shown.
    """
    try:
        found = view(_SHOWN_S)._repr_html_()
    except (KafkaException, RuntimeError) as error:
        found = html_table("no topics", (), [(error,)])
    return f"<p>{escape(title)}</p>{found}"


# What a caller expects of the ends of partitions, checked and named by topic ids.


def expectations(log: Log, expect: Mapping[TopicPartitionKey, int] | None) -> tuple[tuple[int, int, int], ...]:
    """Return argument `expect`, log end offsets by (topic, partition), as (topic id, partition, log end offset) each.

    Raises:
        TypeError: it is not a mapping with such keys and values.
        ConfigurationError: a number is out of range.
        CommandRefused: UNKNOWN_TOPIC_OR_PARTITION.
        KafkaException: INVALID_TOPIC, a topic is internal.
    """
    if expect is None:
        return ()
    found = []
    for key, end in arguments.instance("expect", expect, Mapping, "a dict of log end offsets").items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(f"a key of expect is {arguments.described(key)}: expected (topic, partition)")
        name = arguments.identifier("a topic in expect", key[0])
        partition = arguments.integer("a partition in expect", key[1], 0, arguments.INT32_MAX)
        log_end_offset = arguments.integer(f"expect[{name!r}, {partition}]", end, 0)
        found.append((_topic(log, name, partition).topic_id, partition, log_end_offset))
    return tuple(found)


def _named(view: ReadView, partitions: object) -> list[TopicState]:
    """Return the topics of a view that a read names, all without `partitions`; what is wrong with these shows later."""
    if partitions is None:
        return list(view.topics.values())
    if not isinstance(partitions, Mapping):
        return []
    names = {key[0] for key in partitions if isinstance(key, tuple) and key}
    return [topic for name, topic in view.topics.items() if name in names]


def _topic(log: Log, name: str, partition: int) -> TopicState:
    def existing() -> TopicState:
        topic = log.changeable_topic(name)
        if topic is None or partition >= topic.partition_count:
            reason = f"expect names topic {name!r}, partition {partition}, which does not exist"
            raise CommandRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        return topic

    return log.decide(existing)


_SHOWN_S: Final = 5.0
"""How long a notebook waits for a store that it shows."""


def _clock_of(store: Store) -> Clock:
    return store.log.clock


class Store(NoCopies):
    """A store, opened for planning and committing. Handles of one process and address share one log.

    In many calls `timeout_s` bounds all waits and requests, in seconds; None means no limit. `view` is one that
    `view()` has returned, and `isolation` read_committed or read_uncommitted. `columns`, `rows_per_task` and `rows` are
    as in `plan_view`.
    """

    def __init__(self, uri: str, options: Mapping[str, Any], log: Log) -> None:
        self.uri = uri
        self.options = StoreOptions(options)
        self.log = log
        self._fork = ForkGuard()
        self._closed = False
        # For a store that is dropped without close(): the log must not stay open for it.
        self._dropped = weakref.finalize(self, give_back_later, partial(release_dropped, log, self._fork))
        self._dropped.atexit = False
        self._committing = threading.Lock()
        self._commits = BatchCommits(log)

    @classmethod
    def open(
        cls, uri: str | os.PathLike[str], *, options: Mapping[str, Any] | None = None, create: bool = False
    ) -> Store:
        """Open the store at `uri` (a folder, ``file://``, ``s3://``, ``memory://``).

        Args:
            uri: the store's root.
            options: ``store.*`` and ``checkpoint.*`` settings, and ``storage.*`` for fsspec.
            create: make the store if there is none.

        Raises:
            ConfigurationError: the URI or an option is wrong.
            StoreNotFound: there is no store, and `create` is False.
        """
        address = arguments.path("uri", uri)
        options = arguments.mapping("options", options)
        return cls(address, options, acquire_log(address, options, create=arguments.boolean("create", create)))

    def __repr__(self) -> str:
        return f"Store({self.log.objects.uri!r})"

    def _repr_html_(self) -> str:
        return shown_in_a_notebook(repr(self), lambda time_s: self.view(None, timeout_s=time_s))

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the log back; calling twice is harmless."""
        if not self._closed:
            self._closed = True
            if self._dropped.detach() and not self._fork.forked():
                self._commits.let_go()
                release_log(self.log)

    @property
    def store_id(self) -> str:
        """The store's id: no two stores share one, whatever their addresses."""
        return self.log.store_id

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("this store is closed")
        self._fork.check("store")

    @in_time("timeout_s", _clock_of)
    def create_topic(
        self,
        name: str,
        partition_count: int = 1,
        *,
        settings: Mapping[str, Any] | None = None,
        schema: pa.Schema | None = None,
        timeout_s: float | None = None,
    ) -> TopicState:
        """Create topic `name` with `partition_count` partitions: of Kafka's record, or with `schema` a typed one.

        Raises:
            ConfigurationError: the name, a setting or the schema is wrong.
            KafkaException: the topic is internal (INVALID_TOPIC).
            CommandRefused: it exists (TOPIC_ALREADY_EXISTS), or the partition count is wrong.
        """
        self._check()
        name = check_new_name(arguments.text("name", name))
        partition_count = arguments.integer("partition_count", partition_count)
        checked = check_topic_settings(arguments.mapping("settings", settings))
        columns = check_schema(schema) if schema is not None else None
        kept, stored = as_keyed(checked, columns)
        create_topic(self.log, CreateTopic(self.log.ids.token(), name, partition_count, kept, stored))
        return self._existing(name)

    @in_time("timeout_s", _clock_of)
    def add_columns(
        self, topic: str, schema: pa.Schema | Iterable[Sequence[object]], *, timeout_s: float | None = None
    ) -> TopicState:
        """Add the nullable columns of `schema` to typed `topic`, and return it. Earlier records have null there.

        A column that the topic has with the same type changes nothing, so a call may be repeated.

        Raises:
            ConfigurationError: a column is wrong or not nullable, or the topic has it with another type or another
                case, or the topic has Kafka's record.
            CommandRefused: there is no such topic.
        """
        self._check()
        name = check_new_name(arguments.text("topic", topic))
        checked = check_schema(schema)
        add_columns(self.log, name, checked)
        return self._existing(name)

    def _existing(self, name: str) -> TopicState:
        topic = self.log.topic(name)
        if topic is None:
            raise CommandRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} was deleted at once")
        return topic

    @in_time("timeout_s", _clock_of)
    def topics(self, timeout_s: float | None = None, *, max_age_ms: int = 0) -> list[TopicState]:
        """Return all topics, by name: as they are now, or as this process has read them up to `max_age_ms` ago."""
        self._check()
        max_age_s = arguments.integer("max_age_ms", max_age_ms, 0) / 1000
        self.log.refresh(max_age_s=max_age_s)
        return self.log.topics()

    @in_time("timeout_s", _clock_of)
    def view(
        self,
        topics: Iterable[str] | None = None,
        *,
        entry: int | None = None,
        timestamp_ms: int | None = None,
        at_least_entry: int | None = None,
        timeout_s: float | None = None,
    ) -> ReadView:
        """Return a frozen view of `topics` (None: all), now, at an `entry`, or at `timestamp_ms` since 1970.

        `at_least_entry` is an entry that the log must already hold, such as the one of an earlier view.

        Raises:
            CommandRefused: a topic does not exist, or the entry is not in the log.
            ViewExpired: vacuum has passed the entry.
        """
        self._check()
        names = None if topics is None else arguments.identifiers("topics", topics)
        entry = arguments.integer_or_none("entry", entry, 0)
        timestamp_ms = arguments.integer_or_none("timestamp_ms", timestamp_ms, 0)
        at_least_entry = arguments.integer_or_none("at_least_entry", at_least_entry, 0)
        view = self.log.view(names, entry=entry, timestamp_ms=timestamp_ms)
        if at_least_entry is not None and view.entry < at_least_entry:
            raise CommandRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the log of {self.uri!r} ends at entry {view.entry}, before entry {at_least_entry}: "
                "is it another store?",
            )
        return view

    @in_time("timeout_s", _clock_of)
    def with_columns(
        self, view: ReadView, columns: Sequence[str] | None = None, *, timeout_s: float | None = None
    ) -> ReadView:
        """Return `view` with those of `columns` that its topics have gained since, or others of them have: null there.

        All methods that plan a read do it with the columns that they are given. None means all that they have gained.
        """
        self._check()
        names = None if columns is None else arguments.identifiers("columns", columns)
        return with_columns(arguments.instance("view", view, ReadView), names, self.log)

    def _asked(self, view: ReadView, asked: Asked) -> ReadView:
        return view if asked["columns"] is None else with_columns(view, asked["columns"], self.log)

    def ranges(
        self, view: ReadView, *, isolation: Isolation = "read_committed"
    ) -> dict[TopicPartitionKey, tuple[int, int]]:
        """Return the ranges of a read in offset order: from each partition's log start to its last (stable) offset."""
        arguments.instance("view", view, ReadView)
        arguments.choice("isolation", isolation, ISOLATIONS)
        return {
            key: (partition.log_start_offset, end_of(partition, isolation))
            for key, partition in view.partitions.items()
        }

    def plan(
        self,
        view: ReadView,
        ranges: Mapping[TopicPartitionKey, tuple[int, int]],
        *,
        isolation: Isolation = "read_committed",
        columns: Sequence[str] | None = None,
        rows_per_task: int | None = None,
        by_segment: bool = False,
        rows: Rows | None = None,
    ) -> list[ReadTask]:
        """Return self-contained tasks that read `ranges` in offset order; any process runs them (`read_task`).

        An end past what the isolation level sees is lowered to it. `plan_view` returns all that is committed, and says
        what `by_segment` means.

        Raises:
            RetentionPassed: a range starts below a partition's log start.
        """
        self._check()
        arguments.instance("view", view, ReadView)
        arguments.choice("isolation", isolation, ISOLATIONS)
        check_all_rows(_named(view, ranges), rows)
        asked = checked_asked(columns, rows_per_task, by_segment)
        view = self._asked(view, asked)
        ranges = checked_ranges(view, ranges)
        # The address as resolved here: a relative path may mean another folder where a task runs.
        objects = self.log.objects
        tasks = plan_ranges(objects, objects.uri, view, ranges, isolation=isolation, **asked)
        return with_metadata(view, tasks, self.log)

    def plan_view(
        self,
        view: ReadView,
        *,
        order: Order | None = None,
        isolation: Isolation = "read_committed",
        bounds: Mapping[TopicPartitionKey, tuple[int, int | None]] | None = None,
        columns: Sequence[str] | None = None,
        rows_per_task: int | None = None,
        by_segment: bool = False,
        rows: Rows | None = None,
    ) -> list[ReadTask]:
        """Return tasks that read a view, partition by partition in offset order; any process runs them.

        Args:
            view: what to read.
            order: ``commit`` reads all that is committed at the view's entry. ``offset`` reads up to the last stable
                offset of each partition, as Kafka does, and with read_uncommitted to the end of the log. None: commit
                for read_committed, offset for read_uncommitted.
            isolation: ``read_uncommitted`` returns records of open and aborted transactions, too.
            bounds: (least offset, end offset or None) by partition; None: all partitions, whole.
            columns: names of columns; None: all but those of the record's transaction.
            rows_per_task: about how many rows a task has at most; None: no limit.
            by_segment: whether tasks name each segment of merged files. Otherwise they name such a file once, unless
                `columns` ask for what only the log says of its segments.
            rows: ``all`` must be asked for where a topic is keyed: tasks have its superseded rows and deletes, too.

        Raises:
            ConfigurationError: the order does not go with the isolation level, a topic has no such column, or a
                partition is not in the view.
        """
        self._check()
        arguments.instance("view", view, ReadView)
        order = checked_order(order, isolation)
        check_all_rows(_named(view, bounds), rows)
        asked = checked_asked(columns, rows_per_task, by_segment)
        view = self._asked(view, asked)
        tasks = plan_view(self.log.objects, view, bounds, order=order, isolation=isolation, **asked)
        return with_metadata(view, tasks, self.log)

    def plan_latest(
        self,
        view: ReadView,
        *,
        columns: Sequence[str] | None = None,
        conditions: Sequence[Condition] = (),
        partitions: Iterable[TopicPartitionKey] | None = None,
    ) -> list[LatestTask]:
        """Return tasks that read the latest rows of a view of keyed topics: one for each partition, in its order.

        Any process runs them (`read_task`). It reads the columns of the key first, and holds what it leaves out.

        Args:
            view: what to read.
            columns: names of columns; None: all but ``_deleted`` and those of the record's transaction.
            conditions: conditions on columns of the topics, which all returned rows meet. Those that name whole keys
                leave partitions out.
            partitions: (topic, partition) of those to read; None: all.

        Raises:
            ConfigurationError: a topic has no key or no such column, a condition does not fit its column, or a
                partition is not in the view.
        """
        self._check()
        arguments.instance("view", view, ReadView)
        check_keyed(view)
        given = arguments.items("conditions", conditions, Condition)
        wanted = None if partitions is None else arguments.items("partitions", partitions, tuple)
        asked = checked_asked(columns, None, False)
        names = latest_columns(view) if asked["columns"] is None else tuple(asked["columns"])
        view = with_columns(view, [*names, *(condition.column for condition in given)], self.log)
        known = known_columns(one_layout(view.topics.values()))
        checked_conditions = tuple(checked_condition(condition, known) for condition in given)
        bounds = latest_bounds(view, checked_conditions, wanted)
        asked["columns"] = columns_read(view, names, checked_conditions)
        parts = plan_view(self.log.objects, view, bounds, order="commit", isolation="read_committed", **asked)
        return latest_tasks(view, with_metadata(view, parts, self.log), names, checked_conditions)

    @in_time("timeout_s", _clock_of)
    def files(
        self,
        topic: ReadView | str,
        *,
        order: Order | None = None,
        rows: Rows | None = None,
        timeout_s: float | None = None,
    ) -> list[CommittedFile]:
        """Return the files that hold committed records, by topic, partition and offset: for other engines.

        They stay as long as the vacuum keeps the view. Internal topics have none.

        Args:
            topic: a topic, for its records of now, or a view of any topics.
            order: as in `plan_view`.
            rows: as in `plan_view`: files of a keyed topic have superseded rows.
            timeout_s: how long the view of a topic may take.

        Raises:
            ConfigurationError: the order is unknown.
            CommandRefused: the topic does not exist.
            DamagedObject: a manifest or an index is missing or altered.
            ViewExpired: it is missing because the vacuum has passed the view.
        """
        if isinstance(topic, str):
            topic = self.view([topic])
        view = arguments.instance("topic", topic, ReadView, "a name or a ReadView")
        tasks = self.plan_view(view, order=order, columns=(), rows=rows)
        if have_cut_parts(tasks):
            tasks = self.plan_view(view, order=order, columns=(), by_segment=True, rows=rows)
        return sorted(committed_files(tasks), key=lambda file: (file.topic, file.partition, file.base_offset))

    @in_time("timeout_s", _clock_of)
    def plan_table(
        self, table: str, selection: TableSelection | None = None, *, timeout_s: float | None = None
    ) -> list[TableTask]:
        """Return tasks that give rows of system `table`, one of SYSTEM_TABLES, that `selection` (None: all) asks for.

        Any process reads them (`read_table_task`).

        Raises:
            ConfigurationError: there is no such table, or the last entry to list is not in the log.
            CommandRefused: a topic does not exist, or the entry is not in the log.
            ViewExpired: vacuum has passed the entry.
        """
        self._check()
        return plan_table(self.log, table, selection, partial(sightings, self.log))

    @in_time("timeout_s", _clock_of)
    def transaction_entry(self, transaction: str, *, timeout_s: float | None = None) -> int:
        """Return the entry that committed `transaction`, named as in table ``entries`` or as ``queryId:batchId``.

        Raises:
            ConfigurationError: it is not such a name, or no entry that the log has kept has committed it.
        """
        self._check()
        return committing_entry(self.log, arguments.text("transaction", transaction))

    def plan_commits(
        self,
        view: ReadView,
        after_entry: int,
        *,
        to_entry: int | None = None,
        bounds: Mapping[TopicPartitionKey, tuple[int, int | None]] | None = None,
        columns: Sequence[str] | None = None,
        rows_per_task: int | None = None,
        by_segment: bool = False,
        rows: Rows | None = None,
    ) -> list[ReadTask]:
        """Return tasks that read what entries `after_entry` + 1 to `to_entry` (None: the view's) committed.

        That is commit order: whole transactions, in the order of the entries that committed them, and the records that
        those entries appended outside transactions. `bounds` are (least offset, end offset or None) by partition; None
        means all partitions of the view. A partition that `bounds` does not name is not read. `by_segment` is as in
        `plan_view`.

        Raises:
            ConfigurationError: an entry is after the view's, or a partition is not in the view.
        """
        self._check()
        commits = checked_commits(view, after_entry, to_entry, bounds)
        check_all_rows(_named(view, bounds), rows)
        asked = checked_asked(columns, rows_per_task, by_segment)
        view = self._asked(view, asked)
        tasks = plan_commits(self.log.objects, view, commits, **asked)
        return with_metadata(view, tasks, self.log)

    def commit_cut(
        self,
        view: ReadView,
        after_entry: int,
        *,
        to_entry: int | None = None,
        bounds: Mapping[TopicPartitionKey, tuple[int, int | None]] | None = None,
        rows_max: int | None = None,
        bytes_max: int | None = None,
    ) -> CommitCut:
        """Return where a micro-batch in commit order ends that begins after `after_entry`: whole entries, at least one.

        `to_entry` and `bounds` are as in `plan_commits`. It has at most `rows_max` rows and
        `bytes_max` bytes, unless its first entry has more; without a limit it ends at `to_entry`.
        """
        self._check()
        commits = checked_commits(view, after_entry, to_entry, bounds)
        rows_max = arguments.integer_or_none("rows_max", rows_max, 1)
        bytes_max = arguments.integer_or_none("bytes_max", bytes_max, 1)
        return commit_cut(self.log.objects, view, commits, rows_max=rows_max, bytes_max=bytes_max)

    def offset_for_time(
        self,
        partition: PartitionView,
        timestamp_ms: int,
        *,
        order: Order | None = None,
        isolation: Isolation = "read_committed",
    ) -> int | None:
        """Return the first offset in `partition` that is not before `timestamp_ms`, or None.

        It is that of a record which `plan_view` reads with the same `order` and `isolation`.
        """
        self._check()
        arguments.instance("partition", partition, PartitionView)
        order = checked_order(order, isolation)
        timestamp_ms = arguments.integer("timestamp_ms", timestamp_ms)
        return offset_for_time(self.log.objects, partition, timestamp_ms, isolation, order)

    @in_time("timeout_s", _clock_of)
    def stage_plan(
        self,
        topics: Iterable[str],
        *,
        partition_key: str | None = None,
        max_age_ms: int = 0,
        timeout_s: float | None = None,
    ) -> StagePlan:
        """Return what other processes need to stage records for `topics`, as read here up to `max_age_ms` ago.

        `partition_key` is the column that chooses the partitions of a typed topic whose setting ``partition.key`` says
        none.

        Raises:
            CommandRefused: a topic does not exist.
            ConfigurationError: `partition_key` is not a column of a topic, or its setting names another one.
            KafkaException: a topic is internal (INVALID_TOPIC).
        """
        self._check()
        topics = arguments.identifiers("topics", topics)
        key = arguments.text_or_none("partition_key", partition_key)
        max_age_s = arguments.integer("max_age_ms", max_age_ms, 0) / 1000
        born = self.log.refresh(max_age_s=max_age_s)
        staged = self.log.decide(lambda: {name: self._staged_topic(name, key) for name in topics})
        return StagePlan(self.log.objects.uri, self.options, born, staged, self.log.settings.inline_bytes)

    def _staged_topic(self, name: str, partition_key: str | None) -> StageTopic:
        topic = self.log.changeable_topic(name)
        if topic is None:
            raise unknown_topic(self.log.objects.uri, name, self.log.topics())
        staged = StageTopic.of(topic)
        return staged if partition_key is None else with_partition_key(staged, partition_key)

    @in_time("timeout_s", _clock_of)
    def commit(
        self,
        staged: Sequence[StagedSegment],
        *,
        transactional_id: str | None = None,
        sink: SinkCommit | None = None,
        on_replay_mismatch: OnReplayMismatch = "fail",
        offsets: ConsumerGroupTopicPartitions | None = None,
        expect: Mapping[TopicPartitionKey, int] | None = None,
        timeout_s: float | None = None,
    ) -> CommitResult:
        """Commit staged segments as one transaction: all are visible from one entry on, or none ever.

        Without a `transactional_id` all callers share one, and none fences another. The state does not grow with the
        number of such commits. They have no identity that outlives this handle.

        With `sink`, a batch that was committed before takes effect no second time, and claims nothing. If it is not
        known to have had the same rows, `on_replay_mismatch` decides: "skip" writes nothing and says so in the
        result's `mismatch`.

        `offsets` are a consumer group's, committed in the same transaction: they are in force when its records are
        visible. A batch that was committed before has committed its offsets, too.

        With `expect`, a log end offset by (topic, partition), it commits only if each of these partitions ends there.

        Raises:
            ConfigurationError: a sink or offsets are given without `transactional_id`, or the data of a segment in
                `staged` is not what it says of itself.
            ExpectationFailed: a partition has another end than `expect` says: nothing was written.
            KafkaException: `offsets` name a partition that does not exist (UNKNOWN_TOPIC_OR_PARTITION).
            BatchRefused: a newer run or query has committed. With "fail" also where a batch id at or below the last
                one is not known to have had these rows.
            SegmentExpired: vacuum has passed a segment: stage it again.
            ProducerFenced, CommandRefused: another producer has initialised the transactional id.
            StoreUnavailable: nothing was committed by the deadline: call again.
            OutcomeUnknown: the outcome is not known at the deadline: call again with the same arguments, which resolves
                it. A call with others first learns the outcome, or cancels what has not taken effect.
        """
        self._check()
        segments = checked(arguments.items("staged", staged, StagedSegment))
        name = None if transactional_id is None else arguments.identifier("transactional_id", transactional_id)
        batch = None if sink is None else arguments.instance("sink", sink, SinkCommit)
        if batch is not None and name is None:
            raise ConfigurationError("a sink is given without transactional_id: expected the id that keeps its batches")
        if offsets is not None and name is None:
            raise ConfigurationError("offsets are given without transactional_id: expected the id of their transaction")
        arguments.choice("on_replay_mismatch", on_replay_mismatch, ("fail", "skip"))
        expected = expectations(self.log, expect)
        # Two threads that commit under one id would take each other's transaction for their own.
        if not acquired_in_time(self._committing):
            raise OutcomeUnknown("another thread of this handle was committing until the deadline: call again")
        try:
            with Call(PROCESS.store_commit, self.log.clock):
                group = None if offsets is None else self._group_offsets(offsets)
                return self._commits.commit(segments, name, batch, on_replay_mismatch, group, expected)
        finally:
            self._committing.release()

    def _group_offsets(self, offsets: ConsumerGroupTopicPartitions) -> TransactionOffsets:
        """Return the offsets by topic ids, after overdue members were taken out: a group with members refuses them."""
        found = TransactionOffsets(*self.log.decide(lambda: offsets_to_commit(self.log, offsets)))
        expire_overdue(self.log, [found.group_id])
        return found

    @in_time("timeout_s", _clock_of)
    def committed_offsets(self, group_id: str, *, timeout_s: float | None = None) -> ConsumerGroupTopicPartitions:
        """Return the offsets that a consumer group has committed, for all partitions that have one.

        Raises:
            TypeError, ConfigurationError: `group_id` is not the name of a group.
        """
        self._check()
        group_id = arguments.identifier("group_id", group_id)
        self.log.refresh()
        return committed_offsets(self.log, group_id)

    @in_time("timeout_s", _clock_of)
    def commit_offsets(self, offsets: ConsumerGroupTopicPartitions, *, timeout_s: float | None = None) -> None:
        """Commit a consumer group's offsets, all or none, outside a transaction; the last commit is in force.

        Raises:
            ConfigurationError: `offsets` name no group, no offset, or a partition twice.
            KafkaException: a partition does not exist (UNKNOWN_TOPIC_OR_PARTITION), or an offset is below 0.
            OutcomeUnknown: not known by the deadline: call again, which does no harm.
        """
        self._check()
        group = self._group_offsets(offsets)
        self.log.submit([OffsetCommit(self.log.ids.token(), group.group_id, group.offsets)])


def read_table_task(task: TableTask, options: Mapping[str, Any] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a system table's task, in any process that can reach the store's objects.

    Raises:
        DamagedObject: an object that the log names is missing or altered.
        ViewExpired: vacuum has passed what the task names.
    """
    arguments.instance("task", task, TableTask)
    yield from read_table(objects_of(task.store_uri, arguments.mapping("options", options)), task)
