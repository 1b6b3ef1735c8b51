"""What the catalog answers, as Iceberg's REST specification has it: errors, pages of lists, and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from sparktxn.tables.catalog.publishedtables import LoadedTable

__all__ = [
    "CONFIG",
    "NAMESPACE",
    "READ_ONLY",
    "CatalogError",
    "bad_request",
    "error_body",
    "no_such_namespace",
    "no_such_table",
    "page",
    "page_size",
    "table_body",
]

NAMESPACE: Final = "topics"
"""The only namespace: its tables have the names of the topics."""

READ_ONLY: Final = (
    "this catalog is read-only: records come in by the log, through producers of the topic, and "
    "txnlog tables publish shows them here"
)

_ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)

CONFIG: Final[Mapping[str, Any]] = {"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS}
"""What clients are configured with: no prefix, and the endpoints that there are, so that they ask for no other."""


class CatalogError(Exception):
    """A request that has no other answer than an error: its HTTP code, and the type that the specification names."""

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.message = message


def bad_request(message: str) -> CatalogError:
    """Return the error of a request that has a wrong value."""
    return CatalogError(400, "BadRequestException", message)


def no_such_namespace(name: str) -> CatalogError:
    """Return the error for a namespace that does not exist; its levels are separated as in a path."""
    shown = name.replace("\x1f", ".")
    return CatalogError(
        404, "NoSuchNamespaceException", f"namespace {shown!r} does not exist: the only one is {NAMESPACE!r}"
    )


def no_such_table(namespace: str, table: str) -> CatalogError:
    """Return the error for a table that does not exist, also if its namespace does not."""
    shown = f"{namespace}.{table}".replace("\x1f", ".")
    return CatalogError(
        404,
        "NoSuchTableException",
        f"table {shown!r} does not exist: the tables are {NAMESPACE}.TOPIC, for topics with table.formats=iceberg that "
        f"were published",
    )


def error_body(error: CatalogError) -> dict[str, Any]:
    """Return an error as the specification's model of errors has it."""
    return {"error": {"message": error.message, "type": error.kind, "code": error.code}}


def page_size(text: str | None) -> int | None:
    """Return the number that a client asks for with ``pageSize``; None if it does not.

    Raises:
        CatalogError: it is not a whole number from 1 on.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text)):
        raise bad_request(f"pageSize is {text!r}: expected a whole number from 1 on")
    return int(text)


def page(names: Sequence[str], token: str | None, size: int | None) -> tuple[list[str], str | None]:
    """Return a page of sorted names, and the token of the next one; None if it is the last.

    A token is the last name of the page before. So a name that is there all the time is on one page, whatever comes
    and goes meanwhile. Without a token, the page has all names, as the specification demands.
    """
    if token is None:
        return list(names), None
    rest = [name for name in names if name > token]
    if size is None or len(rest) <= size:
        return rest, None
    return rest[:size], rest[size - 1]


def table_body(table: LoadedTable, snapshots: str) -> bytes:
    """Return a table's metadata, with all its snapshots or, for ``refs``, the current one alone.

    It names no credentials: engines use their own.
    """
    metadata = table.metadata if snapshots == "all" else _current_only(table.metadata)
    return msgspec.json.encode({"metadata-location": table.metadata_location, "metadata": metadata, "config": {}})


def _current_only(metadata: Raw) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.json.decode(metadata)
    named = {each["snapshot-id"] for each in whole["refs"].values()}
    return whole | {"snapshots": [each for each in whole["snapshots"] if each["snapshot-id"] in named]}
