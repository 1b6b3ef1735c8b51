"""Random topics that are tables, read by a condition on each column in every way of every engine (`make interop`).

A difference names its seed: `random_table(folder, seed)` makes the topic again.
"""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest

from tests.interop.conftest import environment
from tests.interop.engines import Engine
from tests.randomtables import RandomTable, random_table
from tests.seeds import examples, seed_of
from tests.tableways import DEV_WAYS, differences

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[RandomTable]:
    """As many as end in time, always the same ones in `make interop`, and others each night."""
    folder = tmp_path_factory.mktemp("random")
    return [random_table(folder, seed_of(f"table conditions {number}", number)) for number in range(examples(6, 8))]


def wrong(engine: Engine, tables: Sequence[RandomTable], **request: Any) -> list[str]:
    """What an engine's ways find otherwise; prints how many answers were compared, and the seeds."""
    found, count = [], 0
    for table in tables:
        differing, compared = engine.ask("conditions", table=b64encode(pickle.dumps(table)).decode(), **request)
        found += differing
        count += compared
    print(f"{count} answers for the seeds {[table.seed for table in tables]}")
    assert count >= 30 * len(tables)
    return found


def test_the_ways_of_delta_rs_polars_pyiceberg_and_open_table(tables: list[RandomTable]) -> None:
    found = [differences(table, DEV_WAYS) for table in tables]
    print(f"{sum(count for _, count in found)} answers for the seeds {[table.seed for table in tables]}")
    assert [each for differing, _ in found for each in differing] == []


@pytest.mark.parametrize(("ways", "extra"), [("duckdb", "engines-test"), ("frames", "frames-test")])
def test_the_ways_of_engines_in_other_environments(
    tables: list[RandomTable], tmp_path_factory: pytest.TempPathFactory, ways: str, extra: str
) -> None:
    """DuckDB's own readers; and DataFusion, Daft and ClickHouse."""
    with Engine(environment(extra), "table_conditions", tmp_path_factory.mktemp(ways), ways) as engine:
        assert wrong(engine, tables) == []


def test_spark_with_delta(tables: list[RandomTable], delta_spark: Engine) -> None:
    assert wrong(delta_spark, tables[:3], format="delta") == []


def test_spark_with_iceberg(tables: list[RandomTable], iceberg_spark: Engine) -> None:
    assert wrong(iceberg_spark, tables[:3], format="iceberg") == []
