"""Pages whose programs run as they are printed, from top to bottom, and print what the page shows below them."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ["tables.md", "from-kafka-python.md", "from-delta.md"]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs(page: str) -> list[tuple[str, str]]:
    """The Python programs of a page, each with the output that the page shows below it, or ""."""
    blocks = _BLOCK.findall((DOCS / page).read_text())
    following = [*blocks[1:], ("python", "")]
    pairs = zip(blocks, following, strict=True)
    return [(text, shown if not other else "") for (kind, text), (other, shown) in pairs if kind == "python"]


def run(page: str, folder: Path) -> list[tuple[str, str]]:
    """What each program prints, with /tmp moved into `folder`, and what the page shows."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for program, shown in programs(page):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(program.replace("/tmp/", f"{folder}/"), page, "exec"), names)
        printed.append((out.getvalue(), shown))
    return printed


@pytest.mark.parametrize("page", PAGES)
def test_each_program_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    for printed, shown in run(page, tmp_path):
        assert printed == shown


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_pasted_twice(page: str, tmp_path: Path) -> None:
    run(page, tmp_path)
    run(page, tmp_path)


@pytest.mark.spark
def test_the_page_for_sparks_kafka_connector_prints_what_it_shows(tmp_path: Path) -> None:
    """In a process of its own, as Spark's session is one of the process."""
    page = "from-spark-kafka.md"
    text = "\n".join(program for program, _ in programs(page)).replace("/tmp/", f"{tmp_path}/")
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "".join(shown for _, shown in programs(page))
