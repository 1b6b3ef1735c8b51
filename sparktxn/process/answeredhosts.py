"""Which requests a server of HTTP answers, by the host that they name: all servers of the command ask here.

A page of another site can lead a name of its own to an address that the browser reaches (DNS rebinding). The browser
then takes the server for that site, and lets the page read what it answers. So a server answers only for names that no
other site can have. A browser always says which host it means; what says none is a probe or a script.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from sparktxn.errors import ConfigurationError
from sparktxn.process.listening import is_loopback

__all__ = ["AnsweredHosts"]

_EVERY: Final = "*"
_HOST: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?", re.ASCII)
_OWN_NETWORK: Final = (".local", ".internal", ".localhost", ".home.arpa")
"""Ends of names that no site of the internet can have: RFC 6761, 6762 and 8375, and ICANN of `internal` (2024)."""

_TEXT: Final = "text/plain; charset=utf-8"

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_Asgi = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]
_Wsgi = Callable[..., Iterable[bytes]]


class AnsweredHosts:
    """The hosts that a server answers for.

    They are ``localhost``, the name or address that is listened at, and those in `allowed`. Where only this machine
    reaches the server, its loopback addresses are added. Elsewhere, all addresses and the machine's own name are added.
    So are names that no site of the internet can have: those without a dot, and those that end as names of a network.

    Args:
        listened: the name or address that is listened at.
        allowed: more names or addresses, without port; ``*`` answers for all.

    Raises:
        ConfigurationError: one of `allowed` is not a host.
    """

    def __init__(self, listened: str, allowed: Iterable[str] = ()) -> None:
        self._is_open = not is_loopback(listened)
        names = {_checked(name) for name in allowed}
        self._answers_all = _EVERY in names
        self._names = names | {"localhost", _canonical(listened)}
        if self._is_open:
            self._names.add(_canonical(socket.gethostname()))

    def answers(self, host: str | None) -> bool:
        """Return whether a request with this header ``Host`` is answered; None is one without the header."""
        if host is None or self._answers_all:
            return True
        found = _HOST.fullmatch(host.strip())
        if found is None:
            return False
        name = _canonical(found[1] if found[1] is not None else found[2])
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return self._is_open and _is_of_a_network(name)
        return self._is_open or is_loopback(str(getattr(address, "ipv4_mapped", None) or address))

    def asgi(self, app: _Asgi) -> _Asgi:
        """Return an application that lets the requests through to `app` that are answered."""

        async def checked(scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
            hosts = [value.decode("latin-1") for name, value in scope.get("headers", ()) if name.lower() == b"host"]
            host = ", ".join(hosts) if hosts else None
            if scope["type"] != "http" or self.answers(host):
                await app(scope, receive, send)
                return
            headers = [(b"content-type", _TEXT.encode()), (b"x-content-type-options", b"nosniff")]
            await send({"type": "http.response.start", "status": 421, "headers": headers})
            await send({"type": "http.response.body", "body": _refusal(host)})

        return checked

    def wsgi(self, app: _Wsgi) -> _Wsgi:
        """Return an application that lets the requests through to `app` that are answered."""

        def checked(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            host = environ.get("HTTP_HOST")
            if self.answers(host):
                return app(environ, start_response)
            start_response("421 Misdirected Request", [("Content-Type", _TEXT), ("X-Content-Type-Options", "nosniff")])
            return [_refusal(host)]

        return checked


def _checked(name: str) -> str:
    """Return a name that a caller allows, as it is compared.

    Raises:
        ConfigurationError: it is not a host.
    """
    found = _canonical(name.strip().removeprefix("[").removesuffix("]"))
    if found != _EVERY and not _NAME.fullmatch(found):
        try:
            ipaddress.ip_address(found)
        except ValueError:
            raise ConfigurationError(
                f"--allow-host is {name!r}: expected a name or an address without a port, such as metrics.example.com, "
                "or * for all"
            ) from None
    return found


def _canonical(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_of_a_network(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and ("." not in name or name.endswith(_OWN_NETWORK))


def _refusal(host: str | None) -> bytes:
    shown = repr((host or "")[:100])
    text = f"this server does not answer for host {shown}: use the address that it printed, or allow it by --allow-host"
    return f"{text}\n".encode("utf-8", "backslashreplace")
