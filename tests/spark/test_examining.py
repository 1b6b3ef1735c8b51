"""What `txnlog doctor --spark` learns from executors that are not as they must be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

pytest.importorskip("pyspark")

import sparktxn
from pyspark_txnlog import doctor_session
from pyspark_txnlog.doctor_session import examine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_executors_that_do_not_see_the_store(spark: SparkSession, tmp_path: Path) -> None:
    source, executors = examine(spark, str(tmp_path / "only-here"), {}, has_store=True)
    assert source[:2] == ("data source", "ok")
    assert executors[1] == "failed"
    assert "they cannot read the store: there is no store" in executors[2]
    assert "a folder must be shared by all" in (executors[3] or "")
    assert examine(spark, str(tmp_path / "only-here"), {}, has_store=False)[1][1] == "ok"


@pytest.mark.parametrize(
    ("seen", "result", "found"),
    [
        (("h", "3.11.2", None, "No module named 'sparktxn'"), "failed", "cannot import the package: No module named"),
        (("h", "3.11.2", "0.0.1", None), "warning", "has sparktxn 0.0.1, and the driver"),
        (("h", "3.11.2", sparktxn.__version__, None), "ok", "and reads the store"),
    ],
)
def test_executors_without_the_package_or_with_another(
    spark: SparkSession, seen: tuple[str, str, str | None, str | None], result: str, found: str
) -> None:
    with patch.object(doctor_session, "_seen_by_executor", lambda store, options, number: seen):
        _, executors = examine(spark, "memory://none", {}, has_store=True)
    assert executors[:2] == ("executors on h", result)
    assert found in executors[2]
