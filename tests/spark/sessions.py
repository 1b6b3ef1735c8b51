"""Spark sessions as the tests want them, and what they ask of a DataFrame."""

from __future__ import annotations

import atexit
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from tests.forkserver import ForkServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK_JAVA: Final = {
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
}
"""A JVM of tests lives for seconds or minutes: the quick compiler and one collector's thread halve what it costs.

The classes are those that Spark was published with; to verify them takes a fifth of a start.
"""

_WARM: Final = Path(__file__).with_name("warm")
_CONNECTOR: Final = ("reading.batch_reader", "reading.streams", "writing.batch_writer", "writing.stream_writer")
IMPORTED: Final = (
    "pyspark.sql",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
    *(f"pyspark_txnlog.{name}" for name in _CONNECTOR),
)
"""What the Python processes of Spark import."""


@cache
def _forks() -> ForkServer:
    """The server whose forks Spark's Python processes are, for all sessions that this process starts."""
    server = ForkServer(*IMPORTED).__enter__()
    atexit.register(server.__exit__)
    return server


def warm_environment(*paths: str) -> dict[str, str]:
    """Return what a session's environment needs so that its Python processes are forks that have imported all.

    `paths` are folders for ``PYTHONPATH``, after the one that does it.
    """
    return {"PYTHONPATH": os.pathsep.join([str(_WARM), *paths]), "FORKS_OF_SPARK": _forks().address}


def build_session(warehouse: str) -> SparkSession:
    """A session for a small machine; Spark finds the source with this Python."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    with patch.dict(os.environ, warm_environment(*filter(None, [os.environ.get("PYTHONPATH")]))):
        session = (
            SparkSession.builder.master("local[2]")
            .appName("tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", warehouse)
            .config("spark.python.unix.domain.socket.enabled", "true")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("OFF")
    return session


def values(frame: DataFrame) -> list[int]:
    """The numbers in the column `value`, sorted."""
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())
