"""Exactly-once outputs of `foreachBatch`: what a sink of Spark cannot be, in one transaction for each micro-batch.

Spark refuses output mode update for sinks in Python, and gives a sink one data frame. A function for `foreachBatch` has
no such limits. The rows of all data frames are staged; then one entry of the log names them. The driver takes few rows
from Spark and stages them itself, with no Python worker. Tasks upload many rows.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import ByteType, DataType, DecimalType, FloatType, IntegerType, ShortType

from pyspark_txnlog.connecting.errorlines import one_line_errors, without_frames
from pyspark_txnlog.connecting.sessions import parallelism_of
from pyspark_txnlog.connecting.storehandles import commit_batch, open_store
from pyspark_txnlog.options.keywords import option_texts
from pyspark_txnlog.options.options import WRITE_STREAM, WriteOptions
from pyspark_txnlog.options.spark_columns import is_scalar, quoted
from pyspark_txnlog.sparkinternals import (
    QUERY_ID,
    RUN_ID,
    ArrowQuery,
    HoldableRows,
    context_of,
    holdable_rows,
    interrupted_in_one_line,
    is_classic,
    is_complete,
)
from pyspark_txnlog.writing.batch_writer import prepare_write, stage_rows, staged_by_newest
from pyspark_txnlog.writing.keyedrows import (
    WORDS_MAX,
    KeyedRows,
    by_key,
    check_task,
    check_topic,
    divided_by_key,
    keyed_topic,
    last_columns,
    refuse_complete,
)
from pyspark_txnlog.writing.lastrows import ROW_HASH, LastRows
from sparktxn import ConfigurationError, SinkCommit
from sparktxn.store import output_schema
from sparktxn.store.digests import digest_of_words, name_word, with_digest
from sparktxn.store.options import arguments
from sparktxn.store.staging import RECORD_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

    from sparktxn import StagedSegment, StagePlan
    from sparktxn.store.digests import RowsDigest
    from sparktxn.store.staging import StageTopic


# A micro-batch's rows on their way to the driver: Spark computes them once, and its executors hold them meanwhile.
#
# The job that computes them brings the few to the driver. Many go on to tasks, from where they are held.
# docs/adr/0029 says why.

_PARTITION_ROWS_MAX: Final = 10_000
"""How many rows of a partition come to the driver: those of one message. Spark's own messages have so many."""


def rows_query() -> ArrowQuery:
    """Return what plans the queries for the rows of frames with the same columns."""
    return ArrowQuery(_PARTITION_ROWS_MAX)


class HeldRows:
    """The rows of a frame as Arrow batches, in the memory and on the disks of Spark's executors until `close`.

    `columns` are expressions of SQL; `query` may be the one of other frames of the same session.
    """

    def __init__(self, rows: HoldableRows, columns: Sequence[str], query: ArrowQuery) -> None:
        self._held = query.hold(rows, columns)
        self._schema = to_arrow_schema(self._held.schema, timezone="UTC")
        self._query = query

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        return self._held.schema.names

    def within(self, bytes_max: int) -> list[pa.RecordBatch] | None:
        """Compute the rows, and return them in their order; None if they are more than may come to the driver.

        No partition has more than 10,000 of them then, and its share of `bytes_max` in Arrow. They come as one batch:
        to stage each partition's few rows apart costs as much again for each.
        """
        messages = self._query.first(self._held, bytes_max)
        if messages is None:
            return None
        rows = pa.Table.from_batches(_decoded(messages, self._schema), self._schema).combine_chunks()
        batches: list[pa.RecordBatch] = rows.to_batches()
        return batches

    def staged_by(
        self, stage: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]], keyed: StageTopic | None = None
    ) -> list[Any]:
        """Return what `stage` yields of the rows in tasks of Python, which read them where they are held.

        Rows of a keyed topic go on from there to tasks of which each has all rows of its keys.
        """
        schema, messages = self._schema, self._held.messages()
        if keyed is not None:
            count = parallelism_of(self._held.session)
            divided = messages.mapPartitions(lambda some: divided_by_key(_decoded(some, schema), keyed, count))
            messages = divided.partitionBy(count, int).values()
        return messages.mapPartitions(lambda some: stage(_decoded(some, schema))).collect()

    def close(self) -> None:
        """Let the rows go."""
        self._held.close()


