"""The evidence that the tests give, by name: `python -m tests.evidence` writes tests/evidence.txt.

A test that goes shows in the list as a line that goes. Paths are left out, so that a test may move; its name, and the
names of its cases, are what the list holds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparktxn.testing.faultystore import Fault
from tests.fuzz.decoders import DECODERS
from tests.kills.blows import ACTIONS, POINTS
from tests.seeds import SEED_VARIABLE
from tests.simulation.scenarios import SCENARIOS

__all__ = ["LIST", "document"]

ROOT: Final = Path(__file__).parent.parent
LIST: Final = ROOT / "tests" / "evidence.txt"
_BUILD: Final = re.compile(
    r"test_(?:\w+_)?(?:a_build|without_\w+_(?:fails?|loses|hides)|breaks_without_a_rule)\b|test_\w*a_build_"
)
_FOLDERS: Final = ("crash", "simulation", "kills", "fuzz")


def _collected() -> list[tuple[str, str]]:
    """Return (path, name and case) of the tests that give evidence, as pytest collects them for `make test`."""
    builds = {
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if any(_BUILD.match(name) for name in re.findall(r"def (test_\w+)", path.read_text()))
    }
    folders = [f"tests/{folder}" for folder in _FOLDERS]
    files = sorted(path.relative_to(ROOT).as_posix() for path in builds)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *folders]
        + [file for file in files if not file.startswith(tuple(folders))],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in (SEED_VARIABLE, "PYTEST_ADDOPTS")},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-2_000:] + run.stderr[-2_000:]
    return [(path, name) for path, _, name in (line.partition("::") for line in run.stdout.splitlines()) if name]


def _golden() -> Iterator[str]:
    folder = ROOT / "tests" / "compatibility"
    yield from (f"store {path.name.removesuffix('.expected.json')}" for path in folder.glob("golden/*.expected.json"))
    yield from (f"wheel {path.name}" for path in folder.glob("wheels/*.whl"))


def _guarantees() -> Iterator[str]:
    yield from re.findall(r"^## (\d+\. .*)$", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE)


def sections() -> dict[str, list[str]]:
    """Return the names of each kind of evidence."""
    tests = _collected()
    builds = [name for _, name in tests if _BUILD.match(name)]
    others = [(path, name) for path, name in tests if not _BUILD.match(name)]
    requests = [name for _, name in others if name.startswith("test_each_valid_request_is_decoded[")]
    return {
        "builds without a rule, and the trace or the history that finds each": builds,
        "traces and pinned seeds": [
            name for _, name in others if re.match(r"test_\w*trace_|test_the_trace\[|test_the_seed_", name)
        ],
        "histories that a checker rejects": [
            name
            for _, name in others
            if name.split("[")[0].endswith(("_rejected", "_is_wrong", "_are_wrong", "_is_found", "_is_named"))
        ],
        "crash points": [name for path, name in others if path.startswith("tests/crash/")],
        "kinds of faults at each operation": [fault.value for fault in Fault if fault is not Fault.NONE],
        "points of a micro-batch at which Spark's processes are killed": [*POINTS],
        "ways in which they are killed": [*ACTIONS],
        "scenarios of the simulator": [*SCENARIOS],
        "golden stores": [*_golden()],
        "decoders under fuzz": [*DECODERS, *(name.partition("[")[2].rstrip("]") for name in requests)],
        "inputs that fuzzing has found": [name for _, name in others if name.startswith("test_a_pinned_input_")],
        "guarantees": [*_guarantees()],
    }


def document() -> str:
    """Return the text of the list."""
    return "\n".join(
        f"# {title}: {len(names)}\n" + "".join(f"{name}\n" for name in sorted(names))
        for title, names in sections().items()
    )


if __name__ == "__main__":
    LIST.write_text(document())
