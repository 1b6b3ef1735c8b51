"""Reads and counts of topics by Spark's own Parquet reader: the rows of ``format("txnlog")``, as fast as plain files.

The plan is that of the Python source. What it reads of Parquet segments as a whole is given to Spark as a list of
files. So are files that a rewrite has made: where only some rows are read, with a condition on their offsets. The rest
is read by Python: other segments that a bound or the log start cuts, Arrow segments, inline records, internal topics.
Few rows are read here, and many in Spark's workers.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from pyspark_txnlog.connecting.errorlines import one_line_errors
from pyspark_txnlog.connecting.sessions import check_session
from pyspark_txnlog.options.filters import refuse_filters
from pyspark_txnlog.options.keywords import option_texts, read_options
from pyspark_txnlog.options.options import READ, ReadOptions
from pyspark_txnlog.options.spark_columns import DELETED, arrow_of, quoted, stored_columns
from pyspark_txnlog.reading.batch_reader import TaskPartition, TxnLogReader, read_partition, read_schema
from pyspark_txnlog.sparkinternals import (
    FILE_SINK_FOLDER,
    FILE_SINK_IGNORED,
    ROW_NUMBER,
    arrays,
    has_file_system,
    item,
    known_nullable,
    optimized,
    place_in_sorted,
)
from sparktxn import ConfigurationError, ReadTask, read_task
from sparktxn.store import LatestTask, merged_files, segment_values, whole_files
from sparktxn.store.options import arguments
from sparktxn.store.options import columns as names
from sparktxn.store.reading import hidden_ranges, unfit_segments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition

    from sparktxn.store.reading import MergedFile, SegmentRef

__all__ = [
    "BASE",
    "BASE_OFFSET",
    "BASE_OFFSET_MAX",
    "FILE",
    "GROUP",
    "PARTITION",
    "ROW",
    "check_file_system",
    "classic_session",
    "count",
    "frame_of",
    "max_offset",
    "merged_rows",
    "read_options",
    "scan",
    "segment_columns",
    "spark_uri",
    "unskipped",
    "whole_rows",
]


# Columns that all rows of a segment share, found by a row's offset: the values travel in Spark's plan.
#
# A join by range of offsets would cost each query that reads the data frame, also one that uses no such column. Spark
# keeps a join unless the other side has one row for each key, and a range is not a key. Here a column is an
# expression: a search in the sorted first offsets of segments, then an item of an array. Spark computes it for the
# queries that use it, with generated code, and searches once for all columns of a row.

GROUP: Final = "__group"
"""What has the segments of a row's column `group`: a file, or a partition."""
BASE: Final = "__base"
"""The first offset of a segment."""


