"""Importing files: each file is one transaction, and takes effect once."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from msgspec import Struct

from sparktxn.errors import CommandRefused, ConfigurationError, ProducerFenced
from sparktxn.format.schema import stored_schema
from sparktxn.stage.columnconversion import conformed
from sparktxn.stage.rowpartitions import given_partitions
from sparktxn.stage.stagedsegment import StageTopic
from sparktxn.store import CommitResult, SinkCommit, Store
from sparktxn.transfer.exportfolder import PARTITION_FOLDER, exported_files
from sparktxn.transfer.filereading import Columns, check_suffix, rows_of
from sparktxn.transfer.importedsink import sink_of
from sparktxn.values import arguments
from sparktxn.values.structs import TopicState

if TYPE_CHECKING:
    from sparktxn.stage.stagedsegment import StagedSegment

__all__ = ["FileImport", "ImportReport", "import_files"]

OnProgress = Callable[[str, int], None]
"""Gets a file, and how many of its records are staged."""

_ASSIGNED: Final = frozenset({"offset", "timestampType", "topic", "_topic", "_partition", "_offset", "_timestampType"})
"""Columns of files that an export has written, which the log assigns anew unless the topic declares them."""
_PARTITION: Final = "partition"
_READ_BYTES: Final = 1 << 20
_BATCH: Final = 0
"""The batch id of an import, in its file's transactional id."""

_CHECKS: Final = 50
_CHECK_S: Final = 0.1
"""How often a process that another one has fenced checks whether that one has imported the file, and the pause."""


class FileImport(Struct, frozen=True, kw_only=True):
    """What became of a file: its `records` are committed by entry `entry`; `existing` if they were before this call.

    `records` is None where they were not read: in a dry run, or where they exist.
    """

    file: str
    size_bytes: int
    existing: bool
    records: int | None = None
    entry: int | None = None


class ImportReport(Struct, frozen=True, kw_only=True):
    """What was imported into `topic`, or with `dry_run` would be."""

    dry_run: bool
    topic: str
    files: tuple[FileImport, ...]


class _Identity(NamedTuple):
    """What makes a file the same: its name, with its folder if that is a partition's, its size and its content.

    `modified_ns` is when it was last changed, and no part of that.
    """

    name: str
    size_bytes: int
    modified_ns: int
    digest: str

    @classmethod
    def of(cls, path: Path) -> _Identity:
        """Read a file once, for what it holds."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            while data := file.read(_READ_BYTES):
                digest.update(data)
        folder = path.absolute().parent.name
        name = f"{folder}/{path.name}" if PARTITION_FOLDER.fullmatch(folder) else path.name
        return cls(name, found.st_size, found.st_mtime_ns, digest.hexdigest())

    def transactional_id(self, topic: TopicState) -> str:
        """Return the id under which a topic's import of this file is known again."""
        text = f"{topic.topic_id}\0{self.name}\0{self.size_bytes}\0{self.digest}"
        return f"import-{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def import_files(
    store: Store,
    topic: str,
    files: Sequence[str | os.PathLike[str]],
    *,
    columns: Mapping[str, str] | None = None,
    other_columns: str = "refuse",
    keep_partitions: bool = True,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    on_bytes: Callable[[int], object] | None = None,
) -> ImportReport:
    """Append the records of Parquet, Arrow, CSV and JSON-lines files to a topic, each file in one transaction.

    A file takes effect once. One with the name, size and content of a file that was imported into the topic before is
    left out. That is so after a crash, too, and where two processes import it at once. The name is that of the file,
    with its folder if that is a partition's.

    Args:
        store: an open store.
        topic: the topic. One of Kafka's record takes the columns ``key``, ``value``, ``headers``, ``timestamp`` and
            ``partition``; a typed topic takes its own.
        files: the files, in the order in which they are appended. The folder of an export means its files.
        columns: the file's column for a column of the topic, where the names differ.
        other_columns: "refuse" or "ignore" columns that the topic does not have. Those that only say where a record
            was (offset, topic) are ignored in any case.
        keep_partitions: records go to the partition that their column ``partition``, or the folder
            ``partition=<n>`` of the file, says; else by key.
        dry_run: only return which files would be imported.
        on_progress: called now and then.
        on_bytes: called before it, and after each file, with about how many bytes of all files are done.

    Raises:
        ConfigurationError: an argument is wrong, or a folder is not a whole export, or has partitions that the topic
            does not have. Or a file is not what its name says, or its columns are not the topic's. Files before it are
            imported.
        CommandRefused: the topic does not exist, or a record is too large.
        StoreUnavailable, OutcomeUnknown: call again: a file takes effect once.
        ProducerFenced: another process imports the same file, and has not committed it within some seconds: call again.
        OSError: a file cannot be read.
    """
    arguments.instance("store", store, Store)
    topic = arguments.identifier("topic", topic)
    paths, exported_partitions = _paths(files)
    names = {
        arguments.text("columns", theirs): arguments.text("columns", mine)
        for mine, theirs in arguments.mapping("columns", columns).items()
    }
    if len(names) < len(columns or {}):
        raise ConfigurationError("columns name one column of the files twice: expected another one for each")
    arguments.choice("other_columns", other_columns, ("refuse", "ignore"))
    keep_partitions = arguments.boolean("keep_partitions", keep_partitions)
    dry_run = arguments.boolean("dry_run", dry_run)
    arguments.function("on_progress", on_progress)
    arguments.function("on_bytes", on_bytes)
    for path in paths:
        check_suffix(path)
    known = store.view([topic]).topics[topic]
    if keep_partitions and exported_partitions > known.partition_count:
        raise ConfigurationError(
            f"the export has partition {exported_partitions - 1}: topic {topic!r} has partitions 0 to "
            f"{known.partition_count - 1}: give it more, or choose partitions by key (keep_partitions=False, --by-key)"
        )
    importing = _Importing(store, known, names, other_columns, on_progress, on_bytes, keep_partitions=keep_partitions)
    return ImportReport(
        dry_run=dry_run,
        topic=topic,
        files=tuple(importing.imported(path, dry_run=dry_run) for path in paths),
    )


