"""What stands before the pages: which callers are answered, and what a browser may do with an answer.

A page of another site can make a browser send requests here. It cannot read the answers: `process/listening.py`
refuses names of other sites. A change must come from a page of this console.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

TOKEN_CHARACTERS_MIN: Final = 16
_COOKIE: Final = "txnlog_console"
_READS: Final = ("GET", "HEAD")
_BODY_MAX: Final = 8_192

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # With none, a browser sends no origin with a form, either.
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_NOT_STORED: Final = (b"cache-control", b"no-store")


class Guard:
    """An application that lets requests through to another one, if they may be answered.

    Args:
        app: the application.
        token: what callers have to show; None asks for nothing.
    """

    def __init__(self, app: App, token: str | None) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._proof = "" if token is None else hashlib.sha256(b"txnlog console\0" + token.encode()).hexdigest()
        # Cookies know no ports: two consoles of one machine would else take each other's away.
        self._cookie = f"{_COOKIE}_{self._proof[:8]}"

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                own = [*_HEADERS, *(() if b"cache-control" in names else (_NOT_STORED,))]
                message = {**message, "headers": [*given, *own]}
            await send(message)

        if scope["method"] not in _READS and not _is_same_origin(headers):
            await _answer(guarded, 403, "a change must come from a page of this console, and this one does not")
        elif self._token is None or scope["path"].startswith("/static/") or self._is_shown(headers):
            await self._app(scope, receive, guarded)
        else:
            await self._ask(scope, receive, guarded)

    def _is_shown(self, headers: dict[bytes, str]) -> bool:
        """Return whether a request shows the token, as a bearer or by the cookie that was given for it."""
        kind, _, bearer = headers.get(b"authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is_token(bearer.strip()):
            return True
        try:
            cookies = SimpleCookie(headers.get(b"cookie", ""))
        except CookieError:
            return False
        shown = cookies[self._cookie].value if self._cookie in cookies else ""
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._proof.encode())

    def _is_token(self, text: str) -> bool:
        return self._token is not None and hmac.compare_digest(text.encode("utf-8", "replace"), self._token)

    async def _ask(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Take a token from the address or from the form, and give a cookie for it; else show the form."""
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token", "")
        if scope["method"] == "POST":
            given = dict(parse_qsl((await _body(receive)).decode("latin-1"))).get("token", "")
        if self._is_token(given):
            left = urlencode([item for item in query if item[0] != "token"])
            # Two slashes at the beginning would name another host.
            path = "/" + scope["path"].lstrip("/\\")
            where = quote(path, safe="/").encode() + (f"?{left}".encode() if left else b"")
            cookie = f"{self._cookie}={self._proof}; Path=/; HttpOnly; SameSite=Strict"
            found = [(b"location", where), (b"set-cookie", cookie.encode())]
            await send({"type": "http.response.start", "status": 303, "headers": found})
            await send({"type": "http.response.body", "body": b""})
            return
        await _answer(send, 401, _FORM, kind="text/html", headers=[(b"www-authenticate", b"Bearer")])


_FORM: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>txnlog console</title>'
    '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/static/console.css"></head>'
    '<body class="alone"><main><h1>txnlog console</h1><form method="post" action="/">'
    "<p>This console asks for its token, which <code>txnlog console --token</code> was given.</p>"
    '<p><label for="token">Token</label> <input id="token" name="token" type="password" '
    'autocomplete="current-password" required> <button>Open</button></p></form></main></body></html>'
)


def _is_same_origin(headers: dict[bytes, str]) -> bool:
    if headers.get(b"sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get(b"origin")
    return origin is not None and origin.partition("://")[2] == headers.get(b"host")


async def _body(receive: Receive) -> bytes:
    found = b""
    while len(found) <= _BODY_MAX:
        message = await receive()
        found += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return found
    return b""


async def _answer(
    send: Send, code: int, text: str, *, kind: str = "text/plain", headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    given = [(b"content-type", f"{kind}; charset=utf-8".encode()), *(headers or ())]
    await send({"type": "http.response.start", "status": code, "headers": given})
    await send({"type": "http.response.body", "body": text.encode("utf-8", "backslashreplace")})
