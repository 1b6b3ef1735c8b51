"""The example of half messages, killed with SIGKILL at every step: the database and the topic hold the same orders."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
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


def run(folder: Path, count: int, step: str = "never", occurrence: int = 1) -> int:
    """Run the example in a process of its own, which dies at the step; return its exit code."""
    arguments = [ROOT / "examples", folder / "store", folder / "shop.db", count, step, occurrence]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, arguments)], cwd=folder, env=environment, timeout=120, check=False
    )
    return ended.returncode


@pytest.mark.rocketmq("R10", "R16", "R22")
@pytest.mark.parametrize(
    ("step", "occurrence"),
    [("started", 1), *(case for turn, step in enumerate(EACH) for case in share([(step, 1), (step, 2)], turn, 2))],
)
def test_it_survives_a_kill(tmp_path: Path, step: str, occurrence: int) -> None:
    assert run(tmp_path, ORDERS, step, occurrence) == -signal.SIGKILL
    # Another process, which sends nothing, is asked for what is open.
    runpy.run_path(str(ROOT / "examples" / "order_and_payment.py"))["run"](
        str(tmp_path / "store"), str(tmp_path / "shop.db"), 0
    )
    placed = occurrence - 1 + (step in ("order committed", "settled"))
    assert len(orders(tmp_path)) == (0 if step == "started" else placed)
    assert payments(tmp_path) == orders(tmp_path)
    assert run(tmp_path, ORDERS) == 0
    assert payments(tmp_path) == orders(tmp_path) == [(number, f"item {number}") for number in range(ORDERS)]


@pytest.mark.rocketmq("R10", "R16")
def test_it_survives_a_kill_in_the_check(tmp_path: Path) -> None:
    assert run(tmp_path, ORDERS, "order committed", 2) == -signal.SIGKILL
    assert run(tmp_path, ORDERS, "checked", 1) == -signal.SIGKILL
    assert run(tmp_path, ORDERS) == 0
    assert payments(tmp_path) == orders(tmp_path) == [(number, f"item {number}") for number in range(ORDERS)]
