"""Batch writes: tasks upload segments, the driver's commit names them in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pyspark_txnlog.connecting.errorlines import with_one_line_errors
from pyspark_txnlog.connecting.sessions import pass_over_modules
from pyspark_txnlog.connecting.storehandles import commit_batch, open_store
from pyspark_txnlog.options.options import WriteOptions
from pyspark_txnlog.options.spark_columns import check_columns_to_write, declared_columns, new_columns
from pyspark_txnlog.writing.keyedrows import (
    KeyedRows,
    check_batch,
    check_topic,
    keyed_topic,
    last_columns,
    stored_part,
    task_words_max,
)
from sparktxn import CommandRefused, ConfigurationError, ErrorCode
from sparktxn.errors import did_you_mean
from sparktxn.store.staging import StageTopic, with_columns, with_partition_key

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparktxn import StagedSegment, StagePlan, Store, TopicState


_KNOWN_MS_MAX: Final = 2_000
"""How old the knowledge of topics may be from which a write is planned."""


class StagedRows(WriterCommitMessage):
    """What one task has uploaded: no reader sees it before a commit names it.

    `words` are hashes of the keys of its rows, if the topic has a key; None if they are too many.
    """

    def __init__(self, segments: tuple[StagedSegment, ...], words: bytes | None = b"") -> None:
        self.segments = segments
        self.words = words


@with_one_line_errors
class TxnLogWriter(DataSourceArrowWriter):
    """One transaction. Made and committed on the driver; `write` runs in tasks, which never open the log.

    With the options txnAppId and txnVersion, a write of a version that the application has committed does nothing.
    """

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "a log takes records at its end only, mode 'overwrite' would remove others: write with mode 'append'"
            )
        self._options = options
        self._plan = prepare_write(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Upload one task's rows."""
        is_known = self._options.application_id is not None
        return StagedRows(*stage_task(self._plan, self._options, iterator, digests=is_known))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Name all that the tasks have uploaded in one entry.

        Raises:
            ConfigurationError: the topic has a key, and the tasks have one twice; nothing was written.
            OutcomeUnknown: the store did not answer in time; the write may have landed.
            BatchRefused: the version is not above the last committed one and is not known to have had these rows, and
                `onReplayMismatch` is fail.
        """
        staged = staged_segments(messages)
        if staged and staged[0].is_keyed:
            check_keys(self._options, messages, staged)
        commit_write(self._options, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete nothing: Spark calls this also after a commit that landed. The vacuum removes what no entry names."""


def commit_write(options: WriteOptions, staged: Sequence[StagedSegment]) -> None:
    """Name what a batch write has uploaded in one entry, or skip a version that the application has committed.

    Raises:
        OutcomeUnknown: the store did not answer in time; the write may have landed.
        BatchRefused: as `TxnLogWriter.commit`.
    """
    from sparktxn import SinkCommit, Store  # the driver alone commits: tasks import no part of a log

    if options.application_id is not None and options.application_version is not None:
        sink = SinkCommit(writer_id=options.application_id, run_id="", batch_id=options.application_version)
        # An application keeps its id, so that its versions are compared.
        transactional_id = options.transactional_id or f"spark-{options.application_id}"
        commit_batch(options, staged, transactional_id=transactional_id, sink=sink)
    elif options.transactional_id is None:
        # Writes without an identity must neither fence one another, nor each leave an id of its own.
        open_store(options.path, options.store).commit(staged)
    else:
        with Store.open(options.path, options=options.store) as store:
            store.commit(staged, transactional_id=options.transactional_id)


def prepare_write(options: WriteOptions, schema: StructType, *, newest: bool = False) -> StagePlan:
    """Return what tasks need to upload rows of `schema`, after every check that does not need the rows.

    It is by what the log says now if `newest` is set, or if what was known a moment ago leads to an error.

    Raises:
        ConfigurationError: an option or a column is wrong.
        CommandRefused: the topic does not exist.
        KafkaException: the topic is internal (INVALID_TOPIC).
    """
    store = open_store(options.path, options.store, create=options.create_topic)

    # Spark plans a micro-batch twice. What is known may be out of date where it leads to an error.
    with suppress(ConfigurationError, CommandRefused):
        known = store.topics(max_age_ms=0 if newest else _KNOWN_MS_MAX)
        return _plan(store, options, schema, {topic.name: topic for topic in known})
    return _plan(store, options, schema, {topic.name: topic for topic in store.topics()})


def staged_by_newest(
    options: WriteOptions, schema: StructType, plan: StagePlan, stage: Callable[[StagePlan], Sequence[StagedSegment]]
) -> Sequence[StagedSegment]:
    """Return what `stage` stages by `plan`; if that fails, and the log has newer topics, what it stages by these.

    A task that refuses rows cannot read the log. No reader sees what the first attempt has uploaded.

    Raises:
        Exception: what `stage` raises.
    """
    try:
        return stage(plan)
    except Exception:
        now = plan
        with suppress(Exception):  # the first error says more
            now = prepare_write(options, schema, newest=True)
        if now.topics == plan.topics:
            raise
    return stage(now)


