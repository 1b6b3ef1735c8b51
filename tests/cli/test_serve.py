"""`txnlog tables serve`: a process that answers until Ctrl-C, and what keeps it from starting."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from sparktxn.errors import extra_to_install
from tests.cli.shop import store
from tests.cli.terminal import ok, txnlog
from tests.cli.test_processes import WAIT_S, start, stream


@pytest.fixture(autouse=True)
def trips() -> None:
    """A table of Iceberg with a version."""
    ok("topics", "create", "trips", "--column", "id int64", "--set", "table.formats=iceberg")
    ok("tables", "publish", "--apply")


def get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
        return json.loads(answer.read())


def test_it_serves_until_ctrl_c(serving: list[subprocess.Popen[bytes]]) -> None:
    process = start("tables", "serve", "--port", "0", "--json")
    serving.append(process)
    row = json.loads(stream(process.stdout).readline())
    address = row.pop("address")
    assert row == {"namespace": "topics", "store": store()}
    assert address.startswith("http://127.0.0.1:")
    assert get(f"{address}/v1/namespaces/topics/tables")["identifiers"] == [{"namespace": ["topics"], "name": "trips"}]
    path = f"{address}/v1/namespaces/topics/tables/trips"
    assert get(path)["metadata"]["current-snapshot-id"] == 1
    ok("produce", "-t", "trips", stdin=b'{"id": 1}\n')
    ok("tables", "publish", "--apply")
    assert get(path)["metadata"]["current-snapshot-id"] == 2
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 130
    assert (stream(process.stdout).read(), stream(process.stderr).read()) == (b"", b"")


def test_it_says_where_it_serves_and_that_there_is_no_authentication(serving: list[subprocess.Popen[bytes]]) -> None:
    process = start("tables", "serve", "--port", "0")
    serving.append(process)
    shown = [stream(process.stdout).readline().split() for _ in range(3)]
    assert [words[0] for words in shown] == [b"address", b"namespace", b"store"]
    assert stream(process.stderr).readline() == b"serving until Ctrl-C; there is no authentication\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == -signal.SIGTERM
    assert stream(process.stderr).read() == b""


def test_a_port_that_is_in_use_is_an_error_of_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = txnlog("tables", "serve", "--port", str(port))
    assert (done.code, done.out) == (2, b"")
    assert done.err == (
        f"txnlog: cannot listen at port {port} of '127.0.0.1': Address already in use: choose another port, or "
        f"another address of this machine, with --listen HOST:PORT\n"
    )


def test_a_store_that_does_not_exist_is_an_error_before_it_listens(folder: Path) -> None:
    done = txnlog("tables", "serve", "--store", str(folder / "missing"), "--port", "0")
    assert (done.code, done.out) == (1, b"")
    assert "there is no store at" in done.err


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_its_packages_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    modules = ("sparktxn._programs.catalog", "sparktxn._foundation.process.webserver", f"{missing}.")
    for name in list(sys.modules):
        # What is loaded of a package is found without the package.
        if name.startswith(modules):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = txnlog("tables", "serve", "--port", "0")
    assert (done.code, done.out) == (2, b"")
    assert done.err == f"txnlog: the catalog needs the package '{missing}': {extra_to_install('catalog')}\n"
