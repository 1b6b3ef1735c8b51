"""kafka-python's integration tests: its source distribution, run by pytest in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.interop.kafkatools import cache_folder

__all__ = ["CannotFetchError", "fetch", "run"]

VERSION: Final = "3.0.12"
_NAME: Final = f"kafka_python-{VERSION}"
_REQUIREMENTS: Final = ("pytest", "pytest-timeout", "pytest-mock", "lz4", "zstandard", "crc32c")
_FETCH_S: Final = 600
_TEST_S: Final = 60
_BAD: Final = ("failure", "error", "skipped")
_SERVICE: Final = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port
    def open(self): pass
    def close(self): pass
class SpawnedService: pass
"""
"""The distribution lacks this module of its tests: with a broker that runs elsewhere nothing of it does anything."""


class CannotFetchError(Exception):
    """The packages cannot be had here."""


def fetch() -> Path:
    """Return the unpacked distribution, with what its tests need in `packages`.

    Raises:
        CannotFetchError: it cannot be had.
    """
    folder = cache_folder() / _NAME
    done = folder / "fetched"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        cache_folder().mkdir(parents=True, exist_ok=True)
        _pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(cache_folder()), _NAME.replace("-", "=="))
        with tarfile.open(cache_folder() / f"{_NAME}.tar.gz") as archive:
            archive.extractall(cache_folder(), filter="data")
        _pip("install", "--target", str(folder / "packages"), *_REQUIREMENTS)
        (folder / "test" / "__init__.py").touch()
        (folder / "test" / "service.py").write_text(_SERVICE)
        (folder / "kafka-bin").mkdir(exist_ok=True)
        done.touch()
    return folder


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    if done.returncode:
        raise CannotFetchError(f"pip {' '.join(arguments)}: {done.stderr.strip()[-300:]}")


def run(folder: Path, address: str, report: Path) -> tuple[Mapping[str, str], str]:
    """Return how each test of producers, consumers and administrators has ended, and what has been printed.

    It is `passed`, or the name of an element in pytest's `report`, a file that is written.
    """
    environment = {
        **os.environ,
        "KAFKA_VERSION": "4.0.0",
        "KAFKA_URI": f"kafka://{address}",
        "KAFKA_ROOT": str(folder / "kafka-bin"),
        "PYTHONPATH": os.pathsep.join((str(folder), str(folder / "packages"))),
    }
    files = [f"test/integration/test_{name}_integration.py" for name in ("producer", "consumer", "admin")]
    options = ["-p", "no:cacheprovider", "-p", "no:logging", "--timeout", str(_TEST_S), f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    cases = ElementTree.parse(report).iter("testcase")
    found = {case.attrib["name"]: next((part.tag for part in case if part.tag in _BAD), "passed") for case in cases}
    return found, done.stdout
