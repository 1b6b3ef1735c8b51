"""Which hosts a server answers for, by where it listens."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

import pytest

from sparktxn._foundation.process.listening import AnsweredHosts
from sparktxn.errors import ConfigurationError

EVERYWHERE: tuple[str | None, ...] = (
    "localhost",
    "LocalHost:8181",
    "localhost.",
    "localhost:",
    "127.0.0.1",
    "127.0.0.1:9308",
    "127.9.9.9:1",
)
EVERYWHERE += ("[::1]", "[::1]:80", "[::ffff:127.0.0.1]:80", None)
OTHER_SITES: tuple[str, ...] = (
    "evil.example",
    "evil.example:8181",
    "EVIL.EXAMPLE.",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
)
OTHER_SITES += (
    "evil.com",
    "evil.internal.com",
    "xn--strae-oqa.example",
    "local",
    "",
    ":80",
    "::",
    "[",
    "[]",
    "[evil.example]",
)
OTHER_SITES += (
    "user@127.0.0.1",
    "127.0.0.1, evil.example",
    "127.0.0.1 evil.example",
    "a/b",
    "straße.example",
    "..",
    "x..",
)
OF_A_NETWORK: tuple[str, ...] = (
    "10.1.2.3:9308",
    "192.0.2.10",
    "[2001:db8::1]:80",
    "[fe80::1%eth0]",
    "gateway",
    "gateway-1:9308",
    "my_gateway",
)
OF_A_NETWORK += ("gateway.shop.svc.cluster.local:9308", "ip-10-0-0-5.ec2.internal", "x.home.arpa")


@pytest.mark.parametrize("listened", ["127.0.0.1", "localhost", "::1", "[::1]", "127.0.0.2"])
def test_a_server_of_this_machine_answers_for_it_alone(listened: str) -> None:
    hosts = AnsweredHosts(listened)
    assert [host for host in EVERYWHERE if not hosts.answers(host)] == []
    assert [host for host in (*OTHER_SITES, *OF_A_NETWORK) if hosts.answers(host)] == []


@pytest.mark.parametrize("listened", ["0.0.0.0", "::", "10.0.0.1", "gateway.shop.example"])
def test_a_server_of_a_network_answers_for_addresses_and_for_names_that_no_site_can_have(listened: str) -> None:
    hosts = AnsweredHosts(listened)
    own: tuple[str, ...] = (
        (listened, f"{listened}:9308", f"{socket.gethostname()}:9308")
        if ":" not in listened
        else (f"[{listened}]:9308",)
    )
    assert [host for host in (*EVERYWHERE, *OF_A_NETWORK, *own) if not hosts.answers(host)] == []
    assert [host for host in OTHER_SITES if hosts.answers(host) and host != "local"] == []


@pytest.mark.parametrize("listened", ["127.0.0.1", "0.0.0.0"])
def test_names_that_are_allowed_are_answered_too(listened: str) -> None:
    hosts = AnsweredHosts(listened, ["Shop.example", "203.0.113.7", "[2001:db8::7]"])
    for host in ("shop.example:443", "SHOP.EXAMPLE.", "203.0.113.7:1", "[2001:db8::7]"):
        assert hosts.answers(host)
    assert not hosts.answers("a.shop.example")
    assert not hosts.answers("evil.example")
    assert all(map(AnsweredHosts(listened, ["*"]).answers, OTHER_SITES))


@pytest.mark.parametrize(
    "name", ["", "http://shop.example", "shop.example:80", "a b", "*.shop.example", "straße.example"]
)
def test_what_is_no_host_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a name or an address without a port"):
        AnsweredHosts("127.0.0.1", [name])


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "TRACE"])
@pytest.mark.parametrize(
    ("hosts", "is_answered"),
    [(["evil.example"], False), (["127.0.0.1:1"], True), ([], True), (["127.0.0.1", "evil.example"], False)],
)
def test_no_request_of_another_site_reaches_an_application(method: str, hosts: list[str], is_answered: bool) -> None:
    assert by_wsgi(method, hosts) == by_asgi(method, hosts) == (method if is_answered else 421)


def by_wsgi(method: str, hosts: list[str]) -> object:
    """The method that reached an application; else the code of the answer."""
    found: list[object] = []

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        found.append(environ["REQUEST_METHOD"])
        return []

    # As wsgiref joins headers that come twice.
    environ = {"REQUEST_METHOD": method} | ({"HTTP_HOST": ",".join(hosts)} if hosts else {})
    list(AnsweredHosts("127.0.0.1").wsgi(application)(environ, lambda status, _: found.append(int(status[:3]))))
    (only,) = found
    return only


def by_asgi(method: str, hosts: list[str]) -> object:
    """The method that reached an application; else the code of the answer."""
    found: list[object] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.append(scope["method"])

    async def send(message: Any) -> None:
        found.append(message.get("status"))

    scope = {"type": "http", "method": method, "headers": [(b"host", host.encode()) for host in hosts]}
    asyncio.run(AnsweredHosts("127.0.0.1").asgi(application)(scope, None, send))  # type: ignore[arg-type]
    return found[0]
