"""One Spark session for all tests of the connector, and a store of its own for each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparktxn import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def build_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.warehouse.dir", "/tmp/sparktxn-tests-warehouse")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = build_session()
    yield session
    session.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "store"), create=True) as opened:
        yield opened


@pytest.fixture
def numbers(spark: SparkSession) -> Callable[..., DataFrame]:
    """Makes rows for the column `value`: the numbers from `start` to `end` (exclusive), as text, and other columns."""

    def make(start: int, end: int, **columns: str) -> DataFrame:
        frame = spark.range(start, end, numPartitions=2)
        return frame.selectExpr("cast(id as string) value", *(f"{sql} as {name}" for name, sql in columns.items()))

    return make


def values(frame: DataFrame) -> list[int]:
    """The numbers in the column `value`, sorted."""
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())