def segment_columns(spark: SparkSession, segments: pa.Table, group: Column, offset: Column) -> dict[str, Column]:
    """Return the columns of `segments` but for `GROUP` and `BASE`, as expressions over rows of data.

    Args:
        spark: a session whose driver is this process.
        segments: a row for each segment: `GROUP` from 0 on, `BASE`, and its values.
        group: the number of a row's group, for which `segments` has some.
        offset: a row's offset. The row has the values of its group's last segment that begins there or before.
    """
    ordered = segments.sort_by([(GROUP, "ascending"), (BASE, "ascending")]).combine_chunks()
    groups = ordered[GROUP].to_numpy()
    firsts = np.searchsorted(groups, np.arange(int(groups[-1]) + 2)).astype(np.int32)
    values = [name for name in ordered.column_names if name not in (GROUP, BASE)]
    columns = [ordered[BASE].combine_chunks(), pa.array(firsts), *(_plain(ordered[name]) for name in values)]
    bases, first, *found = arrays(spark, columns)
    place = _place(spark, bases, item(spark, first, group), item(spark, first, group + 1), offset)
    return {
        name: _of_microseconds(item(spark, array, place), ordered.schema.field(name).type)
        for name, array in zip(values, found, strict=True)
    }


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Return a column without times, whose zone Spark would have a say in."""
    items = column.combine_chunks()
    if not pa.types.is_timestamp(items.type):
        return items
    return items.cast(pa.timestamp("us", items.type.tz)).cast(pa.int64())


def _of_microseconds(column: Column, arrow_type: pa.DataType) -> Column:
    return F.timestamp_micros(column) if pa.types.is_timestamp(arrow_type) else column


def _place(spark: SparkSession, bases: Any, start: Column, end: Column, offset: Column) -> Column:
    """Return the place of the last of `bases` that is not above `offset`, among those from `start` to `end`."""
    found = place_in_sorted(spark, bases, start, end, offset)
    return F.when(found < 0, -found - 2).otherwise(found)


def outside(spark: SparkSession, ranges: Mapping[int, pa.Array], group: Column, offset: Column) -> Column:
    """Return whether a row's offset lies in none of its group's ranges, as an expression over rows of data.

    Args:
        spark: a session whose driver is this process.
        ranges: by number, the ranges of some groups, as `hidden_ranges` returns them. All rows are of these groups.
        group: the number of a row's group.
        offset: a row's offset.
    """
    own = [ranges.get(number, pa.array([], pa.int64())) for number in range(max(ranges) + 1)]
    firsts = np.cumsum([0, *map(len, own)]).astype(np.int32)
    bounds, first = arrays(spark, [pa.concat_arrays(own), pa.array(firsts)])
    # Starts have even places. Of a number between two, Java says -(place of the second) - 1: odd before a start.
    place = place_in_sorted(spark, bounds, item(spark, first, group), item(spark, first, group + 1), offset)
    return place.bitwiseAND(F.lit(1)) == 1


# Lists of segments as Spark's own readers take them: a file index, in place of a listing of folders.
#
# Spark's streaming file sink lists the files that it has committed in a folder. Its readers take such a list for the
# folder. Planning neither lists nor asks for the size of any file. A file that is not in the list is not read,
# wherever it lies. The list is read once, when a data frame is made.
#
# The list also holds a modification time of each file. Here that is the base offset of the segment. The offset of a
# row is then a sum of two columns of Spark's, and no join finds it. Files that say their rows' offsets have their
# place in the list there.

BASE_OFFSET: Final = "__base_offset"
"""The base offset of a row's segment."""
ROW: Final = ROW_NUMBER
"""The place of a row in its segment."""
FILE: Final = BASE_OFFSET
"""The place of a row's file among those of `merged_rows`, from 0 on."""
PARTITION: Final = "kafka_partition"
"""The column that Spark finds in the names of folders."""

BASE_OFFSET_MAX: Final = arguments.INT64_MAX // 1_000
"""Spark keeps times in microseconds."""

_METADATA: Final = "_metadata"
_MODIFICATION_TIME: Final = "file_modification_time"
_BASE_OFFSET: Final = f"unix_millis({_METADATA}.{_MODIFICATION_TIME})"
_EXCLUDED_RULES: Final = "spark.sql.optimizer.excludedRules"
_FIRST_SOURCES: Final = "spark.sql.sources.useV1SourceList"
_PARQUET: Final = "parquet"
_SCHEMES: Final = {"s3": "s3a"}


def whole_rows(spark: SparkSession, tasks: Iterable[ReadTask], stored: StructType) -> DataFrame:
    """Return the rows of segments as Spark reads them, with `BASE_OFFSET`, `ROW` and `PARTITION`; opens no file.

    Args:
        spark: a session whose driver is this process.
        tasks: Parquet segments with the same columns, all of them read as a whole.
        stored: Spark's types of the columns that the segments may have.

    Raises:
        ConfigurationError: the session's settings keep Spark's optimizer from a rule that the rows need.
    """
    numbered = [(task, segment, segment.base_offset) for task in tasks for segment in task.segments]
    return _with_modification_times(_listed_rows(spark, numbered, StructType([*stored.fields]).add(ROW, LongType())))


