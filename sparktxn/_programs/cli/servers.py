"""Servers that verbs run, whose packages are extras: where each listens, by one rule."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from sparktxn._foundation.process.listening import Endpoint, endpoint
from sparktxn._programs.cli.failures import WrongUsage
from sparktxn._programs.cli.verb import option
from sparktxn.errors import ConfigurationError, extra_to_install

_HOST: Final = "127.0.0.1"

Port = Annotated[
    int | None, option("--port", metavar="PORT", min=0, max=65535, help="The port, as --listen :PORT says it.")
]

AllowHost = Annotated[
    list[str] | None,
    option(
        "--allow-host",
        metavar="NAME",
        help="A host that requests may name, too, as behind a proxy; * for any. Repeat it.",
    ),
]


def listen_option(default_port: int) -> Any:
    """Return the option ``--listen`` of a server."""
    return typer.Option(
        "--listen",
        "--host",
        metavar="HOST:PORT",
        help="Where to listen. Of HOST or :PORT alone, the other part is that of the default. Port 0 is any that is "
        "free.",
        show_default=f"{_HOST}:{default_port}",
    )


def listen_endpoint(listen: str | None, port: int | None, default_port: int) -> Endpoint:
    """Return where a server listens, by its options.

    Raises:
        ConfigurationError: ``--listen`` is not an address.
        WrongUsage: the two options name different ports.
    """
    chosen = default_port if port is None else port
    if listen is None:
        return Endpoint(_HOST, chosen)
    found = endpoint("--listen", listen, host=_HOST, port=chosen)
    if port is not None and found.port != port:
        raise WrongUsage(f"--listen {listen!r} and --port {port} name different ports: give the port once")
    return found


def server_of(module: str, what: str, extra: str) -> Callable[..., None]:
    """Return `serve` of a module. It is imported here: only its verb needs it, and it takes longer than most verbs.

    Raises:
        ConfigurationError: a package is not installed that `what` needs, and that `extra` brings.
    """
    try:
        found: Callable[..., None] = importlib.import_module(module).serve
    except ModuleNotFoundError as missing:
        package = str(missing.name).partition(".")[0]
        raise ConfigurationError(f"{what} needs the package {package!r}: {extra_to_install(extra)}") from missing
    return found
