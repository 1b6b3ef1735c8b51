"""What is shipped: the wheel and the sdist hold the two packages and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, linked

SOURCES = {
    path.relative_to(root).as_posix()
    for root in (ROOT, ROOT / "scala-free-python-datasource")
    for package in ("sparktxn", "pyspark_txnlog")
    for path in (root / package).rglob("*")
    if path.suffix == ".py" or path.name == "py.typed" or path.suffix in (".html", ".css", ".svg")
}

KIT = """
import sys
for absent in ("greenlet", "hypothesis", "fsspec", "moto"):
    try:
        __import__(absent)
    except ImportError:
        continue
    raise SystemExit(f"{absent} can be imported: this test shows nothing")

import importlib, pkgutil
import sparktxn.testing

for module in pkgutil.iter_modules(sparktxn.testing.__path__):
    importlib.import_module(f"sparktxn.testing.{module.name}")
import pytest

raise SystemExit(pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[1]]))
"""

OBJECT_STORE_TEST = """
import pathlib
import pytest
from sparktxn.testing.objectstore_tests import ObjectStoreTests, Opening

class Files:
    def __init__(self, folder): self.folder = folder
    def read(self, name): return (self.folder / name).read_bytes() if (self.folder / name).exists() else None
    def write(self, name, data):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(data)

class TestALocalFolder(ObjectStoreTests):
    @pytest.fixture
    def opening(self, tmp_path): return Opening(str(tmp_path))

    @pytest.fixture
    def truth(self, tmp_path): return Files(tmp_path)

    test_eight_racers_have_one_winner_each_round = None  # processes: they would import the parent's modules
"""


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(word) for word in arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from the sdist alone."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == SOURCES
    assert {"sparktxn/py.typed", "pyspark_txnlog/py.typed", "pyspark_txnlog/__init__.py"} <= names


def test_the_wheel_is_pure_and_named_for_the_project(wheel: Path) -> None:
    assert re.fullmatch(r"sparktxn-\d+\.\d+\.\d+(\.dev\d+)?-py3-none-any\.whl", wheel.name)


def test_the_wheel_carries_the_licence(wheel: Path) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())


def test_the_wheel_has_the_command_and_its_packages_are_an_extra(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        texts = {name.rpartition("/")[2]: archive.read(name).decode() for name in archive.namelist()}
    assert "txnlog = sparktxn._programs.cli.launch:main" in texts["entry_points.txt"].splitlines()
    extra = re.findall(r"""^Requires-Dist: ([a-z]+)[^;\n]*; extra == ['"]cli['"]$""", texts["METADATA"], re.MULTILINE)
    assert sorted(extra) == ["rich", "typer"]


def test_the_core_needs_neither_spark_nor_fsspec(wheel: Path) -> None:
    metadata = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert set(re.findall(r"^Requires-Dist: ([a-z0-9-]+)[^;\n]*$", text, re.MULTILINE)) == {
        "pyarrow",
        "msgspec",
        "google-crc32c",
        "numpy",
    }
    assert set(re.findall(r"^Provides-Extra: (\S+)$", text, re.MULTILINE)) >= {"spark", "s3", "cli", "demo", "dev"}


def test_the_sdist_holds_sources_documents_and_examples_of_settings(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    wanted = {"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "docs/PROTOCOL.md"}
    assert wanted <= names
    assert {name.removeprefix("scala-free-python-datasource/") for name in names} >= SOURCES
    assert not [name for name in names if name.startswith(("tests", "bench", ".git/", ".ci", ".venv"))]


def test_the_installed_connector_is_found_by_listing_packages(tmp_path: Path) -> None:
    """Spark looks for ``pyspark_*`` with pkgutil.iter_modules: the development installation must show up there."""
    listing = "import pkgutil; print([m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')])"
    assert "'pyspark_txnlog'" in run(sys.executable, "-c", listing, cwd=tmp_path).stdout


def test_the_kit_for_object_stores_needs_its_own_extra_only(wheel: Path, tmp_path: Path) -> None:
    """An author of an object store installs the extra `testing` and subclasses `ObjectStoreTests`."""
    environment = linked(tmp_path / "environment", wheel, ["sparktxn[testing]"])
    program = tmp_path / "test_my_store.py"
    program.write_text(OBJECT_STORE_TEST)
    done = environment.run("-c", KIT, program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE), done.stdout
