"""Exporting: a topic's records, as one read view has them, in files of a local folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from msgspec import Struct
from msgspec.structs import replace

from sparktxn import arguments
from sparktxn.clock import RandomIds
from sparktxn.errors import ConfigurationError
from sparktxn.format.names import PARTITION_COLUMN
from sparktxn.format.statistics import paths_without_fractions
from sparktxn.scan.columns import PARTITION, known_columns, output_schema, reserved_name
from sparktxn.scan.conditions import Condition, checked_condition, matching
from sparktxn.scan.plan import ReadTask
from sparktxn.store import Store, read_task
from sparktxn.structs import TopicState

__all__ = ["FORMATS", "ExportReport", "export_topic"]

FORMATS: Final = ("parquet", "arrow", "csv", "json")
"""The formats of files: json is a JSON object on each line."""

SUCCESS: Final = "_SUCCESS"

_ROWS_PER_FILE: Final = 10_000_000
_ROWS_PER_BATCH: Final = 65_536
_BOUNDS: Final = 2

OnProgress = Callable[[int], None]
"""Gets how many records are written."""


class ExportReport(Struct, frozen=True, kw_only=True):
    """What was exported: the records of `topic` in the view of entry `entry`, as `files` with `size_bytes`."""

    topic: str
    entry: int
    folder: str
    files: int
    records: int
    size_bytes: int


def export_topic(
    store: Store,
    topic: str,
    folder: str | os.PathLike[str],
    *,
    file_format: str = "parquet",
    columns: Sequence[str] | None = None,
    offsets: Mapping[int, tuple[int, int | None]] | None = None,
    where: Sequence[Condition] = (),
    entry: int | None = None,
    timestamp_ms: int | None = None,
    rows_per_file: int = _ROWS_PER_FILE,
    on_progress: OnProgress | None = None,
) -> ExportReport:
    """Write the committed records of a read view to files: ``FOLDER/partition=0/part-00000.parquet`` and so on.

    Of a typed topic that has a column `partition` itself, folders are called ``kafka_partition=0``.
    The folder appears whole, with all files on the disk, or not at all. The file ``_SUCCESS`` is in it, too. The files
    have no column of the partition: engines find it in the folders' names. A process that dies leaves a hidden folder
    next to `folder`, which may be deleted.

    Args:
        store: an open store.
        topic: the topic's name.
        folder: a folder that does not exist, or is empty.
        file_format: one of FORMATS. Text formats take text only: a key or value that is not UTF-8 is refused.
        columns: names of columns; None: all but those of the record's transaction.
        offsets: (first offset, end offset or None) by partition; partitions that are not named are left out. None: all.
        where: conditions that a record meets all of.
        entry: read the store as it was at this entry; None: now.
        timestamp_ms: read it as it was at this time, in milliseconds since 1970.
        rows_per_file: how many rows a file has at most.
        on_progress: called now and then with the number of records that are written.

    Raises:
        ConfigurationError: an argument is wrong, the folder is not empty, or a value does not fit the format.
        CommandRefused: the topic does not exist, or the entry is not in the log.
        ViewExpired: a vacuum has passed the view.
        OSError: the disk does not take the files.
    """
    arguments.instance("store", store, Store)
    topic = arguments.identifier("topic", topic)
    target = Path(arguments.path("folder", folder))
    arguments.choice("file_format", file_format, FORMATS)
    rows_per_file = arguments.integer("rows_per_file", rows_per_file, 1)
    arguments.function("on_progress", on_progress)
    view = store.view([topic], entry=entry, timestamp_ms=timestamp_ms)
    topic_state = view.topics[topic]
    schema, conditions = _selected(topic_state, columns, where)
    ranges = store.ranges(view)
    if offsets is not None:
        ranges = _within(topic, ranges, offsets)
    read = tuple(dict.fromkeys([*schema.names, *(condition.column for condition in conditions)]))
    tasks = [replace(task, conditions=conditions) for task in store.plan(view, ranges, columns=read)]
    _check_free(target)
    hidden = target.absolute().parent / f".{target.absolute().name}-{RandomIds().token()}"
    try:
        export = _Export(
            store, hidden, _partition_column(topic_state), file_format, schema, conditions, rows_per_file, on_progress
        )
        for partition, some in groupby(sorted(tasks, key=_place), key=lambda task: task.partition):
            export.write_partition(partition, some)
        (hidden / SUCCESS).touch()
        _make_durable(hidden)
        hidden.rename(target.absolute())
        _fsync(hidden.parent)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return ExportReport(
        topic=topic,
        entry=view.entry,
        folder=str(target),
        files=export.files,
        records=export.records,
        size_bytes=export.size_bytes,
    )


def _selected(
    topic: TopicState, columns: Sequence[str] | None, where: Sequence[Condition]
) -> tuple[pa.Schema, tuple[Condition, ...]]:
    """Return the columns of the files, and the conditions of their rows."""
    known = known_columns(topic.schema)
    schema = output_schema(topic.schema, None if columns is None else arguments.identifiers("columns", columns))
    given = arguments.items("where", where, Condition)
    wanted = pa.schema([field for field in schema if field.name != reserved_name(PARTITION, topic.schema)])
    if not wanted.names:
        raise ConfigurationError("columns name no column but the partition, which folders' names have: name another")
    return wanted, tuple(checked_condition(condition, known) for condition in given)


def _partition_column(topic: TopicState) -> str:
    """Return the column that folders are named after; engines would take it for the topic's own of the same name."""
    own = {name.lower() for name, _, _ in topic.schema or ()}
    return PARTITION_COLUMN if PARTITION in own else PARTITION


