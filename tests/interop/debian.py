"""Programs of Debian's packages, without installing them: from the path, else unpacked into the cache folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.interop.kafkatools import cache_folder

__all__ = ["CannotFetchError", "program"]

_FETCH_S = 300


class CannotFetchError(Exception):
    """The package cannot be had here: no apt, or no network."""


def program(package: str, name: str, *libraries: str) -> str:
    """The path of a program of a package, and of the packages with its libraries."""
    found = shutil.which(name)
    if found is not None:
        return found
    folder = cache_folder() / f"debian-{package}"
    unpacked = folder / "usr" / "bin" / name
    if not unpacked.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "download", package, *libraries], folder)
        for archive in folder.glob("*.deb"):
            _run(["dpkg", "-x", str(archive), str(folder)], folder)
    return str(_with_libraries(folder, unpacked) if libraries else unpacked)


def _with_libraries(folder: Path, unpacked: Path) -> Path:
    """A script that runs the program with what lies in the folder."""
    found = ":".join(sorted({str(file.parent) for file in folder.glob("usr/lib/**/*.so*")}))
    script = folder / unpacked.name
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={found} exec {unpacked} "$@"\n')
    script.chmod(0o755)
    return script


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotFetchError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise CannotFetchError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
