"""The Spark data source ``txnlog``: a transactional log on object storage, read and written with no JVM code.

Spark finds this package by itself once it is installed, so ``spark.read.format("txnlog")`` needs no registration.
Importing it is cheap: Spark imports every ``pyspark_*`` package when it looks for data sources.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

try:
    from pyspark_txnlog.source import DefaultSource, source_for
except ModuleNotFoundError as missing:
    if str(missing.name).partition(".")[0] != "pyspark":
        raise
    from sparktxn.errors import extra_to_install

    raise ModuleNotFoundError(
        f"the data source txnlog needs PySpark 4.3 or newer ({missing}): {extra_to_install('spark')}",
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_txnlog.connecting.sessions import session as session
    from pyspark_txnlog.maintenance import run_on as run_on
    from pyspark_txnlog.native.native_scan import count as count
    from pyspark_txnlog.native.native_scan import max_offset as max_offset
    from pyspark_txnlog.native.native_scan import scan as scan
    from pyspark_txnlog.native.native_stream import scan_stream as scan_stream
    from pyspark_txnlog.native.native_write import upsert as upsert
    from pyspark_txnlog.native.native_write import write as write
    from pyspark_txnlog.operating.browsing import history as history
    from pyspark_txnlog.operating.browsing import register_views as register_views
    from pyspark_txnlog.operating.listener import ProgressListener as ProgressListener
    from pyspark_txnlog.reading.streams import read_stream as read_stream
    from pyspark_txnlog.writing.foreach import foreach_batch as foreach_batch
    from pyspark_txnlog.writing.foreach import write_stream as write_stream

__all__ = [
    "DefaultSource",
    "ProgressListener",
    "count",
    "foreach_batch",
    "history",
    "max_offset",
    "read_stream",
    "register",
    "register_views",
    "run_on",
    "scan",
    "scan_stream",
    "session",
    "upsert",
    "write",
    "write_stream",
]

_HOMES: Final = {
    "ProgressListener": "pyspark_txnlog.operating.listener",
    "session": "pyspark_txnlog.connecting.sessions",
    "count": "pyspark_txnlog.native.native_scan",
    "foreach_batch": "pyspark_txnlog.writing.foreach",
    "history": "pyspark_txnlog.operating.browsing",
    "max_offset": "pyspark_txnlog.native.native_scan",
    "read_stream": "pyspark_txnlog.reading.streams",
    "register_views": "pyspark_txnlog.operating.browsing",
    "run_on": "pyspark_txnlog.maintenance",
    "scan": "pyspark_txnlog.native.native_scan",
    "scan_stream": "pyspark_txnlog.native.native_stream",
    "upsert": "pyspark_txnlog.native.native_write",
    "write": "pyspark_txnlog.native.native_write",
    "write_stream": "pyspark_txnlog.writing.foreach",
}


if not TYPE_CHECKING:  # a type checker would take any name for one that exists

    def __getattr__(name: str) -> Any:
        """Import what only a driver needs when it is asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def register(spark: SparkSession) -> None:
    """Make ``txnlog`` known to `spark` where Spark's own discovery cannot see this package.

    That is so when the package was shipped with ``--py-files``, or lies on a path that only the driver has.

    From here on large partitions are read by as many tasks as the session runs at a time. The executors that it has now
    count. Call it again when a cluster has grown. Spark logs that another source of this name was replaced.

    Spark looks for data sources with the Python of the environment variable ``PYSPARK_PYTHON``, or else with the first
    ``python3`` on the PATH. If ``format("txnlog")`` fails with ``DATA_SOURCE_NOT_FOUND`` although the package is
    installed, that Python is another one: set ``PYSPARK_PYTHON`` to ``sys.executable`` before the session is built.
    """
    from pyspark_txnlog.connecting.sessions import check_session, parallelism_of

    check_session(spark)
    spark.dataSource.register(source_for(parallelism_of(spark)))
