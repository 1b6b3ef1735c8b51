"""Asking the console's application without a network, as a server would call it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlencode

from sparktxn._foundation.process.listening import AnsweredHosts
from sparktxn._programs.console.guard import Guard
from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.routes import application
from sparktxn.store import Store

HOST = "127.0.0.1:8477"
SAME_ORIGIN = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
HTML = {"accept": "text/html", "content-type": "application/x-www-form-urlencoded", **SAME_ORIGIN}
JSON = {"accept": "application/json", "content-type": "application/json", **SAME_ORIGIN}


class Answer(NamedTuple):
    code: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode()

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.data)


class Console:
    """A console over an open store."""

    def __init__(
        self,
        store: Store,
        *,
        host: str = "127.0.0.1",
        token: str | None = None,
        hide_values: bool = False,
        allow_changes: bool = False,
        timeout_s: float | None = 30.0,
    ) -> None:
        self.source = Source(store, hide_values=hide_values, allow_changes=allow_changes)
        self._app = AnsweredHosts(host).asgi(Guard(application(self.source, timeout_s), token))

    def ask(self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        return asyncio.run(self._ask(method, target, {"host": HOST, **(headers or {})}, body))

    def get(self, target: str, **headers: str) -> Answer:
        return self.ask("GET", target, {name.replace("_", "-"): value for name, value in headers.items()})

    def page(self, target: str) -> str:
        """The HTML of a page that there is."""
        answer = self.get(target, accept="text/html")
        assert answer.code == 200, answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return answer.text

    def data(self, target: str) -> Any:
        """The JSON of a page that there is."""
        answer = self.get(target, accept="application/json")
        assert answer.code == 200, answer.text
        return answer.json

    def submit(self, target: str, **fields: str) -> Answer:
        """Send a form as a browser does."""
        return self.ask("POST", target, HTML, urlencode(fields).encode())

    def send(self, target: str, **members: Any) -> Answer:
        """Send JSON as a program does."""
        return self.ask("POST", target, JSON, json.dumps(members).encode())

    def form_token(self) -> str:
        token: str = self.data("/change/create-topic")["form_token"]
        return token

    def preview(self, target: str, **members: Any) -> Any:
        """The preview of a change that may be made, as JSON."""
        answer = self.send(target, form_token=self.form_token(), **members)
        assert answer.code == 200, answer.text
        return answer.json

    def apply(self, preview: Any) -> Answer:
        return self.send("/change/apply", form_token=preview["form_token"], plan=preview["plan"])

    async def _ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8477),
        }
        sent: list[dict[str, Any]] = []

        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()  # A caller that stays connected.
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(dict(message))

        await self._app(scope, receive, send)
        head = sent[0]
        found = {name.decode().lower(): value.decode("latin-1") for name, value in head["headers"]}
        return Answer(head["status"], found, b"".join(part.get("body", b"") for part in sent[1:]))
