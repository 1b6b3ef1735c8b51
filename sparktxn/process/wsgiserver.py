"""A small server of HTTP for pages that machines ask for, by the standard library: a thread for each request."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from sparktxn.process.answeredhosts import AnsweredHosts

__all__ = ["Application", "wsgi_server"]

Application = Callable[..., Iterable[bytes]]

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
