"""franz-go's own tests of its client: fetched as a Go module and compiled once, then run against a broker's address."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.kafkatools import cache_folder

__all__ = ["CannotBuildError", "Outcome", "broker_tests", "build", "run"]

VERSION: Final = "v1.22.3"
_MODULE: Final = f"github.com/twmb/franz-go@{VERSION}"
_BROKER_TESTS: Final = ("client", "consumer", "group", "produce_request", "txn")
_BUILD_S: Final = 900


class CannotBuildError(Exception):
    """There is no Go, or the module cannot be had."""


class Outcome(NamedTuple):
    """How a test has ended (PASS, FAIL or SKIP), and what it has printed."""

    verdict: str
    output: str


def _go(arguments: list[str], folder: Path) -> str:
    go = shutil.which("go")
    if go is None:
        raise CannotBuildError("no Go on the path")
    done = subprocess.run([go, *arguments], cwd=folder, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    if done.returncode:
        raise CannotBuildError(f"go {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def _package() -> Path:
    cache_folder().mkdir(parents=True, exist_ok=True)
    found = json.loads(_go(["mod", "download", "-json", _MODULE], cache_folder()))
    return Path(found["Dir"], "pkg", "kgo")


def build() -> Path:
    """Return the compiled tests of `pkg/kgo`.

    Raises:
        CannotBuildError: they cannot be had here.
    """
    binary = cache_folder() / f"kgo-{VERSION}.test"
    if not binary.exists():
        made = binary.with_suffix(f".{os.getpid()}")
        _go(["test", "-mod=mod", "-c", "-o", str(made), "."], _package())
        made.replace(binary)
    return binary


def broker_tests() -> list[str]:
    """Return the tests that speak to a broker, but for those of share groups and OAuth."""
    texts = [(_package() / f"{name}_test.go").read_text() for name in _BROKER_TESTS]
    names = [name for text in texts for name in re.findall(r"^func (Test\w+)\(", text, re.MULTILINE)]
    return [name for name in names if "Share" not in name and "OAuth" not in name]


def run(binary: Path, address: str, name: str, *, records: int, timeout_s: int) -> Outcome:
    """Run one test against a broker; its topics have at most 3 partitions, and ETL tests take so many records."""
    environment = {
        **os.environ,
        "KGO_SEEDS": address,
        "KGO_TEST_RF": "1",
        "KGO_TEST_MAX_TOPIC_PARTS": "3",
        "KGO_TEST_RECORDS": str(records),
        "KGO_LOG_LEVEL": "none",
    }
    command = [str(binary), "-test.v", "-test.parallel", "2", "-test.timeout", f"{timeout_s}s", "-test.run"]
    done = subprocess.run(
        [*command, f"^{name}$"], cwd=_package(), env=environment, capture_output=True, text=True, check=False
    )
    found = re.search(rf"^--- (PASS|FAIL|SKIP): {name} ", done.stdout, re.MULTILINE)
    return Outcome(found[1] if found else "FAIL", done.stdout + done.stderr)
