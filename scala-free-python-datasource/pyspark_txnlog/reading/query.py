"""Streams of topics by one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_txnlog.connecting.sessions import check_session
from pyspark_txnlog.options.keywords import read_options
from pyspark_txnlog.options.options import READ_STREAM, ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_stream"]


def read_stream(
    spark: SparkSession,
    uri: str,
    topics: str | Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    **named: Any,
) -> DataFrame:
    """Return a stream of the topics' records: the ``spark.readStream.format("txnlog")`` of these options.

    Args:
        spark: the session, also one of Spark Connect.
        uri: the store.
        topics: names, or one text with names between commas. None where an option says what to read.
        options: those of ``spark.readStream.format("txnlog")``; as keywords where the name has no dot.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: an option is wrong.
    """
    check_session(spark)
    given = read_options(uri, topics, options, named)
    ReadOptions.parse(given, READ_STREAM)
    return spark.readStream.format("txnlog").options(**given).load()