def merged_rows(
    spark: SparkSession, tasks: Iterable[ReadTask], stored: StructType, offset: str, *, with_file: bool
) -> DataFrame:
    """Return the rows of files that say their rows' offsets, with `offset` and `PARTITION`; opens no file.

    Args:
        spark: a session whose driver is this process.
        tasks: one for each file, with the same columns; the first segment of each names it.
        stored: Spark's types of the columns that the files may have, but for the offset.
        offset: the name of the column of offsets.
        with_file: the rows have `FILE`, too. Without it Spark's plans have a step less.

    Raises:
        ConfigurationError: as `whole_rows`.
    """
    numbered = [(task, task.segments[0], place) for place, task in enumerate(tasks)]
    rows = _listed_rows(spark, numbered, StructType([*stored.fields]).add(offset, LongType()))
    return _with_modification_times(rows) if with_file else rows


_Numbered: TypeAlias = "tuple[ReadTask, SegmentRef, int]"
"""A file, and what the list has as its modification time."""


def _listed_rows(spark: SparkSession, files: Iterable[_Numbered], columns: StructType) -> DataFrame:
    reader = spark.read.schema(columns)
    # Nothing is left out in silence, and times before 1582 are as other readers have them, whatever the session says.
    reader = reader.options(ignoreMissingFiles=False, ignoreCorruptFiles=False, mergeSchema=False)
    reader = reader.options(datetimeRebaseMode="CORRECTED", int96RebaseMode="CORRECTED")
    with _index_of([*files]) as folder:
        return reader.parquet(folder)


def _with_modification_times(rows: DataFrame) -> DataFrame:
    """Return `rows` with `BASE_OFFSET`, by the plan that Spark's optimizer makes of it: `_metadata` has nothing else.

    In other plans Spark keeps all of `_metadata`, also for queries that use nothing of it. The Parquet reader would
    number the rows of every `count()`, one by one.
    """
    with_offsets, relation = optimized(rows.select("*", F.expr(_BASE_OFFSET).alias(BASE_OFFSET)))
    if relation[_METADATA].dataType.simpleString() != f"struct<{_MODIFICATION_TIME}:timestamp>":
        raise ConfigurationError(
            "the session's optimizer does not leave out unused parts of _metadata: expected the rule SchemaPruning not "
            f"to be among the setting {_EXCLUDED_RULES}, which is {rows.sparkSession.conf.get(_EXCLUDED_RULES, '')!r}"
        )
    return with_offsets


def unskipped(spark: SparkSession, column: Column, data_type: DataType) -> Column:
    """Return a column of `whole_rows` so that Spark leaves out no row group for a condition on fractions.

    Statistics of files of earlier versions leave NaN out. Spark counts it as the greatest number. A dictionary of a
    file has -0.0 and 0.0 as two values, and to Spark they are equal. The column's values stay as they are: its
    expression is none that Spark's Parquet reader takes conditions on.
    """
    return known_nullable(spark, column) if _has_fractions(data_type) else column


def _has_fractions(data_type: DataType) -> bool:
    """Return whether a condition can name a fraction: one in a list or a map it cannot."""
    if isinstance(data_type, StructType):
        return any(_has_fractions(field.dataType) for field in data_type)
    return isinstance(data_type, FloatType | DoubleType)


