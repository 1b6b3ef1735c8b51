"""The sockets that servers of the command listen at, with errors that name the option to change."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final, NamedTuple

from sparktxn.errors import ConfigurationError

__all__ = ["Endpoint", "address_of", "endpoint", "is_loopback", "listening"]

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
