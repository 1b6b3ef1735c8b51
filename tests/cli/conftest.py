"""A folder of its own for each test: the store, the working directory, and the user's settings."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXNLOG_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("TXNLOG_PROFILE", raising=False)
    return tmp_path


@pytest.fixture
def serving() -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes of a test, which end with it."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.communicate()
