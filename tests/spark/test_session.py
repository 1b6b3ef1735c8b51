"""`session()`: the Python of Spark's workers is set or checked before the first job."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

import pyspark_txnlog
from pyspark_txnlog.connecting.sessions import check_session, parallelism_of
from sparktxn import ConfigurationError


@pytest.fixture(autouse=True)
def no_python_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)


def other_python(folder: Path, body: str) -> str:
    """Make a program that stands in for another Python."""
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("echo \"ModuleNotFoundError: No module named 'sparktxn'\" >&2; exit 1", "cannot import .*No module named 'sp"),
        ("exit 3", "cannot import pyspark_txnlog \\(it ended with code 3\\)"),
        ("echo 3.9.0", r"which is Python 3\.9; this is Python 3\.1\d: set it to "),
    ],
)
@pytest.mark.parametrize("named", ["variable", "setting"])
def test_a_python_that_cannot_run_the_source_is_an_error_before_a_session_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, match: str, named: str
) -> None:
    python = other_python(tmp_path, body)
    conf = {"spark.pyspark.python": python} if named == "setting" else {}
    if named == "variable":
        monkeypatch.setenv("PYSPARK_PYTHON", python)
    where = "setting spark.pyspark.python" if conf else "environment variable PYSPARK_PYTHON"
    with pytest.raises(ConfigurationError, match=f"{where} is .*{match}"):
        pyspark_txnlog.session(conf, master="local[1]")


def test_a_python_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/no/such/python")
    with pytest.raises(
        ConfigurationError, match="variable PYSPARK_DRIVER_PYTHON is '/no/such/python', which is not a program"
    ):
        pyspark_txnlog.session()


@pytest.mark.parametrize("wrong", [{"conf": {"a": 5}}, {"conf": 5}, {"master": 5}, {"app_name": 5}])
def test_wrong_arguments_of_a_session(wrong: Any) -> None:
    with pytest.raises(TypeError):
        pyspark_txnlog.session(**wrong)


@pytest.mark.parametrize("value", ["abc", "4.0", "-3", "0", ""])
def test_a_parallelism_that_is_no_number_is_named(value: str) -> None:
    """Spark checks this setting only when a job starts."""
    setting = "spark.default.parallelism"
    spark = SimpleNamespace(conf=SimpleNamespace(get={setting: value}.get))
    with pytest.raises(ConfigurationError, match=f"setting {setting} is '{value}': expected a whole number from 1"):
        parallelism_of(cast(Any, spark))


@pytest.mark.parametrize("spark", [None, 3, "local[1]", object])
def test_what_takes_a_session_refuses_anything_else_before_it_does_anything(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "store")
    for call in (
        lambda: pyspark_txnlog.register(spark),
        lambda: pyspark_txnlog.history(spark, uri),
        lambda: pyspark_txnlog.register_views(spark, uri),
        lambda: pyspark_txnlog.scan(spark, uri, "t"),
        lambda: pyspark_txnlog.scan_stream(spark, uri, "t", print),
    ):
        with pytest.raises(TypeError, match=r"spark is .*: expected a SparkSession"):
            call()
    assert not Path(uri).exists()


def test_a_session_of_spark_connect_is_one() -> None:
    class SparkSession:
        __module__ = "pyspark.sql.connect.session"
        __qualname__ = "SparkSession"

    check_session(SparkSession())