def _paths(files: object) -> tuple[list[Path], int]:
    """Return all files, and how many partitions a topic needs to keep those of exported folders."""
    if isinstance(files, str | bytes | os.PathLike) or not isinstance(files, Sequence):
        raise TypeError(f"files is {arguments.described(files)}: expected a list of paths")
    paths = [Path(arguments.path("files", file)) for file in files]
    found: list[Path] = []
    partition_count = 0
    for path in paths:
        # Path.is_dir() raises for a name that no file system takes: it is none of a folder.
        if not os.path.isdir(path):
            found.append(path)
            continue
        exported = exported_files(path)
        found += [file for partition in exported.values() for file in partition]
        partition_count = max([partition_count, *(number + 1 for number in exported)])
    return found, partition_count


class _Importing:
    """Imports file after file into one topic."""

    def __init__(
        self,
        store: Store,
        topic: TopicState,
        names: Mapping[str, str],
        other_columns: str,
        on_progress: OnProgress | None,
        on_bytes: Callable[[int], object] | None,
        *,
        keep_partitions: bool,
    ) -> None:
        self._on_progress = on_progress
        self._on_bytes = on_bytes
        self._done_bytes = 0
        self._store = store
        self._names = names
        self._other_columns = other_columns
        self._keep_partitions = keep_partitions and topic.schema is None
        self._take(topic)

    def _take(self, topic: TopicState) -> None:
        """Import into the topic as it is now, with the columns that it has."""
        self._topic = topic
        is_record = topic.schema is None
        # The record's timestamp, the last column, is the time of the import where it is missing or null.
        stored = stored_schema(topic.schema)
        fields = [*[*stored][:-1], stored.field(len(stored) - 1).with_nullable(True)]
        if is_record:
            fields.append(pa.field(_PARTITION, pa.int32()))
        # Compared without case: a name that differs in it alone is refused, and not left out in silence.
        own = {field.name.lower() for field in fields}
        assigned = frozenset(name for name in _ASSIGNED if name.lower() not in own)
        ignored = None if self._other_columns == "ignore" else assigned
        self._columns = Columns(pa.schema(fields), is_record, self._names, ignored)

    def imported(self, path: Path, *, dry_run: bool) -> FileImport:
        """Import a file, unless it was imported before.

        Raises:
            ConfigurationError: it is not what it must be, or has changed while it was read.
        """
        file = _Identity.of(path)
        found = self._imported(path, file, dry_run=dry_run)
        self._done_bytes += file.size_bytes
        self._note_bytes(0)
        return found

    def _note_bytes(self, of_file: int) -> None:
        if self._on_bytes is not None:
            self._on_bytes(self._done_bytes + of_file)

    def _imported(self, path: Path, file: _Identity, *, dry_run: bool) -> FileImport:
        transactional_id = file.transactional_id(self._topic)
        if self._exists(transactional_id):
            return FileImport(file=str(path), size_bytes=file.size_bytes, existing=True)
        if dry_run:
            return FileImport(file=str(path), size_bytes=file.size_bytes, existing=False)
        now = self._store.log.topic(self._topic.name)
        if now is not None and now != self._topic and now.topic_id == self._topic.topic_id:
            self._take(now)  # it has gained columns since the import began
        # Rows without a key go to the same partitions each time that the file is staged.
        seed = int(file.digest[:8], 16)
        stager = self._store.stage_plan([self._topic.name]).open(
            seed=seed, default_topic=self._topic.name, digests=False
        )
        records = 0
        for table in self._rows(path):
            try:
                stager.write(table)
            except (ConfigurationError, CommandRefused) as error:
                raise self._named(path, table, records, error) from None
            records += table.num_rows
            if self._on_progress is not None:
                self._on_progress(str(path), records)
        staged = stager.finish()
        found = path.stat()
        if (found.st_size, found.st_mtime_ns) != (file.size_bytes, file.modified_ns):
            raise ConfigurationError(f"file {str(path)!r} has changed while it was read: nothing of it was imported")
        done = self._commit(staged, transactional_id, SinkCommit(f"import of {file.name}", "", _BATCH))
        return FileImport(
            file=str(path),
            size_bytes=file.size_bytes,
            existing=done.replayed,
            records=None if done.replayed else records,
            entry=done.entry,
        )

    def _commit(self, staged: Sequence[StagedSegment], transactional_id: str, sink: SinkCommit) -> CommitResult:
        """Commit a file's rows, or find that another process which imports the same file has done so.

        The process that began later fences the others. They wait for its commit, and raise if it does not come.
        """
        for _ in range(_CHECKS):
            with suppress(ProducerFenced):
                return self._committed(staged, transactional_id, sink)
            self._store.log.clock.sleep(_CHECK_S)
        return self._committed(staged, transactional_id, sink)

    def _committed(self, staged: Sequence[StagedSegment], transactional_id: str, sink: SinkCommit) -> CommitResult:
        return self._store.commit(staged, transactional_id=transactional_id, sink=sink, on_replay_mismatch="skip")

    def _exists(self, transactional_id: str) -> bool:
        sink = sink_of(self._store, transactional_id)
        return sink is not None and any(batch.batch_id == _BATCH for batch in sink.batches)

    def _rows(self, path: Path) -> Iterator[pa.Table]:
        """Yield a file's rows with the topic's columns."""
        folder = PARTITION_FOLDER.fullmatch(path.absolute().parent.name)
        for table in rows_of(path, self._columns, self._note_bytes):
            rows = table
            if not self._keep_partitions and _PARTITION in rows.column_names and self._columns.is_record:
                rows = rows.drop_columns([_PARTITION])
            if self._keep_partitions and folder is not None and _PARTITION not in rows.column_names:
                rows = rows.append_column(_PARTITION, pa.array([int(folder[1])] * rows.num_rows, pa.int32()))
            yield rows

    def _named(
        self, path: Path, table: pa.Table, before: int, error: ConfigurationError | CommandRefused
    ) -> ConfigurationError | CommandRefused:
        """Return a refusal of rows with the file, and the number of the first row that is refused."""
        first = bisect_left(range(1, table.num_rows + 1), True, key=lambda count: self._is_refused(table[:count]))
        if not table.num_rows:
            rows = ""
        elif first == table.num_rows > 1:
            rows = f", rows {before + 1} to {before + table.num_rows}"
        else:
            rows = f", row {before + min(first, table.num_rows - 1) + 1}"
        reason = f"file {str(path)!r}{rows}: {error.args[0].str()}"
        code = error.args[0].code()
        return (
            ConfigurationError(reason, code) if isinstance(error, ConfigurationError) else CommandRefused(code, reason)
        )

    def _is_refused(self, rows: pa.Table) -> bool:
        topic = StageTopic.of(self._topic)
        try:
            conformed(topic, rows, 0)
            given_partitions(topic, rows)
        except (ConfigurationError, CommandRefused):
            return True
        return False