def _plan(store: Store, options: WriteOptions, schema: StructType, topics: Mapping[str, TopicState]) -> StagePlan:
    if options.topic is None:
        check_columns_to_write(schema, None)
        # Topics with declared columns too: the error for rows that name one then says so.
        return store.stage_plan(list(topics), max_age_ms=_KNOWN_MS_MAX)
    topic = topics.get(options.topic)
    if topic is not None or options.create_topic:
        check_topic(options, options.topic, topic)
    if topic is None and options.create_topic:
        topic = _created_topic(store, options, options.topic, schema)
    if topic is None:
        with suppress(CommandRefused):
            # One that is not among the user's, and takes no records, is refused for that.
            store.stage_plan([options.topic])
        raise ConfigurationError(
            f"topic {options.topic!r} does not exist{did_you_mean(options.topic, topics)}: create it with "
            f"Store.create_topic({options.topic!r}, partition_count) or AdminClient.create_topics, or set the option "
            "createTopic to true"
        )
    schema = stored_part(schema, topic, options)
    if options.merge_schema:
        topic = _merged_topic(store, options, schema, topic)
    check_columns_to_write(schema, topic)
    return store.stage_plan([topic.name], partition_key=options.partition_key, max_age_ms=_KNOWN_MS_MAX)


def _merged_topic(store: Store, options: WriteOptions, schema: StructType, topic: TopicState) -> TopicState:
    """Return the topic with the columns of `schema` that it lacked; it gains them only if the write passes all checks.

    Raises:
        ConfigurationError: a column or the option `partitionKey` is wrong; nothing was written.
    """
    new = new_columns(schema, topic)
    if new is None:
        return topic
    planned = with_columns(topic, new)
    check_columns_to_write(schema, planned)
    if options.partition_key is not None:
        with_partition_key(StageTopic.of(planned), options.partition_key)
    return store.add_columns(topic.name, new)


def _created_topic(store: Store, options: WriteOptions, name: str, schema: StructType) -> TopicState:
    """Return the topic, new, with the columns of `schema`; or as another driver has created it meanwhile."""
    columns, key = declared_columns(schema), options.partition_key
    if key is not None and (columns is None or key not in columns.names):
        known = () if columns is None else columns.names
        raise ConfigurationError(
            f"option 'partitionKey' is {key!r}: expected a declared column of the new topic {name!r}"
            f"{did_you_mean(key, known)}"
        )
    settings = {} if key is None else {"partition.key": key}
    try:
        return store.create_topic(name, options.create_topic_partitions, settings=settings, schema=columns)
    except CommandRefused as refused:
        if refused.error.code() != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return store.view([name]).topics[name]


def stage_task(
    plan: StagePlan,
    options: WriteOptions,
    batches: Iterable[pa.RecordBatch],
    *,
    inline: bool = False,
    digests: bool = True,
) -> tuple[tuple[StagedSegment, ...], bytes | None]:
    """Upload the rows of a task of the sink, as `stage_rows` does; return hashes of their keys, too (`StagedRows`)."""
    topic = keyed_topic(plan, options.topic)
    if topic is None:
        return stage_rows(plan, options.topic, batches, inline=inline, digests=digests), b""
    rows = KeyedRows(batches, topic, last_columns(options), task_words_max(_task()))
    staged = stage_rows(plan, options.topic, rows, inline=inline, digests=digests)
    words = rows.words()
    return staged, None if words is None else words.tobytes()


def check_keys(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], staged: Sequence[StagedSegment]
) -> None:
    """Pass if no key is twice in what the tasks of the sink have uploaded to a keyed topic: the `staged` of `messages`.

    Raises:
        ConfigurationError: a key is there twice; nothing was written.
    """
    words = [message.words for message in messages if isinstance(message, StagedRows)]
    check_batch(options, partial(_plan_again, options), staged, words)


def _plan_again(options: WriteOptions) -> StagePlan:
    return open_store(options.path, options.store).stage_plan([str(options.topic)])


def stage_rows(
    plan: StagePlan, topic: str | None, batches: Iterable[pa.RecordBatch], *, inline: bool = False, digests: bool = True
) -> tuple[StagedSegment, ...]:
    """Upload a task's rows, in bounded memory; `topic` None means the topics that the rows name.

    With `inline` a partition's few rows are not uploaded: they go to the driver, and into the entry that names them.
    With `digests` the rows' content is noted, by which the log knows a batch that it has.

    The task's number seeds the choice of partitions for rows without a key: a task that runs again chooses the same.
    """
    stager = plan.open(seed=_task(), default_topic=topic, inline=inline, digests=digests)
    for batch in batches:
        stager.write(batch)
    staged = tuple(stager.finish())
    pass_over_modules()
    return staged


def _task() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def staged_segments(messages: Sequence[WriterCommitMessage | None]) -> list[StagedSegment]:
    """Return all that the tasks have uploaded, in the tasks' order, which is that of the rows."""
    return [segment for message in messages if isinstance(message, StagedRows) for segment in message.segments]