def _decoded(messages: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (pa.ipc.read_record_batch(pa.py_buffer(message), schema) for message in messages)


# The content of rows as Spark hashes it in its plan, which is quicker than Python's way over the rows.
#
# A micro-batch's fingerprint is made of it. Spark's function `xxhash64` leaves out nulls, and refuses maps. So
# numbers that say which columns are null go before the values, and rows with nested columns are hashed in Python.

_KIND: Final = "spark2"

_BITS: Final = 63
"""The bits of a number but for its sign: of so many columns it says which are null."""

_STORED_AS: Final[dict[type[DataType], str]] = {
    ByteType: "bigint",
    FloatType: "double",
    IntegerType: "bigint",
    ShortType: "bigint",
}
"""As what types are hashed that are not hashed as they are: the same number has the same hash in each width."""


def with_row_hashes(rows: DataFrame, plan: StagePlan, topic: str | None) -> DataFrame:
    """Return `rows` with the columns of `hashed_columns`."""
    return rows.selectExpr(*hashed_columns(rows.schema, plan, topic))


def hashed_columns(schema: StructType, plan: StagePlan, topic: str | None) -> Sequence[str]:
    """Return expressions of the columns of `schema`, and a hash of each row that is not bound to its topic.

    There is no hash if Python must compute it.
    """
    names = sorted({*schema.names}.intersection(_content(plan, topic)))
    is_hashed = bool(names) and all(is_scalar(schema[name].dataType) for name in names)
    # Spark does not know which rows' timestamps the log leaves out.
    if not is_hashed or any(known.has_times_of_entries for known in plan.topics.values()):
        return ("*",)
    # One text for all columns: a micro-batch of few rows would pay for many calls into the JVM.
    hashed = [*_nulls(names)]
    declared = output_schema(None if topic is None else plan.topics[topic].schema)
    for name in names:
        column = quoted(name)
        stored_as = _stored_as(schema[name].dataType, declared.field(name).type)
        hashed.append(column if stored_as is None else f"cast({column} as {stored_as})")
    return ("*", f"xxhash64({', '.join(hashed)}) as {ROW_HASH}")


def _nulls(names: Sequence[str]) -> Iterator[str]:
    """Yield numbers whose bits say which columns are null: a hashed flag for each column costs more."""
    for start in range(0, len(names), _BITS):
        part = names[start : start + _BITS]
        yield " | ".join(f"if({quoted(name)} is null, {1 << bit}L, 0L)" for bit, name in enumerate(part))


def _stored_as(found: DataType, declared: pa.DataType) -> str | None:
    """Return the type that values of the type `found` are hashed as; None if it is that one.

    Spark hashes the digits of a decimal without its scale. So a decimal is hashed with the scale that the topic has.
    Text has the hash of its bytes, which a cast would copy. Text with a collation was refused before.
    """
    if isinstance(found, DecimalType) and pa.types.is_decimal(declared):
        return from_arrow_type(declared).simpleString()
    return _STORED_AS.get(type(found))


def _content(plan: StagePlan, topic: str | None) -> Sequence[str]:
    """Return the columns that are the user's: the log assigns the others of rows that were read anew."""
    if topic is None:
        return RECORD_COLUMNS
    schema = plan.topics[topic].schema
    if schema is None:
        return [name for name in RECORD_COLUMNS if name != "topic"]
    return [*(name for name, _, _ in schema), "_timestamp"]


class HashedRows:
    """Rows on their way into a stager, which takes them without their column of hashes.

    Each hash is bound to the topic here, not in each row by Spark. Rows that name their topics have no other one.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], topic: str | None) -> None:
        self._batches = batches
        self._word = np.uint64(0) if topic is None else name_word(topic)
        self._digest: RowsDigest | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield each batch without the hashes, and note these."""
        for batch in self._batches:
            if ROW_HASH not in batch.schema.names:
                yield batch
                continue
            hashes = batch.column(ROW_HASH).view(pa.uint64()).to_numpy()
            self._digest = digest_of_words(_KIND, hashes + self._word).plus(self._digest)
            yield batch.drop_columns([ROW_HASH])

    def digested(self, staged: Sequence[StagedSegment]) -> Sequence[StagedSegment]:
        """Return the segments of these rows with the digest of them, if they had hashes."""
        return staged if self._digest is None else with_digest(staged, self._digest)


Outputs = Callable[["DataFrame", int], "Mapping[str, DataFrame]"]
"""Given a micro-batch's rows and id, the rows to write, by topic."""

DRIVER_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much of a frame the driver takes; larger ones are staged sooner by tasks side by side."""

_UNKNOWN_BYTES: Final = 2**50
"""No micro-batch is as large. Spark plans with 2**63, less what a projection leaves out, where a size is not known."""

_DESCRIPTION: Final = "spark.job.description"

_STAGED: Final = "segments"


def foreach_batch(
    uri: str, outputs: Outputs | None = None, *, query_id: str | None = None, **options: Any
) -> Callable[[DataFrame, int], None]:
    """Return a function for `DataStreamWriter.foreachBatch` that writes each micro-batch exactly once.

    Args:
        uri: the store.
        outputs: gives the rows to write to each topic, all of them in one transaction. Without it the micro-batch's own
            rows are written: to the option `topic`, or to the topics that they name in the column `topic`.
        query_id: what identifies the query in the log. By default Spark's id of the query, which its checkpoint keeps.
            Where the driver has no SparkContext (Spark Connect) it must be given, and stay the same over restarts.
        options: those of `writeStream.format("txnlog")`.

    The function that is returned raises as the sink does. A micro-batch that is already there is not written again.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: an option or `query_id` is wrong, or `topic` is given together with `outputs`.
    """
    arguments.function("outputs", outputs)
    query_id = None if query_id is None else arguments.identifier("query_id", query_id)
    parsed = WriteOptions.parse(option_texts(None, options, path=uri), WRITE_STREAM)
    if outputs is not None and parsed.topic is not None:
        raise ConfigurationError("option 'topic' does not go with outputs, which name the topics: give one of them")

    ways = _Ways()

    @interrupted_in_one_line()
    def write(rows: DataFrame, batch_id: int) -> None:
        arguments.instance("rows", rows, DataFrame)
        writer_id, run_id = (query_id, "") if query_id is not None else _identity(rows)
        sink = SinkCommit(writer_id=writer_id, run_id=run_id, batch_id=batch_id)
        frames = {parsed.topic: rows} if outputs is None else _checked(outputs(rows, batch_id))
        commit(rows, frames, sink)

    @without_frames
    def commit(rows: DataFrame, frames: Mapping[str | None, DataFrame], sink: SinkCommit) -> None:
        # All topics are found, and all columns checked, before the first row is uploaded.
        asked = {topic: replace(parsed, topic=topic, has_outputs=outputs is not None) for topic in frames}
        plans = [(frame, prepare_write(asked[topic], frame.schema), topic) for topic, frame in frames.items()]
        for _, plan, topic in plans:
            if keyed_topic(plan, topic) is not None and is_complete(rows.sparkSession, sink.writer_id):
                refuse_complete(plan, topic)
        with _topics_on_pages(rows, [topic for topic in frames if topic is not None]):
            staged = [
                segment
                for frame, plan, topic in plans
                for segment in staged_by_newest(
                    asked[topic],
                    frame.schema,
                    plan,
                    partial(ways.stage, frame, topic=topic, last_by=last_columns(parsed)),
                )
            ]
        transactional_id = parsed.transactional_id or f"spark-{sink.writer_id}"
        commit_batch(parsed, staged, transactional_id=transactional_id, sink=sink)

    return write


def _checked(frames: object) -> dict[str | None, DataFrame]:
    """Return what a caller's function gives: data frames by topic.

    None is an error: a function without `return` would make every micro-batch count as written, and empty.
    """
    name = "what outputs() returns"
    by_topic = arguments.instance(name, frames, Mapping, "a dict of data frames by topic")
    return {
        arguments.identifier(f"a topic of {name}", topic): arguments.instance(f"{name} for {topic!r}", frame, DataFrame)
        for topic, frame in by_topic.items()
    }


def _identity(rows: DataFrame) -> tuple[str, str]:
    """Return the id of the query and of its run, which Spark sets for the thread that calls a `foreachBatch`."""
    context = context_of(rows.sparkSession)
    query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
    if context is None or query_id is None:
        raise ConfigurationError(
            "Spark says no id of the query here: call the function inside foreachBatch only, or give foreach_batch() a "
            "query_id that stays the same over restarts"
        )
    return query_id, context.getLocalProperty(RUN_ID) or ""


@contextmanager
def _topics_on_pages(rows: DataFrame, topics: Sequence[str]) -> Iterator[None]:
    """Have Spark's pages name the topics with the jobs that stage rows for them, after the query's own description."""
    context = context_of(rows.sparkSession)
    if context is None or not topics:
        yield
        return
    description = context.getLocalProperty(_DESCRIPTION)
    words = [*([] if description is None else [description]), f"txnlog topics = {', '.join(topics)}"]
    context.setLocalProperty(_DESCRIPTION, "<br/>".join(words))
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, description)  # type: ignore[arg-type] # None takes it away


class _Ways:
    """Which way the rows of one query's micro-batches go, by topic: through the driver, or through tasks.

    It follows from the last micro-batch, and of the first one from Spark's plan. What is staged is the same.
    """

    def __init__(self) -> None:
        self._was_small: dict[str | None, bool] = {}
        self._queries: defaultdict[str | None, ArrowQuery] = defaultdict(rows_query)

    def stage(
        self, frame: DataFrame, plan: StagePlan, *, topic: str | None, last_by: Sequence[str] = ()
    ) -> Sequence[StagedSegment]:
        """Stage the rows of `frame` the way that suits them, each computed once."""
        rows = holdable_rows(frame)
        if rows is None or not self._is_small(rows, topic):
            staged = stage_frame(with_row_hashes(frame, plan, topic), plan, topic, last_by=last_by)
            # Half: a query whose micro-batches are about as large as the limit stays with tasks.
            self._was_small[topic] = sum(segment.payload_bytes for segment in staged) <= DRIVER_BYTES_MAX // 2
            return staged
        held = HeldRows(rows, hashed_columns(frame.schema, plan, topic), self._queries[topic])
        try:
            batches = held.within(DRIVER_BYTES_MAX)
            self._was_small[topic] = batches is not None
            stage = _stage(plan, topic, held.names, last_by)
            if batches is not None:
                return stage(iter(batches))
            return _staged(held.staged_by(_in_task(stage), keyed_topic(plan, topic)))
        finally:
            held.close()

    def _is_small(self, rows: HoldableRows, topic: str | None) -> bool:
        """Return whether the driver tries to take `rows`.

        A join of small tables may be planned as enormous: what was seen counts more. Spark's optimizer is not asked
        then, which works for each frame of a user's function anew.
        """
        if topic not in self._was_small:
            planned = rows.planned_bytes()
            self._was_small[topic] = planned <= DRIVER_BYTES_MAX or planned >= _UNKNOWN_BYTES
        return self._was_small[topic]


def stage_frame(
    frame: DataFrame, plan: StagePlan, topic: str | None, *, digests: bool = True, last_by: Sequence[str] = ()
) -> Sequence[StagedSegment]:
    """Upload the rows of `frame` to the topics of `plan` in tasks; return what names them, in the order of the rows.

    Of a keyed topic one task has all rows of a key, and uploads the last by the columns `last_by`; without any it
    refuses a key that is there twice. With `topic` None the column ``topic`` names the topic of each row. No reader
    sees a row before a commit. The digest of the rows is made of the column of `with_row_hashes`, or in the tasks if
    `frame` has none and `digests` is set.
    """
    keyed = keyed_topic(plan, topic)
    if keyed is not None:
        frame = by_key(frame, keyed)
    staged = _in_task(_stage(plan, topic, frame.columns, last_by, digests=digests))

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for segments in staged(batches):
            yield pa.record_batch([pa.array([segments], pa.binary())], names=[_STAGED])

    # mapInArrow() finds no column whose name has a dot or a backtick.
    numbered = frame.toDF(*(f"_{number}" for number in range(len(frame.columns))))
    return _staged(row[_STAGED] for row in numbered.mapInArrow(stage, f"{_STAGED} binary").collect())


_Stage = Callable[["Iterator[pa.RecordBatch]"], "Sequence[StagedSegment]"]


def _stage(
    plan: StagePlan, topic: str | None, names: Sequence[str], last_by: Sequence[str], *, digests: bool = True
) -> _Stage:
    """Return what stages rows whose columns are `names`, in a task or in the driver, with all rows of a key."""
    is_hashed = ROW_HASH in names
    keyed = keyed_topic(plan, topic)

    def stage(batches: Iterator[pa.RecordBatch]) -> Sequence[StagedSegment]:
        rows: Iterator[pa.RecordBatch] = (batch.rename_columns(names) for batch in batches)
        if keyed is not None and last_by:
            rows = LastRows(keyed, last_by).of(rows)
        hashed = HashedRows(rows, topic)
        if keyed is None or last_by:
            staged = stage_rows(plan, topic, hashed, inline=True, digests=digests and not is_hashed)
        else:
            noted = KeyedRows(hashed, keyed, (), WORDS_MAX)
            staged = stage_rows(plan, topic, noted, inline=True, digests=digests and not is_hashed)
            check_task(plan, keyed, noted, staged)
        return hashed.digested(staged)

    return stage


def _in_task(stage: _Stage) -> Callable[[Iterator[pa.RecordBatch]], Iterator[bytes]]:
    """Return what a task runs: it says what it has staged, for `_staged`."""

    @one_line_errors
    def staged(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
        yield pickle.dumps(tuple(stage(batches)))

    return staged


def _staged(pickled: Iterable[bytes]) -> Sequence[StagedSegment]:
    return [segment for one in pickled for segment in pickle.loads(one)]


# Streams into topics by one call: by `foreach_batch`, or by the sink where the driver is another process.
#
# Spark refuses output mode update for the sink, and plans each of its micro-batches twice.

_CHECKPOINT = "checkpointLocation"


def write_stream(
    df: DataFrame, uri: str, topic: str | None = None, options: Mapping[str, Any] | None = None, **named: Any
) -> DataStreamWriter:
    """Return a query, not started, that writes each micro-batch of `df` as one transaction, exactly once.

    Its trigger, name and output mode are set as for any query; mode update is possible except with Spark Connect.

    Args:
        df: a stream with the columns that ``df.writeStream.format("txnlog")`` takes.
        uri: the store.
        topic: the topic of all rows. None where the column ``topic`` names them.
        options: those of ``df.writeStream.format("txnlog")``, `checkpointLocation` among them; as keywords where the
            name has no dot.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: an option or a column is wrong, or the topic does not exist. Where the query is to create or
            to widen it, its first micro-batch says so.
    """
    arguments.instance("df", df, DataFrame)
    given: dict[str, Any] = option_texts(options, named, path=uri, topic=arguments.text_or_none("topic", topic))
    parsed = WriteOptions.parse(given, WRITE_STREAM)
    if not is_classic(df):
        return df.writeStream.format("txnlog").options(**given)
    if not (parsed.create_topic or parsed.merge_schema):
        prepare_write(parsed, df.schema)
    elif parsed.topic is not None and not parsed.create_topic:
        known = open_store(parsed.path, parsed.store).topics()
        check_topic(parsed, parsed.topic, next((each for each in known if each.name == parsed.topic), None))
    del given["path"]
    writer = df.writeStream.foreachBatch(foreach_batch(uri, **given))
    return writer if parsed.checkpoint is None else writer.option(_CHECKPOINT, parsed.checkpoint)
