"""Sockets that servers listen at: what they accept sends each answer at once."""

from __future__ import annotations

import re
import socket
from contextlib import closing
from pathlib import Path

import pytest

import sparktxn
from sparktxn.process.listening import listening

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
    makes = re.compile(r"\bcreate_server\(|\bsocket\.socket\(|\bstart_server\((?![^)]*\bsock=)")
    found = [str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if makes.search(path.read_text())]
    assert found == ["process/listening.py"]
