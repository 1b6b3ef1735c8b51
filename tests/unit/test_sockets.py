"""Sockets that servers listen at: what they accept sends each answer at once."""

from __future__ import annotations

import ast
import socket
from contextlib import closing
from pathlib import Path

import pytest

import sparktxn
from sparktxn._foundation.process.listening import listening

PACKAGE = Path(sparktxn.__file__).parent


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_an_answer_does_not_wait_for_the_next_request(host: str) -> None:
    """Without TCP_NODELAY an acknowledgement of a gateway came 20 ms late, with the client's next record."""
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with (
        closing(listening(host, 0, "--listen")) as listener,
        closing(socket.create_connection(listener.getsockname()[:2])),
        closing(listener.accept()[0]) as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_every_server_listens_at_such_a_socket() -> None:
    found = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and makes_a_socket(call)
    ]
    assert set(found) == {"_foundation/process/listening.py"}


def makes_a_socket(call: ast.Call) -> bool:
    """Return whether a call makes a socket that listens, or a server that would make one."""
    name = ast.unparse(call.func).rpartition(".")[2]
    is_given_one = any(keyword.arg == "sock" for keyword in call.keywords)
    return name in ("create_server", "socket") or (name == "start_server" and not is_given_one)
