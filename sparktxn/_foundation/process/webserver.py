"""A server of HTTP for an application of this process, until it is interrupted. It needs uvicorn, which is an extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, Final

import uvicorn

from sparktxn._foundation.process.listening import AnsweredHosts, address_of, listening

_FINISH_S: Final = 5
"""So long do requests have to be answered once the server ends."""


def serve_application(
    app: Any, host: str, port: int, option: str, on_start: Callable[[str], None], *, allowed_hosts: Iterable[str] = ()
) -> None:
    """Serve an application until this process is interrupted; requests then are still answered.

    Args:
        app: the application, by the interface ASGI.
        host: the name or address to listen at.
        port: the port; 0 is any that is free.
        option: the one that names the host, for the error.
        on_start: called with the server's address once it listens.
        allowed_hosts: more hosts that requests may name, see `AnsweredHosts`; others do not reach the application.

    Raises:
        ConfigurationError: it cannot listen there, or one of `allowed_hosts` is not a host.
        KeyboardInterrupt: it was interrupted.
    """
    app = AnsweredHosts(host, allowed_hosts).asgi(app)
    with closing(listening(host, port, option)) as listener:
        on_start(address_of(host, listener))
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_FINISH_S,
            )
        )
        server.run(sockets=[listener])
