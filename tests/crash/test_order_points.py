"""The example of half messages, killed at every store operation and every SQL statement of either side."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.order_points import PROGRAMS

pytestmark = [pytest.mark.crash, pytest.mark.rocketmq("R10", "R16", "R22")]

ROOT = Path(__file__).parents[2]
SAMPLED = 40
"""`make test` takes each fortieth step."""


def kill_at(folder: Path, program: str, every: int, first: int) -> None:
    arguments = [str(folder), program, str(every), str(first)]
    print(program, "every", every, "from", first)
    ended = subprocess.run(
        [sys.executable, "-m", "tests.crash.order_points", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1_000,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    print(found)
    # The last steps of a checker, which ask for what is due, depend on its time; of the shortest two steps are taken.
    assert found["killed"] >= max(1, found["ended"])


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_survives_a_kill_at_any_step(tmp_path: Path, program: str, seed: int) -> None:
    kill_at(tmp_path, program, SAMPLED, 1 + seed % SAMPLED)


@pytest.mark.nightly
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_survives_a_kill_at_each_step(tmp_path: Path, program: str) -> None:
    kill_at(tmp_path, program, 1, 1)
