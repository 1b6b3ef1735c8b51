"""`txnlog console`: a process that answers until Ctrl-C, and what keeps it from starting."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from typing import Any

import pytest
import uvicorn

from sparktxn._foundation.process import webserver
from sparktxn.errors import extra_to_install
from sparktxn.store import Store
from tests.cli.shop import store
from tests.cli.terminal import ok, txnlog
from tests.cli.test_processes import WAIT_S, start, stream
from tests.console.asking import Console

TOKEN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def topic() -> None:
    ok("topics", "create", "orders")


def get(address: str, **headers: str) -> bytes:
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        found: bytes = answer.read()
    return found


def test_it_serves_pages_until_ctrl_c(serving: list[subprocess.Popen[bytes]]) -> None:
    process = start("console", "--port", "0", "--no-browser", "--json")
    serving.append(process)
    row = json.loads(stream(process.stdout).readline())
    address = row.pop("address")
    assert row == {"store": store()}
    assert address.startswith("http://127.0.0.1:")
    assert b"<h1>" in get(f"{address}/", Accept="text/html")
    assert [one["topic"] for one in json.loads(get(f"{address}/topics", Accept="application/json"))["topics"]] == [
        "orders"
    ]
    lines = get(f"{address}/topics/orders/download?format=jsonl")
    ok("produce", "-t", "orders", stdin=b"one\n")
    assert (lines, b'"value":"one"' in get(f"{address}/topics/orders/download?format=jsonl")) == (b"", True)
    with pytest.raises(urllib.error.HTTPError, match="421"):
        get(f"{address}/", Host="evil.example")
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_S) == 130
    assert (stream(process.stdout).read(), stream(process.stderr).read()) == (b"", b"")


@pytest.mark.parametrize(
    ("form", "given", "words"),
    [
        (
            "reset-offsets?group=accounts",
            {"to": "earliest"},
            ("groups", "reset", "accounts", "--all-topics", "--to-earliest"),
        ),
        (
            "reset-offsets?group=accounts",
            {"to": "offset", "offset": 1, "topics": "orders:0"},
            ("groups", "reset", "accounts", "--topic", "orders:0", "--to-offset", "1"),
        ),
        *(("job", {"job": job}, (job,)) for job in ("sweep", "retention", "compact", "rewrite", "vacuum")),
        ("job", {"job": "tables"}, ("tables", "publish")),
    ],
)
def test_a_preview_says_what_the_command_says_without_apply(
    form: str, given: dict[str, object], words: tuple[str, ...]
) -> None:
    ok("produce", "-t", "orders", stdin=b"one\ntwo\n")
    ok("consume", "-t", "orders", "-G", "accounts", "-e")
    printed = ok(*words, "--json").json
    with Store.open(store()) as opened:
        rows = Console(opened, allow_changes=True).preview(f"/change/{form}", **given)["rows"]
    assert [{name: row[name] for name in row if not name.startswith("names")} for row in rows] == printed


def test_changes_are_offered_where_they_are_allowed(serving: list[subprocess.Popen[bytes]]) -> None:
    process = start("console", "--port", "0", "--no-browser", "--json", "--allow-changes")
    serving.append(process)
    address = json.loads(stream(process.stdout).readline())["address"]
    form = json.loads(get(f"{address}/change/create-topic", Accept="application/json"))
    headers = {"Accept": "application/json", "Content-Type": "application/json", "Origin": address}

    def post(path: str, **members: object) -> Any:
        body = json.dumps({"form_token": form["form_token"], **members}).encode()
        request = urllib.request.Request(f"{address}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.loads(answer.read())

    preview = post("/change/create-topic", topic="made", partitions=2)
    assert [row["topic"] for row in ok("topics", "list", "--json").json] == ["orders"]
    assert post("/change/apply", plan=preview["plan"])["applied"]
    assert [row["topic"] for row in ok("topics", "list", "--json").json] == ["made", "orders"]


def test_a_token_of_the_environment_is_asked_for(
    serving: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXNLOG_CONSOLE_TOKEN", TOKEN)
    process = start("console", "--port", "0", "--no-browser", "--json")
    serving.append(process)
    address = json.loads(stream(process.stdout).readline())["address"]
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get(f"{address}/")
    assert b"orders" in get(f"{address}/topics", Authorization=f"Bearer {TOKEN}")


@pytest.fixture
def ended_at_once(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the browser opens, of a server that ends once it has started."""
    opened: list[str] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    monkeypatch.setattr(webserver, "listening", lambda *_, **__: socket.create_server(("127.0.0.1", 0)))
    monkeypatch.setattr(webbrowser, "open", opened.append)
    return opened


def test_the_browser_opens_the_first_page(ended_at_once: list[str]) -> None:
    ok("console", "--no-browser")
    out = ok("console", "--json").out
    until_s = time.monotonic() + WAIT_S
    while not ended_at_once and time.monotonic() < until_s:
        time.sleep(0.01)
    assert ended_at_once == [json.loads(out)["address"]]


def test_other_machines_are_refused_without_a_token(ended_at_once: list[str]) -> None:
    done = txnlog("console", "--listen", "0.0.0.0", "--no-browser")
    assert (done.code, done.out) == (2, b"")
    assert "give a --token" in done.err
    done = txnlog("console", "--listen", "0.0.0.0", "--no-browser", "--token", "short")
    assert (done.code, "expected at least 16" in done.err) == (2, True)
    ok("console", "--listen", "0.0.0.0", "--no-browser", "--token", TOKEN)


@pytest.mark.parametrize("name", [os.fsdecode(b"\xff"), "a" * 70, "a..b"])
@pytest.mark.parametrize(
    "server", [("console", "--no-browser", "--token", TOKEN, "--listen"), ("exporter", "--listen")]
)
def test_a_name_that_no_machine_has_is_an_error_of_one_line(server: tuple[str, ...], name: str) -> None:
    done = txnlog(*server, name, "--port", "0")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("txnlog: cannot listen at port 0 of ")
    assert done.err.endswith(": choose another port, or another address of this machine, with --listen HOST:PORT\n")


def test_a_token_that_is_no_text_is_an_error_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    token = os.fsdecode(b"\xff" * 20)
    monkeypatch.setenv("TXNLOG_CONSOLE_TOKEN", token)
    done = txnlog("console", "--no-browser", "--port", "0")
    assert (done.code, done.out) == (2, b"")
    assert done.err == "txnlog: token has half of a surrogate pair at position 0: expected text that UTF-8 can hold\n"


def test_a_port_that_is_in_use_is_an_error_of_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = txnlog("console", "--no-browser", "--port", str(port))
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith(f"txnlog: cannot listen at port {port} of '127.0.0.1': Address already in use")


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "jinja2", "prometheus_client"])
def test_without_its_packages_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in list(sys.modules):
        # What is loaded of a package is found without the package.
        if name.startswith(
            (
                "sparktxn._programs.console",
                "sparktxn._programs.exporter",
                "sparktxn.store.storemetrics",
                "sparktxn._foundation.process.webserver",
                f"{missing}.",
            )
        ):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = txnlog("console", "--port", "0", "--no-browser")
    assert (done.code, done.out) == (2, b"")
    assert done.err == f"txnlog: the console needs the package '{missing}': {extra_to_install('console')}\n"
