"""The files that a version of a table adds and removes: they follow from the places that the log has published."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple
from uuid import UUID, uuid5

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.schema import offset_column, stored_schema
from sparktxn._engine.log.keep.sealedruns import ManifestCache, rewritten_segments_of
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._foundation.values.structs import (
    ManifestRef,
    PublishedPartition,
    PublishedPlaces,
    RewrittenRange,
    SegmentRef,
    TableState,
    TopicState,
)
from sparktxn._rows.tableformats.columnstatistics import statistics_of
from sparktxn._rows.tableformats.version import TableFile, TableVersion
from sparktxn.errors import DamagedObject

# Footers of merged files, read without their rows.

_MAGIC: Final = b"PAR1"
_END: Final = struct.Struct("<I4s")
_FIRST_BYTES: Final = 65_536
"""What the first request reads of the end: with few columns that has the footer, and with small files all."""


def read_footer(objects: ObjectStore, name: str, size_bytes: int) -> pq.FileMetaData:
    """Return the footer of a Parquet file of `size_bytes`.

    Raises:
        DamagedObject: the file does not exist, or has no footer that can be read.
        StoreUnavailable: the store did not answer.
    """
    data = _end_of(objects, name, size_bytes, _FIRST_BYTES)
    if len(data) < _END.size or not data.endswith(_MAGIC):
        raise DamagedObject(name, "it does not end as a Parquet file does")
    length, _ = _END.unpack(data[-_END.size :])
    wanted = length + _END.size
    if len(data) < wanted <= size_bytes:
        data = _end_of(objects, name, size_bytes, wanted)
    try:
        # The decoder asks for the first bytes of a file, and for nothing between them and the footer.
        return pq.read_metadata(pa.BufferReader(_MAGIC + data[-wanted:]))
    except Exception as error:  # foreign bytes make the decoders below us fail in any way
        raise DamagedObject(name, f"its footer cannot be read: {error}") from error


def _end_of(objects: ObjectStore, name: str, size_bytes: int, count: int) -> bytes:
    data = objects.get_range(name, max(0, size_bytes - count), size_bytes)
    if data is None:
        raise DamagedObject(name, "a version of a table names it and it does not exist")
    return data


# Planning, checking and writing a version ask for the same manifests, and the next version for these again.
_manifests: Final = ManifestCache(8 << 20)


_TABLES: Final = UUID("3b0e6a1c-5a64-4f4e-9b0c-6d1f2f6f7c55")
"""The namespace of tables' ids."""


def keep_manifest(objects: ObjectStore, folder: str, run: ManifestRef, segments: Sequence[SegmentRef]) -> None:
    """Keep the manifest of a run in memory, which this process has just written into a partition's folder."""
    _manifests.keep(objects, folder, run, segments)


def newest_version(
    objects: ObjectStore, store_id: str, table: TableState, published: Sequence[PublishedPartition]
) -> TableVersion:
    """Return the newest version of a table, without statistics of its files: it follows from the log.

    Raises:
        DamagedObject: a manifest is missing or damaged, or a file has rows that are not in the table.
    """
    added, removed = _changed_files(objects, table, published)
    return version_of(store_id, table, added, removed)


def with_statistics(objects: ObjectStore, version: TableVersion, *, skip_damaged: bool = False) -> TableVersion:
    """Return a version whose added files have the statistics of their footers; each is read by one request or two.

    Args:
        objects: the store.
        version: as `newest_version` or `whole_version` returns it.
        skip_damaged: leave a file without statistics that is missing, or whose footer cannot be read.

    Raises:
        DamagedObject: a file is missing, or its footer cannot be read.
    """
    folder = names.topic_folder(version.topic, version.topic_id)
    added = []
    for file in version.added:
        try:
            footer = read_footer(objects, folder + file.path, file.size_bytes)
        except DamagedObject:
            if not skip_damaged:
                raise
        else:
            file = replace(file, statistics=statistics_of(footer))
        added.append(file)
    return replace(version, added=tuple(added))


