"""`txnlog exporter`: a page for Prometheus until Ctrl-C, and what keeps it from starting."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from sparktxn.errors import extra_to_install
from tests.cli.shop import store
from tests.cli.terminal import ok, txnlog
from tests.cli.test_processes import WAIT_S, start, stream


def get(address: str, accept: str = "") -> tuple[str, str]:
    with urllib.request.urlopen(urllib.request.Request(address, headers={"Accept": accept}), timeout=WAIT_S) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def test_it_serves_until_ctrl_c_also_alongside_a_client_that_sends_nothing(
    serving: list[subprocess.Popen[bytes]],
) -> None:
    ok("topics", "create", "orders")
    process = start("exporter", "--port", "0", "--json")
    serving.append(process)
    row = json.loads(stream(process.stdout).readline())
    address = row.pop("address")
    assert row == {"store": store()}
    host, port = address.removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port))):
        page, content_type = get(address)
        assert 'kafka_topic_partition_current_offset{partition="0",topic="orders"} 0.0\n' in page
        assert content_type.startswith("text/plain; version=")
        ok("produce", "-t", "orders", stdin=b"one\n")
        page, content_type = get(address, "application/openmetrics-text; version=1.0.0")
        assert 'kafka_topic_partition_current_offset{partition="0",topic="orders"} 1.0\n' in page
        assert content_type.startswith("application/openmetrics-text; version=1.0.0")
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
    assert (stream(process.stdout).read(), stream(process.stderr).read()) == (b"", b"")


def test_a_port_that_is_in_use_is_an_error_of_one_line() -> None:
    ok("topics", "create", "orders")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = txnlog("exporter", "--port", str(port))
    assert (done.code, done.out) == (2, b"")
    assert done.err == (
        f"txnlog: cannot listen at port {port} of '127.0.0.1': Address already in use: choose another port, or "
        f"another address of this machine, with --listen HOST:PORT\n"
    )


def test_without_its_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("sparktxn._programs.exporter", "sparktxn.store.storemetrics", "prometheus_client.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    done = txnlog("exporter", "--port", "0")
    assert (done.code, done.out) == (2, b"")
    assert done.err == f"txnlog: the exporter needs the package 'prometheus_client': {extra_to_install('metrics')}\n"
