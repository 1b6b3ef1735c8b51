"""`python -m pyspark_txnlog.pack`: a Python that has the file alone imports both packages from it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pyspark_txnlog.pack import main, pack

SOURCES = Path(__file__).parents[2]
IMPORTING = (
    "import pyspark_txnlog, pyspark_txnlog.maintenance, sparktxn, sparktxn._programs.cli.app as app;"
    "print(pyspark_txnlog.__file__, sparktxn.__file__, app.__file__, sep='\\n')"
)


def test_a_python_with_the_file_first_on_its_path_imports_both_packages_from_it(tmp_path: Path) -> None:
    target = tmp_path / "packages.zip"
    assert main([str(target)]) == 0
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.startswith(f"{target}{os.sep}") for line in done.stdout.split()] == [True] * 3


def test_the_file_holds_every_module_and_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = tmp_path / "one.zip", tmp_path / "two.zip"
    assert pack(first) == pack(second)
    assert first.read_bytes() == second.read_bytes()
    expected = {
        path.relative_to(root).as_posix()
        for root in (SOURCES, SOURCES / "scala-free-python-datasource")
        for package in ("sparktxn", "pyspark_txnlog")
        for path in (root / package).rglob("*.py")
    }
    names = {name for name in zipfile.ZipFile(first).namelist() if name.endswith(".py")}
    assert names == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.zip", "two.zip"]


def test_two_processes_that_write_one_file_at_once_leave_a_whole_one(tmp_path: Path) -> None:
    target = tmp_path / "packages.zip"
    command = [sys.executable, "-m", "pyspark_txnlog.pack", str(target)]
    both = [subprocess.Popen(command, cwd=SOURCES, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert zipfile.ZipFile(target).testzip() is None
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("target", [1.0, None, True])
def test_a_target_that_is_no_path_is_refused(target: Any) -> None:
    with pytest.raises(TypeError, match="target is"):
        pack(target)


def test_a_wrong_name_is_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "packages.tar")])
    assert "expected a name that ends with .zip" in capsys.readouterr().err
    assert main([str(tmp_path / "missing" / "packages.zip")]) == 1
    assert "No such file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_extra_of_spark_brings_what_spark_asks_for() -> None:
    extras = tomllib.loads((SOURCES / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {re.split(r"[^a-z0-9-]", text)[0] for text in extras["spark"]} == {"pyspark", "pandas"}
