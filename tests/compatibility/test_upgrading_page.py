"""docs/upgrading.md, with the released version itself: a store that 0.1.0 made, read and written by both in turns."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.pages.blocks import blocks

ROOT = Path(__file__).parents[2]
WHEEL = ROOT / "tests" / "compatibility" / "wheels" / "sparktxn-0.1.0-py3-none-any.whl"
ORDERS = "o-1:apples\no-2:pears\n"


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, Path]:
    """A folder with a `txnlog` of each version, with a `pip` and a `git` that do nothing."""
    zipfile.ZipFile(WHEEL).extractall(tmp_path / "wheel")
    found = {}
    for version, path in {"0.1.0": tmp_path / "wheel", "newest": ROOT}.items():
        found[version] = tmp_path / version
        found[version].mkdir()
        program = f'PYTHONPATH={path} exec {sys.executable} -m sparktxn "$@"'
        for name, body in {"txnlog": program, "pip": "exit 0", "git": "exit 0"}.items():
            (found[version] / name).write_text(f"#!/bin/sh\n{body}\n")
            (found[version] / name).chmod(0o755)
    return found


def test_each_version_shows_what_the_page_shows(tmp_path: Path, commands: dict[str, Path]) -> None:
    def shell(command: str, given: str | None = None) -> str:
        environment = {
            **os.environ,
            "PATH": f"{commands[version]}{os.pathsep}{os.environ['PATH']}",
            "TXNLOG_STORE": str(tmp_path / "shop"),
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=tmp_path,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout + done.stderr

    version = "0.1.0"
    shell("txnlog topics create orders")
    shell("txnlog produce -t orders -K :", ORDERS)
    versions = []
    for block in blocks("docs/upgrading.md"):
        assert block.kind == "console"
        for text in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = text.partition("\n")
            if command.startswith(("pip install --upgrade", "git checkout")):
                version = "0.1.0" if command.startswith("git") else "newest"
                versions.append(version)
            assert shell(command) == expected, command
    assert versions == ["newest", "0.1.0"]