def version_of(
    store_id: str, table: TableState, added: Iterable[TableFile], removed: Iterable[TableFile] = ()
) -> TableVersion:
    """Return the newest version of a table as formats need it, with the files that it adds and removes."""
    return TableVersion(
        topic=table.name,
        topic_id=table.topic_id,
        table_id=str(uuid5(_TABLES, f"{store_id}/{table.topic_id}")),
        location=table.location,
        columns=table.columns,
        is_new_schema=table.is_new_schema,
        version=table.version,
        entry=table.entry,
        published_entry=table.published_entry,
        timestamp_ms=table.timestamp_ms,
        added=tuple(added),
        removed=tuple(removed),
    )


def whole_version(
    objects: ObjectStore, table: TableState, published: Sequence[PublishedPartition], version: TableVersion
) -> TableVersion:
    """Return the newest version of a table as one that has none before it; the errors are those of `newest_version`."""
    files = tuple(all_files(objects, table, published))
    return replace(version, is_new_schema=True, added=files, removed=())


def _changed_files(
    objects: ObjectStore, table: TableState, published: Iterable[PublishedPartition]
) -> tuple[list[TableFile], list[TableFile]]:
    """Return the files that the newest version of a table adds, and those that it removes, by path."""
    added: list[TableFile] = []
    removed: list[TableFile] = []
    for each in published:
        if each.version == table.version:
            more, fewer = _changed(objects, table, each)
            added += more
            removed += fewer
    return sorted(added, key=_path), sorted(removed, key=_path)


def all_files(objects: ObjectStore, table: TableState, published: Iterable[PublishedPartition]) -> list[TableFile]:
    """Return the files of the newest version of a table, by path."""
    found: list[TableFile] = []
    for each in published:
        found += _files(objects, table, each.partition, each.current, each.current.ranges).values()
    return sorted(found, key=_path)


def _path(file: TableFile) -> str:
    return file.path


def _changed(
    objects: ObjectStore, table: TableState, published: PublishedPartition
) -> tuple[list[TableFile], list[TableFile]]:
    partition, current, before = published.partition, published.current, published.before
    now = _files(objects, table, partition, current, new_ranges(current, before))
    then = _files(objects, table, partition, before, new_ranges(before, current))
    added = [file for path, file in now.items() if path not in then]
    removed = [file for path, file in then.items() if path not in now]
    moved = sum(file.record_count for file in added if not file.changes_data)
    # Rows that are in no added file have been deleted, or replaced by those of newer records.
    is_move = moved == sum(file.record_count for file in removed)
    return added, [replace(file, changes_data=not is_move) for file in removed]


def new_ranges(places: PublishedPlaces, others: PublishedPlaces) -> list[RewrittenRange]:
    """Return the ranges of `places` of which `others` may have other files."""
    known = set(_seen(others))
    return [each for each, seen in zip(places.ranges, _seen(places), strict=True) if seen not in known]


def _seen(places: PublishedPlaces) -> Iterator[tuple[RewrittenRange, int]]:
    """Yield each range with the log start, if that lies within it or behind it."""
    start = places.log_start_offset
    return ((each, start if each.base_offset < start else 0) for each in places.ranges)


def cut_files(
    objects: ObjectStore, topic: TopicState, partition: int, places: PublishedPlaces, ranges: Sequence[RewrittenRange]
) -> dict[str, int]:
    """Return the files of `ranges` that have rows which are not in the partition, each with its first offset there.

    Such a file is cut by the log start, or by a later rewrite of some of its rows.

    Raises:
        DamagedObject: a manifest is missing or damaged.
    """
    start = places.log_start_offset
    cut = [
        each
        for each in ranges
        if each.base_offset < start or each.base_offset > each.run.base_offset or each.end_offset < each.run.end_offset
    ]
    folder = _Folder(objects, topic.name, topic.topic_id, partition, topic.schema)
    found: dict[str, int] = {}
    for name, segments in folder.files(start, cut):
        if not folder.is_whole(name, segments, start):
            found.setdefault(name, segments[0].base_offset)
    return found


