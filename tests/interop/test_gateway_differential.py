"""The program of cases with confluent-kafka, on a broker and on a gateway: equal, but for what is listed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.broker import Broker
from tests.interop.differential.comparing import broken, same
from tests.interop.gateway.listed import DIFFERING
from tests.interop.gateway.serving import Gateway
from tests.interop.peers import ROOT

pytestmark = pytest.mark.interop

PROGRAM_S = 400
UNSTABLE = {"calls_without_time", "a_topic_that_does_not_exist_is_read"}
"""Which of two time-outs of the client comes first, or whether an answer comes within 0.3 s, depends on the machine."""


def verdicts(python: Path, address: str, out: Path) -> dict[str, Any]:
    command = [str(python), "-m", "tests.interop.differential.program", "--address", address, "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_a_program_sees_the_same_or_what_is_listed(confluent: Path, broker: Broker, tmp_path: Path) -> None:
    there = verdicts(confluent, broker.address, tmp_path / "there.json")
    with Gateway(tmp_path, creates_topics=False) as served:
        here = verdicts(confluent, served.address, tmp_path / "here.json")
    assert here.keys() == there.keys()
    assert not [name for name in there if broken(there[name])]
    differing = {name for name in there if not same(there[name], here[name])} - UNSTABLE
    assert differing == DIFFERING.keys(), {name: (there[name], here[name]) for name in differing ^ DIFFERING.keys()}
