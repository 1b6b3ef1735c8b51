"""A topic as a Delta Lake table: the commit of each version, and checkpoints of the commits (PROTOCOL.md, "Tables").

All is a pure function of the log, so that two processes which write a commit write the same bytes. Readers need to know
as little as Delta allows. Other engines must not write: a feature of ours, which they do not know, makes them refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import replace

from sparktxn.format.names import PARTITION_COLUMN
from sparktxn.tableformats.deltaactions import (
    Action,
    Add,
    CommitInfo,
    Format,
    MetaData,
    Protocol,
    Remove,
    decode,
    encode,
)
from sparktxn.tableformats.deltacheckpoint import checkpoint, hinted_version, last_checkpoint
from sparktxn.tableformats.deltaschema import has_local_times, schema_string
from sparktxn.tableformats.deltastatistics import (
    BOUNDED,
    bounded_columns,
    earlier_statistics_text,
    statistics_text,
)
from sparktxn.tableformats.version import TableFile, TableVersion, table_schema

__all__ = ["LAST_CHECKPOINT", "WRITER_FEATURE", "checkpoint", "checkpoint_name", "commit", "commit_name"]
__all__ += ["earlier_commit", "hinted_version", "last_checkpoint"]

_LOG: Final = "_delta_log/"

LAST_CHECKPOINT: Final = f"{_LOG}_last_checkpoint"
"""The hint that says which checkpoint is the newest, below the topic's folder."""

WRITER_FEATURE: Final = "txnlogTopic"
"""What an engine would have to know to write the table: that a topic's log alone decides what it holds."""

_NOT_NULL: Final = "invariants"
"""Spark reads no table with columns that may not be null, unless its protocol names this feature of writers."""

_LOCAL_TIMES: Final = "timestampNtz"

# Versions of Delta's protocol. The last ones of both have lists of features in their place.
_READER_VERSION: Final = 1
_READER_VERSION_OF_FEATURES: Final = 3
_WRITER_VERSION_OF_FEATURES: Final = 7

_KEPT: Final = "interval 36500 days"
_CONFIGURATION: Final = {
    # Spark's VACUUM has not always asked for features of writers. By default it deletes nothing younger than this.
    "delta.deletedFileRetentionDuration": _KEPT,
    # The owner deletes old commits, and no engine does that writes a checkpoint, for which it needs no feature.
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": _KEPT,
}
"""Settings of the table. The first and the last also let readers travel to each version whose files exist."""


def commit_name(version: int) -> str:
    """Return the name of a version's commit, below the topic's folder."""
    return f"{_LOG}{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """Return the name of a version's checkpoint, below the topic's folder."""
    return f"{_LOG}{version:020d}.checkpoint.parquet"


def commit(version: TableVersion, whole: Callable[[], TableVersion], previous: bytes | None) -> bytes:
    """Return the commit of a version: what it changes in the table, as lines of JSON.

    The property of columns with bounds becomes shorter where an added file lacks bounds. It begins anew with the
    schema, and after a version that has none, as an earlier version of this package wrote it. Then all files are added
    again, since delta-rs finds no rows in those without bounds of a column that the property names.

    Args:
        version: the version, whose added files have their statistics.
        whole: returns it as one that has none before it.
        previous: the commit of the version before; None if there is none.

    Raises:
        ValueError: the bytes of `previous` are not a commit of a topic's table.
    """
    before = None if previous is None else _bounded_before(previous)
    added = version.added
    if before is None or version.is_new_schema:
        files = whole().added if version.version else added
        bounded = bounded_columns(files, version.columns)
        if previous is not None:
            paths = {file.path for file in added}
            again = (replace(file, changes_data=False) for file in files if file.path not in paths)
            added = tuple(sorted((*added, *again), key=lambda file: file.path))
    else:
        own = set(bounded_columns(added, version.columns))
        bounded = [name for name in before if name in own]
    return encode(_actions(version, added, bounded, is_new=before is None or bounded != list(before)))


def earlier_commit(version: TableVersion) -> bytes:
    """Return the commit of a version as earlier versions of this package wrote it."""
    return encode(_actions(version, version.added, None))


def _bounded_before(previous: bytes) -> tuple[str, ...] | None:
    for action in decode(previous):
        if action.commit_info is not UNSET and action.commit_info.txnlog_bounded is not UNSET:
            return action.commit_info.txnlog_bounded
    return None


def _actions(
    version: TableVersion, added: Iterable[TableFile], bounded: Sequence[str] | None, *, is_new: bool = False
) -> Iterator[Action]:
    info = _commit_info(version)
    yield Action(commit_info=info if bounded is None else replace(info, txnlog_bounded=tuple(bounded)))
    schema = table_schema(version.columns)
    if version.is_new_schema:
        yield Action(protocol=_protocol(schema))
    if version.is_new_schema or is_new:
        yield Action(meta_data=_metadata(version, schema, bounded))
    for file in version.removed:
        yield Action(remove=_remove(file, version))
    text = statistics_text if bounded is not None else earlier_statistics_text
    for file in added:
        yield Action(add=_add(file, version, text(file, version.columns)))


def _commit_info(version: TableVersion) -> CommitInfo:
    return CommitInfo(
        timestamp=version.timestamp_ms,
        operation="PUBLISH",
        # Spark's DESCRIBE HISTORY shows these, and no fields that it does not know.
        operation_parameters={"entry": str(version.entry), "publishedEntry": str(version.published_entry)},
        engine_info="txnlog",
        txnlog_entry=version.entry,
        txnlog_published_entry=version.published_entry,
    )


def _protocol(schema: pa.Schema) -> Protocol:
    if has_local_times(schema):
        readers = (_LOCAL_TIMES,)
        writers = (*readers, _NOT_NULL, WRITER_FEATURE)
        return Protocol(_READER_VERSION_OF_FEATURES, _WRITER_VERSION_OF_FEATURES, readers, writers)
    return Protocol(_READER_VERSION, _WRITER_VERSION_OF_FEATURES, writer_features=(_NOT_NULL, WRITER_FEATURE))


def _metadata(version: TableVersion, schema: pa.Schema, bounded: Sequence[str] | None) -> MetaData:
    return MetaData(
        id=version.table_id,
        name=version.topic,
        format=Format("parquet", {}),
        schema_string=schema_string(schema),
        partition_columns=(PARTITION_COLUMN,),
        configuration=_CONFIGURATION if bounded is None else _CONFIGURATION | {BOUNDED: ",".join(bounded)},
    )


def _remove(file: TableFile, version: TableVersion) -> Remove:
    return Remove(
        path=_uri(file.path),
        deletion_timestamp=version.timestamp_ms,
        data_change=file.changes_data,
        extended_file_metadata=True,
        partition_values={PARTITION_COLUMN: str(file.partition)},
        size=file.size_bytes,
    )


def _add(file: TableFile, version: TableVersion, statistics: str) -> Add:
    return Add(
        path=_uri(file.path),
        partition_values={PARTITION_COLUMN: str(file.partition)},
        size=file.size_bytes,
        modification_time=version.timestamp_ms,
        data_change=file.changes_data,
        stats=statistics,
    )


def _uri(path: str) -> str:
    """Return a path as Delta has it, percent-encoded. Spark and delta-rs leave ``=`` as it is."""
    return quote(path, safe="/=")
