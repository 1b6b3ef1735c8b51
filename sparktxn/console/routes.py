"""The console as an application of HTTP: one route for each page, as HTML or as JSON, and its errors."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from sparktxn.console.asked import Asked, Hidden, NotFound, WrongRequest
from sparktxn.console.downloads import download
from sparktxn.console.pages.groups import group, groups
from sparktxn.console.pages.log import entry, log, raw_entry
from sparktxn.console.pages.maintenance import maintenance
from sparktxn.console.pages.objects import files, topic_files
from sparktxn.console.pages.overview import overview
from sparktxn.console.pages.records import record, records, value_of
from sparktxn.console.pages.topics import topic, topics
from sparktxn.console.pages.transactions import transaction, transactional_ids, transactions
from sparktxn.console.shownstore import Page, Source
from sparktxn.console.templating import render
from sparktxn.errors import CommandRefused, ConfigurationError, DamagedObject, ErrorCode, KafkaException, ViewExpired
from sparktxn.process.events import log_event

__all__ = ["application"]


_JSON: Final = "application/json"
_STATIC: Final = {"console.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
_FOLLOW_S: Final = 2

Show = Callable[..., Page]


def application(source: Source, timeout_s: float | None) -> Starlette:
    """Return the application that serves the pages of an open store.

    Args:
        source: the store as the pages read it; it must stay open. Requests are answered by threads.
        timeout_s: how long the store may take for a page; None is no limit. Downloads have none.
    """
    pages = _Pages(source, timeout_s)
    shown: dict[str, Show] = {
        "/": overview,
        "/topics": topics,
        "/topics/{name}": topic,
        "/topics/{name}/records": records,
        "/topics/{name}/records/{partition:int}/{offset:int}": record,
        "/topics/{name}/files": topic_files,
        "/transactions": transactions,
        "/transactions/ids": transactional_ids,
        "/transaction": transaction,
        "/groups": groups,
        "/group": group,
        "/log": log,
        "/log/{number:int}": entry,
        "/files": files,
        "/maintenance": maintenance,
    }
    routes = [Route(path, pages.of(show)) for path, show in shown.items()]
    routes += [
        Route("/topics/{name}/download", pages.download),
        Route("/topics/{name}/records/{partition:int}/{offset:int}/value", pages.value),
        Route("/log/{number:int}/raw", pages.raw),
        Route("/static/{name}", _static),
    ]
    errors = dict.fromkeys((WrongRequest, NotFound, Hidden, HTTPException, KafkaException, Exception), pages.failed)
    return Starlette(routes=routes, exception_handlers=errors)


class _Pages:
    """The answers to requests."""

    def __init__(self, source: Source, timeout_s: float | None) -> None:
        self._source = source
        self._timeout_s = timeout_s

    def of(self, show: Show) -> Callable[[Request], Response]:
        """Return the endpoint of a page."""

        def endpoint(request: Request) -> Response:
            with self._source.log.within(self._timeout_s):
                page = show(self._source, Asked(request.query_params), **request.path_params)
                return self._answer(request, page)

        return endpoint

    def download(self, request: Request) -> Response:
        """Send records as a file; what fails once it has begun breaks the connection, so that no file looks whole."""
        with self._source.log.within(self._timeout_s):
            found = download(self._source, Asked(request.query_params), request.path_params["name"])
        return StreamingResponse(found.chunks, media_type=found.media_type, headers=_attachment(found.name))

    def value(self, request: Request) -> Response:
        """Send the bytes of a record's value."""
        if self._source.hide_values:
            raise Hidden("values are hidden by this console (--hide-values)")
        given = request.path_params
        with self._source.log.within(self._timeout_s):
            data = value_of(self._source, given["name"], given["partition"], given["offset"])
        name = f"{given['name']}-{given['partition']}-{given['offset']}.bin"
        return Response(data, media_type="application/octet-stream", headers=_attachment(name))

    def raw(self, request: Request) -> Response:
        """Send an entry as it is stored."""
        number = request.path_params["number"]
        with self._source.log.within(self._timeout_s):
            data = raw_entry(self._source, number)
        return Response(data, media_type=_JSON, headers=_attachment(f"entry-{number}.json"))

    def failed(self, request: Request, error: Any) -> Response:
        """Return the page of an error; secrets are in no error of a store."""
        code, title, text = _explained(error)
        if code >= 500:
            log_event("console_request_failed", method=request.method, path=request.url.path, error=error)
        page = Page("error.html", title, {"error": {"code": code, "title": title, "message": text}})
        return self._answer(request, page, code)

    def _answer(self, request: Request, page: Page, code: int = 200) -> Response:
        if _wants_json(request):
            return Response(msgspec.json.encode(page.content), code, media_type=_JSON, headers={"Vary": "Accept"})
        headers = {"Vary": "Accept"}
        if page.content.get("follow"):
            headers["Refresh"] = str(_FOLLOW_S)
        data = render(page, request.url.path, self._source.uri, self._source.now_ms())
        return Response(data, code, media_type="text/html", headers=headers)


def _wants_json(request: Request) -> bool:
    """Return whether a caller prefers JSON: a browser names HTML, and other programs name what they take."""
    accepted = request.headers.get("accept", "")
    return _JSON in accepted and "text/html" not in accepted


def _attachment(name: str) -> dict[str, str]:
    plain = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "_" for one in name)
    return {"Content-Disposition": f'attachment; filename="{plain}"'}


def _explained(error: Any) -> tuple[int, str, str]:
    """Return the code of an error, what it is, and what it says."""
    if isinstance(error, WrongRequest):
        return 400, "Wrong request", str(error)
    if isinstance(error, NotFound):
        return 404, "Not found", str(error)
    if isinstance(error, Hidden):
        return 403, "Hidden", str(error)
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return 404, "Not found", "there is no such page"
        return error.status_code, "Not answered", "this console only shows: GET and HEAD are answered"
    if isinstance(error, ViewExpired):
        return 410, "Gone", error.error.str()
    if isinstance(error, CommandRefused):
        missing = error.error.code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return (404, "Not found", error.error.str()) if missing else (400, "Wrong request", error.error.str())
    if isinstance(error, ConfigurationError):
        return 400, "Wrong request", str(error)
    if isinstance(error, DamagedObject):
        return 500, "The store is damaged", error.error.str()
    if isinstance(error, KafkaException):
        return 503, "The store does not answer", error.error.str()
    return 500, "The console has failed", f"{type(error).__name__}: the log of this console says more"


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise NotFound("there is no such file")
    data = resources.files("sparktxn.console").joinpath("static", name).read_bytes()
    return Response(data, media_type=_STATIC[name], headers={"Cache-Control": "max-age=3600"})
