"""The example of half messages, killed with SIGKILL at every step: the database and the topic hold the same orders."""

from __future__ import annotations

import runpy
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.order_points import orders, payments
from tests.seeds import share

ROOT = Path(__file__).parent.parent.parent
ORDERS = 3

# Kills itself at the `occurrence`-th time that the example reaches the step.
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import order_and_payment
step, left = sys.argv[5], [int(sys.argv[6])]
def reached(name):
    if name == step:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
order_and_payment.run(sys.argv[2], sys.argv[3], int(sys.argv[4]), reached)
"""
EACH = ("half message stored", "order written", "order committed", "settled")


Run = Callable[..., int]


@pytest.fixture
def run(python: list[str], tmp_path: Path) -> Run:
    """Runs the example in a process of its own, which dies at the step; returns its exit code."""

    def run(count: int, step: str = "never", occurrence: int = 1) -> int:
        arguments = [ROOT / "examples", tmp_path / "store", tmp_path / "shop.db", count, step, occurrence]
        program = [*python, "-c", KILLED, *map(str, arguments)]
        return subprocess.run(program, cwd=tmp_path, timeout=120, check=False).returncode

    return run


@pytest.mark.rocketmq("R10", "R16", "R22")
@pytest.mark.parametrize(
    ("step", "occurrence"),
    [("started", 1), *(case for turn, step in enumerate(EACH) for case in share([(step, 1), (step, 2)], turn, 2))],
)
def test_it_survives_a_kill(run: Run, tmp_path: Path, step: str, occurrence: int) -> None:
    assert run(ORDERS, step, occurrence) == -signal.SIGKILL
    # Another process, which sends nothing, is asked for what is open.
    runpy.run_path(str(ROOT / "examples" / "order_and_payment.py"))["run"](
        str(tmp_path / "store"), str(tmp_path / "shop.db"), 0
    )
    placed = occurrence - 1 + (step in ("order committed", "settled"))
    assert len(orders(tmp_path)) == (0 if step == "started" else placed)
    assert payments(tmp_path) == orders(tmp_path)
    assert run(ORDERS) == 0
    assert payments(tmp_path) == orders(tmp_path) == [(number, f"item {number}") for number in range(ORDERS)]


@pytest.mark.rocketmq("R10", "R16")
def test_it_survives_a_kill_in_the_check(run: Run, tmp_path: Path) -> None:
    assert run(ORDERS, "order committed", 2) == -signal.SIGKILL
    assert run(ORDERS, "checked", 1) == -signal.SIGKILL
    assert run(ORDERS) == 0
    assert payments(tmp_path) == orders(tmp_path) == [(number, f"item {number}") for number in range(ORDERS)]
