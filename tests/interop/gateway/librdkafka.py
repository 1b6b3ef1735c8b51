"""librdkafka's own tests: Debian's source package, built once, and run one test at a time."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from tests.interop.kafkatools import cache_folder

__all__ = ["CannotBuildError", "build", "run"]

_RELEASE: Final = "trixie"
_STEP_S: Final = 1800
_CONFIGURE: Final = ("./configure", "--disable-gssapi", "--disable-curl", "--disable-lz4-ext", "--disable-zstd")
_SLOWER: Final = 3
"""How many times as long as on a broker a test may take."""


class CannotBuildError(Exception):
    """There is no apt or no compiler, or the source cannot be had."""


def build() -> Path:
    """Return the folder of the tests, which are built.

    Raises:
        CannotBuildError: they cannot be had here.
    """
    folder = cache_folder() / "librdkafka-source"
    done = folder / "built"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "lists" / "partial").mkdir(parents=True)
        (folder / "sources.list").write_text(f"deb-src http://deb.debian.org/debian {_RELEASE} main\n")
        lists = [
            f"Dir::Etc::sourcelist={folder}/sources.list",
            "Dir::Etc::sourceparts=-",
            f"Dir::State::lists={folder}/lists",
        ]
        apt = ["apt-get", *(word for option in lists for word in ("-o", option))]
        _run([*apt, "update"], folder)
        _run([*apt, "source", "--download-only", "librdkafka"], folder)
        (archive,) = folder.glob("librdkafka_*.orig.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        source = _source(folder)
        _run([*_CONFIGURE], source)
        _run(["make", "-j2", "libs"], source)
        _run(["make", "-C", "tests", "-j2", "build"], source)
        done.touch()
    return _source(folder) / "tests"


def _source(folder: Path) -> Path:
    (found,) = (path for path in folder.glob("librdkafka-*") if path.is_dir())
    return found


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_STEP_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuildError(f"{' '.join(command)}: {error}") from error
    if done.returncode:
        raise CannotBuildError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")


def run(tests: Path, address: str, number: str, folder: Path, timeout_s: int) -> tuple[str, str]:
    """Return how the test of a number has ended (PASSED, FAILED or SKIPPED), and what it has printed."""
    settings = folder / "test.conf"
    settings.write_text(f"metadata.broker.list={address}\ntest.topic.random=true\ntest.timeout.multiplier={_SLOWER}\n")
    environment = {
        **os.environ,
        "RDKAFKA_TEST_CONF": str(settings),
        "TEST_KAFKA_VERSION": "3.9.0",
        "TESTS": number,
        "LD_LIBRARY_PATH": os.pathsep.join((str(tests.parent / "src"), str(tests.parent / "src-cpp"))),
    }
    try:
        done = subprocess.run(
            [str(tests / "test-runner"), "-p1"],
            cwd=tests,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return "FAILED", (error.stdout or b"").decode(errors="replace")
    output = done.stdout.decode(errors="replace")
    found = set(re.findall(rf"\b{number}_\w+\s*\|.*?\b(PASSED|FAILED|SKIPPED)\b", output))
    if done.returncode or "FAILED" in found or not found:
        return "FAILED", output
    # A number may have a second test, for librdkafka's own broker, which is skipped.
    return ("PASSED" if "PASSED" in found else "SKIPPED"), output
