"""Making a stream: the reader for its options, and `read_stream` with Spark's options set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from pyspark_txnlog.connecting.errorlines import with_one_line_errors
from pyspark_txnlog.connecting.sessions import check_session
from pyspark_txnlog.connecting.storehandles import open_store
from pyspark_txnlog.options.keywords import read_options
from pyspark_txnlog.options.options import READ_STREAM, GivenOptions, ReadOptions
from pyspark_txnlog.reading.commit_stream_reader import CommitOrderStreamReader
from pyspark_txnlog.reading.offset_stream_reader import OffsetOrderStreamReader
from pyspark_txnlog.reading.views import check_all_rows, open_view
from pyspark_txnlog.sparkinternals import context_of
from sparktxn import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pyspark_txnlog.reading.stream_reader import Progress, TxnLogStreamReader
    from pyspark_txnlog.reading.views import PinnedView
    from sparktxn.store.options import Clock


def make_stream_reader(
    given: Mapping[str, str] | GivenOptions, schema: StructType, pinned: PinnedView | None, *, parallelism: int
) -> DataSourceStreamReader:
    """Make the reader for the options in `given`, or for wrong ones a reader that raises the error when it is used.

    `pinned` is the view that `schema` was made from; None if it is not the source's own.

    An error raised here would be followed by one of Spark's own, about a variable `reader`, which then is what a user
    sees.
    """
    try:
        return stream_reader_of(ReadOptions.parse(given, READ_STREAM, parallelism=parallelism), schema, pinned=pinned)
    except ConfigurationError as error:
        return RefusedStreamReader(error)


def stream_reader_of(
    options: ReadOptions, schema: StructType, clock: Clock | None = None, *, pinned: PinnedView | None = None
) -> TxnLogStreamReader:
    """Make the reader for the order that `options` ask for; `pinned` is as in `make_stream_reader`."""
    made = CommitOrderStreamReader if options.order == "commit" else OffsetOrderStreamReader
    return made(options, schema, clock, pinned=pinned)


@with_one_line_errors
class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises, whatever Spark asks for, why there is no reader."""

    def __init__(self, error: ConfigurationError) -> None:
        self._error = error

    def initialOffset(self) -> Progress:
        """Raise the error."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raise the error."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        """Raise the error."""
        raise self._error

    def latestOffset(self, start: Progress, limit: ReadLimit) -> Progress:
        """Raise the error."""
        raise self._error

    def partitions(self, start: Progress, end: Progress) -> Sequence[InputPartition]:
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        raise self._error


# Streams of topics by one call.


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
        ConfigurationError: an option is wrong, or a topic has a key and the option `rows` does not ask for all rows.
    """
    check_session(spark)
    given = read_options(uri, topics, options, named)
    parsed = ReadOptions.parse(given, READ_STREAM)
    stream = spark.readStream.format("txnlog").options(**given).load()
    if parsed.rows is None and context_of(spark) is not None:
        # With Spark Connect this process may not reach the store: the query says it when it is started.
        check_all_rows(open_view(open_store(parsed.path, parsed.store), parsed).topics.values(), parsed)
    return stream
