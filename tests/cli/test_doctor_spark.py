"""What `txnlog doctor` says of a machine's Spark: each set-up that fails is found, with what to change."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sparktxn._programs.cli.doctorstore import examine_executors, examine_spark
from sparktxn.errors import extra_to_install
from tests.cli.terminal import ok, txnlog

JAVA_17 = "echo 'openjdk version \"17.0.9\"' >&2"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine whose Spark is as it must be: tests change one thing of it."""
    versions = {"pyspark": "4.3.1", "sparktxn": "1.2.3"}
    monkeypatch.setattr("importlib.metadata.version", versions.__getitem__)
    program(folder / "jvm" / "bin" / "java", JAVA_17)
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = program(folder / "python", f'echo \'["{own}", "1.2.3"]\'')
    return {"JAVA_HOME": str(folder / "jvm"), "PYSPARK_PYTHON": str(python), "PATH": os.environ["PATH"]}


def findings(machine: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {check.check: (check.found, check.fix or "") for check in examine_spark(machine) if check.result != "ok"}


def test_a_good_machine_has_no_finding(machine: dict[str, str]) -> None:
    assert [check.check for check in examine_spark(machine)] == ["spark", "java", "python"]
    assert findings(machine) == {}
    machine["PYSPARK_PYTHON"] = "./environment/bin/python"
    assert findings(machine) == {}, "an archive of the executors is not on this machine"


@pytest.mark.parametrize("version", ["4.2.0", "3.5.1"])
def test_an_old_spark(machine: dict[str, str], monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("importlib.metadata.version", {"pyspark": version, "sparktxn": "1.2.3"}.__getitem__)
    assert findings(machine) == {"spark": (f"PySpark {version}: expected 4.3 or newer", extra_to_install("spark"))}


@pytest.mark.parametrize(
    ("java", "found"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", "Java 11: expected 17 or newer"),
        ("exit 1", "no Java can be run, which Spark needs"),
        (None, "no Java can be run, which Spark needs"),
    ],
)
def test_no_java_or_an_old_one(machine: dict[str, str], folder: Path, java: str | None, found: str) -> None:
    path = folder / "jvm" / "bin" / "java"
    if java is None:
        path.unlink()
    else:
        program(path, java)
    ((name, (what, fix)),) = findings(machine).items()
    assert (name, what) == ("java", f"JAVA_HOME is {folder / 'jvm'}: {found}")
    assert "unset JAVA_HOME" in fix


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("echo 'ModuleNotFoundError: No module named x' >&2; exit 1", "cannot import pyspark_txnlog (ModuleNotFound"),
        ("exit 3", "cannot import pyspark_txnlog (it ended with code 3)"),
        ('echo \'["2.7", "1.2.3"]\'', "is Python 2.7: this one is 3."),
        (f'echo \'["{sys.version_info.major}.{sys.version_info.minor}", "1.2.2"]\'', "has sparktxn 1.2.2"),
        (None, "cannot be run"),
    ],
)
def test_a_python_that_cannot_run_the_source(
    machine: dict[str, str], folder: Path, text: str | None, found: str
) -> None:
    if text is None:
        (folder / "python").unlink()
    else:
        program(folder / "python", text)
    ((name, (what, fix)),) = findings(machine).items()
    assert (name, fix) == ("python", f"export PYSPARK_PYTHON={sys.executable}")
    assert found in what


def test_without_the_variable_workers_use_the_first_python(machine: dict[str, str], folder: Path) -> None:
    del machine["PYSPARK_PYTHON"]
    program(folder / "bin" / "python3", "exit 1")
    machine["PATH"] = f"{folder / 'bin'}{os.pathsep}{machine['PATH']}"
    (check,) = (check for check in examine_spark(machine) if check.result != "ok")
    # session() sets the variable, so a machine without it is not broken.
    assert (check.check, check.result) == ("python", "warning")
    assert check.found.startswith(f"PYSPARK_PYTHON is not set, so that workers use {folder / 'bin' / 'python3'}")
    assert check.fix == (
        "build sessions with pyspark_txnlog.session(), which sets it, or export PYSPARK_PYTHON=" + sys.executable
    )


def test_without_spark_nothing_is_checked_but_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    ok("topics", "create", "orders")
    monkeypatch.setattr("sparktxn._programs.cli.verbs.doctor.examine_spark", lambda: iter(()))
    assert "java" not in {row["check"] for row in ok("doctor", "--json").json}
    done = txnlog("doctor", "--spark", "local[1]", "--json")
    assert done.code == 1
    assert done.json[-1]["found"] == "PySpark is not installed for this Python"


@pytest.mark.nightly
@pytest.mark.spark
def test_executors_answer(folder: Path) -> None:
    pytest.importorskip("pyspark")
    ok("topics", "create", "orders")
    rows = ok("doctor", "--spark", "local[2]", "--json").json
    assert [row["result"] for row in rows if row["check"].startswith(("data source", "executors"))] == ["ok", "ok"]
    assert rows[-1]["found"].endswith("and reads the store")


@pytest.mark.spark
def test_a_master_that_runs_nothing(folder: Path) -> None:
    pytest.importorskip("pyspark")
    (check,) = examine_executors("nowhere", str(folder / "store"), {})
    assert (check.check, check.result) == ("executors", "failed")
    assert check.found.startswith("Spark at nowhere ran no task: ")
    assert "Master must either be yarn or start with" in check.found