def _place(task: ReadTask) -> tuple[int, int]:
    return task.partition, task.start_offset


def _within(
    topic: str, ranges: Mapping[tuple[str, int], tuple[int, int]], offsets: Mapping[int, tuple[int, int | None]]
) -> dict[tuple[str, int], tuple[int, int]]:
    found = {}
    for partition, given in arguments.instance("offsets", offsets, Mapping).items():
        if not isinstance(given, tuple) or len(given) != _BOUNDS:
            raise TypeError(
                f"offsets has {arguments.described(given)} for a partition: expected (first offset, end offset or None)"
            )
        partition = arguments.integer("offsets", partition, 0)
        first, end = given
        if (topic, partition) not in ranges:
            raise ConfigurationError(f"offsets: topic {topic!r} has no partition {partition!r}")
        start, stop = ranges[topic, partition]
        low = max(start, arguments.integer("offsets", first, 0))
        high = stop if end is None else min(stop, arguments.integer("offsets", end, 0))
        found[topic, partition] = (low, max(low, high)) if low <= stop else (stop, stop)
    return found


def _check_free(target: Path) -> None:
    try:
        if target.is_dir() and not any(target.iterdir()):
            return
        exists = os.path.lexists(target)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"folder {str(target)!r} cannot be used: {error}") from None
    if exists:
        raise ConfigurationError(f"folder {str(target)!r} exists: expected one that does not, or that is empty")


