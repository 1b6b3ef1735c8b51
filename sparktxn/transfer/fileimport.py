"""Importing files of rows and columns: each file is one transaction, and takes effect once."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from msgspec import Struct

from sparktxn._engine.format.schema import stored_schema
from sparktxn._engine.state.keyed import is_keyed
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.structs import TopicState
from sparktxn._rows.scan.columns import leaves
from sparktxn._rows.stage.columnconversion import conformed
from sparktxn._rows.stage.keyedrows import as_deletes
from sparktxn._rows.stage.rowpartitions import given_partitions
from sparktxn._rows.stage.stagedsegment import StageTopic
from sparktxn.errors import CommandRefused, ConfigurationError, ProducerFenced, did_you_mean
from sparktxn.store import CommitResult, SinkCommit, Store
from sparktxn.transfer.csvrows import CsvRows, WrongText, csv_names, csv_rows, typed_column
from sparktxn.transfer.exactvalues import WrongLine
from sparktxn.transfer.exportfolder import PARTITION_FOLDER, exported_files
from sparktxn.transfer.jsonrows import BASE64, JsonRows, some_lines
from sparktxn.transfer.topicimport import sink_of

if TYPE_CHECKING:
    from sparktxn._rows.stage.stagedsegment import StagedSegment


# Rows of Parquet and Arrow files, some at a time.
#
# Parquet's old type INT96 holds nanoseconds of any year without saying whether they are instants. Arrow's reader
# wraps years outside 1677 to 2262, or cuts digits, without a word. So it is read in three units, which show both.

At = Callable[[float], object]
"""Called with the part of a file that has been read, from 0 to 1."""

_FILE_MAGIC: Final = b"ARROW1"
_ROWS: Final = 65_536
_BATCH_BYTES: Final = 16 * 1024 * 1024
_GROWTH_MAX: Final = 8


class Int96Error(ValueError):
    """Row `row` of column `column` has a time of Parquet's type INT96 that microseconds do not hold."""

    def __init__(self, column: str, row: int) -> None:
        super().__init__(
            f"row {row}, column {column!r}: a time of Parquet's old type INT96 has nanoseconds, or is far from our "
            "era, and the topic's type keeps microseconds: write it as INT64 "
            "(spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS)"
        )


def arrow_tables(path: Path, at: At) -> Iterator[pa.Table]:
    """Yield the rows of an Arrow file or stream; `at` is called with the part of it that has been read.

    Raises:
        ValueError: a column is damaged. Arrow trusts what such a file says about itself, and a process may die of it.
    """
    before = 0
    with pa.memory_map(str(path)) as source:
        for batch, part in _batches(source):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                try:
                    column.validate(full=True)
                except pa.ArrowInvalid as error:
                    reason = str(error).rpartition("Invalid: ")[2]
                    raise ValueError(
                        f"rows {before + 1} to {before + batch.num_rows}, column {name!r}: a value is not what its "
                        f"type allows ({reason}); write the file anew, with bytes that are not text in a binary column"
                    ) from None
            before += batch.num_rows
            at(part)
            yield pa.Table.from_batches([batch])


