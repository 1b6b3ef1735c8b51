"""A Delta table's log: its actions, and checkpoints, which hold all that is true after a version as one Parquet file.

A checkpoint has one action per row: the protocol, the metadata, and the files in the order of their paths. This content
follows from the commits alone, however many checkpoints were between. Its bytes depend on the version of the Parquet
library too, so that two processes may write different ones; a reader may use either.

Removed files are not in it. Delta keeps them for engines that delete old files, and these refuse such a table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from sparktxn._engine.format.decodeguard import check_parquet

# The actions of a Delta table's commits: lines of JSON, whose keys have one order (Delta's PROTOCOL.md, "Actions").
#
# What Delta lets a writer leave out is left out here unless a reader needs it.


class CommitInfo(Struct, frozen=True, rename="camel"):
    """What made a version. No reader needs it; Spark shows the operation and its parameters, which are texts.

    `txnlog_bounded` are the columns that the table's property says have bounds; earlier versions had no such property.
    """

    timestamp: int
    operation: str
    operation_parameters: dict[str, str]
    engine_info: str
    txnlog_entry: int
    txnlog_published_entry: int
    txnlog_bounded: tuple[str, ...] | UnsetType = UNSET


class Protocol(Struct, frozen=True, rename="camel"):
    """What an engine must know to read the table, and to write it."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | UnsetType = UNSET
    writer_features: tuple[str, ...] | UnsetType = UNSET


class Format(Struct, frozen=True):
    """The encoding of the table's files."""

    provider: str
    options: dict[str, str]


class MetaData(Struct, frozen=True, rename="camel"):
    """What the table is."""

    id: str
    name: str
    format: Format
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]


class Remove(Struct, frozen=True, rename="camel"):
    """A file that is not in the table any more."""

    path: str
    deletion_timestamp: int
    data_change: bool
    extended_file_metadata: bool
    partition_values: dict[str, str]
    size: int


class Add(Struct, frozen=True, rename="camel"):
    """A file of the table. `stats` is JSON, as text."""

    path: str
    partition_values: dict[str, str]
    size: int
    modification_time: int
    data_change: bool
    stats: str


class Action(Struct, frozen=True, rename="camel"):
    """One line of a commit: one field is set."""

    commit_info: CommitInfo | UnsetType = UNSET
    protocol: Protocol | UnsetType = UNSET
    meta_data: MetaData | UnsetType = UNSET
    remove: Remove | UnsetType = UNSET
    add: Add | UnsetType = UNSET


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Action)


def encode(actions: Iterable[Action]) -> bytes:
    """Return the bytes of a commit: these follow from the actions alone."""
    return _encoder.encode_lines(actions)


def decode(commit: bytes) -> list[Action]:
    """Return the actions of a commit.

    Raises:
        ValueError: the bytes are not a commit of a topic's table.
    """
    return _decoder.decode_lines(commit)


_TEXTS: Final = pa.map_(pa.string(), pa.string())

_FILES: Final = {
    "path": pa.string(),
    "partitionValues": _TEXTS,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "stats": pa.string(),
}
"""What is kept of an `add`, in addition to `dataChange`."""

_ADD: Final = pa.struct([*_FILES.items(), ("dataChange", pa.bool_()), ("tags", _TEXTS)])
_REMOVE: Final = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
_TXN: Final = pa.struct([("appId", pa.string()), ("version", pa.int64())])
_PROTOCOL: Final = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_METADATA: Final = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("createdTime", pa.int64()),
        ("configuration", _TEXTS),
    ]
)

# Spark and Trino ask for columns of all actions, also where no row has one.
_SCHEMA: Final = pa.schema(
    [("txn", _TXN), ("add", _ADD), ("remove", _REMOVE), ("metaData", _METADATA), ("protocol", _PROTOCOL)]
)

