"""The README's program for Python runs as it is printed, again and again; `tests/pages` runs the one for Spark too."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def run(program: str, folder: Path) -> list[str]:
    """The lines that the program prints, with /tmp moved into `folder`."""
    done = subprocess.run(
        [sys.executable, "-c", program.replace("/tmp/", f"{folder}/")],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_readme_has_one_program_for_python_and_one_for_spark() -> None:
    assert ["spark.read" in program for program in PROGRAMS] == [False, True]


def test_the_python_program_prints_what_the_readme_shows_and_can_be_pasted_twice(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^It prints .*?^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert sorted(run(PROGRAMS[0], tmp_path)) == sorted(shown.splitlines())
    lines = run(PROGRAMS[0], tmp_path)
    assert sorted(line.split()[0] for line in lines) == ["orders", "payments"]