@contextmanager
def _index_of(files: Sequence[_Numbered]) -> Iterator[str]:
    """Yield the address of a folder that Spark's readers take for a list of files; it is gone after the block.

    `explain()` shows its name, and so how many files there are, and how many rows they have.
    """
    rows = sum(segment.file_records for _, segment, _ in files)
    folder = tempfile.mkdtemp(prefix=f"txnlog-scan-{len(files)}-files-{rows}-rows-")
    try:
        os.mkdir(os.path.join(folder, FILE_SINK_FOLDER))
        with open(os.path.join(folder, FILE_SINK_FOLDER, "0"), "w", encoding="ascii") as index:
            index.write("v1")
            index.writelines(f"\n{_line(*file)}" for file in files)
        yield spark_uri(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _line(task: ReadTask, segment: SegmentRef, number: int) -> str:
    return json.dumps(
        {
            "path": f"{spark_uri(task.store_uri)}/{task.segment_name(segment)}",
            "size": segment.size_bytes,
            "isDir": False,
            "modificationTime": number,
            "blockReplication": 1,
            "blockSize": segment.size_bytes,
            "action": "add",
        }
    )


def spark_uri(store_uri: str) -> str:
    """Return the address of a store, or of a folder of this machine, as Hadoop's file systems spell it."""
    scheme, separator, location = store_uri.partition("://")
    if not separator:
        return f"file://{quote(store_uri)}"
    return f"{_SCHEMES.get(scheme, scheme)}://{quote(location)}"


def classic_session(spark: object, called: str) -> SparkSession:
    """Return `spark` if it is a session whose driver is this process.

    Raises:
        TypeError: it is not a session.
        RuntimeError: it is stopped.
        ConfigurationError: it is one of Spark Connect, or its settings keep Spark's readers from taking lists of files.
    """
    from pyspark.sql import SparkSession

    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            f"{called} makes lists of files that the driver reads, and with Spark Connect the driver is another "
            'process: use format("txnlog"), which works there'
        )
    session = arguments.instance("spark", spark, SparkSession)
    check_session(session)
    if str(session.conf.get(FILE_SINK_IGNORED, "false")).lower() == "true":
        raise ConfigurationError(
            f"the setting {FILE_SINK_IGNORED} is true: {called} needs it to be false, Spark's default"
        )
    sources = str(session.conf.get(_FIRST_SOURCES, _PARQUET))
    if _PARQUET not in [source.strip().lower() for source in sources.split(",")]:
        raise ConfigurationError(
            f"the setting {_FIRST_SOURCES} is {sources!r}: {called} needs {_PARQUET} in it, as in Spark's default"
        )
    return session


def check_file_system(spark: SparkSession, store_uri: str, called: str) -> None:
    """Pass if Spark's own readers and writers can open the objects of a store.

    Raises:
        ConfigurationError: Spark's class path has no Hadoop file system for the address.
    """
    scheme = spark_uri(store_uri).partition("://")[0]
    if not has_file_system(spark, scheme):
        jar = " (hadoop-aws, and the AWS SDK that it names)" if scheme == "s3a" else ""
        raise ConfigurationError(
            f"{called} has Spark itself open {scheme}://, and Spark's class path has no Hadoop file system for it"
            f'{jar}: add one with spark.jars.packages, or use format("txnlog"), which needs none'
        )


_Found = TypeVar("_Found")

_Range: TypeAlias = "tuple[ReadTask, int, int]"
"""Offsets of the only file of a task, from the first number to the second."""

_LOG_APPEND_TIME: Final = 1
_RANGES_MAX: Final = 100
"""So many ranges of offsets are one condition: a greater one costs Spark more than another frame."""
_UNREAD_BYTES_MAX: Final = 16 << 20
"""Reading so many bytes of files in vain costs Spark less than a scan of their own, which skips their row groups."""
_COLLECTED_ROWS_MAX: Final = 50_000
_COLLECTED_BYTES_MAX: Final = 8 << 20
"""What Python reads of so many rows, and bytes of them, the driver reads once, and Spark gets no Python workers."""


class _Key(NamedTuple):
    """What of a row finds its segment: the number of a group of segments, and an offset in it."""

    group: Column
    offset: Column


