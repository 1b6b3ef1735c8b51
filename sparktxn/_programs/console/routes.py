"""The console as an application of HTTP: one route for each page, as HTML or as JSON, and its errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import resources
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from sparktxn._foundation.process.events import log_event
from sparktxn._programs.console.changes.change import Change
from sparktxn._programs.console.changes.kinds import KINDS
from sparktxn._programs.console.changes.previews import Preview, PreviewOutcome, Previews
from sparktxn._programs.console.downloads import download
from sparktxn._programs.console.pages import changes
from sparktxn._programs.console.pages.changes import maintenance
from sparktxn._programs.console.pages.groups import group, groups
from sparktxn._programs.console.pages.log import entry, log, raw_entry
from sparktxn._programs.console.pages.objects import files, topic_files
from sparktxn._programs.console.pages.overview import overview
from sparktxn._programs.console.pages.records import record, records, value_of
from sparktxn._programs.console.pages.topics import topic, topics
from sparktxn._programs.console.pages.transactions import transaction, transactional_ids, transactions
from sparktxn._programs.console.pagesource import Page, Source
from sparktxn._programs.console.requestparameters import Hidden, NotFound, Refused, RequestParameters, WrongRequest
from sparktxn._programs.console.templating import render
from sparktxn.errors import ConfigurationError, DamagedObject, ErrorCode, KafkaException, StoreError, ViewExpired
from sparktxn.store.storemetrics import SCRAPE_TIMEOUT_S, StoreMetrics

_JSON: Final = "application/json"
_STATIC: Final = {"console.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
_FOLLOW_S: Final = 2
_READ_ON_S: Final = 2.0
"""So long is more read of what a page shows, once it is sent."""
_BODY_MAX: Final = 131_072
_FIELDS_MAX: Final = 100

_MISSING: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)

Show = Callable[..., Page]
Endpoint = Callable[[Request], Response] | Callable[[Request], Awaitable[Response]]
_READING: Final = frozenset((records, record, log, entry, transaction, group))
"""The pages for which records or entries are read: a few of them at a time, whose memory is bounded together."""


def application(source: Source, timeout_s: float | None) -> Starlette:
    """Return the application that serves the pages of an open store.

    Args:
        source: the store as the pages read it; it must stay open. Requests are answered by threads.
        timeout_s: how long the store may take for a page; None means no limit. Downloads have none.
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
    figures = StoreMetrics(source.store, _scrape_s(timeout_s))
    routes = [Route(path, pages.of(show)) for path, show in shown.items()]
    routes += [
        Route("/topics/{name}/download", pages.download),
        Route("/topics/{name}/records/{partition:int}/{offset:int}/value", pages.reads(pages.value)),
        Route("/log/{number:int}/raw", pages.reads(pages.raw)),
        Route("/metrics", _metrics(figures)),
        Route("/healthz", _health(figures)),
        Route("/static/{name}", _static),
    ]
    if source.allow_changes:
        made = _Changes(pages, Previews(source.log.ids))
        routes += [Route(f"/change/{kind.kind}", made.form_of(kind)) for kind in KINDS.values()]
        routes += [
            Route(f"/change/{kind.kind}", _posted(made.preview_of(kind)), methods=["POST"]) for kind in KINDS.values()
        ]
        routes += [
            Route("/change/apply", _posted(made.apply), methods=["POST"]),
            Route("/changed/{plan}", made.result),
        ]
    else:
        routes += [Route(path, _refused) for path in ("/change/{rest:path}", "/changed/{rest:path}")]
    kinds = (WrongRequest, NotFound, Hidden, Refused, HTTPException, KafkaException, Exception)
    errors = dict.fromkeys(kinds, pages.failed)
    return Starlette(routes=routes, exception_handlers=errors)


