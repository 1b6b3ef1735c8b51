"""Exporting the published tables of a store as one catalog, for engines that find tables in a database."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from sparktxn.config.topic import table_formats
from sparktxn.errors import ConfigurationError
from sparktxn.format.checkpoint import PUBLISHED_PREFIX, TABLES_PREFIX
from sparktxn.log.follow.newestcopy import copied_entry
from sparktxn.log.log import Log
from sparktxn.maintenance.publishing.tablelist import waiting_records
from sparktxn.maintenance.tableobjects import check_tables
from sparktxn.process.clock import in_time
from sparktxn.scan.tablefiles import all_files, version_of
from sparktxn.store import Store
from sparktxn.tableformats import ducklake
from sparktxn.tableformats.version import TableVersion
from sparktxn.values import arguments
from sparktxn.values.structs import PublishedPartition, TableState

__all__ = ["ExportedTable", "TablesExport", "export_ducklake"]

_PUBLISH = "txnlog tables publish --apply, or publish_tables()"


class ExportedTable(Struct, frozen=True, kw_only=True):
    """A table in a catalog: its version, and how much it has."""

    topic: str
    version: int
    files: int
    records: int


class TablesExport(Struct, frozen=True, kw_only=True):
    """A catalog: its file, the entry that all its tables show, and these."""

    file: str
    entry: int
    tables: tuple[ExportedTable, ...]


@in_time("timeout_s", lambda store: store.log.clock)
def export_ducklake(
    store: Store,
    file: str | os.PathLike[str],
    topics: Iterable[str] | None = None,
    *,
    timeout_s: float | None = None,
) -> TablesExport:
    """Write a DuckLake catalog with the newest versions of tables, all of one moment. Nothing is written to the store.

    The catalog is a SQLite file, which DuckDB attaches by its extensions ``ducklake`` and ``sqlite``. It is there whole
    or not at all. Its tables are read for as long as the versions can be, which it does not keep alive.

    Args:
        store: an open store.
        file: the catalog's path. No such file may exist.
        topics: names of published topics; None for all of them.
        timeout_s: how long all of it may take.

    Raises:
        ConfigurationError: the file exists, or its folder does not. A topic is not a table, or has no version. Nothing
            is published. The versions are not of one moment. Names of topics differ by case alone.
        CommandRefused: a topic does not exist (UNKNOWN_TOPIC_OR_PARTITION).
        StoreUnavailable, DamagedObject, OutcomeUnknown: the log or a manifest cannot be read.
    """
    log = arguments.instance("store", store, Store).log
    path = os.path.abspath(arguments.path("file", file))
    wanted = None if topics is None else arguments.identifiers("topics", topics)
    _check_file(path)
    versions = _versions(log, wanted)
    _put(path, ducklake.catalog(versions, f"{path}.files/"), log.ids.token())
    exported = [
        ExportedTable(
            topic=version.topic,
            version=version.version,
            files=len(version.added),
            records=sum(each.record_count for each in version.added),
        )
        for version in versions
    ]
    return TablesExport(file=path, entry=max(version.entry for version in versions), tables=tuple(exported))


def _versions(log: Log, wanted: Sequence[str] | None) -> list[TableVersion]:
    state = log.snapshot([TABLES_PREFIX, PUBLISHED_PREFIX])
    found = [record for record in state.records if isinstance(record, TableState) and record.topic_id in state.topics]
    tables = {table.name: table for table in sorted(found, key=lambda table: table.name)}
    if wanted is not None:
        _check_wanted(log, wanted, tables.keys())
        tables = {name: table for name, table in tables.items() if name in wanted}
    if not tables:
        raise ConfigurationError(f"no topic has a published version: {_PUBLISH}")
    _check_names(tables)
    _check_place(log, tables.values())
    _check_moment(log, tables)
    published = [record for record in state.records if isinstance(record, PublishedPartition)]
    return [
        version_of(
            log.store_id, table, all_files(log.objects, table, (own for own in published if own.topic_id == id_))
        )
        for id_, table in ((table.topic_id, table) for table in tables.values())
    ]


def _check_wanted(log: Log, wanted: Iterable[str], published: Iterable[str]) -> None:
    known = set(published)
    missing = [name for name in wanted if name not in known]
    if missing:
        topics = log.view(missing).topics.values()
        check_tables(log, missing, [topic.name for topic in topics if table_formats(topic.settings)])
        raise ConfigurationError(f"topic {missing[0]!r} has no published version: {_PUBLISH}")


def _check_names(names: Iterable[str]) -> None:
    taken: dict[str, str] = {}
    for name in names:
        other = taken.setdefault(name.lower(), name)
        if other != name:
            raise ConfigurationError(f"topics {other!r} and {name!r} are one table to DuckDB: name the ones to export")


def _check_place(log: Log, tables: Iterable[TableState]) -> None:
    """Refuse tables that were published in another store, of which this one is a copy: their files are there."""
    copied = copied_entry(log.objects)
    for table in tables:
        if table.published_entry <= copied:
            raise ConfigurationError(f"topic {table.name!r} was not published since the store was copied: {_PUBLISH}")


def _check_moment(log: Log, tables: dict[str, TableState]) -> None:
    """Refuse versions that are not of one moment: records that some show were committed with ones that others lack."""
    newest = max(tables.values(), key=lambda table: table.entry)
    older = [name for name, table in tables.items() if table.entry < newest.entry]
    for (name, _), partition in (log.view(older).partitions if older else {}).items():
        records, _ = waiting_records(log, partition, tables[name].entry, newest.entry)
        if records:
            raise ConfigurationError(
                f"topic {name!r} is published up to entry {tables[name].entry}, and topic {newest.name!r} up to entry "
                f"{newest.entry}: publish both together ({_PUBLISH})"
            )


def _check_file(path: str) -> None:
    if os.path.lexists(path):
        raise _exists(path)
    if not os.path.isdir(os.path.dirname(path)):
        raise ConfigurationError(f"folder {os.path.dirname(path)!r} does not exist: make it, or give another file")


def _put(path: str, data: bytes, token: str) -> None:
    """Write a file that is there whole or not at all, and take the place of none.

    Raises:
        ConfigurationError: there is such a file meanwhile, or the folder does not take it.
    """
    temporary = f"{path}.{token}"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.link(temporary, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise ConfigurationError(f"file {path!r} cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):  # it was not made, for one as its name is too long
            os.unlink(temporary)


def _exists(path: str) -> ConfigurationError:
    return ConfigurationError(f"file {path!r} exists: an export makes a new catalog, give another name")
