"""One program of cases, run with confluent-kafka on a broker and with our clients on a store (`make interop`).

Verdicts are what a program can notice: codes and their flags, offsets, messages, shapes of metadata, callbacks. What
differs must be listed in docs/porting.md, and what is listed must differ.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop.broker import Broker
from tests.interop.differential.comparing import broken, same
from tests.interop.differential.listed import LISTED
from tests.interop.peers import ROOT

pytestmark = pytest.mark.interop

PORTING = ROOT / "docs" / "porting.md"
DIFFERING = {name: heading for heading, names in LISTED.items() for name in names}
CASES_MIN = 161  # as many as there were when the clients were first compared by hand


def case_names() -> list[str]:
    """The cases in order, without an import: their modules need confluent-kafka."""
    modules = ("producing", "transactions", "consuming", "groups", "administration", "names")
    texts = [(Path(__file__).parent / "differential" / f"{module}.py").read_text() for module in modules]
    return [name for text in texts for name in re.findall(r"^@case\ndef (\w+)\(", text, re.MULTILINE)]


@pytest.fixture(scope="module")
def verdicts(confluent: Path, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The verdicts there and here, from two processes that run at the same time."""
    folder = tmp_path_factory.mktemp("differential")
    command = [str(confluent), "-m", "tests.interop.differential.program", "--address", broker.address]
    ours = ["--store", str(folder / "store")]
    processes = {
        side: subprocess.Popen(
            [*command, "--out", str(folder / f"{side}.json"), *more],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=(folder / f"{side}.log").open("w"),
            stderr=subprocess.STDOUT,
        )
        for side, more in (("there", []), ("here", ours))
    }
    for side, process in processes.items():
        assert process.wait(timeout=400) == 0, (folder / f"{side}.log").read_text()[-3000:]
    return {side: json.loads((folder / f"{side}.json").read_text()) for side in processes}


@pytest.mark.parametrize("name", case_names())
def test_a_program_sees_the_same_or_what_the_page_lists(name: str, verdicts: dict[str, dict[str, Any]]) -> None:
    there, here = verdicts["there"][name], verdicts["here"][name]
    assert not broken(there), there
    assert not broken(here), here
    if name in DIFFERING:
        assert not same(there, here), f"no longer a difference: take it from {DIFFERING[name]!r} and listed.py"
    else:
        assert same(there, here), f"there {there}\nhere  {here}"


def test_each_difference_is_of_a_case_and_under_a_heading_of_the_page() -> None:
    headings = re.findall(r"^#+ (.*)$", PORTING.read_text(), re.MULTILINE)
    assert set(LISTED) <= set(headings)
    assert set(DIFFERING) <= set(case_names())
    assert len(DIFFERING) == sum(len(names) for names in LISTED.values())


def test_the_cases_are_as_many_as_those_that_were_compared_by_hand() -> None:
    assert len(case_names()) >= CASES_MIN
