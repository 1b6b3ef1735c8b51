"""Spark sessions as the tests want them, and what they ask of a DataFrame."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK_JAVA: Final = {
    "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
}
"""A JVM of tests lives for seconds or minutes: the quick compiler and one collector's thread halve what it costs.

The classes are those that Spark was published with; to verify them takes a fifth of a start.
"""

WARM: Final = Path(__file__).with_name("warm")
"""A folder for the JVM's ``PYTHONPATH``: its Python processes are forks that have imported all."""


def build_session(warehouse: str) -> SparkSession:
    """A session for a small machine; Spark finds the source with this Python."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    paths = [str(WARM), *filter(None, [os.environ.get("PYTHONPATH")])]
    with patch.dict(os.environ, PYTHONPATH=os.pathsep.join(paths)):
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
