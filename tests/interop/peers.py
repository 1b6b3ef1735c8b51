"""Environments for the tests with real packages: each has this project's environment below it, and one extra.

The extras of pyproject.toml contradict each other (Quix Streams needs an older confluent-kafka), so each has a virtual
environment of its own. They lie in ``$XDG_CACHE_HOME/sparktxn-interop`` and are made anew when an extra has changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.interop.kafkatools import cache_folder

ROOT: Final = Path(__file__).parents[2]
_INSTALL_S: Final = 600


class CannotInstallError(Exception):
    """The packages of an extra cannot be had here: no network, or no build for this Python."""


def requirements(extra: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: list[str] = project["optional-dependencies"][extra]
    return found


def python_with(extra: str) -> Path:
    """The interpreter of an environment with the packages of `extra`."""
    wanted = requirements(extra)
    key = hashlib.sha256("\n".join([sys.version, sys.prefix, *wanted]).encode()).hexdigest()[:12]
    folder = cache_folder() / f"{extra}-{key}"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        below = sysconfig.get_path("purelib", vars={"base": str(folder)})
        (Path(below) / "project.pth").write_text(sysconfig.get_path("purelib") + "\n")
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
        installed = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
        if installed.returncode:
            raise CannotInstallError(f"pip install {' '.join(wanted)}: {installed.stderr.strip()[-300:]}")
        done.touch()
    return python


def run(python: Path | str, arguments: Sequence[str], **environment: str) -> str:
    """What a process of `python` prints; it must succeed."""
    found = subprocess.run(
        [str(python), *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-4000:]
    return found.stdout
