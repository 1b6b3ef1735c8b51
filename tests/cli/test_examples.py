"""Every example of every verb's help runs as it is printed, on a store that has what the examples name."""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import shutil
import socket
import subprocess
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from typer.core import TyperGroup

from sparktxn._foundation.process import listening, webserver
from sparktxn._programs import exporter as exporter_server
from sparktxn._programs.cli import verbs
from sparktxn._programs.cli.app import MODULES, VERBS, load
from sparktxn._programs.cli.verb import EXAMPLES
from sparktxn._programs.gateway import gatewayserver as gateway_server
from tests.cli.shop import fill, make_checkpoint, open_transaction
from tests.cli.terminal import ok, txnlog, unread
from tests.each import each

COMMANDS = [
    (name, *rest)
    for name in VERBS
    for rest in ([(one,) for one in load(name).commands] if isinstance(load(name), TyperGroup) else [()])
]
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


def test_every_verb_has_examples() -> None:
    assert len(EXAMPLES) == len(COMMANDS)
    assert all(EXAMPLES.values())


@each(VERBS)
def test_the_help_of_the_command_says_of_a_verb_what_its_own_help_begins_with(name: str) -> None:
    assert load(name).help.split("\n\n")[0] == VERBS[name]


def test_every_module_of_a_verb_is_one_of_the_command() -> None:
    modules = {path.stem for path in Path(verbs.__file__).parent.glob("[!_]*.py")}
    assert modules == {MODULES.get(name, name) for name in VERBS}


@pytest.fixture
def ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends once it has started, and needs no port that may be in use."""
    for server in (webserver, exporter_server, gateway_server):
        monkeypatch.setattr(server, "listening", lambda *_, **__: socket.create_server(("127.0.0.1", 0)))
    monkeypatch.setattr(listening._Server, "serve_forever", lambda self: None)
    monkeypatch.setattr(asyncio, "run", lambda work: work.close())
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)


def prepared(example: str, names: dict[str, str]) -> str:
    """Make what an example needs, and return it with the names of the shop."""
    if example == "txnlog dump checkpoint --json":
        make_checkpoint()
    Path("new-orders.csv").write_text("key,value\no-3,figs\n")
    if "--from-store" in example:
        ok("copy", "archive", "--apply")
    if "--superseded" in example:
        ok("topics", "create", "customers", "--column", "id int64 not null", "--set", "primary.key=id")
    Path("password").write_text("secret\n")
    if "--sasl-users users" in example:
        Path("users").write_bytes(ok("gateway", "--sasl-line", "alice", stdin=b"secret\n").out)
        Path("users").chmod(0o600)
    Path("people.csv").write_text("id,name,age\n1,Ada,36\n")
    for name, real in names.items():
        example = example.replace(name, real)
    return example


@pytest.mark.parametrize("example", ALL)
@pytest.mark.usefixtures("ended_at_once")
def test_an_example_runs(names: dict[str, str], example: str) -> None:
    data = b""
    for part in prepared(example, names).split(" | "):
        if part.startswith("txnlog "):
            done = txnlog(*shlex.split(part)[1:], stdin=data)
            assert done.code == 0, done.err
            data = done.out
        else:
            data = subprocess.run(part, shell=True, input=data, capture_output=True, check=True, timeout=60).stdout


ALONE = [example for example in ALL if " | " not in example]


@pytest.mark.parametrize("example", ALONE)
@pytest.mark.usefixtures("ended_at_once")
def test_an_example_does_the_same_where_what_it_prints_is_lost(
    names: dict[str, str], folder: Path, example: str
) -> None:
    words = shlex.split(prepared(example, names))[1:]
    shutil.copytree(folder, folder.with_name(f"{folder.name}-twin"))
    printed = ok(*words).out
    entries = ok("log", "-n", "1", "--json").json[0]["entry"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TXNLOG_STORE", str(folder.with_name(f"{folder.name}-twin") / "store"))
        patch.chdir(folder.with_name(f"{folder.name}-twin"))
        done = unread(*words, error=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        assert ok("log", "-n", "1", "--json").json[0]["entry"] == entries
    assert done.code == (1 if printed else 0), done.err
    assert ("cannot write to standard output: No space left on device" in done.err) == bool(printed)


@each(COMMANDS)
def test_the_help_shows_examples_of_the_verb(verb: tuple[str, ...]) -> None:
    shown = " ".join(ok(*verb, "--help").text.split())
    examples = [example for example in ALL if f"txnlog {' '.join(verb)} " in f"{example} "]
    assert [example for example in examples if " ".join(example.split()) in shown]
