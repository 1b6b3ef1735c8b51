"""The sockets that servers of the command listen at, the hosts they answer for, and a server for WSGI."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from socketserver import ThreadingMixIn
from typing import Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from sparktxn.errors import ConfigurationError

_PORT_MAX: Final = 65_535
_PORT: Final = re.compile(r"[0-9]{1,9}")
_BRACKETED: Final = re.compile(r"\[([^\[\]]+)\](?::(.*))?", re.DOTALL)


class Endpoint(NamedTuple):
    """Where a server listens, or is reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoint(option: str, text: str, *, host: str | None = None, port: int | None = None) -> Endpoint:
    """Return ``HOST:PORT`` as an endpoint; `option` is where it was given, for the error.

    An IPv6 address with a port is in brackets. With a default `host`, ``:PORT`` or ``PORT`` is enough; with a default
    `port`, the host alone is.

    Raises:
        ConfigurationError: the text is not such a address, or lacks a part without a default.
    """
    found_host, found_port = _parts(text)
    if found_port is not None and not (_PORT.fullmatch(found_port) and int(found_port) <= _PORT_MAX):
        raise ConfigurationError(f"{option} {text!r} has the port {found_port!r}: expected 0 to {_PORT_MAX}")
    has_host = bool(found_host) or (host is not None and found_port is not None)
    has_port = found_port is not None or port is not None
    if not (has_host and has_port) or any(one in "/@,[]" or one.isspace() for one in found_host):
        shorter = {":9092": host, "127.0.0.1": port}
        more = "".join(f", or {form}" for form, default in shorter.items() if default is not None)
        raise ConfigurationError(f"{option} {text!r}: expected HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092{more}")
    return Endpoint(found_host or host or "", int(found_port or port or 0))


def _parts(text: str) -> tuple[str, str | None]:
    """Return the host, empty if there is none, and the text of the port, or None."""
    if bracketed := _BRACKETED.fullmatch(text):
        return bracketed[1], bracketed[2]
    if _PORT.fullmatch(text):
        return "", text
    before, colon, after = text.rpartition(":")
    if ":" not in before:
        return (before, after) if colon else (text, None)
    # The end of an IPv6 address without brackets might be a port or its last part: all of it is the address.
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return "", None
    return text, None


def listening(host: str, port: int, option: str) -> socket.socket:
    """Return a socket that listens. `option` is where the address was given, for the error.

    Raises:
        ConfigurationError: the host is not this machine's, or the port is not free, or not allowed.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family)
        # What it accepts takes this over. asyncio does not set it, because the socket has protocol 0 and not TCP's.
        # Without it an answer waits until the client acknowledges the one before, by its next request.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, UnicodeError) as error:  # a name that is not text, or too long for a name of a machine
        raise ConfigurationError(
            f"cannot listen at port {port} of {host!r}: {_reason(error)}: choose another port, or another address of "
            f"this machine, with {option} HOST:PORT"
        ) from error


def _reason(error: OSError | UnicodeError) -> str:
    """Return what the system says, without the address that Python adds to it."""
    if isinstance(error, UnicodeError):
        return "no machine has this name"
    return (error.strerror or str(error)).partition(" (while ")[0]


def address_of(host: str, listener: socket.socket) -> str:
    """Return the address of a server of HTTP that listens there."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address to listen at."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


# Which requests a server of HTTP answers, by the host that they name: all servers of the command ask here.
#
# A page of another site can lead a name of its own to an address that the browser reaches (DNS rebinding). The
# browser then takes the server for that site, and lets the page read what it answers. So a server answers only for
# names that no other site can have. A browser always says which host it means; what says none is a probe or a script.

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
Application = Callable[..., Iterable[bytes]]


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

    def wsgi(self, app: Application) -> Application:
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


# A small server of HTTP for pages that machines ask for, by the standard library: a thread for each request.


_IDLE_S: Final = 10.0
"""So long may a client take to send its request, or to take the answer."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request on a thread of its own: a client that sends nothing keeps no other waiting."""

    daemon_threads = True
    block_on_close = False


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: scrapes are frequent."""


def wsgi_server(app: Application, host: str, listener: socket.socket, hosts: AnsweredHosts) -> WSGIServer:
    """Return a server of an application of WSGI at a socket that listens, which `serve_forever()` starts.

    Requests for other `hosts` do not reach the application.
    """
    server = _Server(listener.getsockname()[:2], _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_name, server.server_port = host, listener.getsockname()[1]
    server.setup_environ()
    server.set_app(hosts.wsgi(app))
    return server
