"""Tests run in groups, one per kind of evidence (a folder of `tests/`), on several workers side by side.

The summary says how long each group took. Tests that share a Spark session or an S3 server run on one worker.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import engine
from xdist.scheduler import LoadScopeScheduling

from tests.cloudservers import AzuriteServer, FakeGcsServer
from tests.collector import ends_cycles
from tests.forkserver import ForkServer
from tests.handles import close_handles_of_spark, open_handles
from tests.mutation.engine import MUTANT
from tests.rewriting import rewrite_once
from tests.seeds import night_seed
from tests.servers import MotoServer, S3Server, SeaweedServer
from tests.spark.sessions import QUICK_JAVA

ROOT = Path(__file__).parent
_STUCK = pytest.StashKey[bool]()
_PASSED = pytest.StashKey[int]()

# `make test` draws the same examples each time and keeps none; those of the night follow from `--hypothesis-seed`. What
# a property costs depends on the machine's other work, so no time fails it. A known failure is an `@example`.
hypothesis.settings.register_profile(
    "sparktxn",
    derandomize=night_seed() is None,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
# A mutant's process ends at the first failure. To look for others and to shrink took it half a minute.
hypothesis.settings.register_profile(
    "mutant",
    hypothesis.settings.get_profile("sparktxn"),
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    report_multiple_bugs=False,
)
hypothesis.settings.load_profile("mutant" if MUTANT in os.environ else "sparktxn")
# For searches that must find something: the same at night.
hypothesis.settings.register_profile("fixed", derandomize=True)
os.environ.update(QUICK_JAVA)
# Hypothesis shrinks for five minutes, and has no setting for it. A larger case that is printed soon is worth more.
assert engine.MAX_SHRINKING_SECONDS == 300, "hypothesis has renamed or changed its limit of shrinking"
engine.MAX_SHRINKING_SECONDS = 30

# Workers take the longest groups first. Groups that are not named here run after them, by name.
LONGEST = (
    "spark",
    "pages",
    "crash",
    "kills",
    "simulation",
    "maintenance",
    "stores",
    "packaging",
    "integration",
    "property",
)

OWN_DRIVERS = ("test_driver.py",)
"""Of `tests/spark`, the files whose tests do not use the shared session."""

DOT_FOR_EACH = 10
"""With `-q`, so many tests that pass print one dot."""


def group_of(path: Path) -> str:
    """The folder of `tests/` that holds the file; ``tests`` for the files directly in it."""
    # An error of a worker itself has the worker's name in place of a file.
    parts = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ()
    return parts[0] if len(parts) > 1 else "tests"


def _rank(group: str) -> tuple[int, str]:
    return (LONGEST.index(group) if group in LONGEST else len(LONGEST), group)


@cache
def worker_group(file: str) -> str:
    """Return what must share a worker with the tests of a file: a Spark session, a server, or else the file."""
    path = ROOT.parent / file
    if group_of(path) == "spark" and path.name not in OWN_DRIVERS:
        return "spark"
    # moto's server takes seconds to start.
    return "moto" if "moto_server" in path.read_text() else file


class _Groups(LoadScopeScheduling):
    """Gives a worker all tests of a group, in their order; the groups in the order of their first tests."""

    def _split_scope(self, nodeid: str) -> str:
        return worker_group(nodeid.split("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Return the scheduler of groups for ``--dist loadscope``; for other words xdist's own, which may part a file."""
    return _Groups(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_configure(config: pytest.Config) -> None:
    """Collect no garbage while tests are collected, which makes hundreds of thousands of objects that stay."""
    gc.disable()
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        rewrite_once(config, sorted(ROOT.rglob("test_*.py")))


def pytest_collection_finish() -> None:
    """Take what stays out of all later collections: a full one would traverse each of these objects again."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter's end collect all: DuckDB prints a line for each of its objects that is left.

    Not in a mutant's process, which shares all that another one has imported: that would take most of its time.
    """
    if MUTANT not in os.environ:
        gc.unfreeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(group_of(item.path)))


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> tuple[str, str, str] | None:
    """Print a dot for each tenth test that passes, if the run is to be quiet."""
    if config.get_verbosity() >= 0 or report.when != "call" or not report.passed or hasattr(report, "wasxfail"):
        return None
    count = config.stash[_PASSED] = config.stash.get(_PASSED, 0) + 1
    return "passed", "." if count % DOT_FOR_EACH == 0 else "", "PASSED"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seconds: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            group = group_of(ROOT.parent / report.nodeid.split("::")[0])
            counts[group] += 1
            # A passed test has one report here, for its call; set-up is part of what the group costs.
            seconds[group] += getattr(report, "duration", 0.0)  # a module that cannot be imported has none
    for report in terminalreporter.stats.get("", []):
        seconds[group_of(ROOT.parent / report.nodeid.split("::")[0])] += report.duration
    terminalreporter.section("time by group")
    for group in sorted(seconds, key=_rank):
        terminalreporter.line(f"{group:<14}{counts[group]:>6} tests {seconds[group]:>8.1f} s")


@pytest.fixture
def quiet() -> Iterator[None]:
    """No warnings of the product: for tests that inject a fault at each operation."""
    logger = logging.getLogger("sparktxn")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


@pytest.fixture(scope="module", autouse=True)
def the_collector_goes_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """Name the module in which a finalizer never returned: no collection begins while one is under way.

    Whatever waits for dropped handles to be given back would then wait in vain, in all modules that follow.
    """
    yield
    if request.session.stash.get(_STUCK, False):
        return  # an earlier module is named already
    deadline_s = time.monotonic() + 30
    while not (is_well := ends_cycles()) and time.monotonic() < deadline_s:
        time.sleep(0.1)  # a finalizer of another thread may wait for a server that is gone
    if not is_well:
        request.session.stash[_STUCK] = True
        faulthandler.dump_traceback(all_threads=True)
        raise AssertionError("a collection that began in this module never ends: a finalizer waits, see the stacks")


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_open(the_collector_goes_on: None) -> Iterator[None]:
    """Name the module after which a handle is neither closed nor dropped: its threads would stay for all that follow.

    Handles that the Spark data source keeps for its next step are closed here.
    """
    before = open_handles()
    yield
    close_handles_of_spark()
    deadline_s = time.monotonic() + 30
    while (left := open_handles() - before) > 0 and time.monotonic() < deadline_s:
        gc.collect()
        time.sleep(0.01)  # a thread gives back what dropped handles held
    assert left <= 0, f"this module leaves {left} logs or memberships open: close them, or let go of their handles"


@pytest.fixture(scope="session", autouse=True)
def seaweed_early(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server | None]:
    """SeaweedFS, started before the first test if one will ask for it: it may take a minute to be ready."""
    if not any(item.get_closest_marker("seaweedfs") for item in request.session.items):
        yield None
        return
    server = SeaweedServer(tmp_path_factory.mktemp("seaweedfs")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def seaweed_server(seaweed_early: S3Server | None) -> S3Server:
    assert seaweed_early is not None, "mark the test with `seaweedfs`"
    return seaweed_early.wait_ready()


@pytest.fixture(scope="session")
def python() -> Iterator[list[str]]:
    """A command line that runs programs as Python does, in forks of a process that has imported the package."""
    with ForkServer("sparktxn.admin", "sparktxn.halfmessage", "sqlite3") as server:
        yield server.python


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with MotoServer(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def fake_gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGcsServer]:
    with FakeGcsServer(tmp_path_factory.mktemp("fake-gcs")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzuriteServer]:
    with AzuriteServer(tmp_path_factory.mktemp("azurite")) as server:
        yield server
