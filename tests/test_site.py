"""The documentation site, without building it: every page is in its navigation, and its links lead to pages."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
WANTED = ("overview.md#try-it", "docs/tutorial.md", "docs/spark.md", "docs/porting.md", "docs/from-delta.md")


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def stage() -> ModuleType:
    return program("stage")


@pytest.fixture(scope="module")
def versions() -> ModuleType:
    return program("versions")


@pytest.fixture(scope="module")
def pages(stage: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("site") / "pages"
    stage.staged(folder)
    return folder


def test_every_page_is_in_the_navigation_and_exists(pages: Path) -> None:
    nav = (ROOT / "site" / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w/.-]+\.md", nav))
    found = {path.relative_to(pages).as_posix() for path in pages.rglob("*.md")}
    assert named <= found
    # The list of decisions leads to each of them.
    assert {name for name in found - named if not re.match(r"docs/adr/\d", name)} == set()


def test_the_start_page_leads_to_what_readers_look_for_in_one_click(pages: Path) -> None:
    text = (pages / "index.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert {*WANTED, "docs/operations.md", "docs/PROTOCOL.md"} <= {*targets}
    assert all((pages / target.partition("#")[0]).exists() for target in targets)
    assert {"docs/images/console-transactions.png", "docs/images/demo-flights.png"} <= {*targets}


def test_links_and_pictures_of_pages_exist(pages: Path) -> None:
    wrong = []
    for page in pages.rglob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        targets = re.findall(r"(?<!!)\]\(([^)\s:#]+\.md)(?:#[^)]*)?\)", text)
        targets += re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", text)
        wrong += [(page.name, target) for target in targets if not (page.parent / target).resolve().exists()]
    assert wrong == []


def test_the_reference_names_what_exists(stage: ModuleType) -> None:
    for _, modules in stage.REFERENCE.values():
        for module, names in modules.items():
            for name in names.split():
                assert inspect.getdoc(getattr(importlib.import_module(module), name)), f"{module}.{name}"


def test_all_that_modules_of_jobs_and_tables_do_is_in_the_reference(stage: ModuleType) -> None:
    for page, module in (("stores", "sparktxn.tables"), ("aio", "sparktxn.aio")):
        assert {*stage.REFERENCE[page][1][module].split()} == {*importlib.import_module(module).__all__}


def test_a_site_is_placed_in_the_folder_of_its_version(versions: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    for version in ("0.9.0", "0.10.0", "0.11.0.dev0", "0.10.0"):
        built = tmp_path / "built"
        built.mkdir()
        (built / "index.html").write_text(version)
        (built / "404.html").touch()
        versions.placed(built, folder, version)
        assert (folder / version / "index.html").read_text() == version
        assert not (folder / version / "404.html").exists()
    (folder / "no-version").mkdir()
    listed = json.loads((folder / "versions.json").read_text())
    assert [one["version"] for one in listed] == ["0.11.0.dev0", "0.10.0", "0.9.0"]
    assert [one["version"] for one in listed if one["aliases"]] == ["0.10.0"], "the newest release"
    assert [one["title"] for one in listed] == ["dev", "0.10.0", "0.9.0"]
    page = (folder / "index.html").read_text()
    assert "url=0.10.0/index.html" in page
    assert re.findall(r'href="([^"]+)"', page) == [f"{one['version']}/index.html" for one in listed]


def test_the_first_version_is_the_one_that_the_site_leads_to(versions: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "index.html").touch()
    versions.placed(tmp_path / "built", tmp_path / "site", "0.2.0.dev0")
    assert "url=0.2.0.dev0/index.html" in (tmp_path / "site" / "index.html").read_text()
