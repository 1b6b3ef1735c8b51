"""The block of docs/transfer.md that needs a Kafka broker prints what the page shows (`make interop`)."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.interop.broker import Broker
from tests.interop.peers import ROOT, run
from tests.pages.blocks import blocks

pytestmark = pytest.mark.interop

FILL = Path(__file__).parent / "programs" / "transactions_in_orders.py"
PAGE_ADDRESS = "broker:9092"


def steps() -> list[tuple[str, str]]:
    """The commands of the block, each with the output that the page shows."""
    (block,) = [block for block in blocks("docs/transfer.md") if block.reason == "make interop runs it, with a broker"]
    found = [step.partition("\n") for step in block.text.split("$ ") if step]
    assert len(found) == 4
    return [(command, shown) for command, _, shown in found]


def test_the_block_prints_what_it_shows(confluent: Path, broker: Broker, tmp_path: Path) -> None:
    run(confluent, [str(FILL), broker.address, "first"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TXNLOG_STORE": str(tmp_path / "log")}
    for number, (command, shown) in enumerate(steps()):
        if number == len(steps()) - 1:
            run(confluent, [str(FILL), broker.address, "second"])
        program, *words = shlex.split(command.replace(PAGE_ADDRESS, broker.address))
        assert program == "txnlog"
        done = subprocess.run(
            [str(confluent), "-m", "sparktxn", *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout + done.stderr == shown, command