_FILE_COLUMNS: Final = [f"add.{name}" for name in _FILES]
_HEADER_COLUMNS: Final = ["protocol", "metaData"]
# No two rows have the same path or statistics: a dictionary of them would be tried, and given up.
_DICTIONARIES: Final = ["add.partitionValues.key_value.key", "add.partitionValues.key_value.value"]


class LastCheckpoint(Struct, frozen=True, rename="camel"):
    """The hint that says which checkpoint is the newest; `size` counts its actions."""

    version: int
    size: int


def last_checkpoint(version: int, data: bytes) -> bytes:
    """Return the hint that names `data`, the checkpoint of `version`.

    It has no sizes in bytes: those of two processes may differ, and no reader needs them.
    """
    count = pq.read_metadata(pa.BufferReader(data)).num_rows
    return msgspec.json.encode(LastCheckpoint(version, count))


def hinted_version(hint: bytes) -> int | None:
    """Return the version of the checkpoint that a hint names; None if the hint says nothing that can be read."""
    try:
        return msgspec.json.decode(hint, type=LastCheckpoint).version
    except msgspec.DecodeError:
        return None


def checkpoint(previous: bytes | None, commits: Sequence[bytes]) -> bytes:
    """Return the checkpoint of the version of the last commit.

    Args:
        previous: the checkpoint of an earlier version, which another engine may have written; None for none.
        commits: those of the versions after it, in their order. Without a checkpoint, the first one is of version 0,
            or it has all files of its version.

    Raises:
        ValueError: `previous` or a commit cannot be decoded, or none of them has the table's metadata.
    """
    changes = _Changes()
    for commit in commits:
        changes.apply(commit)
    header, kept = ({}, None) if previous is None else _decode(previous, changes.paths)
    header |= changes.header()
    if len(header) != len(_HEADER_COLUMNS):
        raise ValueError("the commits do not begin with the metadata of a table, and there is no checkpoint before")
    files = _files(list(changes.added.values()))
    return _encode(header, files if kept is None else pa.concat_tables([kept, files]))


def checkpoint_files(data: bytes) -> Iterator[Add]:
    """Yield the files that a checkpoint has.

    Raises:
        ValueError: it cannot be decoded.
    """
    _, files = _decode(data, ())
    for row in files.to_pylist():
        yield Add(
            path=row["path"],
            partition_values=dict(row["partitionValues"]),
            size=row["size"],
            modification_time=row["modificationTime"],
            data_change=False,
            stats=row["stats"],
        )


class _Changes:
    """What some commits leave of their actions.

    Attributes:
        added: files that they have added and not removed again, by path.
        paths: of all files that they have added or removed.
    """

    def __init__(self) -> None:
        self.added: dict[str, Add] = {}
        self.paths: set[str] = set()
        self._protocol: Protocol | UnsetType = UNSET
        self._metadata: MetaData | UnsetType = UNSET

    def apply(self, commit: bytes) -> None:
        """Take in the next commit."""
        for action in decode(commit):
            if action.add is not UNSET:
                self.added[action.add.path] = action.add
                self.paths.add(action.add.path)
            elif action.remove is not UNSET:
                self.added.pop(action.remove.path, None)
                self.paths.add(action.remove.path)
            elif action.protocol is not UNSET:
                self._protocol = action.protocol
            elif action.meta_data is not UNSET:
                self._metadata = action.meta_data

    def header(self) -> dict[str, dict[str, Any]]:
        """Return the protocol and the metadata, of these what the commits have."""
        found = {"protocol": self._protocol, "metaData": self._metadata}
        return {name: msgspec.to_builtins(each) for name, each in found.items() if each is not UNSET}


