"""Streams into topics by one call: by `foreach_batch`, or by the sink where the driver is another process.

Spark refuses output mode update for the sink, and plans each of its micro-batches twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from pyspark_txnlog.options.keywords import option_texts
from pyspark_txnlog.options.options import WRITE_STREAM, WriteOptions
from pyspark_txnlog.sparkinternals import is_classic
from pyspark_txnlog.writing.batch_writer import prepare_write
from pyspark_txnlog.writing.foreach import foreach_batch
from sparktxn.values import arguments

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["write_stream"]

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
    del given["path"]
    writer = df.writeStream.foreachBatch(foreach_batch(uri, **given))
    return writer if parsed.checkpoint is None else writer.option(_CHECKPOINT, parsed.checkpoint)
