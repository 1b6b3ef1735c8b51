"""A released version and this one on one store, in turns: what one writes the other reads, and writes on."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from sparktxn import Store
from sparktxn._engine.format.checkpoint import PACKED_PARTS_MIN
from sparktxn._engine.format.commands import CreateTopic, RequireFeatures
from tests.forkserver import ForkServer

LIBRARIES = ("pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "msgspec", "pydantic")
"""What both versions import, which takes most of a program's time; the package itself is each program's own."""
WHEELS = sorted((Path(__file__).parent / "wheels").glob("*.whl"))
PROGRAM = Path(__file__).parent / "released_program.py"


class Version:
    """A version of the package that programs run with."""

    def __init__(self, name: str, path: Path, python: list[str]) -> None:
        self.name = name
        self._path = path
        self._python = python

    def run(self, step: str, store: Path, number: int = 0) -> Any:
        """Run a step of the program, and return what it found; a refusal's text where the version refuses the store."""
        command = [*self._python, str(PROGRAM), self.name, str(self._path), step, str(store), str(number)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4_000:]
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def with_libraries() -> Iterator[list[str]]:
    """A command line that runs programs as Python does, in forks of a process that has imported the libraries."""
    with ForkServer(*LIBRARIES) as server:
        yield server.python


@pytest.fixture(scope="module", params=WHEELS, ids=lambda path: path.name.split("-")[1])
def released(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, with_libraries: list[str]
) -> Version:
    """A released version: its wheel needs nothing but this version's libraries."""
    folder = tmp_path_factory.mktemp("released")
    zipfile.ZipFile(request.param).extractall(folder)
    return Version(request.param.name.split("-")[1], folder, with_libraries)


@pytest.fixture(scope="module")
def newest(with_libraries: list[str]) -> Version:
    return Version("", Path(__file__).parents[2], with_libraries)


def test_there_is_a_released_version() -> None:
    assert WHEELS


@pytest.mark.parametrize("first", ["released", "newest"])
def test_each_reads_what_the_other_has_written_and_writes_on(
    request: pytest.FixtureRequest, tmp_path: Path, first: str, released: Version, newest: Version
) -> None:
    writers = [released, newest] if first == "released" else [newest, released]
    store = tmp_path / "store"
    writers[0].run("create", store)
    for number, (writer, reader) in enumerate([writers, writers[::-1]]):
        writer.run("write", store, number)
        found = read(reader, store)
        assert len(found["rows"]) == 4 * (number + 1)
        assert found["problems"] == []
        assert found["versions"] == [number] * 2
        assert found["committed"] == number + 1
    # A transaction that one has prepared, and a half message that it has left pending, are ended by the other.
    writers[0].run("leave", store)
    writers[1].run("end", store)
    seen = [read(version, store) for version in (released, newest)]
    assert seen[0] == seen[1]
    assert len(seen[0]["rows"]) == 4 * 2 + 2


def read(version: Version, store: Path) -> Any:
    """What a version reads. A released one takes statistics of tables that it does not write for wrong ones."""
    found = version.run("read", store)
    if version.name == "0.1.0":
        found["problems"] = [
            each for each in found["problems"] if "/_delta_log/" not in each and "/metadata/" not in each
        ]
    return found


def test_a_table_that_a_released_version_has_published_gets_its_bounds_with_the_next_version(
    tmp_path: Path, released: Version, newest: Version
) -> None:
    store = tmp_path / "store"
    released.run("create", store)
    for number, writer in enumerate((released, newest, released, newest)):
        writer.run("write", store, number)
        table = DeltaTable(store / "topics" / "typed-2")
        if writer is newest:
            filters = [("id", ">=", 0)]
            assert table.to_pyarrow_table(filters=filters).num_rows == number + 1
            assert table.to_pyarrow_dataset().to_table(filter=pc.field("name") == "n").num_rows == number + 1
        assert read(newest, store)["problems"] == []


def test_what_it_does_not_know_is_refused_by_the_name_of_a_feature(
    tmp_path: Path, released: Version, newest: Version
) -> None:
    newest.run("create", tmp_path / "store")
    newest.run("write", tmp_path / "store")
    with Store.open(tmp_path / "store") as store, store.log.within(10):
        store.log.submit([RequireFeatures(("a_later_feature",))])
    assert "a_later_feature" in released.run("refused", tmp_path / "store")


def test_a_packed_head_is_refused_by_the_name_of_its_feature(
    tmp_path: Path, released: Version, newest: Version
) -> None:
    newest.run("create", tmp_path / "store")
    with Store.open(tmp_path / "store") as store, store.log.within(10):
        for number in range(PACKED_PARTS_MIN):
            store.log.submit([CreateTopic(f"create {number}", f"topic-{number}", 1)])
        store.log.checkpoint()
    assert "packed_heads" in released.run("refused", tmp_path / "store")
    # The next version goes on, and so does what it checks and vacuums.
    newest.run("write", tmp_path / "store")
    found = read(newest, tmp_path / "store")
    assert (len(found["rows"]), found["problems"]) == (4, [])