def _files(added: Sequence[Add]) -> pa.Table:
    columns = [
        pa.array([each.path for each in added], pa.string()),
        pa.array([each.partition_values for each in added], _TEXTS),
        pa.array([each.size for each in added], pa.int64()),
        pa.array([each.modification_time for each in added], pa.int64()),
        pa.array([each.stats for each in added], pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(_FILES.items()))


def _decode(data: bytes, gone: Collection[str]) -> tuple[dict[str, Any], pa.Table]:
    """Return the protocol and the metadata of a checkpoint, and its files whose paths are not `gone`."""
    try:
        check_parquet(data, _SCHEMA.names)
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False)
        table = file.read(columns=[*_HEADER_COLUMNS, *_FILE_COLUMNS], use_threads=False)
        return _header_of(table), _files_of(table, gone)
    except Exception as error:  # foreign bytes make the decoders below us fail in any way
        raise ValueError(f"a checkpoint of a Delta table cannot be decoded: {error}") from error


def _header_of(table: pa.Table) -> dict[str, Any]:
    return {name: table.column(name).drop_null()[0].as_py() for name in _HEADER_COLUMNS}


def _files_of(table: pa.Table, gone: Collection[str]) -> pa.Table:
    files = table.select(["add"]).flatten()
    files = files.rename_columns([name.removeprefix("add.") for name in files.column_names])
    files = files.select(list(_FILES)).cast(pa.schema(_FILES.items()))
    paths = files.column("path")
    is_file = pc.is_valid(paths)
    if gone:
        is_file = pc.and_not(is_file, pc.is_in(paths, pa.array(gone, pa.string())))
    return files.filter(is_file)


def _encode(header: dict[str, Any], files: pa.Table) -> bytes:
    rows = [pa.Table.from_pylist([{name: header[name]}], _SCHEMA) for name in _HEADER_COLUMNS]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.concat_tables([*rows, _file_rows(files.sort_by("path"))]),
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARIES,
        store_schema=False,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue().to_pybytes())


def _file_rows(files: pa.Table) -> pa.Table:
    count = files.num_rows
    known = {name: files.column(name).combine_chunks() for name in _FILES}
    # As Spark writes it: the files of a checkpoint change nothing.
    known["dataChange"] = pa.repeat(pa.scalar(value=False), count)
    children = [known[field.name] if field.name in known else pa.nulls(count, field.type) for field in _ADD]
    adds = pa.StructArray.from_arrays(children, fields=list(_ADD))
    columns = [adds if field.name == "add" else pa.nulls(count, field.type) for field in _SCHEMA]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


# The files of a Delta table's versions, read back from its log.


class DeltaFiles:
    """The files of one version, from which each commit leads to those of the next one.

    Args:
        checkpoint: the checkpoint of the version; None for the one before version 0.

    Attributes:
        files: its files, by path below the topic's folder: each as the action that has added it, without what depends
            on the version.

    Raises:
        ValueError: the checkpoint cannot be decoded.
    """

    def __init__(self, checkpoint: bytes | None) -> None:
        self.files: dict[str, Add] = {}
        for add in () if checkpoint is None else checkpoint_files(checkpoint):
            self._add(add)

    def apply(self, commit: bytes) -> None:
        """Go on to the version of a commit.

        Raises:
            ValueError: the bytes are not a commit, or it adds a file that is there as new data, or removes one that is
                not there.
        """
        actions = decode(commit)
        if encode(actions) != commit:
            # The decoder passes over names that it does not know, whatever their bytes.
            raise ValueError("it is not the JSON of its actions")
        for action in actions:
            if action.remove is not UNSET:
                path = unquote(action.remove.path)
                if self.files.pop(path, None) is None:
                    raise ValueError(f"it removes {path}, which the version before does not have")
            if action.add is not UNSET:
                if not action.add.data_change:
                    # It may be there with other statistics.
                    self.files.pop(unquote(action.add.path), None)
                self._add(action.add)

    def _add(self, add: Add) -> None:
        path = unquote(add.path)
        if path in self.files:
            raise ValueError(f"it adds {path}, which is there")
        msgspec.json.decode(add.stats)
        self.files[path] = replace(add, modification_time=0, data_change=False)
