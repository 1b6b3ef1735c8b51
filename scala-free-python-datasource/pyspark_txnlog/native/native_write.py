"""Batch writes by one call: what ``df.write.format("txnlog")`` does, with the choice of partitions left to Spark.

Tasks write the segments with pyarrow. Spark's own Parquet writer cannot: docs/spark.md says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_txnlog.options.keywords import option_texts
from pyspark_txnlog.options.options import WRITE, WriteOptions
from pyspark_txnlog.writing.batch_writer import commit_write, prepare_write, staged_by_newest
from pyspark_txnlog.writing.foreach import stage_frame
from pyspark_txnlog.writing.keyedrows import last_columns
from sparktxn.store.options import arguments

if TYPE_CHECKING:
    from sparktxn import StagedSegment, StagePlan

_KEY: Final = "key"
_PARTITION: Final = "partition"


def write(
    df: DataFrame, uri: str, topic: str | None = None, options: Mapping[str, Any] | None = None, **named: Any
) -> None:
    """Write the rows of `df` as one transaction: all of them are visible from one log entry on, or none ever.

    With the options `txnAppId` and `txnVersion` a version that is committed is not written again. Rows of tasks that
    fail are invisible, and a vacuum removes them.

    Args:
        df: rows with the columns that ``df.write.format("txnlog")`` takes. Of a topic with a key they are upserts, as
            `upsert` takes them.
        uri: the store.
        topic: the topic of all rows. None where the column ``topic`` names them.
        options: those of ``df.write.format("txnlog")``; as keywords where the name has no dot.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: an option or a column is wrong, or the topic does not exist; nothing was written.
        OutcomeUnknown: the store did not answer in time; the write may have landed.
        BatchRefused: the version is not above the last committed one and is not known to have had these rows, and
            `onReplayMismatch` is fail.
    """
    arguments.instance("df", df, DataFrame)
    given = option_texts(options, named, path=uri, topic=arguments.text_or_none("topic", topic))
    _write(df, WriteOptions.parse(given, WRITE))


def upsert(df: DataFrame, uri: str, topic: str, options: Mapping[str, Any] | None = None, **named: Any) -> None:
    """Write the rows of `df` to a topic with a key as one transaction: each becomes the row of its key, whole.

    A row with true in a boolean column ``_deleted`` deletes its key. The option `lastBy`, a name of a column or a list
    of them, says which row of a key is the last one. Without it a key that is there twice is refused. All else is as
    `write` has it.

    Args:
        df: rows with the topic's declared columns.
        uri: the store.
        topic: the topic.
        options: those of ``df.write.format("txnlog")``; as keywords where the name has no dot.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: an option or a column is wrong, or the topic does not exist, or has no key; nothing was
            written.
        PythonException: a task has refused rows; its message says why, and nothing was written.
        OutcomeUnknown, BatchRefused: as `write`.
    """
    arguments.instance("df", df, DataFrame)
    given = option_texts(options, named, path=uri, topic=arguments.text("topic", topic))
    _write(df, replace(WriteOptions.parse(given, WRITE), needs_key=True))


def _write(df: DataFrame, parsed: WriteOptions) -> None:
    plan = prepare_write(parsed, df.schema)
    is_known = parsed.application_id is not None

    # The tasks make the digest of a version, as those of `df.write` do: only digests of one kind can be compared. They
    # choose its partitions, too, as a partition that is chosen is not part of a row's content.
    def stage(plan: StagePlan) -> Sequence[StagedSegment]:
        rows = df if is_known else _with_partitions(df, plan, parsed.topic)
        return stage_frame(rows, plan, parsed.topic, digests=is_known, last_by=last_columns(parsed))

    commit_write(parsed, staged_by_newest(parsed, df.schema, plan, stage))


def _with_partitions(rows: DataFrame, plan: StagePlan, topic: str | None) -> DataFrame:
    """Return `rows` with the partitions that the default partitioner, consistent_random, chooses for their keys.

    Spark computes CRC-32 faster than Python. Rows without a key are left to the task, which deals them out in turn.
    """
    known = None if topic is None else plan.topics.get(topic)
    if known is None or known.schema is not None or _KEY not in rows.columns or known.partition_count == 1:
        return rows
    key = F.col(_KEY).cast("binary")
    chosen = F.when(F.length(key) > 0, (F.crc32(key) % known.partition_count).cast("int"))
    if _PARTITION in rows.columns:
        chosen = F.coalesce(F.col(_PARTITION), chosen)
    return rows.withColumn(_PARTITION, chosen)