def scan(
    spark: SparkSession,
    uri: str,
    topics: str | Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    **named: Any,
) -> DataFrame:
    """Return the rows of ``spark.read.format("txnlog")``, read with Spark's own Parquet reader.

    Only what is not a whole file goes through Python. The read view is pinned here and the files are listed from the
    log. So the data frame has these rows however often it runs, until a vacuum passes the view. Spark finds missing
    files, but does not compare checksums.

    Args:
        spark: a session that is not one of Spark Connect.
        uri: the store. Spark must have a Hadoop file system for it, with credentials of its own for S3.
        topics: names, or one text with names between commas. None where an option says what to read.
        options: those of ``spark.read.format("txnlog")``; as keywords where the name has no dot.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: an option is wrong, a topic does not exist, or Spark cannot open the store's files.
    """
    session = classic_session(spark, "scan()")
    parsed = ReadOptions.parse(read_options(uri, topics, options, named), READ)
    refuse_filters(parsed, "scan()", "use where() of the data frame, whose conditions Spark's own reader skips by")
    schema, pinned = read_schema(parsed)
    parts = TxnLogReader(parsed, schema, pinned).partitions()
    latest = [part.task for part in parts if isinstance(part, TaskPartition) and isinstance(part.task, LatestTask)]
    if latest:
        frames = [_latest_rows(session, tasks, parsed, schema) for tasks in _by_topic(latest, lambda task: task.topic)]
        return reduce(DataFrame.union, frames)
    return frame_of(session, parts, parsed, schema, "scan()")


def _latest_rows(
    spark: SparkSession, tasks: Sequence[LatestTask], options: ReadOptions, schema: StructType
) -> DataFrame:
    """Return the latest rows of one topic: those of its files without the offsets that the plans leave out.

    The driver reads the columns of the key. A row's partition and offset decide, so that it does not matter which rows
    Spark has left out before, nor which conditions it applies first.
    """
    ranges: dict[int, pa.Array] = {}
    parts: list[TaskPartition] = []
    typed = [(names.PARTITION, IntegerType()), (names.OFFSET, LongType())]
    places = [StructField(names.reserved_name(name, ()), kind) for name, kind in typed]
    more = [field for field in (*places, StructField(DELETED, BooleanType())) if field.name not in schema.names]
    whole = StructType([*schema.fields, *more])
    for task in tasks:
        plan = task.plan(partial(read_task, options=options.store), finds_deletes=False)
        ranges[task.partition] = hidden_ranges(plan)
        parts += map(TaskPartition, task.shown_parts(plan, whole.names))
    rows = frame_of(spark, parts, options, whole, "scan()").where(~F.col(DELETED))
    if any(map(len, ranges.values())):
        rows = rows.where(outside(spark, ranges, *(F.col(field.name) for field in places)))
    return rows.select([_column(name) for name in schema.names])


def frame_of(
    spark: SparkSession, parts: Iterable[InputPartition], options: ReadOptions, schema: StructType, called: str
) -> DataFrame:
    """Return the rows of a plan of the Python source, with the columns of `schema`; `called` is for errors.

    Raises:
        ConfigurationError: Spark cannot open the store's files.
    """
    tasks = [part.task for part in parts if isinstance(part, TaskPartition) and isinstance(part.task, ReadTask)]
    merged, others = merged_files(tasks)
    whole, rest = whole_files(others, offset_max=BASE_OFFSET_MAX)
    if whole or merged:
        check_file_system(spark, tasks[0].store_uri, called)
    frames = [_whole_rows(spark, some, schema) for some in _by_topic(whole, lambda task: task.topic)]
    for files in _by_topic(merged, lambda file: file.task.topic):
        frames += _merged_rows(spark, files, schema)
    if rest:
        frames.append(_other_rows(spark, rest, options, schema, frames))
    return reduce(DataFrame.union, frames) if frames else spark.createDataFrame([], schema)


def _whole_rows(spark: SparkSession, tasks: Sequence[ReadTask], schema: StructType) -> DataFrame:
    """Return the rows of one topic's segments, all of them whole files."""
    topic = tasks[0]
    rows = whole_rows(spark, tasks, stored_columns(topic.schema))
    shared = [name for name in schema.fieldNames() if name in _log_columns(topic)]
    if shared:
        by = _Key(F.col(PARTITION).cast("int"), F.col(BASE_OFFSET))
        rows = _with_shared(spark, rows, [(task, task.partition) for task in tasks], shared, by)
    rows = rows.withColumn(names.reserved_name(names.OFFSET, topic.schema), F.expr(f"{BASE_OFFSET} + {ROW}"))
    return _selected(rows, topic, schema)


