"""Lists of segments as Spark's own readers take them: a file index, in place of a listing of folders.

Spark's streaming file sink lists the files that it has committed in a folder ``_spark_metadata``. Its readers take such
a list for the folder. Planning neither lists nor asks for the size of any file. A file that is not in the list is not
read, wherever it lies. The list is read once, when a data frame is made.

The list also holds a modification time of each file. Here that is the base offset of the segment. The offset of a row
is then a sum of two hidden columns of Spark's, and no join finds it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from py4j.protocol import Py4JJavaError

from sparktxn import ConfigurationError, arguments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparktxn import ReadTask

__all__ = [
    "BASE_OFFSET",
    "BASE_OFFSET_MAX",
    "PARTITION",
    "ROW",
    "check_file_system",
    "classic_session",
    "index_of",
    "spark_uri",
]

BASE_OFFSET: Final = "unix_millis(_metadata.file_modification_time)"
"""The base offset of a row's segment."""
ROW: Final = "_metadata.row_index"
"""The place of a row in its segment."""
PARTITION: Final = "kafka_partition"
"""The column that Spark finds in the names of folders."""

BASE_OFFSET_MAX: Final = arguments.INT64_MAX // 1_000
"""Spark keeps times in microseconds."""

_IGNORED: Final = "spark.sql.streaming.fileStreamSink.ignoreMetadata"
_FOLDER: Final = "_spark_metadata"
_SCHEMES: Final = {"s3": "s3a"}


@contextmanager
def index_of(tasks: Iterable[ReadTask]) -> Iterator[str]:
    """Yield the address of a folder that Spark's readers take for the tasks' segments; it is gone after the block."""
    folder = tempfile.mkdtemp(prefix="txnlog-scan-")
    try:
        os.mkdir(os.path.join(folder, _FOLDER))
        with open(os.path.join(folder, _FOLDER, "0"), "w", encoding="ascii") as index:
            index.write("v1")
            index.writelines(f"\n{line}" for task in tasks for line in _lines(task))
        yield spark_uri(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lines(task: ReadTask) -> Iterator[str]:
    root = spark_uri(task.store_uri)
    for segment in task.segments:
        yield json.dumps(
            {
                "path": f"{root}/{task.segment_name(segment)}",
                "size": segment.size_bytes,
                "isDir": False,
                "modificationTime": segment.base_offset,
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
        TypeError: it is no session.
        ConfigurationError: it is one of Spark Connect, or one whose readers do not take lists of files.
    """
    from pyspark.sql import SparkSession

    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            f"{called} makes lists of files that the driver reads, and with Spark Connect the driver is another "
            'process: use format("txnlog"), which works there'
        )
    session = arguments.instance("spark", spark, SparkSession)
    if str(session.conf.get(_IGNORED, "false")).lower() == "true":
        raise ConfigurationError(f"the setting {_IGNORED} is true: {called} needs it to be false, Spark's default")
    return session


def check_file_system(spark: SparkSession, store_uri: str, called: str) -> None:
    """Pass if Spark's own readers and writers can open the objects of a store.

    Raises:
        ConfigurationError: Spark's class path has no Hadoop file system for the address.
    """
    scheme = spark_uri(store_uri).partition("://")[0]
    jvm, context = spark._jvm, spark._jsc
    try:
        assert jvm is not None  # narrows the type: a classic session has one
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, context.hadoopConfiguration())
    except Py4JJavaError:  # for a scheme that Hadoop does not know, or a class that is not there
        jar = " (hadoop-aws, and the AWS SDK that it names)" if scheme == "s3a" else ""
        raise ConfigurationError(
            f"{called} has Spark itself open {scheme}://, and Spark's class path has no Hadoop file system for it"
            f'{jar}: add one with spark.jars.packages, or use format("txnlog"), which needs none'
        ) from None
