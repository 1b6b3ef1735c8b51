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

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import DataFrame

from pyspark_txnlog.connecting.errorlines import one_line_errors, without_frames
from pyspark_txnlog.connecting.stores import commit_batch
from pyspark_txnlog.options.keywords import option_texts
from pyspark_txnlog.options.options import WRITE_STREAM, WriteOptions
from pyspark_txnlog.sparkinternals import (
    QUERY_ID,
    RUN_ID,
    ArrowQuery,
    HoldableRows,
    context_of,
    holdable_rows,
    interrupted_in_one_line,
)
from pyspark_txnlog.writing.batch_writer import prepare_write, stage_rows, staged_by_newest
from pyspark_txnlog.writing.heldrows import HeldRows, rows_query
from pyspark_txnlog.writing.rowhashes import ROW_HASH, HashedRows, hashed_columns, with_row_hashes
from sparktxn import ConfigurationError, SinkCommit
from sparktxn.values import arguments

if TYPE_CHECKING:
    from sparktxn import StagedSegment, StagePlan

__all__ = ["DRIVER_BYTES_MAX", "Outputs", "foreach_batch", "stage_frame"]

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
        asked = {topic: replace(parsed, topic=topic) for topic in frames}
        plans = [(frame, prepare_write(asked[topic], frame.schema), topic) for topic, frame in frames.items()]
        with _topics_on_pages(rows, [topic for topic in frames if topic is not None]):
            staged = [
                segment
                for frame, plan, topic in plans
                for segment in staged_by_newest(
                    asked[topic], frame.schema, plan, partial(ways.stage, frame, topic=topic)
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

    def stage(self, frame: DataFrame, plan: StagePlan, *, topic: str | None) -> Sequence[StagedSegment]:
        """Stage the rows of `frame` the way that suits them, each computed once."""
        rows = holdable_rows(frame)
        if rows is None or not self._is_small(rows, topic):
            staged = stage_frame(with_row_hashes(frame, plan, topic), plan, topic)
            # Half: a query whose micro-batches are about as large as the limit stays with tasks.
            self._was_small[topic] = sum(segment.payload_bytes for segment in staged) <= DRIVER_BYTES_MAX // 2
            return staged
        held = HeldRows(rows, hashed_columns(frame.schema, plan, topic), self._queries[topic])
        try:
            batches = held.within(DRIVER_BYTES_MAX)
            self._was_small[topic] = batches is not None
            stage = _stage(plan, topic, held.names)
            return stage(iter(batches)) if batches is not None else _staged(held.staged_by(_in_task(stage)))
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
    frame: DataFrame, plan: StagePlan, topic: str | None, *, digests: bool = True
) -> Sequence[StagedSegment]:
    """Upload the rows of `frame` to the topics of `plan` in tasks; return what names them, in the order of the rows.

    With `topic` None the column ``topic`` names the topic of each row. No reader sees a row before a commit. The digest
    of the rows is made of the column of `with_row_hashes`, or in the tasks if `frame` has none and `digests` is set.
    """
    staged = _in_task(_stage(plan, topic, frame.columns, digests=digests))

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for segments in staged(batches):
            yield pa.record_batch([pa.array([segments], pa.binary())], names=[_STAGED])

    # mapInArrow() finds no column whose name has a dot or a backtick.
    numbered = frame.toDF(*(f"_{number}" for number in range(len(frame.columns))))
    return _staged(row[_STAGED] for row in numbered.mapInArrow(stage, f"{_STAGED} binary").collect())


_Stage = Callable[["Iterator[pa.RecordBatch]"], "Sequence[StagedSegment]"]


def _stage(plan: StagePlan, topic: str | None, names: Sequence[str], *, digests: bool = True) -> _Stage:
    """Return what stages rows whose columns are `names`, in a task or in the driver."""
    is_hashed = ROW_HASH in names

    def stage(batches: Iterator[pa.RecordBatch]) -> Sequence[StagedSegment]:
        hashed = HashedRows((batch.rename_columns(names) for batch in batches), topic)
        staged = stage_rows(plan, topic, hashed, inline=True, digests=digests and not is_hashed)
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
