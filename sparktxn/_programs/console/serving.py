"""The console as a server of this process, until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparktxn._foundation.process.listening import is_loopback
from sparktxn._foundation.process.webserver import serve_application
from sparktxn._foundation.values.quantities import counted
from sparktxn._programs.console.guard import TOKEN_CHARACTERS_MIN, Guard
from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.routes import application
from sparktxn.errors import ConfigurationError
from sparktxn.store import Store
from sparktxn.store.options import arguments


def check_access(host: str, token: str | None) -> None:
    """Check that what others can reach asks for a token, and that a token cannot be guessed.

    Raises:
        ConfigurationError: it is not so.
    """
    if token is not None and len(arguments.text("token", token, secret=True)) < TOKEN_CHARACTERS_MIN:
        raise ConfigurationError(
            f"the token has {counted(len(token), 'character')}: expected at least {TOKEN_CHARACTERS_MIN}, "
            "such as the output of "
            f"openssl rand -hex 16"
        )
    if token is None and not is_loopback(host):
        raise ConfigurationError(
            f"--listen is {host!r}, which other machines may reach: give a --token, or listen at 127.0.0.1"
        )


def serve(
    store: Store,
    host: str,
    port: int,
    *,
    token: str | None,
    hide_values: bool,
    allow_changes: bool,
    timeout_s: float | None,
    on_start: Callable[[str], None],
    allowed_hosts: Iterable[str] = (),
) -> None:
    """Serve the pages of an open store until this process is interrupted; requests then are still answered.

    Args:
        store: the store.
        host: the name or address to listen at.
        port: the port; 0 is any that is free.
        token: what callers have to show; None only for this machine.
        hide_values: show no keys, values and headers of records.
        allow_changes: offer changes of the store; without it nothing can be changed.
        timeout_s: how long the store may take for a page; None means no limit.
        on_start: called with the console's address once it listens.
        allowed_hosts: more hosts that requests may name, see `AnsweredHosts`.

    Raises:
        ConfigurationError: it cannot listen there, or must not without a token; or an allowed host is not one.
        KeyboardInterrupt: it was interrupted.
    """
    check_access(host, token)
    source = Source(store, hide_values=hide_values, allow_changes=allow_changes)
    pages = application(source, timeout_s)
    serve_application(Guard(pages, token), host, port, "--listen", on_start, allowed_hosts=allowed_hosts)