def _selected(rows: DataFrame, topic: ReadTask, schema: StructType) -> DataFrame:
    """Return `rows`, which have their offsets, with the columns of `schema`."""
    made = {names.TOPIC: F.lit(topic.topic), names.PARTITION: F.col(PARTITION).cast("int")}
    if topic.schema is None:
        made[names.TIMESTAMP_TYPE] = F.lit(topic.timestamp_type)
    by_name = {names.reserved_name(name, topic.schema): column for name, column in made.items()}
    columns = {field.name: unskipped(rows.sparkSession, _column(field.name), field.dataType) for field in schema}
    if DELETED in columns:
        # Of an upsert nothing is stored.
        columns[DELETED] = F.coalesce(columns[DELETED], F.lit(False))
    return rows.select([by_name.get(name, column).alias(name) for name, column in columns.items()])


def _by_topic(found: Iterable[_Found], topic_of: Callable[[_Found], str]) -> Iterable[list[_Found]]:
    by_topic: dict[str, list[_Found]] = {}
    for one in found:
        by_topic.setdefault(topic_of(one), []).append(one)
    return by_topic.values()


def _merged_rows(spark: SparkSession, files: Sequence[MergedFile], schema: StructType) -> Iterator[DataFrame]:
    """Yield the rows of one topic's merged files, by one scan if it reads little in vain of files that are cut."""
    whole = [file.task for file in files if not file.ranges]
    cut = [file for file in files if file.ranges]
    if whole and (not cut or sum(map(_unread_bytes, cut)) > _UNREAD_BYTES_MAX):
        yield _selected(_merged(spark, whole, schema), whole[0], schema)
        whole = []
    ranges = [(file.task, start, end) for file in cut for start, end in file.ranges]
    for first in range(0, len(ranges), _RANGES_MAX):
        yield _selected(_within(spark, ranges[first : first + _RANGES_MAX], whole, schema), ranges[0][0], schema)
        whole = []


def _unread_bytes(file: MergedFile) -> int:
    """Return about how many bytes of a file that is cut are of segments of which no row is read."""
    segments = file.task.segments
    rows = segments[0].file_records - sum(segment.row_count for segment in segments)
    return segments[0].size_bytes * rows // segments[0].file_records


def _within(spark: SparkSession, ranges: Sequence[_Range], whole: Sequence[ReadTask], schema: StructType) -> DataFrame:
    """Return the rows of ranges of offsets, each in its task's file, and all rows of the files of `whole`."""
    cut = {(task.partition, task.segments[0].name): task for task, *_ in ranges}
    files = [*cut.values(), *whole]
    offset = _column(names.reserved_name(names.OFFSET, files[0].schema))
    if _are_apart(files):
        rows = _merged(spark, files, schema).where(_by_partition(ranges, whole, offset))
    else:
        places = {file: place for place, file in enumerate(cut)}
        of_files = [
            (F.col(FILE) == places[task.partition, task.segments[0].name]) & (offset >= start) & (offset < end)
            for task, start, end in ranges
        ]
        if whole:
            # Decided by the file alone, and before all others.
            of_files.insert(0, F.col(FILE) >= len(cut))
        rows = _merged(spark, files, schema, with_file=True).where(reduce(Column.__or__, of_files))
    if not whole:
        # It says less, and Spark takes it to row groups and pages.
        spans = _joined((start, end) for _, start, end in ranges)
        rows = rows.where(reduce(Column.__or__, [(offset >= start) & (offset < end) for start, end in spans]))
    return rows


def _are_apart(files: Iterable[ReadTask]) -> bool:
    """Return whether no two files have a row, read or not, of one offset of one partition, as far as tasks say."""
    by_offset = sorted(files, key=lambda file: (file.partition, file.segments[0].base_offset))
    return all(
        sum(segment.row_count for segment in file.segments) == file.segments[0].file_records for file in by_offset
    ) and all(
        first.partition < second.partition or first.segments[-1].end_offset <= second.segments[0].base_offset
        for first, second in pairwise(by_offset)
    )


