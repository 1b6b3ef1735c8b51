"""`session()`: the Python of Spark's workers is set or checked before the first job, and conf/ holds what works."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

import pyspark_txnlog
from pyspark_txnlog.sessions import RECOMMENDED, check_session, parallelism_of
from sparktxn import ConfigurationError
from tests.servers import S3Server
from tests.spark.clusters import PATHS, ROOT

CONF = ROOT / "conf"
FILES = sorted(path.relative_to(CONF).as_posix() for path in CONF.glob("*/spark-defaults.conf"))

PROGRAM = """
import json, sys
import pyspark_txnlog
store, options, conf = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
spark = pyspark_txnlog.session(conf, master=sys.argv[5] or None, app_name="session")
writer = spark.range(100).selectExpr("cast(id as string) value").write.format("txnlog").mode("append")
writer.options(**options).option("topic", "numbers").option("createTopic", "true").save(store)
rows = spark.read.format("txnlog").options(**options).option("subscribe", "numbers").load(store)
query = rows.sparkSession.readStream.format("txnlog").options(**options).option("subscribe", "numbers").option(
    "startingOffsets", "earliest").load(store).writeStream.format("txnlog").options(**options).option(
    "topic", "copies").option("createTopic", "true").option("checkpointLocation", sys.argv[4]).trigger(
    availableNow=True).start(store)
query.awaitTermination()
copies = spark.read.format("txnlog").options(**options).option("subscribe", "copies").load(store)
print("rows", rows.count(), copies.count())
print("conf", json.dumps(dict(spark.sparkContext.getConf().getAll())))
print("python", spark.sparkContext.pythonExec)
spark.stop()
"""


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
    with pytest.raises(ConfigurationError, match="variable PYSPARK_DRIVER_PYTHON is '/no/such/python', which is no pr"):
        pyspark_txnlog.session()


@pytest.mark.parametrize("wrong", [{"conf": {"a": 5}}, {"conf": 5}, {"master": 5}, {"app_name": 5}])
def test_wrong_arguments_of_a_session(wrong: Any) -> None:
    with pytest.raises(TypeError):
        pyspark_txnlog.session(**wrong)


def run(
    folder: Path, store: str, options: str = "{}", conf: str = "{}", master: str = "local[2]", **environment: str
) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, store, options, conf, str(folder / "checkpoint"), master],
        env={**kept, "PYTHONPATH": PATHS, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "rows 100 100" in done.stdout, done.stdout + done.stderr[-4000:]
    return done.stdout


@pytest.mark.spark
def test_a_session_uses_this_python_whatever_is_first_on_the_path(tmp_path: Path) -> None:
    wrong = tmp_path / "bin"
    wrong.mkdir()
    other_python(wrong, "exit 1")
    path = f"{wrong}{os.pathsep}{os.environ['PATH']}"
    printed = run(tmp_path, str(tmp_path / "store"), PATH=path)
    assert f"python {sys.executable}" in printed
    assert all(f'"{name}": "{value}"' in printed for name, value in RECOMMENDED.items())


def settings_of(file: str) -> dict[str, str]:
    lines = (line.split("#", 1)[0].split(maxsplit=1) for line in (CONF / file).read_text().splitlines())
    return {words[0]: words[1].strip() for words in lines if len(words) == 2}


def test_there_is_a_file_of_defaults_for_each_place() -> None:
    assert FILES == ["cluster/spark-defaults.conf", "local/spark-defaults.conf", "s3/spark-defaults.conf"]


@pytest.mark.parametrize("file", FILES)
def test_each_line_of_a_file_of_defaults_says_what_it_is_for(file: str) -> None:
    lines = (CONF / file).read_text().splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        if line and not line.startswith("#"):
            assert before.startswith("# "), f"{line} has no comment above it"
    assert settings_of(file).items() >= RECOMMENDED.items()


@pytest.mark.spark
@pytest.mark.parametrize("file", ["local/spark-defaults.conf", "s3/spark-defaults.conf"])
def test_a_file_of_defaults_writes_and_reads(file: str, tmp_path: Path, moto_server: S3Server) -> None:
    settings = tmp_path / "conf"
    settings.mkdir()
    shutil.copy(CONF / file, settings)
    store, options = str(tmp_path / "store"), {}
    if file.startswith("s3"):
        bucket = "defaults"
        moto_server.create_bucket(bucket)
        store, options = f"s3://{bucket}/store", moto_server.options
    conf = {"spark.ui.enabled": "false"}
    master = "" if "spark.master" in settings_of(file) else "local[2]"
    printed = run(tmp_path, store, json.dumps(options), json.dumps(conf), master, SPARK_CONF_DIR=str(settings))
    for name, value in settings_of(file).items():
        assert f'"{name}": "{value}"' in printed, f"{name} has not reached the session"


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
