"""A loopback HTTP proxy before a store's endpoint that fails as a script says: what clients do with it is theirs.

with FaultProxy(server.endpoint_url) as proxy:
    proxy.inject(Fault.DROP_AFTER, method="PUT", path="/_log/", times=1)
    storage = server.storage | {"endpoint_url": proxy.endpoint_url}
"""

from __future__ import annotations

import http.client
import threading
import urllib.parse
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

__all__ = ["FaultProxy", "RequestFault"]


def __dir__() -> list[str]:
    return sorted(__all__)


class RequestFault(Enum):
    """What happens to a request; AFTER means that the server has carried it out."""

    DROP_AFTER = "the connection is cut instead of an answer, after"
    UNAVAILABLE_BEFORE = "503 SlowDown, before"
    UNAVAILABLE_AFTER = "503 SlowDown, after"
    CONFLICT_BEFORE = "409 ConditionalRequestConflict, before"
    DENIED_BEFORE = "403 AccessDenied, before"
    EXPIRED_BEFORE = "400 ExpiredToken, before"
    HANG_BEFORE = "no answer ever, before: a black hole"
    HANG_AFTER = "no answer ever, after"
    DELAY = "the answer comes late"


_CARRIED_OUT: Final = frozenset(
    {RequestFault.DROP_AFTER, RequestFault.UNAVAILABLE_AFTER, RequestFault.HANG_AFTER, RequestFault.DELAY}
)
_ERRORS: Final = {
    RequestFault.UNAVAILABLE_BEFORE: (503, "SlowDown"),
    RequestFault.UNAVAILABLE_AFTER: (503, "SlowDown"),
    RequestFault.DENIED_BEFORE: (403, "AccessDenied"),
    RequestFault.EXPIRED_BEFORE: (400, "ExpiredToken"),
    RequestFault.CONFLICT_BEFORE: (409, "ConditionalRequestConflict"),
}
_HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class _Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass
class _Script:
    """One line of the script; `times` counts down."""

    fault: RequestFault
    method: str
    path: str
    times: int
    delay_s: float


class FaultProxy:
    """Forwards to `endpoint_url` from `start` to `stop`. `requests` lists what came: (method, path)."""

    def __init__(self, endpoint_url: str) -> None:
        upstream = urllib.parse.urlsplit(endpoint_url)
        self._upstream = (upstream.hostname or "127.0.0.1", upstream.port or 80)
        self._scripts: list[_Script] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.requests: list[tuple[str, str]] = []
        self._server = _Server(("127.0.0.1", 0), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def endpoint_url(self) -> str:
        """The proxy's own address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def inject(self, fault: RequestFault, *, method: str, path: str = "", times: int = 1, delay_s: float = 1.0) -> None:
        """Let the next `times` requests of `method` to paths with `path` meet `fault`; earlier lines go first."""
        with self._lock:
            self._scripts.append(_Script(fault, method, path, times, delay_s))

    def clear(self) -> None:
        """Forget the script and the list of requests."""
        with self._lock:
            self._scripts.clear()
            self.requests.clear()

    def start(self) -> Self:
        """Begin to serve."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End, and let go of the requests that hang."""
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def serve(self, method: str, path: str, headers: dict[str, str], body: bytes) -> _Answer | None:
        """Return the answer to a request, or None to cut the connection."""
        script = self._next(method, path)
        fault = script.fault if script else None
        answer = self._forward(method, path, headers, body) if fault is None or fault in _CARRIED_OUT else None
        if fault in (RequestFault.HANG_BEFORE, RequestFault.HANG_AFTER):
            self._stopping.wait()
            return None
        if fault is RequestFault.DROP_AFTER:
            return None
        if fault in _ERRORS:
            status, code = _ERRORS[fault]
            text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>injected</Message></Error>'
            return _Answer(status, [("Content-Type", "application/xml")], text.encode())
        if script is not None:
            self._stopping.wait(script.delay_s)
        return answer

    def _next(self, method: str, path: str) -> _Script | None:
        with self._lock:
            self.requests.append((method, path))
            for script in self._scripts:
                if script.times > 0 and script.method == method and script.path in urllib.parse.unquote(path):
                    script.times -= 1
                    return script
        return None

    def _forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> _Answer:
        connection = http.client.HTTPConnection(*self._upstream, timeout=60)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP]
            if method == "HEAD":
                kept.append(("Content-Length", answer.getheader("Content-Length", "0")))
            return _Answer(answer.status, kept, answer.read())
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: a client that has gone away is what the faults are for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _serve(self) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("connection", "expect")}
        body = self.rfile.read(int(headers.get("Content-Length", 0)))
        answer = self.server.proxy.serve(self.command, self.path, headers, body)
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing on standard error."""
