"""Each install line of each page, in an environment with exactly what it brings: the page's blocks run there, twice.

By day the environments are made of links to what the tests' own one has, for the first two pages that a reader opens.
At night pip makes them, for all pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.packaging.environments import Environment, build_wheel, installed, linked, requirements_of
from tests.pages.blocks import PAGES, ROOT, blocks, same_each_time
from tests.pages.installs import INSTALLS, Install, run_blocks
from tests.pages.worlds import WORLDS
from tests.servers import MotoServer

BY_DAY = ("README.md: pip install .", "docs/tutorial.md: pip install '.[cli,pandas]' deltalake")

# A page whose blocks print something else the second time says so.
SAYS_SO = re.compile(r"(paste|run) (them |the blocks |the commands of this page )?again|each time that it runs", re.I)

# Pages whose blocks are for developers of this library, or for none.
WITHOUT_LINE = {"CONTRIBUTING.md", "docs/verification.md"}

Make = Callable[[Sequence[str]], Environment]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def pip(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes environments with pip, each once."""
    made: dict[tuple[str, ...], Environment] = {}

    def make(requirements: Sequence[str]) -> Environment:
        key = tuple(requirements)
        if key not in made:
            made[key] = installed(tmp_path_factory.mktemp("environment"), wheel, requirements)
        return made[key]

    return make


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with MotoServer(tmp_path_factory.mktemp("moto")) as server:
        yield server


def check_twice(install: Install, environment: Environment, folder: Path, variables: dict[str, str]) -> None:
    """Run the blocks, and once more in the same folder: they print what the page shows, or the page says why not."""
    shown = [block.text if block.kind == "console" else block.shown for block in blocks(install.page)]
    for is_first in (True, False):
        printed, error = run_blocks(install, environment, folder, variables, is_first=is_first)
        assert error == ""
        found = [
            (_lines(text), _lines(shown[at])) for at, text in zip(install.numbers, printed, strict=True) if shown[at]
        ]
        differing = [(text, expected) for text, expected in found if text != expected]
        if is_first:
            assert differing == []
        elif differing:
            assert SAYS_SO.search(" ".join((ROOT / install.page).read_text().split())), differing


def _lines(text: str) -> list[str]:
    return sorted(same_each_time(text).splitlines())


@pytest.mark.parametrize("install", [install for install in INSTALLS if str(install) in BY_DAY], ids=str)
def test_the_first_pages_of_a_reader_run_twice_with_their_own_install_line(
    install: Install, wheel: Path, tmp_path: Path
) -> None:
    environment = linked(tmp_path / "environment", wheel, requirements_of(install.line))
    check_twice(install, environment, tmp_path, {})


@pytest.mark.nightly
@pytest.mark.parametrize("install", INSTALLS, ids=str)
def test_the_blocks_of_each_page_run_twice_with_its_own_install_line(
    install: Install, pip: Make, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = pip(requirements_of(install.line))
    if not install.numbers:
        return
    variables = {}
    if install.page in WORLDS and WORLDS[install.page].s3:
        server: MotoServer = request.getfixturevalue("s3")
        server.request("POST", "/moto-api/reset")
        for bucket in ("bucket", "backup", "kafka"):
            server.create_bucket(bucket)
        variables = {
            "AWS_ENDPOINT_URL": server.endpoint_url,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
        }
    check_twice(install, environment, tmp_path, variables)


def test_each_page_with_blocks_has_an_install_line() -> None:
    assert {page for page in PAGES if blocks(page)} - {install.page for install in INSTALLS} == WITHOUT_LINE


def test_nothing_asks_an_index_for_this_package() -> None:
    """No index has it: an install line names a checkout, or a wheel."""
    folders = ("docs", "conf", "examples", "site", "sparktxn", "scala-free-python-datasource")
    files = [*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())]
    false = re.compile(rb"pip install (?:[^\n]*[\s'\"])?sparktxn(?![\w.-]*whl)")
    assert [path.name for path in files if false.search(path.read_bytes())] == []