class _Pages:
    """The answers to requests."""

    def __init__(self, source: Source, timeout_s: float | None) -> None:
        self.source = source
        self.timeout_s = timeout_s

    def of(self, show: Show) -> Endpoint:
        """Return the endpoint of a page."""

        def shown(request: Request) -> Response:
            page = show(self.source, RequestParameters(request.query_params), **request.path_params)
            return self.answer(request, page)

        def endpoint(request: Request) -> Response:
            with self.source.log.within(self.timeout_s):
                return shown(request)

        return self.reads(shown) if show in _READING else endpoint

    def reads(self, answer: Callable[[Request], Response]) -> Endpoint:
        """Return the endpoint of what reads records or entries, which a few requests do at a time."""

        async def endpoint(request: Request) -> Response:
            return await self.source.reading.do(partial(answer, request), self.timeout_s)

        return endpoint

    def download(self, request: Request) -> Response:
        """Send records as a file; what fails once it has begun breaks the connection, so that no file looks whole."""
        with self.source.log.within(self.timeout_s):
            found = download(self.source, RequestParameters(request.query_params), request.path_params["name"])
        return StreamingResponse(found.chunks, media_type=found.media_type, headers=_attachment(found.name))

    def value(self, request: Request) -> Response:
        """Send the bytes of a record's value."""
        if self.source.hide_values:
            raise Hidden("values are hidden by this console (--hide-values)")
        given = request.path_params
        data = value_of(self.source, given["name"], given["partition"], given["offset"])
        name = f"{given['name']}-{given['partition']}-{given['offset']}.bin"
        return Response(data, media_type="application/octet-stream", headers=_attachment(name))

    def raw(self, request: Request) -> Response:
        """Send an entry as it is stored."""
        number = request.path_params["number"]
        data = raw_entry(self.source, number)
        return Response(data, media_type=_JSON, headers=_attachment(f"entry-{number}.json"))

    def failed(self, request: Request, error: Any) -> Response:
        """Return the page of an error; secrets are in no error of a store."""
        code, title, text = _explained(error)
        if code >= 500:
            log_event("console_request_failed", method=request.method, path=request.url.path, error=error)
        page = Page("error.html", title, {"error": {"code": code, "title": title, "message": text}})
        return self.answer(request, page, code)

    def answer(self, request: Request, page: Page, code: int = 200) -> Response:
        """Return a page as a caller takes it."""
        if _wants_json(request):
            data = msgspec.json.encode(page.content)
            vary = {"Vary": "Accept"}
            return Response(data, code, media_type=_JSON, headers=vary, background=_reading(page))
        headers = {"Vary": "Accept"}
        if page.content.get("follow"):
            headers["Refresh"] = str(_FOLLOW_S)
        source = self.source
        html = render(page, request.url.path, source.uri, source.now_ms(), may_change=source.allow_changes)
        return Response(html, code, media_type="text/html", headers=headers, background=_reading(page))


