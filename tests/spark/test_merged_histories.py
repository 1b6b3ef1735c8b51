"""Random histories of a maintained store: Spark's native rows of its views are Python's, and those of a plain model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog import scan
from pyspark_txnlog.native import native_scan
from sparktxn import ReadTask, Store
from tests.mergedhistory import COLUMNS, OPTIONS, MergedHistory, Row, columns_of
from tests.seeds import seed_of
from tests.spark.test_scan import check_same, expected, python_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def left_to_python(monkeypatch: pytest.MonkeyPatch) -> list[ReadTask]:
    """The tasks whose rows `scan()` has Python read."""
    tasks: list[ReadTask] = []
    read = native_scan._other_rows

    def noted(spark: SparkSession, rest: list[ReadTask], *more: Any) -> DataFrame:
        tasks.extend(rest)
        return read(spark, rest, *more)

    monkeypatch.setattr(native_scan, "_other_rows", noted)
    return tasks


def check_view(spark: SparkSession, history: MergedHistory, topic: str, entry: int) -> None:
    """Compare native rows of a view with Python's, and both with the model: with the entry, and without.

    Without it a plan names files, and not their segments.
    """
    columns = columns_of(topic, history.seen[entry])
    place = next(place for place, name in enumerate(columns) if name in ("entry", "_entry"))
    named = history.expected(topic, entry)
    unnamed = sorted(row[:place] + row[place + 1 :] for row in named)
    for asked, model in ((columns, named), (columns[:place] + columns[place + 1 :], unnamed)):
        options = {"asOfEntry": str(entry), "columns": ",".join(asked)}
        found = scan(spark, history.store.uri, topic, options).toArrow()
        rows = sorted(tuple(row.values()) for row in found.to_pylist())
        read = expected(history.store, topic, **options)
        python: list[Row] = sorted(tuple(row.values()) for row in read.to_pylist())
        assert found.column_names == read.column_names == asked
        assert rows == python == model


def check_options(spark: SparkSession, history: MergedHistory, topic: str) -> None:
    """Compare native rows with Python's, in one of the other ways to read the newest view."""
    entry = max(history.seen)
    cases: list[dict[str, str]] = [
        {"isolationLevel": "read_uncommitted"},
        {"order": "offset"},
        {"startingEntry": str(entry // 3), "endingEntry": str(entry - 2)},
        {"startingEntry": str(2 * entry // 3), "endingEntry": str(entry)},
    ]
    named = {"includeTxnMetadata": history.random.choice(("false", "true"))}
    options = {**history.random.choice(cases), **named}
    found = scan(spark, history.store.uri, topic, options)
    check_same(found, expected(history.store, topic, **options))
    assert not python_rows(found)


def run(spark: SparkSession, folder: Path, seed: int, steps: int, views: int) -> None:
    """Run a history; check some views and ways to read on the way, and so many of its views at the end."""
    with Store.open(str(folder / "store"), create=True, options=OPTIONS) as store:
        history = MergedHistory(store, seed)
        try:
            for number in range(1, steps + 1):
                history.step()
                if number % 20 == 0:
                    for topic in COLUMNS:
                        check_options(spark, history, topic)
            history.finish()
            entries = sorted(history.seen)
            for entry in {*history.random.sample(entries, min(views, len(entries))), entries[-1]}:
                for topic in COLUMNS:
                    check_view(spark, history, topic, entry)
        finally:
            history.close()


def check_left(tasks: list[ReadTask]) -> None:
    """Pass if no row of a merged file was among what was left to Python."""
    assert tasks
    assert not [segment.name for task in tasks for segment in task.segments if segment.has_offset_column]


def test_native_rows_of_a_history_are_those_of_python_and_of_a_model(
    spark: SparkSession, tmp_path: Path, left_to_python: list[ReadTask]
) -> None:
    run(spark, tmp_path, seed_of("merged history"), 40, 1)
    check_left(left_to_python)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(5))
def test_native_rows_of_all_views_of_long_histories(
    spark: SparkSession, tmp_path: Path, left_to_python: list[ReadTask], number: int
) -> None:
    run(spark, tmp_path, seed_of(f"merged history {number}", number), 120, 1_000)
    check_left(left_to_python)
