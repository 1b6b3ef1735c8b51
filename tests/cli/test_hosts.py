"""Each server of the command answers for the same hosts: each one, by where it listens, by Host and by method."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess

import pytest

from tests.cli.terminal import ok, txnlog
from tests.cli.test_processes import WAIT_S, start, stream

SERVERS = {
    "catalog": (("tables", "serve", "--port", "0", "--listen"), "/v1/namespaces/topics/tables"),
    "exporter": (("exporter", "--port", "0", "--listen"), "/metrics"),
    "gateway": (("gateway", "--listen", "127.0.0.1:0", "--http"), "/metrics"),
    "console": (("console", "--no-browser", "--port", "0", "--listen"), "/topics"),
}
TOKEN = "a-token-of-enough-characters"


def asked(port: int, method: str, path: str, host: str | None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.putrequest(method, path, skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.putheader("Authorization", f"Bearer {TOKEN}")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("listened", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("server", SERVERS)
def test_a_server_answers_for_no_other_site(serving: list[subprocess.Popen[bytes]], server: str, listened: str) -> None:
    ok("topics", "create", "orders", "--set", "table.formats=iceberg")
    ok("tables", "publish", "--apply")
    arguments, path = SERVERS[server]
    own = f"{listened}:0" if server == "gateway" else listened
    more = ("--token", TOKEN) if server == "console" else ()
    process = start(*arguments, own, *more, "--allow-host", "shop.example", "--json")
    serving.append(process)
    row = json.loads(stream(process.stdout).readline())
    address = row["http" if server == "gateway" else "address"]
    port = int(address.removesuffix("/metrics").rpartition(":")[2])
    is_open = listened == "0.0.0.0"
    hosts = {"evil.example": False, "127.0.0.1:1": True, "localhost": True, "[::1]:80": True, "shop.example:80": True}
    hosts |= {"10.1.2.3:9308": is_open, "gateway": is_open, f"{socket.gethostname()}:80": is_open, "": False}
    for host, is_answered in hosts.items():
        for method in ("GET", "HEAD", "POST"):
            code, body = asked(port, method, path, host)
            assert (code != 421) == is_answered, (host, method, code)
            assert (code == 200) == (is_answered and method != "POST") or server in ("exporter", "gateway")
            assert is_answered or b"orders" not in body
    if server in ("exporter", "gateway"):
        # As a balancer asks that speaks HTTP 1.0.
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            assert b" 200 " in connection.recv(100)


def test_a_host_that_is_none_is_an_error_before_a_server_listens() -> None:
    ok("topics", "create", "orders")
    for arguments, _ in SERVERS.values():
        address = "127.0.0.1:0" if "--http" in arguments else "127.0.0.1"
        done = txnlog(*arguments, address, "--allow-host", "http://shop.example/")
        assert (done.code, done.out) == (2, b"")
        assert done.err == (
            "txnlog: --allow-host is 'http://shop.example/': expected a name or an address without a port, such as "
            "metrics.example.com, or * for all\n"
        )
