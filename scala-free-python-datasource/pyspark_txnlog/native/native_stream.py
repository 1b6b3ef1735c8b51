"""Streams of topics with Spark's own Parquet reader, by way of `foreachBatch`.

A Python source can only give rows through Python. So Spark's query runs over a source whose micro-batches are one row
each: the two offsets between which the log is to be read. The driver makes of them what `scan()` makes of a batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_txnlog.connecting.errorlines import with_one_line_errors
from pyspark_txnlog.native.native_scan import classic_session, frame_of
from pyspark_txnlog.options.keywords import read_options
from pyspark_txnlog.options.options import READ_STREAM, ReadOptions
from pyspark_txnlog.reading.batch_reader import read_schema
from pyspark_txnlog.reading.commit_stream_reader import CommitOrderStreamReader
from pyspark_txnlog.reading.offset_stream_reader import OffsetOrderStreamReader
from pyspark_txnlog.reading.streams import stream_reader_of
from sparktxn.store.options import arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pyspark_txnlog.reading.stream_reader import Progress

_RANGE: Final = StructType([StructField("start", StringType()), StructField("end", StringType())])


def scan_stream(
    spark: SparkSession,
    uri: str,
    topics: str | Sequence[str] | None,
    function: Callable[[DataFrame, int], None],
    options: Mapping[str, Any] | None = None,
    **named: Any,
) -> DataStreamWriter:
    """Return a query, not started, that calls `function` with the rows of each micro-batch and its id.

    The rows are those of ``spark.readStream.format("txnlog")`` with the same options, read as `scan()` reads. A
    micro-batch whose function failed, or whose driver died, is repeated with the same id and the same rows.

    Args:
        spark: a session that is not one of Spark Connect.
        uri: the store.
        topics: names, or one text with names between commas. None where an option says what to read.
        function: what `foreachBatch` takes.
        options: those of ``spark.readStream.format("txnlog")``; as keywords where the name has no dot.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: an option is wrong, or a topic does not exist.
    """
    session = classic_session(spark, "scan_stream()")
    arguments.function("function", function)
    given = read_options(uri, topics, options, named)
    parsed = ReadOptions.parse(given, READ_STREAM)
    schema, pinned = read_schema(parsed)
    # Kept from one micro-batch to the next: it remembers its read view.
    reader = stream_reader_of(parsed, schema, pinned=pinned)

    def on_batch(ranges: DataFrame, batch_id: int) -> None:
        parts = [
            part for row in ranges.collect() for part in reader.partitions(json.loads(row.start), json.loads(row.end))
        ]
        function(frame_of(ranges.sparkSession, parts, parsed, schema, "scan_stream()"), batch_id)

    session.dataSource.register(RangesSource)
    return session.readStream.format(RangesSource.name()).options(**given).load().writeStream.foreachBatch(on_batch)


class _Range(InputPartition):
    """A micro-batch: from the progress `start` to the progress `end`, both as JSON."""

    def __init__(self, start: str, end: str) -> None:
        self.start = start
        self.end = end


class _Ranges:
    """Makes a stream reader that gives, in place of rows, the two offsets between which they lie."""

    def partitions(self, start: Progress, end: Progress) -> Sequence[InputPartition]:
        """Return one part, which has the micro-batch's only row."""
        return [_Range(json.dumps(start), json.dumps(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the row."""
        if isinstance(partition, _Range):
            yield pa.record_batch([[partition.start], [partition.end]], names=_RANGE.fieldNames())


@with_one_line_errors
class _CommitOrderRanges(_Ranges, CommitOrderStreamReader):
    pass


@with_one_line_errors
class _OffsetOrderRanges(_Ranges, OffsetOrderStreamReader):
    pass


class RangesSource(DataSource):
    """``txnlog_ranges``: what `scan_stream` has Spark run its query over. Takes the options of ``txnlog``."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format()`` takes."""
        return "txnlog_ranges"

    def schema(self) -> StructType:
        """Return the two ends of a micro-batch, as JSON."""
        return _RANGE

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of micro-batches' ends."""
        options = ReadOptions.parse(self.options, READ_STREAM)
        made = _CommitOrderRanges if options.order == "commit" else _OffsetOrderRanges
        return made(options, schema)
