"""docs/cli.md and docs/transfer.md: each command that it shows prints what it shows, one after another on one store."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import ok, txnlog
from tests.pages.blocks import blocks, same_each_time

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text()
PAGES = ("cli.md", "transfer.md")


def printed(command: str) -> str:
    """What a terminal shows of a command, which may be a pipeline; remarks come last."""
    data, remarks = b"", ""
    for part in command.split(" | "):
        if part.startswith("txnlog "):
            done = txnlog(*shlex.split(part)[1:], stdin=data)
            data, remarks = done.out, remarks + done.err
        else:
            data = subprocess.run(part, shell=True, input=data, capture_output=True, check=True, timeout=60).stdout
    return data.decode() + remarks


def test_the_page_s_program_reads_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`txnlog` is found by its name, as it is installed."""
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    ok("topics", "create", "orders", "--set", "append.inline.bytes=0")
    ok("produce", "-t", "orders", stdin=b"1\n2\n")
    command = folder / "bin" / "txnlog"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m sparktxn "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("2\n", "")


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_what_the_command_prints(page: str) -> None:
    shown = []
    for block in blocks(f"docs/{page}"):
        if block.kind != "console" or block.reason:
            continue
        for text in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = text.partition("\n")
            shown.append(command)
            assert same_each_time(printed(command)) == same_each_time(expected), command
    assert shown
