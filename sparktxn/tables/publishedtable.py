"""Published tables of topics, which an engine reads from the log's own files by itself, and only as far as it needs.

A version never changes. Its files hold whole transactions, so an engine may read them as they are (PROTOCOL.md,
"Tables"). The list of the files comes from the log, so no package for a table format is needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from msgspec import Struct
from msgspec.structs import replace
from pyarrow import fs

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import PUBLISHED_PREFIX, TABLES_PREFIX
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.uri import MEMORY, path_of
from sparktxn._foundation.config.store import StoreOptions
from sparktxn._foundation.config.topic import table_formats
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import PublishedPartition, TableState
from sparktxn._rows.scan.tablefiles import all_files
from sparktxn._rows.tableformats.version import table_schema
from sparktxn.errors import ConfigurationError
from sparktxn.store import Store
from sparktxn.tables.tableaccess import AsOf, Moment, S3Access, imported, moment_of, opened, pandas_frame

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


class Table(Struct, frozen=True, kw_only=True):
    """A version of a topic's table: what entries up to `entry` have committed, which another entry has published.

    `location` is the address that other engines know the table by. `paths` are its files, as this process reaches the
    store. An engine reads them by itself. They stay for as long as the version can be read.

    `options` are those that the store was opened with. On S3 the methods give an engine the credentials and the
    endpoint among them. Printing a table shows no value of them; a pickled one has them.
    """

    topic: str
    version: int
    entry: int
    published_timestamp_ms: int
    location: str
    schema: pa.Schema
    record_count: int
    paths: tuple[str, ...]
    options: StoreOptions

    def __hash__(self) -> int:
        return hash((self.location, self.version, self.published_timestamp_ms))

    def _files(self) -> list[str]:
        """Return the paths for an engine.

        Raises:
            ConfigurationError: the store is in this process's memory.
        """
        if self.paths and self.paths[0].startswith(f"{MEMORY}://"):
            raise ConfigurationError(f"topic {self.topic!r} is in memory, and has no files that an engine can read")
        return list(self.paths)

    def _access(self) -> S3Access | None:
        """Return what opens the table's files on S3; None if they are elsewhere."""
        return S3Access.of(_folder(self.paths[0]), self.options)

    def arrow(self, filesystem: fs.FileSystem | None = None) -> ds.Dataset:
        """Return the table as a dataset of pyarrow, which reads files when it is scanned.

        Args:
            filesystem: reads the paths, without their ``s3://``. None: pyarrow's own for the address.

        Raises:
            ConfigurationError: the store is in memory, or there are no credentials for S3.
        """
        paths = self._files()
        if not paths:
            return ds.dataset(self.schema.empty_table())
        if filesystem is None:
            access = self._access()
            filesystem = access.arrow() if access is not None else fs.FileSystem.from_uri(paths[0])[0]
        # Unlike `ds.dataset`, it asks for no file before it is read.
        return ds.FileSystemDataset.from_paths(
            [path.partition("://")[2] or path for path in paths],
            self.schema,
            ds.ParquetFileFormat(),
            filesystem,
            partitions=[ds.field(names.PARTITION_COLUMN) == _partition(path) for path in paths],
        )

    def pandas(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        filesystem: fs.FileSystem | None = None,
    ) -> pd.DataFrame:
        """Return the table's rows as a pandas DataFrame, in any order.

        Args:
            columns: names of columns; None: all.
            where: a pyarrow expression that the rows meet. Files without such a row are not read.
            filesystem: as in `arrow`.

        Raises:
            ImportError: pandas is not installed.
        """
        imported("pandas")
        return pandas_frame(self.arrow(filesystem).to_table(columns=columns, filter=where))

    def polars(self, **options: Any) -> pl.LazyFrame:
        """Return the table as a LazyFrame of Polars, which reads files when it is collected.

        Args:
            options: those of ``polars.scan_parquet``. On S3, `storage_options` or a `credential_provider` take the
                place of the store's credentials and endpoint.

        Raises:
            ImportError: polars is not installed.
            ConfigurationError: as for `arrow`, or a folder of the store's address is one that Polars takes for a
                column.
        """
        polars = imported("polars")
        empty = polars.from_arrow(self.schema.empty_table())
        paths = self._files()
        if not paths:
            return empty.lazy()  # type: ignore[no-any-return]
        taken = next((part for part in paths[0].split("/")[:-2] if "=" in part), None)
        if taken is not None:
            raise ConfigurationError(
                f"Polars takes the folder {taken!r} of the store's address for a column: read by arrow() or duckdb()"
            )
        partition = {names.PARTITION_COLUMN: polars.Int32}
        stored = {name: kind for name, kind in empty.schema.items() if name not in partition}
        if options.keys().isdisjoint(("storage_options", "credential_provider")) and (access := self._access()):
            options["storage_options"] = access.polars()
        given = {"schema": stored, "hive_schema": partition, "missing_columns": "insert", "glob": False, **options}
        rows: pl.LazyFrame = polars.scan_parquet(paths, hive_partitioning=True, **given)
        return rows.select(self.schema.names)

    def duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return the table as a relation of DuckDB, which reads files each time that it is queried.

        On S3 it needs DuckDB's extension ``httpfs``, and gives the database a temporary secret for the topic's folder.

        Args:
            connection: the database that the relation belongs to; None: DuckDB's default one.

        Raises:
            ImportError: duckdb is not installed.
            ConfigurationError: as for `arrow`.
        """
        database = imported("duckdb")
        if connection is not None:
            database = arguments.instance("connection", connection, database.DuckDBPyConnection)
        empty: duckdb.DuckDBPyRelation = database.from_arrow(self.schema.empty_table())
        files = self._files()
        if not files:
            return empty
        if access := self._access():
            access.add_duckdb_secret(connection if connection is not None else database.default_connection())
        stored = zip(self.schema.names[:-1], empty.types[:-1], strict=True)
        # By name: a column that was declared later is null in older files, and no file is opened to know its columns.
        fields = ", ".join(
            f"{_text(name)}: {{name: {_text(name)}, type: {_text(str(kind))}, default_value: NULL}}"
            for name, kind in stored
        )
        columns = ", ".join(map(_column, self.schema.names[:-1]))
        selects = [
            f"SELECT {columns}, CAST({partition} AS INTEGER) AS {names.PARTITION_COLUMN} "
            f"FROM read_parquet([{', '.join(map(_text, paths))}], schema = MAP {{{fields}}}, hive_partitioning = false)"
            for partition, paths in groupby(files, _partition)
        ]
        return database.sql(" UNION ALL ".join(selects))  # type: ignore[no-any-return]


def open_table(
    uri: str | os.PathLike[str] | Store,
    topic: str,
    *,
    version: int | None = None,
    as_of: AsOf = None,
    options: Mapping[str, Any] | None = None,
) -> Table:
    """Return the published table of a topic: its newest version, or an older one. It reads no record.

    Args:
        uri: the store's address, or an open store.
        topic: the topic's name.
        version: the version that is wanted; None: the newest.
        as_of: the version that was the newest at this entry, time or transaction, as `read_arrow` takes it.
        options: as for `Store.open`; for a `uri` that is an address only.

    Raises:
        ConfigurationError: an argument is wrong, the topic is not a table, it has no such version yet, or not any more.
        StoreNotFound: there is no store.
        CommandRefused: the topic does not exist, nor its table, or the entry is not in the log.
        ViewExpired: a vacuum has passed the entry.
        StoreUnavailable, DamagedObject: the log or a manifest cannot be read.
    """
    given = opened(uri, options)
    topic = arguments.identifier("topic", topic)
    version = arguments.integer_or_none("version", version, 0)
    if version is not None and as_of is not None:
        raise ConfigurationError("version and as_of both say which version is wanted: give one of them")
    with given as store:
        table, entry = _table_at(store.log, topic, moment_of(store, as_of))
        if version is not None and version != table.version:
            table, entry = _earlier(store.log, table, version, entry)
        state = store.log.snapshot([f"{PUBLISHED_PREFIX}{table.topic_id}/"], entry=entry)
        published = [record for record in state.records if isinstance(record, PublishedPartition)]
        files = all_files(store.log.objects, table, published)
        address, known = path_of(store.log.objects.uri).rstrip("/"), store.options
    folder = f"{address}/{names.topic_folder(table.name, table.topic_id)}"
    return Table(
        topic=table.name,
        version=table.version,
        entry=table.entry,
        published_timestamp_ms=table.timestamp_ms,
        location=table.location,
        schema=table_schema(table.columns),
        record_count=sum(file.record_count for file in files),
        paths=tuple(folder + file.path for file in files),
        options=known,
    )


def _table_at(log: Log, topic: str, moment: Moment) -> tuple[TableState, int]:
    """Return the newest version of a topic's table at a moment, and an entry at which it is the newest one.

    Of topics that are deleted it is the table of the last one with that name.

    Raises:
        ConfigurationError: the topic is not a table, or no version was published until then.
        CommandRefused: the topic does not exist, nor its table.
    """
    state = log.snapshot([TABLES_PREFIX], **moment)
    found = {record.topic_id: record for record in state.records if isinstance(record, TableState)}
    known = next((each for each in state.topics.values() if each.name == topic), None)
    if known is None:
        gone = [table for table in found.values() if table.name == topic]
        if not gone:
            log.view([topic], entry=state.entry)  # refuses the name, and says which one is like it
        return max(gone, key=lambda table: table.topic_id), state.entry
    if known.topic_id in found:
        return found[known.topic_id], state.entry
    if not table_formats(known.settings):
        raise ConfigurationError(f"topic {topic!r} is not a table: set its table.formats")
    until = f" up to entry {state.entry}" if moment else ""
    raise ConfigurationError(
        f"topic {topic!r} has no published version{until}: publish_tables(), or txnlog tables publish --apply"
    )


def _earlier(log: Log, newest: TableState, version: int, entry: int) -> tuple[TableState, int]:
    """Return a table as it was when an earlier version was its newest one, and an entry at which it had its files.

    `newest` is the newest version at `entry`.

    Raises:
        ConfigurationError: there is no such version yet, or it is not kept any more.
    """
    first = newest.kept[0].version
    if not first <= version <= newest.version:
        when = "yet" if version > newest.version else "any more: table.history.ms says how long versions are kept"
        raise ConfigurationError(
            f"topic {newest.name!r} has no version {version} {when}; there are versions {first} to {newest.version}"
        )
    if version >= newest.changed_version:
        # It has the files of the newest one. The log need not be kept for it.
        last = max((kept for kept in newest.kept if kept.version <= version), key=lambda kept: kept.version)
        return replace(newest, version=version, timestamp_ms=last.timestamp_ms), entry
    # The table remembers the entries of some versions. The one that is wanted was published between two of these.
    low = max(kept.published_entry for kept in newest.kept if kept.version <= version)
    high = min(kept.published_entry for kept in newest.kept if kept.version >= version)
    while True:
        entry = (low + high) // 2
        records = log.snapshot([TABLES_PREFIX], entry=entry).records
        tables = (record for record in records if isinstance(record, TableState))
        table = next(table for table in tables if table.topic_id == newest.topic_id)
        if table.version == version:
            return table, entry
        low, high = (entry + 1, high) if table.version < version else (low, entry - 1)


def _folder(path: str) -> str:
    """Return the topic's folder of a file's path."""
    return path.rsplit("/", 2)[0]


def _partition(path: str) -> int:
    return int(path.split("/")[-2].partition("=")[2])


def _text(text: str) -> str:
    """Return a text as SQL has it."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"


def _column(name: str) -> str:
    """Return the name of a column as SQL has it."""
    quoted = name.replace('"', '""')
    return f'"{quoted}"'
