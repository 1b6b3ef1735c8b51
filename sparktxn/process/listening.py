"""The sockets that servers of the command listen at, with errors that name the option to change."""

from __future__ import annotations

import ipaddress
import socket

from sparktxn.errors import ConfigurationError

__all__ = ["address_of", "is_loopback", "listening"]


def listening(host: str, port: int, option: str, *, port_option: str = "--port") -> socket.socket:
    """Return a socket that listens. `option` names the host and `port_option` the port, for the error; or both do.

    Raises:
        ConfigurationError: the host is not this machine's, or the port is not free, or not allowed.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as error:  # a name that is no text, or too long for a name of a machine
        raise ConfigurationError(
            f"cannot listen at port {port} of {host!r}: {_reason(error)}: {_remedy(option, port_option)}"
        ) from error


def _remedy(option: str, port_option: str) -> str:
    if option == port_option:
        return f"choose another port, or another address of this machine, with {option} HOST:PORT"
    return f"choose another port with {port_option}, or an address of this machine with {option}"


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
