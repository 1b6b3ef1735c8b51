"""A version of a published topic as table formats need it: which files it adds and removes, and what the topic is.

The log decides what a version holds (PROTOCOL.md, "Tables"). A format writes the same bytes for it in each process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import pyarrow as pa
from msgspec import Struct

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._engine.format.schema import stored_schema, with_offsets
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._rows.tableformats.columnstatistics import ColumnStatistics


class TableFile(Struct, frozen=True, gc=False):
    """A Parquet file of which every row is in the table.

    `path` is below the topic's folder, `kafka_partition=<partition>/<file>`. Its rows have offsets from `offset_min` to
    `offset_max`, both of which exist, and timestamps that are not outside of the other two. `changes_data` is False if
    the version only moves rows: those of an added file were in files that it removes, or the other way round.
    `statistics` are those of its footer; None where it has not been read, or as earlier versions described files.
    """

    path: str
    partition: int
    size_bytes: int
    record_count: int
    offset_min: int
    offset_max: int
    timestamp_min_ms: int
    timestamp_max_ms: int
    changes_data: bool = True
    statistics: tuple[ColumnStatistics, ...] | None = None


class TableVersion(Struct, frozen=True, kw_only=True):
    """A version of a topic's table.

    It shows what entries up to `entry` have committed; `published_entry`, of the time `timestamp_ms`, has published it.
    `table_id` is a UUID that no other table has. `location` is the address of the topic's folder, as other engines
    reach it, without a slash at the end. `columns` are the declared ones, None for Kafka's record. `is_new_schema` is
    True for version 0, and where `columns` differ from those of the version before. `added` and `removed` are in the
    order of their paths, and have no file in common.
    """

    topic: str
    topic_id: int
    table_id: str
    location: str
    columns: Columns | None
    is_new_schema: bool
    version: int
    entry: int
    published_entry: int
    timestamp_ms: int
    added: tuple[TableFile, ...]
    removed: tuple[TableFile, ...]


@lru_cache
def table_schema(columns: Columns | None) -> pa.Schema:
    """Return the columns of a topic's table: those of its files, and the partition, which is in no file."""
    stored = with_offsets(stored_schema(columns))
    return stored.append(pa.field(PARTITION_COLUMN, pa.int32(), nullable=False))


# Which versions a table has in a format: there are gaps where the topic was not a table of this format.
#
# The names of objects alone say it. Publishing, vacuuming, verifying and repairing ask here.

FOLDERS: Final = {"delta": "_delta_log/", "iceberg": "metadata/"}
"""Where each format has its metadata, below the topic's folder."""

_COMPLETE: Final = {
    "delta": re.compile(r"_delta_log/([0-9]{20})\.json"),
    "iceberg": re.compile(r"metadata/v([1-9][0-9]*)\.metadata\.json"),
}
_FIRST_NUMBER: Final = {"delta": 0, "iceberg": 1}
_CHECKPOINT: Final = re.compile(r"_delta_log/([0-9]{20})\.checkpoint\.parquet")
_LIST: Final = re.compile(r"metadata/snap-([1-9][0-9]*)\.avro")
_OURS: Final = {
    "delta": re.compile(r"_delta_log/(?:[0-9]{20}\.(?:json|checkpoint\.parquet)|_last_checkpoint)"),
    "iceberg": re.compile(
        r"metadata/(?:v[0-9]+\.metadata\.json|snap-[0-9]+\.avro|[0-9]{20}-[0-9]+\.avro|version-hint\.text)"
    ),
}


class FormatVersions(Struct, frozen=True):
    """The versions of a table in one format, in their order: those that the object is there for which completes them.

    `checkpoints` are Delta's. A version of Delta is read from the newest checkpoint that is not above it. `begun` are
    those of which another object is there: a checkpoint, or Iceberg's list of manifests.
    """

    versions: tuple[int, ...]
    is_delta: bool = False
    checkpoints: frozenset[int] = frozenset()
    begun: frozenset[int] = frozenset()

    def newest_below(self, version: int, first: int) -> int | None:
        """Return the newest version below `version`, and not below `first`; None if there is none."""
        return max((each for each in self.versions if first <= each < version), default=None)

    def needed_from(self, first: int) -> int | None:
        """Return the version from whose metadata on those from `first` on are read; None if there are none of these.

        >>> FormatVersions((0, 1, 4, 5), True, frozenset({4})).needed_from(2)
        4
        >>> FormatVersions((0, 1, 4, 5), True, frozenset({4})).needed_from(1)
        0
        """
        oldest = next((each for each in self.versions if each >= first), None)
        if oldest is None:
            return None
        if not self.is_delta:
            return oldest
        return max((each for each in self.checkpoints if each <= oldest), default=0)


def versions_in(format_name: str, names: Iterable[str]) -> FormatVersions:
    """Return the versions that objects say, by their names below the topic's folder.

    >>> versions_in("iceberg", ["metadata/v1.metadata.json", "metadata/snap-1.avro", "metadata/v7.metadata.json"])
    FormatVersions(versions=(0, 6), is_delta=False, checkpoints=frozenset(), begun=frozenset({0}))
    """
    listed = list(names)
    complete, least = _COMPLETE[format_name], _FIRST_NUMBER[format_name]
    found = sorted(int(match[1]) - least for match in map(complete.fullmatch, listed) if match)
    if format_name != "delta":
        lists = frozenset(int(match[1]) - least for match in map(_LIST.fullmatch, listed) if match)
        return FormatVersions(tuple(found), begun=lists)
    checkpoints = frozenset(int(match[1]) for match in map(_CHECKPOINT.fullmatch, listed) if match)
    return FormatVersions(tuple(found), True, checkpoints, checkpoints)


def is_metadata(format_name: str, name: str) -> bool:
    """Return whether an object is a format's metadata of this package, by its name below the topic's folder."""
    return _OURS[format_name].fullmatch(name) is not None


# What the objects of an Iceberg table are called, below the topic's folder. It needs no package of Iceberg's.

METADATA_FOLDER: Final = "metadata/"

VERSION_HINT: Final = f"{METADATA_FOLDER}version-hint.text"
"""The hint that says which metadata is the newest."""


def snapshot_id(version: int) -> int:
    """Return the id of a version's snapshot, which also is its sequence number. Iceberg counts from 1."""
    return version + 1


def metadata_name(version: int) -> str:
    """Return the name of a version's metadata."""
    return f"{METADATA_FOLDER}v{snapshot_id(version)}.metadata.json"


def version_hint(version: int) -> bytes:
    """Return the hint that names the metadata of `version` as the newest."""
    return str(snapshot_id(version)).encode()


def hinted_version(hint: bytes) -> int | None:
    """Return the version whose metadata a hint names; None if the hint says nothing that can be read."""
    return int(hint) - 1 if hint.isdigit() else None
