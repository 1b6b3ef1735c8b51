"""What the catalog answers, as Iceberg's REST specification has it: errors, pages of lists, and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from sparktxn._engine.format import names
from sparktxn._engine.log.follow.checkpointheads import copied_entry
from sparktxn._foundation.config.topic import table_formats
from sparktxn._foundation.values.structs import TableState
from sparktxn._rows.tableformats.version import metadata_name
from sparktxn.errors import DamagedObject
from sparktxn.store import Store

# The Iceberg tables that the topics of a store are: which there are, and the newest metadata of each.

_FORMAT: Final = "iceberg"


class LoadedTable(Struct, frozen=True):
    """The newest metadata of a table: where it is, its bytes, and a text that is another one for each version."""

    metadata_location: str
    metadata: Raw
    tag: str


class _Metadata(Struct, frozen=True, rename="kebab"):
    """The part of the metadata that says whose it is."""

    location: str
    current_snapshot_id: int


class PublishedTables:
    """The topics of an open store that are Iceberg tables, and were published. It writes nothing.

    A topic is one while its setting names Iceberg, and so does its newest version. Each call follows the log to its
    end, so that it finds what was published before the call. What waits for a publication is not counted, and no
    manifest is read: a call takes as long for a table that is far behind.

    The methods raise:
        StoreUnavailable, OutcomeUnknown: the store did not answer in time.
        DamagedObject: the log cannot be read.
    """

    def __init__(self, store: Store) -> None:
        self._log = store.log
        self._is_copy = copied_entry(self._log.objects) > 0

    def topics(self) -> list[str]:
        """Return the names of the topics in their order. One whose first metadata is being written may be there."""
        return sorted(self._tables())

    def load(self, topic: str) -> LoadedTable | None:
        """Return the newest metadata of a topic's table; None if it is not a table, or was not published.

        While the metadata of a version is being written, or its publisher has died, that of the version before is the
        newest.

        Raises:
            DamagedObject: the metadata is damaged, or is that of another version.
        """
        table = self._tables().get(topic)
        if table is None:
            return None
        for version in range(table.version, max(table.version - 2, table.kept[0].version - 1), -1):
            loaded = self._loaded(table, version)
            if loaded is not None:
                return loaded
        return None

    def _tables(self) -> dict[str, TableState]:
        with self._log.known() as state:
            topics = {each.topic_id: each for each in state.topics() if _FORMAT in table_formats(each.settings)}
            tables = [each for each in state.tables() if each.topic_id in topics and _FORMAT in each.formats]
        # The versions that a copy has of its source are tables at the source's address.
        copied = copied_entry(self._log.objects) if self._is_copy else 0
        return {topics[each.topic_id].name: each for each in tables if each.published_entry > copied}

    def _loaded(self, table: TableState, version: int) -> LoadedTable | None:
        name = names.topic_folder(table.name, table.topic_id) + metadata_name(version)
        data = self._log.objects.get(name)
        if data is None:
            return None
        try:
            # It has no checksum, and what follows may be cut off: all of it is parsed.
            found = msgspec.json.decode(data, type=_Metadata)
        except msgspec.DecodeError as error:
            raise DamagedObject(name, f"it is not the metadata of a table: {error}") from error
        if found.location != table.location and version < table.version:
            return None
        if (found.location, found.current_snapshot_id) != (table.location, version + 1):
            raise DamagedObject(name, f"it is not that of version {version} of the table as the log has it")
        tag = f"{self._log.store_id}-{table.topic_id}-{version}"
        return LoadedTable(f"{table.location}/{metadata_name(version)}", Raw(data), tag)


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