def _batches(source: pa.MemoryMappedFile) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield the batches of a file, which begins with its name, or of a stream; with the part that has been read."""
    is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    source.seek(0)
    if not is_file:
        with pa.ipc.open_stream(source) as stream:
            for batch in stream:
                yield batch, source.tell() / source.size()
        return
    with pa.ipc.open_file(source) as reader:
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index), (index + 1) / reader.num_record_batches


def parquet_tables(path: Path, schema: pa.Schema, names: Mapping[str, str], at: At) -> Iterator[pa.Table]:
    """Yield the rows of a Parquet file; INT96 becomes the topic's type of timestamps.

    Args:
        path: the file.
        schema: the topic's columns.
        names: the topic's names of the file's columns, where they differ.
        at: called with the part of the file's rows that have been read, before they are yielded.

    Raises:
        Int96Error: a value has digits that the topic's type does not keep, or a year far from ours.
        ValueError: there are rows without columns.
    """
    with pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        old = _int96_columns(file)
        rows = _rows_at_a_time(file.metadata)
        others = zip(*(_in_unit(path, old, rows, unit) for unit in ("ns", "s")), strict=True) if old else repeat(None)
        before = 0
        for batch, other in zip(file.iter_batches(rows), others, strict=False):
            table = pa.Table.from_batches([batch])
            if other is not None:
                table = _exact_times(table, other, before, {name: names.get(name, name) for name in old}, schema)
            before += batch.num_rows
            at(before / max(1, file.metadata.num_rows))
            yield table
        if before != file.metadata.num_rows:
            raise ValueError(f"it says that it has {file.metadata.num_rows} rows, and {before} can be read")


def _rows_at_a_time(metadata: pyarrow.parquet.FileMetaData) -> int:
    """Return how many rows to read at once, so that they rarely take more than some megabytes."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    widest = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    # A dictionary holds each value once: what is read may be larger than what is stored.
    return max(1, min(_ROWS, _BATCH_BYTES // max(1, widest * _GROWTH_MAX)))


def _int96_columns(file: pyarrow.parquet.ParquetFile) -> list[str]:
    columns = (file.metadata.schema.column(index) for index in range(len(file.metadata.schema)))
    roots = dict.fromkeys(column.path.split(".")[0] for column in columns if column.physical_type == "INT96")
    return [name for name in file.schema_arrow.names if name in roots or name.split(".")[0] in roots]


def _in_unit(path: Path, names: list[str], rows: int, unit: str) -> Iterator[pa.Table]:
    with pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit=unit) as file:
        for batch in file.iter_batches(rows, columns=names):
            yield pa.Table.from_batches([batch])


def _exact_times(
    table: pa.Table, other: tuple[pa.Table, pa.Table], before: int, names: dict[str, str], schema: pa.Schema
) -> pa.Table:
    """Return the table with the topic's zones in the columns that have INT96.

    Raises:
        Int96Error: microseconds are not what the file holds.
    """
    for name, mine in names.items():
        units = [found.column(name).combine_chunks() for found in (table, *other)]
        if not _is_exact(*units):
            row = bisect_left(range(1, table.num_rows + 1), True, key=lambda n: not _is_exact(*(u[:n] for u in units)))
            raise Int96Error(name, before + row + 1)
        if mine in schema.names:
            kind = _zoned(units[0].type, units[1].type, schema.field(mine).type)
            table = table.set_column(table.schema.get_field_index(name), name, units[0].cast(kind))
    return table


def _is_exact(table: pa.Array, nanoseconds: pa.Array, seconds: pa.Array) -> bool:
    """Return whether microseconds lose nothing: nanoseconds are exact but for multiples of 2**64, seconds never."""
    for us, ns, s in zip(leaves(table), leaves(nanoseconds), leaves(seconds), strict=True):
        if us.type == ns.type:
            continue
        count = us.cast(pa.int64())
        is_kept = pc.equal(pc.multiply(count, 1_000), ns.cast(pa.int64()))
        is_near = pc.equal(_whole_seconds(count), s.cast(pa.int64()))
        if pc.all(pc.and_(is_kept, is_near)).as_py() is False:
            return False
    return True


def _whole_seconds(count: pa.Array) -> pa.Array:
    down = pc.divide(count, 1_000_000)
    is_below = pc.and_(pc.less(count, 0), pc.not_equal(pc.multiply(down, 1_000_000), count))
    return pc.if_else(is_below, pc.subtract(down, 1), down)


def _zoned(found: pa.DataType, nanoseconds: pa.DataType, expected: pa.DataType) -> pa.DataType:
    """Return the type with the zones of the expected one where the file has INT96, which has none."""
    types = pa.types
    if types.is_timestamp(found) and found != nanoseconds and types.is_timestamp(expected):
        return pa.timestamp("us", tz=expected.tz)
    if types.is_list(found) and types.is_list(expected):
        return pa.list_(
            found.value_field.with_type(_zoned(found.value_type, nanoseconds.value_type, expected.value_type))
        )
    if types.is_map(found) and types.is_map(expected):
        return pa.map_(
            _zoned(found.key_type, nanoseconds.key_type, expected.key_type),
            _zoned(found.item_type, nanoseconds.item_type, expected.item_type),
        )
    if types.is_struct(found) and types.is_struct(expected) and [f.name for f in found] == [f.name for f in expected]:
        fields = zip(found, nanoseconds, expected, strict=True)
        return pa.struct([one.with_type(_zoned(one.type, ns.type, other.type)) for one, ns, other in fields])
    return found


# Reading files of other programs as rows of a topic, some at a time.
#
# Each value arrives as it was, or is an error that names the file, the line or row, the column and the value.

SUFFIXES: Final = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
"""The formats of files, by the ends of their names."""

_PIECE_BYTES: Final = 4 * 1024 * 1024
_LINES: Final = 10_000
_LINE_BYTES_MAX: Final = 256 * 1024 * 1024
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")


class Columns(NamedTuple):
    """What a file's columns are to be.

    `names` has the topic's names of the file's columns, where they differ. Of the columns that the topic does not have,
    those in `ignored` are left out, or with None all. `whole` are those that an upsert of a keyed topic must have.
    """

    schema: pa.Schema
    is_record: bool
    names: Mapping[str, str]
    ignored: frozenset[str] | None
    whole: tuple[str, ...] = ()

    def mine(self, name: str) -> str:
        """Return the topic's name of a column; one whose name is given to another column is not the topic's."""
        if name in self.names:
            return self.names[name]
        return f"{name} (of the file)" if name in self.names.values() else name

    def kept(self, found: list[str]) -> dict[str, str]:
        """Return the topic's names of those of a file's columns that are kept.

        Raises:
            ValueError: a column is unknown, there twice or to be renamed and missing, or none is the topic's.
        """
        kept: dict[str, str] = {}
        for name in found:
            mine = self.mine(name)
            if mine in self.schema.names:
                if mine in kept.values():
                    raise ValueError(f"column {name!r} is there {found.count(name)} times: expected once")
                kept[name] = mine
            elif self.ignored is not None and mine not in self.ignored:
                known = self.schema.names
                raise ValueError(
                    f"column {mine!r} is none of the topic's: expected {', '.join(known)}{did_you_mean(mine, known)}; "
                    "name its column, or leave other columns out (--ignore-other-columns)"
                )
        self.check_found(found)
        return kept

    def kept_of_csv(self, found: list[str]) -> dict[str, str]:
        """Return what `kept` returns for a file of CSV, where a typed topic's columns of bytes have other names.

        Raises:
            ConfigurationError: two of the topic's columns have one name there.
            ValueError: as `kept`; or a column of bytes does not say that they are base64.
        """
        if self.is_record:
            return self.kept(found)
        names = csv_names(self.schema)
        own = {name: mine for mine, name in names.items()}
        columns = self._replace(
            schema=pa.schema([self.schema.field(mine).with_name(name) for name, mine in own.items()]),
            names={name: names.get(mine, mine) if name.endswith(BASE64) else mine for name, mine in self.names.items()},
        )
        for name in found:
            mine = columns.mine(name)
            if mine in names and mine not in own and mine not in (self.ignored or ()):
                raise ValueError(
                    f"column {name!r} would be bytes of the topic's column {mine!r}: expected {names[mine]!r}, or "
                    "another name with this end, for csv holds bytes as base64, and the name says so"
                )
        return {name: own[mine] for name, mine in columns.kept(found).items()}

    def check_found(self, found: list[str]) -> None:
        """Pass if a file's columns have each one that is to be renamed, and one at least that is kept.

        Raises:
            ValueError: they have not.
        """
        missing = next((name for name in self.names if name not in found), None)
        if missing is not None:
            raise ValueError(f"the file has no column {missing!r}, which is to be {self.names[missing]!r}")
        mine = {self.mine(name) for name in found}
        if self.is_record:
            mine |= {name.removesuffix(BASE64) for name in mine}
        if mine.isdisjoint(self.schema.names):
            raise ValueError(f"no column is the topic's: expected {', '.join(self.schema.names)}")


def check_suffix(path: Path) -> str:
    """Return a file's format, by the end of its name.

    Raises:
        ConfigurationError: the name has another end.
    """
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise ConfigurationError(f"file {str(path)!r} has no known end: expected one of {', '.join(SUFFIXES)}")
    return found


def rows_of(path: Path, columns: Columns, on_read: Callable[[int], object]) -> Iterator[pa.Table]:
    """Yield a file's rows in their order, some at a time, with the topic's columns that the file has.

    Text of CSV and JSON has the topic's types then; columns of Parquet and Arrow have the file's. Before rows are
    yielded, `on_read` is called with about how many bytes of the file have been read.

    Raises:
        ConfigurationError: the file cannot be read as what its name says, or a value is not of its column's type.
        OSError: the disk does not answer.
    """
    file_format = check_suffix(path)
    try:
        if file_format == "csv":
            yield from _csv_tables(path, columns, on_read)
        elif file_format == "json":
            yield from _json_tables(path, columns, on_read)
        else:
            size_bytes = path.stat().st_size

            def at(part: float) -> None:
                on_read(int(part * size_bytes))

            is_parquet = file_format == "parquet"
            tables = parquet_tables(path, columns.schema, columns.names, at) if is_parquet else arrow_tables(path, at)
            yield from _checked(tables, columns)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"file {str(path)!r} cannot be read as {file_format}: {reason}") from None
    except WrongLine as error:
        raise ConfigurationError(f"file {str(path)!r}, line {error.line}: {error.reason}") from None
    except Int96Error as error:
        raise ConfigurationError(f"file {str(path)!r}, {error}") from None
    except ValueError as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"file {str(path)!r}: {error}") from None


