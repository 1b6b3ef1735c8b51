"""The README's programs run as they are printed; only their paths are moved into the test's own folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

SPARK_EPILOGUE = """
print(orders.count())
payments = spark.read.format("txnlog").option("subscribe", "payments").load("/tmp/shop")
print(sorted(bytes(row.value).decode() for row in payments.collect()))
spark.stop()
"""


def run(program: str, folder: Path, timeout_s: int) -> list[str]:
    """The lines that the program prints, with /tmp moved into `folder`."""
    done = subprocess.run(
        [sys.executable, "-c", program.replace("/tmp/", f"{folder}/")],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_readme_has_one_program_for_python_and_one_for_spark() -> None:
    assert ["spark.read" in program for program in PROGRAMS] == [False, True]


def test_the_python_program_prints_what_the_readme_shows(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^It prints .*?^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert sorted(run(PROGRAMS[0], tmp_path, timeout_s=60)) == sorted(shown.splitlines())


def test_the_python_program_can_be_pasted_twice(tmp_path: Path) -> None:
    run(PROGRAMS[0], tmp_path, timeout_s=60)
    lines = run(PROGRAMS[0], tmp_path, timeout_s=60)
    assert sorted(line.split()[0] for line in lines) == ["orders", "payments"]


@pytest.mark.spark
def test_the_spark_program_reads_and_writes_the_same_store(tmp_path: Path) -> None:
    run(PROGRAMS[0], tmp_path, timeout_s=60)
    lines = run(PROGRAMS[1] + SPARK_EPILOGUE, tmp_path, timeout_s=240)
    assert lines[-2:] == ["1", "['2 APPLES', '3.20 EUR']"]
