"""Pages whose blocks run as they are printed, from top to bottom, and print what the page shows below them.

Folders at the root of the file system are moved into the test's own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forkserver import ForkServer
from tests.pages.blocks import PAGES, ROOT, Block, blocks, moved
from tests.pages.worlds import WORLDS
from tests.spark.sessions import warm_environment

RUNNER = Path(__file__).with_name("runner.py")

# Blocks that other tests run.
ELSEWHERE = {
    ("docs/cli.md", "console"): "tests/cli/test_page.py",
    ("docs/cli.md", "python"): "tests/cli/test_page.py",
    ("docs/transfer.md", "console"): "tests/cli/test_page.py",
    ("docs/upgrading.md", "console"): "tests/compatibility/test_upgrading_page.py",
}

# Blocks that no test runs; a page says why, in a comment before the block.
NOT_RUN = {
    ("CONTRIBUTING.md", "a test checks that the targets exist"): 1,
    ("README.md", "a test checks that the targets exist"): 1,
    ("README.md", "tests/pages/test_installs.py installs each"): 1,
    ("README.md", "tests/pages/test_installs.py installs it"): 1,
    ("docs/clouds.md", "needs an account of the cloud"): 2,
    ("docs/monitoring.md", "serves until it is ended"): 1,
    ("docs/console.md", "it serves until it is ended; tests/cli/test_console.py runs it"): 6,
    ("docs/gateway.md", "it serves until it is ended; tests/gateway runs it"): 1,
    ("docs/gateway.md", "it serves until it is ended"): 1,
    ("docs/gateway.md", "it needs kcat, and a gateway"): 1,
    ("docs/gateway.md", "it needs Kafka's tools, and a gateway"): 1,
    ("docs/gateway.md", "it asks for a password; tests/gateway/test_security.py runs it"): 1,
    ("docs/operations.md", "needs a cluster"): 2,
    ("docs/spark.md", "needs a cluster"): 1,
    ("docs/spark.md", "tests/spark/test_pipelines.py runs the example"): 2,
    ("docs/tables-that-change.md", "it needs kcat, and a gateway; tests/gateway/test_keyed_topics.py does so"): 1,
    ("docs/tables.md", "it serves until it is ended; tests/cli/test_serve.py runs it"): 1,
    ("docs/tables.md", "needs S3; tests/integration/test_tables_on_s3.py reads so"): 1,
    ("docs/tables.md", "needs pyiceberg; tests/interop/test_iceberg_catalog.py reads by it"): 1,
    ("docs/transfer.md", "make interop runs it, with a broker"): 1,
    ("docs/verification.md", "takes hours"): 1,
    ("docs/verification.md", "takes minutes"): 2,
}

# `test_installs.py` runs all pages at night, also those on S3, and the other ones with Spark.
SPARK_PAGES = ["docs/spark.md", "README.md", "docs/tables-that-change.md"]
OTHER_PAGES = [page for page, world in WORLDS.items() if not world.spark and not world.s3]


@pytest.fixture(scope="module")
def txnlog() -> Iterator[str]:
    """A command line for `txnlog`, in forks of a process that has imported it."""
    with ForkServer(
        "sparktxn._programs.cli.app", "sparktxn.admin", "sparktxn.maintenance", "sparktxn.transfer"
    ) as server:
        yield shlex.join([*server.python, "-m", "sparktxn"])


def commands(folder: Path, txnlog: str) -> Path:
    """A folder with the commands that an installation has: `txnlog` and `python`; `pip` has nothing left to do."""
    found = folder / "commands"
    found.mkdir(exist_ok=True)
    # Completion is installed for the shell that is found above the process: a fork has that of the tests, if any.
    own = f'case "$*" in --install-completion*) exec {sys.executable} -m sparktxn "$@";; esac'
    for name, body in {
        "txnlog": f'{own}\nexec {txnlog} "$@"',
        "python": f'exec {sys.executable} "$@"',
        "pip": "exit 0",
    }.items():
        (found / name).write_text(f"#!/bin/sh\n{body}\n")
        (found / name).chmod(0o755)
    return found


def taken(page: str) -> list[Block]:
    """The blocks of a page that run here."""
    found = [block for block in blocks(page) if not block.reason and (page, block.kind) not in ELSEWHERE]
    assert found
    return found


def program(page: str, folder: Path) -> Path:
    """Write what the runner needs of a page: its blocks and its world, moved into `folder`."""
    world = WORLDS[page]
    steps = {number: moved(text, folder) for number, text in world.between.items()}
    page_blocks = [(block.kind, moved(block.text, folder)) for block in taken(page)]
    before, after = moved(world.before, folder), moved(world.after, folder)
    file = folder / "page.json"
    file.write_text(json.dumps({"before": before, "after": after, "between": steps, "blocks": page_blocks}))
    return file


def run(files: list[Path], folder: Path, txnlog: str) -> None:
    """Run pages one after the other in one process, whose home is `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SPARK", "TXNLOG"))}
    path = f"{commands(folder, txnlog)}{os.pathsep}{kept['PATH']}"
    environment = {**kept, "HOME": str(folder), "PATH": path, **warm_environment()}
    done = subprocess.run(
        [sys.executable, str(RUNNER), *map(str, files)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def check(page: str, file: Path) -> None:
    """Fail where a page shows another output; blocks without one may print what changes from run to run."""
    result = json.loads(file.with_suffix(".out").read_text())
    assert result["error"] == ""
    found = [
        (printed, block.shown) for printed, block in zip(result["printed"], taken(page), strict=True) if block.shown
    ]
    if WORLDS[page].any_order:
        found = [(_sorted(printed), _sorted(shown)) for printed, shown in found]
    assert [printed for printed, _ in found] == [shown for _, shown in found]


def _sorted(lines: str) -> str:
    return "\n".join(sorted(lines.splitlines()))


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_a_page_prints_what_it_shows_and_some_can_be_pasted_twice(page: str, txnlog: str, tmp_path: Path) -> None:
    file = program(page, tmp_path)
    run([file], tmp_path, txnlog)
    check(page, file)
    if WORLDS[page].twice:
        run([file], tmp_path, txnlog)
        assert json.loads(file.with_suffix(".out").read_text())["error"] == ""


@pytest.fixture(scope="module")
def spark_pages(
    request: pytest.FixtureRequest, txnlog: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The pages that are asked for, one after the other in one process: a JVM takes longer to start than a page."""
    folder = tmp_path_factory.mktemp("pages")
    items = [item for item in request.session.items if request.fixturename in getattr(item, "fixturenames", ())]
    files = {}
    for number, page in enumerate(
        str(item.callspec.params["page"]) for item in items if isinstance(item, pytest.Function)
    ):
        (folder / str(number)).mkdir()
        files[page] = program(page, folder / str(number))
    run([*files.values()], folder, txnlog)
    return files


@pytest.mark.spark
@pytest.mark.parametrize("page", SPARK_PAGES)
def test_a_page_with_spark_prints_what_it_shows(page: str, spark_pages: dict[str, Path]) -> None:
    check(page, spark_pages[page])


def test_every_block_of_every_page_is_run_or_says_why_not() -> None:
    left = []
    reasons: Counter[tuple[str, str]] = Counter()
    for page in PAGES:
        for block in blocks(page):
            if block.reason:
                reasons[page, block.reason] += 1
            elif page not in WORLDS and (page, block.kind) not in ELSEWHERE:
                left.append((page, block.text))
    assert left == []
    assert dict(reasons) == NOT_RUN


def test_what_other_tests_run_is_named_there() -> None:
    for (page, kind), test in ELSEWHERE.items():
        assert any(block.kind == kind for block in blocks(page))
        text = (ROOT / test).read_text()
        assert Path(page).name in text
        assert kind in text


def test_the_targets_and_extras_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = [block.text for page in PAGES for block in blocks(page) if block.kind in ("bash", "sh")]
    made = [target for text in named for target in re.findall(r"^make (\w+)", text, re.MULTILINE)]
    asked = [
        extra for text in named for found in re.findall(r"\.(?:whl)?\[([\w,]+)\]", text) for extra in found.split(",")
    ]
    assert made
    assert set(made) <= targets
    assert asked
    assert set(asked) <= extras