class _Changes:
    """The answers to requests for changes, each of which is previewed, and then applied at most once."""

    def __init__(self, pages: _Pages, previews: Previews) -> None:
        self._pages = pages
        self._source = pages.source
        self._previews = previews

    def form_of(self, kind: type[Change]) -> Callable[[Request], Response]:
        """Return the endpoint of the form of a change."""

        def endpoint(request: Request) -> Response:
            with self._source.log.within(self._pages.timeout_s):
                page = changes.form(self._source, self._previews, kind, RequestParameters(request.query_params))
            return self._pages.answer(request, page)

        return endpoint

    def preview_of(self, kind: type[Change]) -> Callable[[Request, Mapping[str, str]], Response]:
        """Return the endpoint that shows what a change would do, or the form again with what is wrong."""

        def endpoint(request: Request, given: Mapping[str, str]) -> Response:
            asked = RequestParameters({**request.query_params, **given})
            self._previews.check(asked.text("form_token"))
            log, timeout_s = self._source.log, self._pages.timeout_s
            try:
                with log.within(timeout_s):
                    page = changes.preview(self._source, self._previews, kind, asked)
                return self._pages.answer(request, page)
            except (WrongRequest, KafkaException) as error:
                code, _, text = _explained(error)
                if code >= 500:
                    raise
                with log.within(timeout_s):
                    page = changes.form(self._source, self._previews, kind, asked, text)
                return self._pages.answer(request, page, code)

        return endpoint

    def apply(self, request: Request, given: Mapping[str, str]) -> Response:
        """Apply a preview, unless another request does or did; show what came of it at an address of its own."""
        asked = RequestParameters(given)
        self._previews.check(asked.text("form_token"))
        number = asked.text("plan")
        preview = self._previews.begin(number)
        if preview is not None:
            self._previews.end(number, self._outcome(request, preview))
        if _wants_json(request):
            return self._result(request, number)
        # A reload of that page asks for nothing again.
        return Response(status_code=303, headers={"Location": f"/changed/{number}"})

    def result(self, request: Request) -> Response:
        """Show what came of a preview."""
        return self._result(request, request.path_params["plan"])

    def _result(self, request: Request, number: str) -> Response:
        preview, outcome = self._previews.result(number)
        return self._pages.answer(request, changes.result(number, preview, outcome), outcome.code if outcome else 202)

    def _outcome(self, request: Request, preview: Preview) -> PreviewOutcome:
        source, change, has_begun = self._source, preview.change, False
        try:
            with source.log.within(self._pages.timeout_s):
                is_true = change.still_holds(source, preview.planned)
            if not is_true:
                text = "the store has changed since the preview, which is not true any more: nothing was changed"
                return PreviewOutcome(409, message=f"{text}. Ask for a preview again")
            has_begun = True
            with source.log.within(None if change.is_job else self._pages.timeout_s):
                return PreviewOutcome(200, tuple(change.apply(source, preview.planned)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the preview was begun, and its page has to say so
            code, _, text = _explained(error)
            if code >= 500:
                log_event("console_request_failed", method=request.method, path=request.url.path, error=error)
            return PreviewOutcome(code, message=text, is_known=code < 500 or not has_begun)


def _reading(page: Page) -> BackgroundTask | None:
    return None if page.read_on is None else BackgroundTask(page.read_on, _READ_ON_S)


def _metrics(found: StoreMetrics) -> Callable[[Request], Response]:
    """Return the endpoint of the store's figures for Prometheus, which are those of the exporter."""

    def endpoint(request: Request) -> Response:
        data, content_type = found.page(request.headers.get("accept"))
        return Response(data, headers={"Content-Type": content_type})

    return endpoint


def _health(found: StoreMetrics) -> Callable[[Request], Response]:
    """Return the endpoint that answers 200 if the store can be read, and takes writes as far as that is known."""

    def endpoint(request: Request) -> Response:
        problem = found.problem()
        return Response(f"{problem or 'ok'}\n", 200 if problem is None else 503, media_type="text/plain")

    return endpoint


def _scrape_s(timeout_s: float | None) -> float:
    return SCRAPE_TIMEOUT_S if timeout_s is None else min(timeout_s, SCRAPE_TIMEOUT_S)


def _refused(request: Request) -> Response:
    raise Refused("this console changes nothing: txnlog console --allow-changes offers changes")


def _posted(answer: Callable[[Request, Mapping[str, str]], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that reads the fields of a form, or the members of JSON, and answers on a thread."""

    async def endpoint(request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _BODY_MAX:
                raise WrongRequest(f"the request has more than {_BODY_MAX} bytes: expected a form of this console")
        given = _fields(request.headers.get("content-type", ""), body)
        return await run_in_threadpool(answer, request, given)

    return endpoint


def _fields(content_type: str, body: bytes) -> dict[str, str]:
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == _JSON:
            members = msgspec.json.decode(body, type=dict[str, Any])
            return {name: _field(value) for name, value in members.items()}
        if kind == "application/x-www-form-urlencoded":
            text = body.decode()
            return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        raise WrongRequest(f"the request is not {kind}: expected the fields of a form in UTF-8") from None
    raise WrongRequest(f"the request is {kind[:80]!r}: expected a form, or application/json")


def _field(value: Any) -> str:
    """Return a member of JSON as a field of a form has it: lists and objects are lines."""
    if isinstance(value, dict):
        return "\n".join(f"{name}={_field(item)}" for name, item in value.items())
    if isinstance(value, list):
        return "\n".join(map(_field, value))
    return "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


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
    if isinstance(error, Refused):
        return 403, "Refused", str(error)
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return 404, "Not found", "there is no such page"
        return error.status_code, "Not answered", "this page only shows: GET and HEAD are answered"
    if isinstance(error, ViewExpired):
        return 410, "Gone", error.error.str()
    if isinstance(error, ConfigurationError):
        return 400, "Wrong request", str(error)
    if isinstance(error, DamagedObject):
        return 500, "The store is damaged", error.error.str()
    if isinstance(error, StoreError):
        return 503, "The store does not answer", error.error.str()
    if isinstance(error, KafkaException):
        is_missing = error.error.code() in _MISSING
        return (404, "Not found", error.error.str()) if is_missing else (400, "Wrong request", error.error.str())
    return 500, "The console has failed", f"{type(error).__name__}: the log of this console says more"


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise NotFound("there is no such file")
    data = resources.files("sparktxn._programs.console").joinpath("static", name).read_bytes()
    return Response(data, media_type=_STATIC[name], headers={"Cache-Control": "max-age=3600"})
