"""Exactly-once outputs of `foreachBatch`: what a sink of Spark cannot be, in one transaction for each micro-batch.

Spark refuses output mode update for sinks in Python, and gives a sink one data frame. A function for `foreachBatch` has
no such limits. Tasks upload the rows of all data frames; then one entry of the log names them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import DataFrame

from pyspark_txnlog.connecting.errorlines import one_line_errors
from pyspark_txnlog.connecting.stores import commit_batch
from pyspark_txnlog.options.keywords import option_texts
from pyspark_txnlog.options.options import WRITE_STREAM, WriteOptions
from pyspark_txnlog.writing.batch_writer import prepare_write, stage_rows
from pyspark_txnlog.writing.rowhashes import ROW_HASH, HashedRows, with_row_hashes
from pyspark_txnlog.writing.stream_writer import QUERY_ID, RUN_ID
from sparktxn import ConfigurationError, SinkCommit
from sparktxn.values import arguments

if TYPE_CHECKING:
    from sparktxn import StagedSegment, StagePlan

__all__ = ["Outputs", "foreach_batch", "stage_frame"]

Outputs = Callable[["DataFrame", int], "Mapping[str, DataFrame]"]
"""Given a micro-batch's rows and id, the rows to write, by topic."""

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
    parsed = WriteOptions.parse({"path": uri, **option_texts(None, options)}, WRITE_STREAM)
    if outputs is not None and parsed.topic is not None:
        raise ConfigurationError("option 'topic' does not go with outputs, which name the topics: give one of them")

    def write(rows: DataFrame, batch_id: int) -> None:
        arguments.instance("rows", rows, DataFrame)
        writer_id, run_id = (query_id, "") if query_id is not None else _identity(rows)
        sink = SinkCommit(writer_id=writer_id, run_id=run_id, batch_id=batch_id)
        frames = {parsed.topic: rows} if outputs is None else _checked(outputs(rows, batch_id))
        # All topics are found, and all columns checked, before the first row is uploaded.
        plans = [
            (frame, prepare_write(replace(parsed, topic=topic), frame.schema), topic) for topic, frame in frames.items()
        ]
        staged = [
            segment
            for frame, plan, topic in plans
            for segment in stage_frame(with_row_hashes(frame, plan, topic), plan, topic)
        ]
        transactional_id = parsed.transactional_id or f"spark-{writer_id}"
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
    context = getattr(rows.sparkSession, "_sc", None)
    query_id = context.getLocalProperty(QUERY_ID) if context is not None else None
    if context is None or query_id is None:
        raise ConfigurationError(
            "Spark says no id of the query here: call the function inside foreachBatch only, or give foreach_batch() a "
            "query_id that stays the same over restarts"
        )
    return query_id, context.getLocalProperty(RUN_ID) or ""


def stage_frame(
    frame: DataFrame, plan: StagePlan, topic: str | None, *, digests: bool = True
) -> Sequence[StagedSegment]:
    """Upload the rows of `frame` to the topics of `plan` in tasks; return what names them, in the order of the rows.

    With `topic` None the column ``topic`` names the topic of each row. No reader sees a row before a commit. The digest
    of the rows is made of the column of `with_row_hashes`, or in the tasks if `frame` has none and `digests` is set.
    """
    names = frame.columns
    is_hashed = ROW_HASH in names

    @one_line_errors
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        hashed = HashedRows(batch.rename_columns(names) for batch in batches)
        staged = stage_rows(plan, topic, hashed, inline=True, digests=digests and not is_hashed)
        segments = tuple(hashed.digested(staged))
        yield pa.record_batch([pa.array([pickle.dumps(segments)], pa.binary())], names=[_STAGED])

    # mapInArrow() finds no column whose name has a dot or a backtick.
    numbered = frame.toDF(*(f"_{number}" for number in range(len(names))))
    rows = numbered.mapInArrow(stage, f"{_STAGED} binary").collect()
    return [segment for row in rows for segment in pickle.loads(row[_STAGED])]
