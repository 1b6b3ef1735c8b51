"""Writing the metadata of a table anew in one format: all versions that can be read, as the log has published them.

Each is made from the state of its time, by a replay: older versions are written again, too, not the newest alone.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from sparktxn.format import names
from sparktxn.format.checkpoint import PUBLISHED_PREFIX, CheckpointHead
from sparktxn.format.entry import LogEntry
from sparktxn.log.follow.newestcopy import copied_entry
from sparktxn.log.keep.replay import Replay
from sparktxn.log.log import Log
from sparktxn.maintenance.checking.segmentcheck import Problem
from sparktxn.maintenance.checking.tablecheck import WRITE_ANEW
from sparktxn.maintenance.tablemetadata import write_metadata
from sparktxn.maintenance.tableobjects import iceberg
from sparktxn.tableformats.formatversions import FOLDERS, FormatVersions, is_metadata, versions_in
from sparktxn.values.structs import PublishedPartition, StateKey, StateRecord, TableState

__all__ = ["TableFormat", "damaged_tables", "write_tables_anew"]

_WINDOW: Final = 64
_FOLDER: Final = re.compile(rf"{re.escape(names.TOPICS)}[^/]*-(?P<topic_id>[0-9]+)/(?P<folder>[^/]+/).*")

TableFormat = tuple[int, str]
"""A topic's id, and the name of a format."""


def damaged_tables(problems: Iterable[Problem]) -> dict[TableFormat, list[Problem]]:
    """Return the problems that go away when metadata is written anew, by what is to be written."""
    by_folder = {folder: format_name for format_name, folder in FOLDERS.items()}
    found: dict[TableFormat, list[Problem]] = {}
    for problem in problems:
        parsed = _FOLDER.fullmatch(problem.object_name) if problem.fix == WRITE_ANEW else None
        if parsed is not None:
            found.setdefault((int(parsed["topic_id"]), by_folder[parsed["folder"]]), []).append(problem)
    return found


def write_tables_anew(log: Log, head: CheckpointHead | None, wanted: Iterable[TableFormat]) -> None:
    """Write all versions anew that can be read, of tables in some formats. Readers find none of them meanwhile.

    After a crash the next publication writes the newest version, and another call the others.

    Args:
        log: the store.
        head: the checkpoint at the horizon, None if that is entry 1.
        wanted: the tables, each in one format.

    Raises:
        ConfigurationError: the packages of a format are not installed; nothing was deleted.
        DamagedObject: the log, or a manifest of merged files, cannot be read.
    """
    with log.known() as state:
        tables = {table.topic_id: table for table in state.tables()}
    wanted = list(wanted)
    if any(format_name == "iceberg" for _, format_name in wanted):
        iceberg()
    known: dict[int, dict[str, FormatVersions]] = {}
    for topic_id, format_name in wanted:
        folder = names.topic_folder(tables[topic_id].name, topic_id)
        listed = [info.name.removeprefix(folder) for info in log.objects.list(folder + FOLDERS[format_name])]
        known.setdefault(topic_id, {})[format_name] = versions_in(format_name, listed)
        log.objects.delete([folder + name for name in listed if is_metadata(format_name, name)])
    _Writing(log, head, tables, known).advance(window=_WINDOW)


class _Writing(Replay):
    """A replay that writes the metadata of each version as the entry has published it.

    `known` are the versions that there were, by topic id and format. The log says nothing any more of some that have
    the files of the first one that it does: these are written where they were.
    """

    def __init__(
        self,
        log: Log,
        head: CheckpointHead | None,
        tables: Mapping[int, TableState],
        known: Mapping[int, Mapping[str, FormatVersions]],
    ) -> None:
        super().__init__(log.objects, head)
        self._log = log
        self._tables = tables
        self._known = known
        self._own_after = copied_entry(log.objects)
        for table in self._table_records():
            self._write_forgotten(table)
            self._write(table, self._known.get(table.topic_id, ()))

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        """Fold an entry in, and write what it publishes."""
        super().take(entry, changes, size_bytes)
        for record in changes.values():
            if isinstance(record, TableState):
                self._write(record, self._known.get(record.topic_id, ()))

    def _write_forgotten(self, table: TableState) -> None:
        """Write the versions with the files of the oldest one that the log has."""
        for format_name, versions in self._known.get(table.topic_id, {}).items():
            for kept in table.kept:
                is_there = kept.version in versions.versions or kept.version in versions.begun
                if table.changed_version <= kept.version < table.version and is_there:
                    older = replace(
                        table,
                        version=kept.version,
                        published_entry=kept.published_entry,
                        timestamp_ms=kept.timestamp_ms,
                        # What entries up to it have committed is what all of these versions show.
                        entry=table.entry_before,
                        is_new_schema=False,
                        formats=(format_name,),
                    )
                    self._write(older, (format_name,))

    def _write(self, table: TableState, formats: Container[str]) -> None:
        newest = self._tables.get(table.topic_id)
        if newest is None or table.published_entry <= self._own_after:
            return
        first = newest.kept[0].version
        if first <= table.version <= newest.version and any(each in formats for each in table.formats):
            published = [
                record
                for part in self.parts.names(f"{PUBLISHED_PREFIX}{table.topic_id}/")
                for record in self.parts.part(part).values()
                if isinstance(record, PublishedPartition)
            ]
            write_metadata(self._log, table, published, formats=formats, first=first)
