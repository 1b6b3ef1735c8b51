"""Exactly-once outputs of `foreachBatch`: what a sink of Spark cannot be, in one transaction for each micro-batch.

Spark refuses output mode update for sinks in Python, and gives a sink one data frame. A function for `foreachBatch` has
no such limits. Tasks upload the rows of all data frames; then one entry of the log names them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec.structs import replace

from pyspark_txnlog.batch_writer import prepare_write, stage_rows
from pyspark_txnlog.options import WRITE_STREAM, WriteOptions
from pyspark_txnlog.stores import commit_batch
from sparktxn import ConfigurationError, SinkCommit, StagedSegment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparktxn import StagePlan

__all__ = ["Outputs", "foreach_batch"]

Outputs = Callable[["DataFrame", int], "Mapping[str, DataFrame]"]
"""Given a micro-batch's rows and id, the rows to write, by topic."""

_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"
_STAGED: Final = "segments"


def foreach_batch(
    uri: str, outputs: Outputs | None = None, *, query_id: str | None = None, **options: str
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
        ConfigurationError: an option is wrong, or `topic` is given together with `outputs`.
    """
    parsed = WriteOptions.parse({"path": uri, **options}, WRITE_STREAM)
    if outputs is not None and parsed.topic is not None:
        raise ConfigurationError("option 'topic' does not go with outputs, which name the topics: give one of them")

    def write(rows: DataFrame, batch_id: int) -> None:
        writer_id, run_id = (query_id, "") if query_id is not None else _identity(rows)
        staged: list[StagedSegment] = []
        frames = {parsed.topic: rows} if outputs is None else outputs(rows, batch_id)
        for topic, frame in frames.items():
            plan = prepare_write(replace(parsed, topic=topic), frame.schema)
            staged += _staged(frame, plan, topic)
        commit_batch(
            parsed,
            staged,
            transactional_id=parsed.transactional_id or f"spark-{writer_id}",
            sink=SinkCommit(writer_id=writer_id, run_id=run_id, batch_id=batch_id),
        )

    return write


def _identity(rows: DataFrame) -> tuple[str, str]:
    """Return the id of the query and of its run, which Spark sets for the thread that calls a `foreachBatch`."""
    context = getattr(rows.sparkSession, "_sc", None)
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    if context is None or query_id is None:
        raise ConfigurationError(
            "Spark says no id of the query here: call the function inside foreachBatch only, or give foreach_batch() a "
            "query_id that stays the same over restarts"
        )
    return query_id, context.getLocalProperty(_RUN_ID) or ""


def _staged(frame: DataFrame, plan: StagePlan, topic: str | None) -> Sequence[StagedSegment]:
    """Upload the rows in tasks; return what names them."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        segments = stage_rows(plan, topic, batches)
        yield pa.record_batch([pa.array([pickle.dumps(segments)], pa.binary())], names=[_STAGED])

    rows = frame.mapInArrow(stage, f"{_STAGED} binary").collect()
    return [segment for row in rows for segment in pickle.loads(row[_STAGED])]
