"""The catalog as an application of HTTP: the routes of Iceberg's REST specification that readers need.

Each request reads the newest state of the store. Its answer is whole, or an error of the specification's model. What
has failed inside is in this process's log, and not in the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.process.webserver import serve_application
from sparktxn._programs.catalog.answers import (
    CONFIG,
    NAMESPACE,
    READ_ONLY,
    CatalogError,
    PublishedTables,
    bad_request,
    error_body,
    no_such_namespace,
    no_such_table,
    page,
    page_size,
    table_body,
)
from sparktxn.errors import DamagedObject, FormatVersionError, KafkaException
from sparktxn.store import Store

_JSON: Final = "application/json"
_READS: Final = ("GET", "HEAD")


def application(store: Store, timeout_s: float | None) -> Starlette:
    """Return the application that serves the tables of an open store.

    Args:
        store: the store; it must stay open. Requests are answered by threads.
        timeout_s: how long the store may take for a request; None means no limit.
    """
    catalog = _Catalog(store, timeout_s)
    routes = {
        "/v1/config": catalog.config,
        "/v1/namespaces": catalog.list_namespaces,
        "/v1/namespaces/{namespace}": catalog.load_namespace,
        "/v1/namespaces/{namespace}/tables": catalog.list_tables,
        "/v1/namespaces/{namespace}/tables/{table}": catalog.load_table,
    }
    return Starlette(
        routes=[
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in routes.items()),
            Route("/v1/oauth/tokens", _refuse_token, methods=["POST"]),
        ],
        exception_handlers={
            CatalogError: _refused,
            HTTPException: _not_routed,
            KafkaException: _failed,
            Exception: _failed,
        },
    )


class _Catalog:
    """The answers to requests. A request with HEAD for a namespace or a table asks whether it exists."""

    def __init__(self, store: Store, timeout_s: float | None) -> None:
        self._log = store.log
        self._tables = PublishedTables(store)
        self._timeout_s = timeout_s

    def config(self, request: Request) -> Response:
        """Return what a client is configured with. A warehouse that it names has no meaning: there is one store."""
        return _answer(CONFIG)

    def list_namespaces(self, request: Request) -> Response:
        """Return the only namespace, or those below it, which are none."""
        parent = request.query_params.get("parent", "")
        if parent not in ("", NAMESPACE):
            raise no_such_namespace(parent)
        names, token = _page_of(request, [] if parent else [NAMESPACE])
        return _answer({"namespaces": [[name] for name in names], "next-page-token": token})

    def load_namespace(self, request: Request) -> Response:
        """Return the namespace, which has no properties."""
        _checked_namespace(request)
        if request.method == "HEAD":
            return Response(status_code=204)
        return _answer({"namespace": [NAMESPACE], "properties": {}})

    def list_tables(self, request: Request) -> Response:
        """Return the names of the tables."""
        _checked_namespace(request)
        page_size(request.query_params.get("pageSize"))
        with self._log.within(self._timeout_s):
            topics = self._tables.topics()
        names, token = _page_of(request, topics)
        found = [{"namespace": [NAMESPACE], "name": name} for name in names]
        return _answer({"identifiers": found, "next-page-token": token})

    def load_table(self, request: Request) -> Response:
        """Return a table's newest metadata, or that the client has it already."""
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        if namespace != NAMESPACE:
            raise no_such_table(namespace, name)
        snapshots = request.query_params.get("snapshots", "all")
        if snapshots not in ("all", "refs"):
            raise bad_request(f"snapshots is {snapshots!r}: expected all or refs")
        with self._log.within(self._timeout_s):
            table = self._tables.load(name)
        if table is None:
            raise no_such_table(namespace, name)
        if request.method == "HEAD":
            return Response(status_code=204)
        tag = f'"{table.tag}-{snapshots}"'
        if tag in _known_tags(request):
            return Response(status_code=304, headers={"ETag": tag})
        return Response(table_body(table, snapshots), headers={"ETag": tag}, media_type=_JSON)


def _checked_namespace(request: Request) -> None:
    name = request.path_params["namespace"]
    if name != NAMESPACE:
        raise no_such_namespace(name)


def _page_of(request: Request, names: list[str]) -> tuple[list[str], str | None]:
    size = page_size(request.query_params.get("pageSize"))
    return page(names, request.query_params.get("pageToken"), size)


def _known_tags(request: Request) -> set[str]:
    """Return the tags of the metadata that the client has."""
    return {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}


def _answer(body: Any, code: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status_code=code, media_type=_JSON)


def _refused(request: Request, error: Any) -> Response:
    return _answer(error_body(error), error.code)


def _not_routed(request: Request, error: Any) -> Response:
    """Refuse a write wherever it is for, and say of other requests that nothing is there."""
    if request.method not in _READS:
        answer = _refused(request, CatalogError(405, "UnsupportedOperationException", READ_ONLY))
        answer.headers["Allow"] = ", ".join(_READS)
        return answer
    parts = request.url.path.split("/")
    hint = ": this catalog has no prefix, leave it out" if "namespaces" in parts[3:] else ""
    return _refused(request, CatalogError(404, "NotFoundException", f"there is nothing at {request.url.path!r}{hint}"))


def _refuse_token(request: Request) -> Response:
    """Refuse to give out a token, in the model of errors that OAuth has."""
    reason = "this catalog has no authentication: leave credential and token out of the client's settings"
    return _answer({"error": "unsupported_grant_type", "error_description": reason}, 400)


def _failed(request: Request, error: Any) -> Response:
    """Answer that the store has failed, and no more: an error of the store may name what no client should know."""
    log_event("catalog_request_failed", method=request.method, path=request.url.path, error=error)
    if isinstance(error, KafkaException) and not isinstance(error, DamagedObject | FormatVersionError):
        kind, code, why = "ServiceUnavailableException", 503, "the store did not answer in time: try again"
    else:
        kind, code, why = "InternalServerError", 500, "the store cannot be read"
    return _refused(request, CatalogError(code, kind, f"{why}. The log of this catalog says more"))


# The catalog as a server of this process, until it is interrupted.


def serve(
    store: Store,
    host: str,
    port: int,
    *,
    timeout_s: float | None,
    on_start: Callable[[str], None],
    allowed_hosts: Iterable[str] = (),
) -> None:
    """Serve the tables of an open store until this process is interrupted; requests then are still answered.

    Args:
        store: the store.
        host: the name or address to listen at.
        port: the port; 0 is any that is free.
        timeout_s: how long the store may take for a request; None means no limit.
        on_start: called with the catalog's address once it listens.
        allowed_hosts: more hosts that requests may name, see `AnsweredHosts`.

    Raises:
        ConfigurationError: it cannot listen there, or one of `allowed_hosts` is not a host.
        KeyboardInterrupt: it was interrupted.
    """
    app = application(store, timeout_s)
    serve_application(app, host, port, "--listen", on_start, allowed_hosts=allowed_hosts)