def _by_partition(ranges: Sequence[_Range], whole: Sequence[ReadTask], offset: Column) -> Column:
    """Return the condition of `_within` for files that are apart: by few comparisons, and the numbers of partitions."""
    of_rows = []
    partition = F.col(PARTITION).cast("int")
    for number in {task.partition: None for task, *_ in ranges}:
        own = [each for each in (*ranges, *map(_whole_range, whole)) if each[0].partition == number]
        first = min(task.segments[0].base_offset for task, *_ in own)
        last = max(task.segments[-1].end_offset for task, *_ in own)
        spans = [
            [offset >= start] * (start > first) + [offset < end] * (end < last)
            for start, end in _joined((start, end) for _, start, end in own)
        ]
        if all(spans):
            met = reduce(Column.__or__, [reduce(Column.__and__, ends) for ends in spans])
            of_rows.append((partition != number) | met)
    return reduce(Column.__and__, of_rows, F.lit(True))


def _whole_range(task: ReadTask) -> _Range:
    return task, task.segments[0].base_offset, task.segments[-1].end_offset


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the offsets of `spans`, as few spans in order."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _merged(
    spark: SparkSession, tasks: Sequence[ReadTask], schema: StructType, *, with_file: bool = False
) -> DataFrame:
    topic = tasks[0]
    offset = names.reserved_name(names.OFFSET, topic.schema)
    shared = [name for name in schema.fieldNames() if name in _log_columns(topic)]
    rows = merged_rows(spark, tasks, stored_columns(topic.schema), offset, with_file=with_file or bool(shared))
    if not shared:
        return rows
    by = _Key(F.col(FILE), _column(offset))
    return _with_shared(spark, rows, [(task, place) for place, task in enumerate(tasks)], shared, by)


def _column(name: str) -> Column:
    # A declared column's name may have a dot.
    return F.col(quoted(name))


def _log_columns(task: ReadTask) -> set[str]:
    """Return the columns that only the log says, whatever files have."""
    shared = set(names.metadata_names(task.schema))
    if task.timestamp_type == _LOG_APPEND_TIME:
        shared.add(names.reserved_name(names.TIMESTAMP, task.schema))
    return shared


def _with_shared(
    spark: SparkSession, rows: DataFrame, keyed: Iterable[tuple[ReadTask, int]], columns: Sequence[str], by: _Key
) -> DataFrame:
    """Return `rows` with `columns`, which all rows of a segment share; `by` has the group number of each task."""
    tables = []
    for task, number in keyed:
        keys = {
            GROUP: pa.repeat(pa.scalar(number, pa.int32()), len(task.segments)),
            BASE: pa.array([segment.base_offset for segment in task.segments], pa.int64()),
        }
        values = segment_values(task, columns)
        tables.append(pa.table({**keys, **dict(zip(columns, values.columns, strict=True))}))
    found = segment_columns(spark, pa.concat_tables(tables), by.group, by.offset)
    return rows.withColumns(found)


def _other_rows(
    spark: SparkSession, tasks: list[ReadTask], options: ReadOptions, schema: StructType, others: Sequence[DataFrame]
) -> DataFrame:
    """Return the rows of tasks that Python reads: a few here, at once, and many in Spark's Python workers.

    They are to be added to the rows of `others`.
    """
    target = arrow_of(schema)
    few = _few_rows(tasks, options, target)
    if few is not None:
        rows = spark.createDataFrame(few, schema)
        # explain() shows the names of columns, and a union has those of its first part.
        return rows.toDF(_shown("driver_has_read", tasks), *schema.fieldNames()[1:]) if others else rows

    @one_line_errors
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read_partition(TaskPartition(pickle.loads(task)), options, target)

    # explain() shows the name of the function.
    read.__name__ = _shown("python_reads", tasks)
    table = pa.table({"task": pa.array([pickle.dumps(task) for task in tasks], pa.binary())})
    return spark.createDataFrame(table).mapInArrow(read, schema)


