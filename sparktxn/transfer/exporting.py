"""Exporting: a topic's records, as one read view has them, written as files of a local folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._engine.format.schema import DELETED_COLUMN
from sparktxn._engine.format.statistics import paths_without_fractions
from sparktxn._engine.log.views.readview import ReadView
from sparktxn._foundation.values import arguments
from sparktxn._foundation.values.arrowvalues import without_hidden_nulls
from sparktxn._foundation.values.fieldtypes import TopicIdPartition, TopicPartitionKey
from sparktxn._foundation.values.structs import TopicState
from sparktxn._rows.scan.columns import PARTITION, known_columns, output_schema, reserved_name
from sparktxn._rows.scan.conditions import Condition, checked_condition, matching
from sparktxn._rows.scan.content import Rows, checked_rows
from sparktxn._rows.scan.plan import Order, ReadTask
from sparktxn.errors import ConfigurationError
from sparktxn.store import LatestTask, Store, read_task
from sparktxn.transfer.csvrows import csv_names, is_text_in_csv
from sparktxn.transfer.exportfolder import ExportFolder
from sparktxn.transfer.jsonrows import encoded, json_bytes, json_values

# Writing a topic's records to one file, so that an import has each value as it was, or refusing them.

FORMATS: Final = ("parquet", "arrow", "csv", "json")
"""The formats of files: json is a JSON object on each line."""


class FileWriter:
    """Writes one file.

    Args:
        path: the file, which does not exist.
        file_format: one of FORMATS.
        schema: the columns.
        is_record: they are those of Kafka's record, whose bytes are text where they are UTF-8.
    """

    def __init__(self, path: Path, file_format: str, schema: pa.Schema, *, is_record: bool) -> None:
        self.path = path
        self._format = file_format
        self._is_record = is_record
        if file_format == "parquet":
            statistics = paths_without_fractions(schema)
            self._file: Any = pyarrow.parquet.ParquetWriter(
                path, schema, compression="zstd", write_statistics=statistics
            )
        elif file_format == "arrow":
            self._file = pa.ipc.new_file(path, schema)
        elif file_format == "csv":
            self._schema = _text_schema(schema, is_record=is_record)
            self._file = pyarrow.csv.CSVWriter(path, self._schema)
        else:
            self._file = path.open("wb")

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows.

        Raises:
            ConfigurationError: a value does not fit the format.
        """
        if self._format == "parquet":
            self._file.write_table(without_hidden_nulls(pa.table(batch)))
        elif self._format == "arrow":
            self._file.write_batch(batch)
        elif self._format == "csv":
            if batch.num_columns == 1 and batch.column(0).null_count:
                raise ConfigurationError(
                    f"column {batch.schema.names[0]!r} has a null, which csv of one column cannot hold (it would be an "
                    "empty line): export another column too, or json, parquet or arrow"
                )
            columns = [self._texts(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
            self._file.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        else:
            names = batch.schema.names
            columns = [self._values(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
            for row in zip(*columns, strict=True):
                self._file.write(encoded(self._members(dict(zip(names, row, strict=True)))) + b"\n")

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def _values(self, field: pa.Field, column: pa.Array) -> list[Any]:
        values = json_values(field, column)
        if self._is_record and pa.types.is_nested(field.type):
            return [headers and [self._members(header) for header in headers] for headers in values]
        return values

    def _members(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return Kafka's record, or one of its headers, with its bytes as text or base64."""
        if not self._is_record:
            return row
        found: dict[str, Any] = {}
        for name, value in row.items():
            found |= json_bytes(name, value) if isinstance(value, bytes) else {name: value}
        return found

    def _texts(self, field: pa.Field, column: pa.Array) -> pa.Array:
        """Return a column as CSV holds it: bytes and times as in JSON, nested values as JSON."""
        kind = field.type
        if self._is_record and pa.types.is_binary(kind):
            try:
                return column.cast(pa.string())
            except pa.ArrowInvalid:
                raise ConfigurationError(
                    f"column {field.name!r} has bytes that are not UTF-8, which csv cannot hold: export json, parquet "
                    "or arrow"
                ) from None
        if pa.types.is_nested(kind):
            values = self._values(field, column)
            return pa.array([None if value is None else msgspec.json.encode(value).decode() for value in values])
        if pa.types.is_date(kind):
            json_values(field, column)  # Checks the years.
            return column
        if is_text_in_csv(kind):
            return pa.array([msgspec.to_builtins(value) for value in json_values(field, column)], pa.string())
        return column


def _text_schema(schema: pa.Schema, *, is_record: bool) -> pa.Schema:
    names = schema.names if is_record else csv_names(schema).values()
    kinds = (pa.string() if is_text_in_csv(kind) else kind for kind in schema.types)
    return pa.schema(list(zip(names, kinds, strict=True)))


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
    rows: Rows | None = None,
    order: Order | None = None,
    entry: int | None = None,
    timestamp_ms: int | None = None,
    rows_per_file: int = _ROWS_PER_FILE,
    on_progress: OnProgress | None = None,
) -> ExportReport:
    """Write the committed records of a read view to files: ``FOLDER/partition=0/part-00000.parquet`` and so on.

    The folder appears whole, with all files on the disk, or not at all. The file ``_SUCCESS`` is in it, too. The files
    have no column of the partition: engines find it in the folders' names. If the topic has a column ``partition`` of
    its own, the folders are ``kafka_partition=0`` and so on. A process that dies leaves a hidden folder
    next to `folder`, which may be deleted.

    Args:
        store: an open store.
        topic: the topic's name.
        folder: a folder that does not exist, or is empty; a symbolic link to one, or a mount.
        file_format: one of FORMATS. A key or value that is not UTF-8 is refused by csv, and base64 in json.
        columns: names of columns; None: all but those of the record's transaction. A column that the topic has gained
            after the view is null.
        offsets: (first offset, end offset or None) by partition; partitions that are not named are left out. None: all.
            Of latest rows no more than the partitions can be chosen: (0, None) of each.
        where: conditions that a record meets all of.
        rows: of a keyed topic, ``latest`` (the default) are the newest rows of its keys without deletes, and ``all``
            are all rows, with a column ``_deleted``.
        order: ``commit`` (the default) exports all that is committed at the view's entry. ``offset`` exports up to the
            last stable offset of each partition.
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
    is_latest = checked_rows([topic_state], rows)
    given = arguments.items("where", where, Condition)
    own = [name for name in output_schema(topic_state.schema).names if not (is_latest and name == DELETED_COLUMN)]
    names = arguments.identifiers("columns", own if columns is None else columns)
    asked = store.with_columns(view, [*names, *(condition.column for condition in given)]).topics[topic]
    schema, conditions = _selected(asked, names, given)
    bounds = None if offsets is None else _bounds(view, topic, offsets)
    tasks: Sequence[ReadTask | LatestTask]
    if is_latest:
        partitions = None if bounds is None else _whole(bounds)
        tasks = store.plan_latest(view, columns=schema.names, conditions=conditions, partitions=partitions)
        conditions = ()
    else:
        read = tuple(dict.fromkeys([*schema.names, *(condition.column for condition in conditions)]))
        planned = store.plan_view(view, order=order, bounds=bounds, columns=read, rows="all")
        tasks = [replace(task, conditions=conditions) for task in planned]
    place = ExportFolder(target)
    try:
        export = _Export(
            store,
            place.hidden,
            _partition_column(topic_state),
            file_format,
            schema,
            conditions,
            rows_per_file,
            on_progress,
            is_record=topic_state.schema is None,
        )
        for partition, some in groupby(sorted(tasks, key=_place), key=lambda task: task.partition):
            export.write_partition(partition, some)
        place.publish()
    except BaseException:
        place.abandon()
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
    topic: TopicState, columns: Sequence[str], where: Sequence[Condition]
) -> tuple[pa.Schema, tuple[Condition, ...]]:
    """Return the columns of the files, and the conditions of their rows."""
    known = known_columns(topic.schema)
    schema = output_schema(topic.schema, columns)
    wanted = pa.schema([field for field in schema if field.name != reserved_name(PARTITION, topic.schema)])
    if not wanted.names:
        raise ConfigurationError("columns name no column but the partition, which folders' names have: name another")
    return wanted, tuple(checked_condition(condition, known) for condition in where)


def _partition_column(topic: TopicState) -> str:
    """Return the column that folders are named after; engines would take it for the topic's own of the same name."""
    own = {name.lower() for name, _, _ in topic.schema or ()}
    return PARTITION_COLUMN if PARTITION in own else PARTITION


def _place(task: ReadTask | LatestTask) -> TopicIdPartition:
    return task.partition, task.start_offset if isinstance(task, ReadTask) else 0


def _whole(bounds: Mapping[TopicPartitionKey, tuple[int, int | None]]) -> Sequence[TopicPartitionKey]:
    """Return the partitions that `bounds` name.

    Raises:
        ConfigurationError: they name a part of one.
    """
    for bound in bounds.values():
        if bound != (0, None):
            raise ConfigurationError(
                f"offsets has {bound}, and the latest rows of a partition follow from all of its rows: export them as "
                "of an entry, or all rows of these offsets (rows='all', --rows all)"
            )
    return tuple(bounds)


def _bounds(
    view: ReadView, topic: str, offsets: Mapping[int, tuple[int, int | None]]
) -> dict[TopicPartitionKey, tuple[int, int | None]]:
    found: dict[TopicPartitionKey, tuple[int, int | None]] = {}
    for partition, given in arguments.instance("offsets", offsets, Mapping).items():
        if not isinstance(given, tuple) or len(given) != _BOUNDS:
            raise TypeError(
                f"offsets has {arguments.described(given)} for a partition: expected (first offset, end offset or None)"
            )
        partition = arguments.integer("offsets", partition, 0)
        if (topic, partition) not in view.partitions:
            raise ConfigurationError(f"offsets: topic {topic!r} has no partition {partition!r}")
        first, end = given
        found[topic, partition] = (
            arguments.integer("offsets", first, 0),
            arguments.integer_or_none("offsets", end, 0),
        )
    return found


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
        *,
        is_record: bool,
    ) -> None:
        self._store = store
        self._folder = folder
        self._partition_column = partition_column
        self._format = file_format
        self._schema = schema
        self._conditions = conditions
        self._rows_per_file = rows_per_file
        self._on_progress = on_progress
        self._is_record = is_record
        self.files = self.records = self.size_bytes = 0

    def write_partition(self, partition: int, tasks: Any) -> None:
        """Write the records of one partition."""
        number = rows = 0
        writer: FileWriter | None = None
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
                    writer, rows, number = (
                        FileWriter(path, self._format, self._schema, is_record=self._is_record),
                        0,
                        number + 1,
                    )
                writer.write(found)
                rows += found.num_rows
                self.records += found.num_rows
                if self._on_progress is not None:
                    self._on_progress(self.records)
        if writer is not None:
            self._finish(writer)

    def _finish(self, writer: FileWriter) -> None:
        writer.close()
        self.files += 1
        self.size_bytes += writer.path.stat().st_size
