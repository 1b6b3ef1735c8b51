"""The Iceberg tables that the topics of a store are: which there are, and the newest metadata of each."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from sparktxn.config.topic import table_formats
from sparktxn.errors import DamagedObject
from sparktxn.format import names
from sparktxn.log.follow.newestcopy import copied_entry
from sparktxn.store import Store
from sparktxn.tableformats.icebergnames import metadata_name
from sparktxn.values.structs import TableState

__all__ = ["LoadedTable", "PublishedTables"]

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