def _checked(tables: Iterator[pa.Table], columns: Columns) -> Iterator[pa.Table]:
    row = 0
    for table in tables:
        kept = columns.kept(table.column_names)
        if len(set(table.column_names)) < table.num_columns:
            table = table.select([index for index, name in enumerate(table.column_names) if name in kept])
        rows = table.select(list(kept)).rename_columns(list(kept.values()))
        for name in kept.values():
            if columns.schema.field(name).type == _MILLISECONDS:
                _check_milliseconds(name, rows.column(name), row)
        row += table.num_rows
        yield rows


def _check_milliseconds(name: str, column: pa.ChunkedArray, before: int) -> None:
    """Pass if a record's timestamp keeps its digits and its zone; staging cuts them, as Kafka's clients do."""
    kind = column.type
    if not pa.types.is_timestamp(kind):
        return
    if kind.tz is None:
        raise ValueError(f"column {name!r} is {kind}, a time without a zone: expected instants; cast it to UTC")
    if kind.unit in ("us", "ns"):
        step = 1_000 if kind.unit == "us" else 1_000_000
        numbers = column.cast(pa.int64())
        is_whole = pc.equal(pc.multiply(pc.divide(numbers, step), step), numbers)
        row = pc.index(pc.fill_null(is_whole, True), False).as_py()
        if row >= 0:
            raise ValueError(
                f"row {before + row + 1}, column {name!r}: {numbers[row]} {kind.unit} since 1970 has a part of a "
                "millisecond, which a record's timestamp does not keep: round it"
            )


