"""Lists of segments as Spark's own readers take them: a file index, in place of a listing of folders.

Spark's streaming file sink lists the files that it has committed in a folder. Its readers take such a list for the
folder. Planning neither lists nor asks for the size of any file. A file that is not in the list is not read, wherever
it lies. The list is read once, when a data frame is made.

The list also holds a modification time of each file. Here that is the base offset of the segment. The offset of a row
is then a sum of two columns of Spark's, and no join finds it. Files that say their rows' offsets have their place in
the list there.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType, LongType, StructType

from pyspark_txnlog.connecting.sessions import check_session
from pyspark_txnlog.sparkinternals import (
    FILE_SINK_FOLDER,
    FILE_SINK_IGNORED,
    ROW_NUMBER,
    has_file_system,
    known_nullable,
    optimized,
)
from sparktxn import ConfigurationError
from sparktxn.values import arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparktxn import ReadTask
    from sparktxn.values.structs import SegmentRef

__all__ = [
    "BASE_OFFSET",
    "BASE_OFFSET_MAX",
    "FILE",
    "PARTITION",
    "ROW",
    "check_file_system",
    "classic_session",
    "merged_rows",
    "spark_uri",
    "unskipped",
    "whole_rows",
]

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