def _shown(who: str, tasks: Sequence[ReadTask]) -> str:
    """Return what Python reads, and why, as one word that begins with `who`."""
    rows = sum(segment.rows_between(task.start_offset, task.end_offset) for task in tasks for segment in task.segments)
    reasons = unfit_segments(tasks)
    counted = [f"{count}_{reason}" for reason, count in sorted(reasons.items())]
    return "_".join([who, *counted, *([] if "computed" in reasons else [f"{rows}_rows"])])


def _few_rows(tasks: Iterable[ReadTask], options: ReadOptions, target: pa.Schema) -> pa.Table | None:
    """Return the rows of tasks if they are few; None if they are many, or if to find that out takes long."""
    segments = {segment.name: segment for task in tasks for segment in task.segments}.values()
    stored = sum(segment.row_count for segment in segments), sum(segment.size_bytes for segment in segments)
    # Rows of an internal topic take the log's entries to compute, and have no segment that says how many.
    is_computed = any(not task.segments for task in tasks)
    if is_computed or stored[0] > _COLLECTED_ROWS_MAX or stored[1] > _COLLECTED_BYTES_MAX:
        return None
    batches, size_bytes = [], 0
    for task in tasks:
        for batch in read_partition(TaskPartition(task), options, target):
            size_bytes += batch.nbytes
            if size_bytes > _COLLECTED_BYTES_MAX:
                return None
            batches.append(batch)
    # Written and read, no column is a slice of a longer one: Spark refuses lists with nulls that are.
    written = pa.BufferOutputStream()
    with pa.ipc.new_stream(written, target) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return pa.ipc.open_stream(written.getvalue()).read_all()


# Counts and greatest offsets from the log alone, however many rows there are.
#
# Only segments that a compaction by key has left gaps in are fetched, for the column of their offsets. Of internal
# topics the entries are read, and for latest rows the columns of the key.


def count(uri: str, topic: str, options: Mapping[str, Any] | None = None, **named: Any) -> int:
    """Return how many rows ``spark.read.format("txnlog")`` would return for a topic. Needs no session.

    Args:
        uri: the store.
        topic: one topic. The rows of an internal one are not stored: they are read to be counted.
        options: those of ``spark.read.format("txnlog")``; as keywords where the name has no dot.

    Raises:
        TypeError: an argument has a wrong type.
        ConfigurationError: an option is wrong.
        CommandRefused: the topic does not exist.
    """
    return sum(end - start for _, start, end in _kept_offsets(uri, topic, options, named))


def max_offset(uri: str, topic: str, options: Mapping[str, Any] | None = None, **named: Any) -> dict[int, int]:
    """Return the greatest offset of the rows that `count` counts, by partition; without those that have no row.

    The arguments and errors are those of `count`.
    """
    greatest: dict[int, int] = {}
    for partition, _, end in _kept_offsets(uri, topic, options, named):
        greatest[partition] = max(end - 1, greatest.get(partition, -1))
    return greatest


def _kept_offsets(
    uri: str, topic: str, options: Mapping[str, Any] | None, named: Mapping[str, Any]
) -> Iterator[tuple[int, int, int]]:
    """Yield a partition, and offsets of its rows from the first number to the second."""
    name = arguments.identifier("topic", topic)
    parsed = ReadOptions.parse(option_texts(options, named, path=uri, topic=name), READ)
    refuse_filters(parsed, "count() and max_offset()", "they read no records; count() a data frame that has them")
    schema, pinned = read_schema(parsed)
    parts = TxnLogReader(parsed, schema, pinned, by_segment=True).partitions()
    read = partial(read_task, options=parsed.store)
    tasks = [part.task for part in parts if isinstance(part, TaskPartition)]
    return ((task.partition, *offsets) for task in tasks for offsets in task.kept_offsets(read))