def without_offsets(
    objects: ObjectStore, topic: TopicState, partition: int, places: PublishedPlaces, ranges: Sequence[RewrittenRange]
) -> list[int]:
    """Return where the segments of `ranges` begin whose files do not say the offsets of rows: of earlier versions.

    Raises:
        DamagedObject: a manifest is missing or damaged.
    """
    folder = _Folder(objects, topic.name, topic.topic_id, partition, topic.schema)
    found = (segments[0] for _, segments in folder.files(places.log_start_offset, ranges))
    return [first.base_offset for first in found if not first.has_offset_column]


class _Folder(NamedTuple):
    """The merged files of a partition."""

    objects: ObjectStore
    topic: str
    topic_id: int
    partition: int
    columns: Columns | None

    @property
    def name(self) -> str:
        return names.partition_folder(self.topic, self.topic_id, self.partition)

    def files(self, start: int, ranges: Sequence[RewrittenRange]) -> Iterator[tuple[str, list[SegmentRef]]]:
        """Yield the files of ranges, each with its segments that have offsets from the log start on."""
        found = (
            each
            for each in rewritten_segments_of(self.objects, self.name, ranges, cache=_manifests)
            if each.end_offset > start
        )
        return ((name, list(group)) for name, group in groupby(found, attrgetter("name")))

    def is_whole(self, file_name: str, segments: Sequence[SegmentRef], start: int) -> bool:
        """Return whether all rows of a file are those of `segments` from the log start on."""
        if _rows_of(segments) != segments[0].file_records:
            return False
        # Of a segment that has lost its rows below the log start the file alone says so.
        return segments[0].base_offset >= start or self.offsets(file_name, segments)[0] >= start

    def offsets(self, file_name: str, segments: Sequence[SegmentRef]) -> tuple[int, int]:
        """Return the first and the last offset of a whole file: of segments with gaps the file alone says them."""
        first, last = segments[0], segments[-1]
        if not first.has_gaps and not last.has_gaps:
            return first.base_offset, last.end_offset - 1
        data = self.objects.get(self.name + file_name)
        if data is None:
            raise DamagedObject(self.name + file_name, "a version of a table names it and it does not exist")
        column = offset_column(stored_schema(self.columns))
        offsets = pq.read_table(pa.BufferReader(data), columns=[column], use_threads=False).column(0)
        return offsets[0].as_py(), offsets[-1].as_py()


def _rows_of(segments: Iterable[SegmentRef]) -> int:
    return sum(segment.row_count for segment in segments)


def _files(
    objects: ObjectStore,
    table: TableState,
    partition: int,
    places: PublishedPlaces,
    ranges: Sequence[RewrittenRange],
) -> dict[str, TableFile]:
    folder = _Folder(objects, table.name, table.topic_id, partition, table.columns)
    below = names.topic_folder(table.name, table.topic_id)
    found: dict[str, TableFile] = {}
    for name, segments in folder.files(places.log_start_offset, ranges):
        first, last = folder.offsets(name, segments)
        if _rows_of(segments) != segments[0].file_records or first < places.log_start_offset:
            raise DamagedObject(folder.name + name, "a table has only some of its rows")
        path = (folder.name + name).removeprefix(below)
        found[path] = TableFile(
            path=path,
            partition=partition,
            size_bytes=segments[0].size_bytes,
            record_count=segments[0].file_records,
            offset_min=first,
            offset_max=last,
            timestamp_min_ms=min(segment.timestamp_min_ms for segment in segments),
            timestamp_max_ms=max(segment.timestamp_max_ms for segment in segments),
            changes_data=any(segment.committed_entry > table.entry_before for segment in segments),
        )
    return found
