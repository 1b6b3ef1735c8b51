"""The streaming sink: one transaction per micro-batch over all its topics and partitions, exactly once.

A micro-batch is known by (transactional id, query id, batch id); the log remembers the last ones, and which run of the
query wrote them. Spark makes new writer objects for every step, so all of this travels in the tasks' messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_txnlog.connecting.errorlines import with_one_line_errors
from pyspark_txnlog.connecting.sessions import pass_over_modules
from pyspark_txnlog.connecting.storehandles import commit_batch
from pyspark_txnlog.options.options import WriteOptions
from pyspark_txnlog.sparkinternals import BATCH_ID, QUERY_ID, RUN_ID, only_commits
from pyspark_txnlog.writing.batch_writer import StagedRows, check_keys, prepare_write, stage_task, staged_segments
from pyspark_txnlog.writing.keyedrows import refuse_complete
from sparktxn import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparktxn import StagedSegment


class StagedMicroBatch(StagedRows):
    """What one task of a micro-batch has uploaded, with the identity that Spark gives to the tasks alone."""

    def __init__(
        self, segments: tuple[StagedSegment, ...], query_id: str, run_id: str, batch_id: int, words: bytes | None = b""
    ) -> None:
        super().__init__(segments, words)
        self.query_id = query_id
        self.run_id = run_id
        self.batch_id = batch_id


@with_one_line_errors
class TxnLogStreamWriter(DataSourceStreamArrowWriter):
    """Made anew for every step: twice to plan a micro-batch, once more to commit it."""

    def __init__(self, options: WriteOptions, schema: StructType, *, complete: bool = False) -> None:
        self._options = options
        self._plan = None
        if not only_commits():
            self._plan = prepare_write(options, schema)
            if complete:
                refuse_complete(self._plan, options.topic)
            pass_over_modules()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Upload one task's rows; a task without rows says so, for the identity that it knows."""
        assert self._plan is not None, "the writer that Spark makes to commit is not given to tasks"
        segments, words = stage_task(self._plan, self._options, iterator, inline=True)
        return StagedMicroBatch(segments, _property(QUERY_ID), _property(RUN_ID), int(_property(BATCH_ID)), words)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Name all that the tasks have uploaded in one entry; a micro-batch that is committed already changes nothing.

        It is then skipped, with a warning if it had other rows (a query may compute others when it runs again).

        Raises:
            ConfigurationError: the topic has a key, and the micro-batch has one twice; nothing was written.
            BatchRefused: another run of the query has committed since, or the transactional id belongs to another query
                now. With `onReplayMismatch=fail` also a micro-batch that was committed with other rows.
            OutcomeUnknown: the store did not answer in time; when Spark runs the micro-batch again, the log shows the
            outcome.
        """
        from sparktxn import SinkCommit  # one process commits: tasks go without it

        parts = [message for message in messages if isinstance(message, StagedMicroBatch)]
        if not parts:
            return
        first = parts[0]
        options = self._options
        staged = staged_segments(parts)
        if staged and staged[0].is_keyed:
            check_keys(options, parts, staged)
        commit_batch(
            options,
            staged,
            transactional_id=options.transactional_id or f"spark-{first.query_id}",
            sink=SinkCommit(writer_id=first.query_id, run_id=first.run_id, batch_id=batchId),
        )
        pass_over_modules()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete nothing: Spark calls this also after a commit that landed. The vacuum removes what no entry names."""


def _property(name: str) -> str:
    context = TaskContext.get()
    value = context.getLocalProperty(name) if context is not None else None
    if value is None:
        raise ConfigurationError(
            f"this task has no local property {name!r}: the sink must run inside a streaming query"
        )
    return str(value)
