"""Every example of every verb's help runs as it is printed, on a store that has what the examples name."""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import uvicorn

from sparktxn.catalog import server
from sparktxn.cli.app import APP
from sparktxn.cli.verb import EXAMPLES
from tests.cli.shop import fill, make_checkpoint, open_transaction
from tests.cli.terminal import ok, txnlog
from tests.each import each

ALL = [example for examples in EXAMPLES.values() for example in examples]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A store as the examples name it, with an open transaction; what an example names differently there."""
    store = tmp_path_factory.mktemp("shop") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TXNLOG_STORE", str(store))
        found = fill()
        with open_transaction("hangs"):
            yield store, found


@pytest.fixture
def names(shop: tuple[Path, dict[str, str]], folder: Path) -> dict[str, str]:
    """A copy of it for one example."""
    shutil.copytree(shop[0], folder / "store")
    return shop[1]


def commands(app: typer.Typer) -> int:
    groups = [group.typer_instance for group in app.registered_groups if group.typer_instance is not None]
    return len(app.registered_commands) + sum(commands(group) for group in groups)


def test_every_verb_has_examples() -> None:
    assert len(EXAMPLES) == commands(APP)
    assert all(EXAMPLES.values())


@pytest.fixture
def ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends once it has started, and needs no port that may be in use."""
    monkeypatch.setattr(server, "listening", lambda host, port: socket.create_server(("127.0.0.1", 0)))
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)


@pytest.mark.parametrize("example", ALL)
@pytest.mark.usefixtures("ended_at_once")
def test_an_example_runs(names: dict[str, str], example: str) -> None:
    if example == "txnlog dump checkpoint --json":
        make_checkpoint()
    Path("new-orders.csv").write_text("key,value\no-3,figs\n")
    if "--ducklake" in example:
        ok("tables", "publish", "--apply")
    if "--from-store" in example:
        ok("copy", "archive", "--apply")
    Path("people.csv").write_text("id,name,age\n1,Ada,36\n")
    for name, real in names.items():
        example = example.replace(name, real)
    data = b""
    for part in example.split(" | "):
        if part.startswith("txnlog "):
            done = txnlog(*shlex.split(part)[1:], stdin=data)
            assert done.code == 0, done.err
            data = done.out
        else:
            data = subprocess.run(part, shell=True, input=data, capture_output=True, check=True, timeout=60).stdout


def verbs(app: typer.Typer, *before: str) -> Iterator[tuple[str, ...]]:
    for command in app.registered_commands:
        yield (*before, str(command.name))
    for group in app.registered_groups:
        name = group.name if isinstance(group.name, str) else None
        assert group.typer_instance is not None
        yield from verbs(group.typer_instance, *before, *([name] if name else []))


@each(verbs(APP))
def test_the_help_shows_examples_of_the_verb(verb: tuple[str, ...]) -> None:
    shown = " ".join(ok(*verb, "--help").text.split())
    examples = [example for example in ALL if f"txnlog {' '.join(verb)} " in f"{example} "]
    assert [example for example in examples if " ".join(example.split()) in shown]
