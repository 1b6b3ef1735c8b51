"""The jars that give Spark the readers and writers of Delta and of Iceberg."""

from __future__ import annotations

from typing import Final

from tests.interop.kafkatools import Jar

__all__ = ["DELTA", "ICEBERG"]

_DELTA: Final = "4.4.0"
DELTA: Final = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        _DELTA,
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar("io.delta", "delta-storage", _DELTA, "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
)
"""For Spark 4.2, the newest one that Delta has jars for. Others of its jars are for catalogs."""

ICEBERG: Final = (
    Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
)
"""For Spark 4.1, the newest one that Iceberg has jars for."""
