"""One Spark session for all tests of the connector, and a store of its own for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparktxn import Store
from tests.spark.sessions import build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    session = build_session(str(tmp_path_factory.mktemp("warehouse")))
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
