"""A topic as a Delta Lake table: the commit of each version, and checkpoints of the commits (PROTOCOL.md, "Tables").

All is a pure function of the log, so that two processes which write a commit write the same bytes. Readers need to know
as little as Delta allows. Other engines must not write: a feature of ours, which they do not know, makes them refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pyarrow as pa
from msgspec import Struct

from sparktxn.format.names import PARTITION_COLUMN
from sparktxn.format.schema import TIMESTAMP_COLUMN, offset_column, stored_schema
from sparktxn.tableformats.deltaactions import Action, Add, CommitInfo, Format, MetaData, Protocol, Remove, encode
from sparktxn.tableformats.deltacheckpoint import checkpoint, hinted_version, last_checkpoint
from sparktxn.tableformats.deltaschema import has_local_times, schema_string
from sparktxn.tableformats.version import TableFile, TableVersion, table_schema

__all__ = ["LAST_CHECKPOINT", "WRITER_FEATURE", "checkpoint", "checkpoint_name", "commit", "commit_name"]
__all__ += ["hinted_version", "last_checkpoint"]

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

_EPOCH: Final = datetime(1970, 1, 1)


class _Statistics(Struct, frozen=True, rename="camel"):
    """What a reader may skip a file by.

    Bounds of timestamps may be wide: no value need be at them. Delta takes bounds for tight where nothing is said. A
    reader that ignores `tight_bounds` skips files by them, which is sound for wide ones.
    """

    num_records: int
    min_values: dict[str, Any]
    max_values: dict[str, Any]
    null_count: dict[str, int]
    tight_bounds: bool


_encoder: Final = msgspec.json.Encoder()


def commit_name(version: int) -> str:
    """Return the name of a version's commit, below the topic's folder."""
    return f"{_LOG}{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """Return the name of a version's checkpoint, below the topic's folder."""
    return f"{_LOG}{version:020d}.checkpoint.parquet"


def commit(version: TableVersion) -> bytes:
    """Return the commit of a version: what it changes in the table, as lines of JSON."""
    return encode(_actions(version))


def _actions(version: TableVersion) -> Iterator[Action]:
    yield Action(commit_info=_commit_info(version))
    if version.is_new_schema:
        schema = table_schema(version.columns)
        yield Action(protocol=_protocol(schema))
        yield Action(meta_data=_metadata(version, schema))
    for file in version.removed:
        yield Action(remove=_remove(file, version))
    stored = stored_schema(version.columns)
    offset = offset_column(stored)
    timestamp = TIMESTAMP_COLUMN if TIMESTAMP_COLUMN in stored.names else "timestamp"
    for file in version.added:
        yield Action(add=_add(file, version, offset, timestamp))


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


def _metadata(version: TableVersion, schema: pa.Schema) -> MetaData:
    return MetaData(
        id=version.table_id,
        name=version.topic,
        format=Format("parquet", {}),
        schema_string=schema_string(schema),
        partition_columns=(PARTITION_COLUMN,),
        configuration=_CONFIGURATION,
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


def _add(file: TableFile, version: TableVersion, offset: str, timestamp: str) -> Add:
    return Add(
        path=_uri(file.path),
        partition_values={PARTITION_COLUMN: str(file.partition)},
        size=file.size_bytes,
        modification_time=version.timestamp_ms,
        data_change=file.changes_data,
        stats=_statistics(file, offset, timestamp),
    )


def _uri(path: str) -> str:
    """Return a path as Delta has it, percent-encoded. Spark and delta-rs leave ``=`` as it is."""
    return quote(path, safe="/=")


def _statistics(file: TableFile, offset: str, timestamp: str) -> str:
    statistics = _Statistics(
        num_records=file.record_count,
        min_values={offset: file.offset_min} | _bound(timestamp, file.timestamp_min_ms),
        max_values={offset: file.offset_max} | _bound(timestamp, file.timestamp_max_ms),
        null_count={offset: 0, timestamp: 0},
        tight_bounds=False,
    )
    return _encoder.encode(statistics).decode()


def _bound(timestamp: str, milliseconds: int) -> dict[str, str]:
    """Return a bound of timestamps; none outside of the years 1 to 9999, which Delta's text does not have."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return {}
    return {timestamp: moment.isoformat(timespec="milliseconds") + "Z"}