class _Export:
    """Writes file after file into a hidden folder."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        partition_column: str,
        file_format: str,
        schema: pa.Schema,
        conditions: tuple[Condition, ...],
        rows_per_file: int,
        on_progress: OnProgress | None,
    ) -> None:
        self._store = store
        self._folder = folder
        self._partition_column = partition_column
        self._format = file_format
        self._schema = schema
        self._conditions = conditions
        self._rows_per_file = rows_per_file
        self._on_progress = on_progress
        self.files = self.records = self.size_bytes = 0
        try:
            folder.mkdir(parents=True)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigurationError(f"folder {str(folder.parent)!r} cannot be written to: {reason}") from None

    def write_partition(self, partition: int, tasks: Any) -> None:
        """Write the records of one partition."""
        number = rows = 0
        writer: _Writer | None = None
        folder = self._folder / f"{self._partition_column}={partition}"
        for task in tasks:
            for batch in read_task(task, self._store.options, batch_rows=min(_ROWS_PER_BATCH, self._rows_per_file)):
                found = matching(batch, self._conditions).select(self._schema.names)
                if not found.num_rows:
                    continue
                if writer is not None and rows + found.num_rows > self._rows_per_file:
                    self._finish(writer)
                    writer = None
                if writer is None:
                    folder.mkdir(exist_ok=True)
                    path = folder / f"part-{number:05d}.{self._format}"
                    writer, rows, number = _Writer(path, self._format, self._schema), 0, number + 1
                writer.write(found)
                rows += found.num_rows
                self.records += found.num_rows
                if self._on_progress is not None:
                    self._on_progress(self.records)
        if writer is not None:
            self._finish(writer)

    def _finish(self, writer: _Writer) -> None:
        writer.close()
        self.files += 1
        self.size_bytes += writer.path.stat().st_size


class _Writer:
    """One file."""

    def __init__(self, path: Path, file_format: str, schema: pa.Schema) -> None:
        self.path = path
        self._format = file_format
        if file_format == "parquet":
            statistics = paths_without_fractions(schema)
            self._file: Any = pyarrow.parquet.ParquetWriter(
                path, schema, compression="zstd", write_statistics=statistics
            )
        elif file_format == "arrow":
            self._file = pa.ipc.new_file(path, schema)
        elif file_format == "csv":
            self._file = pyarrow.csv.CSVWriter(path, _text_schema(schema))
        else:
            self._file = path.open("w", encoding="utf-8")

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows.

        Raises:
            ConfigurationError: a value does not fit the format.
        """
        if self._format in ("parquet", "arrow"):
            self._file.write_batch(batch)
        elif self._format == "csv":
            schema = _text_schema(batch.schema)
            rows = [_text(batch.schema.field(i), batch.column(i), self._format) for i in range(batch.num_columns)]
            self._file.write_batch(pa.RecordBatch.from_arrays(rows, schema=schema))
        else:
            names = batch.schema.names
            values = [_json_values(batch.schema.field(i), batch.column(i)) for i in range(batch.num_columns)]
            for row in zip(*values, strict=True):
                self._file.write(_json(dict(zip(names, row, strict=True))) + "\n")

    def close(self) -> None:
        """End the file."""
        self._file.close()


def _text_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns as CSV holds them: bytes as text, nested values as JSON."""
    return pa.schema([pa.field(field.name, pa.string() if _is_text(field.type) else field.type) for field in schema])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_timestamp(kind))


def _text(field: pa.Field, column: pa.Array, file_format: str) -> pa.Array:
    if pa.types.is_binary(field.type):
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            raise _not_text(field.name, file_format) from None
    if pa.types.is_timestamp(field.type):
        return pa.array(_json_values(field, column), pa.string())
    if pa.types.is_nested(field.type):
        texts = [
            None if value is None else json.dumps(value, ensure_ascii=False) for value in _json_values(field, column)
        ]
        return pa.array(texts, pa.string())
    return column


def _not_text(name: str, file_format: str) -> ConfigurationError:
    return ConfigurationError(
        f"column {name!r} has bytes that are not UTF-8, which {file_format} cannot hold: export parquet or arrow"
    )


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise ConfigurationError(
            "a number is infinite or not a number, which JSON cannot hold: export parquet or arrow"
        ) from None


def _json_values(field: pa.Field, column: pa.Array) -> list[Any]:
    try:
        return [_json_value(value) for value in column.to_pylist()]
    except UnicodeDecodeError:
        raise _not_text(field.name, "json") from None


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds" if value.microsecond % 1_000 == 0 else "microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {name: _json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(inner) for inner in value]
    return value


def _make_durable(folder: Path) -> None:
    for path, _, files in os.walk(folder):
        for file in files:
            _fsync(Path(path, file))
        _fsync(Path(path))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