def _csv_tables(path: Path, columns: Columns, on_read: Callable[[int], object]) -> Iterator[pa.Table]:
    kept: dict[str, str] | None = None
    for rows in csv_rows(path, on_read):
        if kept is None:
            kept = columns.kept_of_csv(rows.table.column_names)
        yield pa.table(
            {mine: _of_texts(rows, name, columns.schema.field(mine), columns) for name, mine in kept.items()}
        )


def _of_texts(rows: CsvRows, name: str, field: pa.Field, columns: Columns) -> pa.ChunkedArray:
    try:
        return typed_column(rows.table.column(name), field, bytes_are_text=columns.is_record)
    except WrongText as error:
        raise WrongLine(rows.line_of(error.row), f"column {name!r}: {error.reason}") from None


def _json_tables(path: Path, columns: Columns, on_read: Callable[[int], object]) -> Iterator[pa.Table]:
    found: list[str] = []
    read_bytes = 0

    def mine(name: str) -> str:
        found.append(name)
        return columns.mine(name)

    reader = JsonRows(
        columns.schema, is_record=columns.is_record, names=mine, ignored=columns.ignored, whole=columns.whole
    )
    for lines in some_lines(_lines(path), _LINES, _PIECE_BYTES):
        read_bytes += sum(len(line) for _, line in lines)
        on_read(read_bytes)
        yield reader.table(lines)
    if found:
        columns.check_found(found)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for number in count(1):
            line = file.readline(_LINE_BYTES_MAX)
            if len(line) == _LINE_BYTES_MAX:
                raise WrongLine(number, f"it has {_LINE_BYTES_MAX} bytes or more: expected a JSON object on each line")
            if not line:
                return
            yield line


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

    def transactional_id(self, topic: TopicState, *, delete: bool) -> str:
        """Return the id under which a topic's import of this file is known again; another one if its rows delete."""
        text = f"{topic.topic_id}\0{self.name}\0{self.size_bytes}\0{self.digest}" + "\0delete" * delete
        return f"import-{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def import_files(
    store: Store,
    topic: str,
    files: Sequence[str | os.PathLike[str]],
    *,
    columns: Mapping[str, str] | None = None,
    other_columns: str = "refuse",
    keep_partitions: bool = True,
    delete: bool = False,
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
        delete: each row of the files deletes its key, of a keyed topic; no more than the columns of the key is needed.
            Else rows with true in a column ``_deleted`` do. Of a key twice in a file the later row counts.
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
    delete = arguments.boolean("delete", delete)
    if delete and not is_keyed(known):
        raise ConfigurationError(f"delete is True, and topic {topic!r} has no key: it takes no deletes")
    # The key of a row chooses its partition, whatever the export had.
    if keep_partitions and not is_keyed(known) and exported_partitions > known.partition_count:
        raise ConfigurationError(
            f"the export has partition {exported_partitions - 1}: topic {topic!r} has partitions 0 to "
            f"{known.partition_count - 1}: give it more, or choose partitions by key (keep_partitions=False, --by-key)"
        )
    importing = _Importing(
        store, known, names, other_columns, on_progress, on_bytes, keep_partitions=keep_partitions, delete=delete
    )
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
        delete: bool,
    ) -> None:
        self._delete = delete
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
        whole = () if self._delete else StageTopic.of(topic).whole_columns
        self._columns = Columns(pa.schema(fields), is_record, self._names, ignored, whole)

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
        transactional_id = file.transactional_id(self._topic, delete=self._delete)
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
                stager.write(table, delete=self._delete)
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
            rows = as_deletes(topic, rows) if self._delete else rows
            given_partitions(topic, rows, conformed(topic, rows, 0))
        except (ConfigurationError, CommandRefused):
            return True
        return False
