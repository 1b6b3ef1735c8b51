"""The manifests of a snapshot of an Iceberg table: the files of the table in groups, and the list of the groups.

A snapshot names the manifests of the one before again. Only those are decoded that have a removed file, or that are
merged, since there are too many small ones. Which ones may have a removed file is known from the list: its header says
which offsets of which partitions are in each manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import msgspec
from msgspec import Struct

from sparktxn.format.fieldnumbers import OFFSET_ID
from sparktxn.format.names import PARTITION_COLUMN
from sparktxn.tableformats.icebergavro import EARLIER_ENTRY, ENTRY, LIST, decode_file, encode_file
from sparktxn.tableformats.icebergmetrics import earlier_metrics, metrics
from sparktxn.tableformats.version import TableFile
from sparktxn.values.fieldtypes import Columns

__all__ = [
    "FULL_FILES",
    "MERGED_MANIFESTS",
    "Entry",
    "IcebergSnapshot",
    "Manifest",
    "decode_list",
    "encode_list",
    "has_statistics",
    "is_live",
]
__all__ += ["manifests"]

FULL_FILES: Final = 512
"""A manifest of so many files is not merged. One that is written has less than twice as many."""

MERGED_MANIFESTS: Final = 8
"""So many small manifests of about the same size are merged, one such group in a snapshot."""

_EXISTING: Final = 0
_ADDED: Final = 1
_DELETED: Final = 2

_RANGES: Final = "txnlog.offset-ranges"

_STATISTICS: Final = "txnlog.statistics"
"""What a list says if all its manifests have statistics of all columns: earlier versions of this package wrote none."""

Entry = dict[str, Any]
"""A file in a manifest, as `ENTRY` has it."""


class Manifest(Struct, frozen=True):
    """A manifest: what the list says of it (as `LIST` has it), and the offsets of its files, by partition."""

    listed: dict[str, Any]
    ranges: dict[int, tuple[int, int]]

    @property
    def file_count(self) -> int:
        """How many files of the table it has."""
        count: int = self.listed["added_files_count"] + self.listed["existing_files_count"]
        return count

    def may_have(self, file: TableFile) -> bool:
        """Return whether the file can be in it."""
        found = self.ranges.get(file.partition)
        return found is not None and found[0] <= file.offset_min and file.offset_max <= found[1]


class IcebergSnapshot(Struct, frozen=True, kw_only=True):
    """What the manifests of a snapshot are made from.

    `number` is its id and its sequence number. `header` is what each manifest says of the table. `prefix` begins the
    names of its manifests below the topic's folder, whose address is `location`. `read` reads objects by such names.

    `columns` are those of the topic. `again` are files of the snapshot before whose statistics are new, by path; unless
    it is None, all manifests are written anew. `is_earlier` has it made as earlier versions of this package did.
    """

    number: int
    location: str
    prefix: str
    header: Mapping[str, str]
    added: Sequence[TableFile]
    removed: Sequence[TableFile]
    read: Callable[[str], bytes]
    columns: Columns | None = None
    again: Mapping[str, TableFile] | None = None
    is_earlier: bool = False


def decode_list(data: bytes) -> list[Manifest]:
    """Return the manifests of a list.

    Raises:
        ValueError: it is damaged, or `encode_list` has not written it.
    """
    metadata, records = decode_file(LIST, data)
    try:
        ranges = msgspec.json.decode(metadata.get(_RANGES, ""), type=list[list[tuple[int, int, int]]])
    except msgspec.DecodeError as error:
        raise ValueError(f"its header does not say which offsets the manifests have: {error}") from error
    pairs = zip(records, ranges, strict=True)
    return [Manifest(listed, {part: (low, high) for part, low, high in each}) for listed, each in pairs]


def has_statistics(data: bytes) -> bool:
    """Return whether the manifests of a list have the statistics of all columns, or an earlier version has written it.

    Raises:
        ValueError: it is damaged.
    """
    metadata, _ = decode_file(LIST, data)
    return _STATISTICS in metadata


def encode_list(snapshot: IcebergSnapshot, parent: int | None, found: Iterable[Manifest]) -> bytes:
    """Return the list of a snapshot's manifests; `parent` is the id of the snapshot before."""
    found = list(found)
    ranges = [[(part, low, high) for part, (low, high) in each.ranges.items()] for each in found]
    header = {
        "snapshot-id": str(snapshot.number),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(snapshot.number),
        "format-version": "2",
        _RANGES: msgspec.json.encode(ranges).decode(),
    }
    if not snapshot.is_earlier:
        header[_STATISTICS] = "footers"
    return encode_file(LIST, header, [each.listed for each in found])


def manifests(snapshot: IcebergSnapshot, before: Iterable[Manifest]) -> tuple[list[Manifest], list[tuple[str, bytes]]]:
    """Return the manifests of a snapshot, and as objects those that are new; `before` are those of its parent.

    Raises:
        ValueError: a manifest of the parent is damaged, or none has a removed file.
    """
    live = [each for each in before if each.file_count]
    changed = _with_removed(snapshot, live)
    if snapshot.again is not None:
        changed = {each.listed["manifest_path"]: _entries(snapshot, each) for each in live}
    merged = {
        each.listed["manifest_path"]: _entries(snapshot, each)
        for each in _to_merge(each for each in live if each.listed["manifest_path"] not in changed)
    }
    kept = [each for each in live if each.listed["manifest_path"] not in changed.keys() | merged.keys()]
    gone = {f"{snapshot.location}/{file.path}" for file in snapshot.removed}
    carried = [[_carried(entry, snapshot, gone) for entry in chain(*each.values())] for each in (changed, merged)]
    added = [_added_entry(file, snapshot) for file in snapshot.added]
    new: list[tuple[str, bytes]] = []
    for entries in chain(*map(_chunks, (*carried, added))):
        name = f"{snapshot.prefix}-{len(new)}.avro"
        data = encode_file(EARLIER_ENTRY if snapshot.is_earlier else ENTRY, snapshot.header, entries)
        kept.append(_manifest(name, len(data), entries, snapshot))
        new.append((name, data))
    return kept, new


def _with_removed(snapshot: IcebergSnapshot, live: Iterable[Manifest]) -> dict[str, list[Entry]]:
    """Return the files of each manifest that has a removed one."""
    left = {f"{snapshot.location}/{file.path}": file for file in snapshot.removed}
    found = {}
    for manifest in live:
        if not any(manifest.may_have(file) for file in left.values()):
            continue
        entries = _entries(snapshot, manifest)
        paths = left.keys() & {entry["data_file"]["file_path"] for entry in entries}
        if paths:
            found[manifest.listed["manifest_path"]] = entries
        for path in paths:
            del left[path]
    if left:
        raise ValueError(f"{min(left)} is removed, and no manifest has it")
    return found


def _to_merge(live: Iterable[Manifest]) -> list[Manifest]:
    """Return the first manifests of the smallest size of which there are enough to merge, as few as make a full one."""
    sizes: dict[int, list[Manifest]] = {}
    for manifest in live:
        if manifest.file_count < FULL_FILES:
            # Sizes differ by a factor of 8.
            sizes.setdefault((manifest.file_count.bit_length() + 2) // 3, []).append(manifest)
    for _, found in sorted(sizes.items()):
        if len(found) >= MERGED_MANIFESTS:
            return list(_first(found))
    return []


def _first(found: Sequence[Manifest]) -> Iterator[Manifest]:
    count = 0
    for manifest in found[:MERGED_MANIFESTS]:
        if count < FULL_FILES:
            yield manifest
        count += manifest.file_count


def _entries(snapshot: IcebergSnapshot, manifest: Manifest) -> list[Entry]:
    """Return the files of a manifest that are in the table."""
    name = manifest.listed["manifest_path"].removeprefix(f"{snapshot.location}/")
    data = snapshot.read(name)
    if len(data) != manifest.listed["manifest_length"]:
        raise ValueError(f"{name} has {len(data)} bytes, and not the {manifest.listed['manifest_length']} of the list")
    _, entries = decode_file(ENTRY, data, EARLIER_ENTRY)
    return [entry for entry in entries if is_live(entry)]


def is_live(entry: Mapping[str, Any]) -> bool:
    """Return whether a file of a manifest is in the table: others have been removed by the snapshot that wrote it."""
    return bool(entry["status"] != _DELETED)


def _chunks(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Yield parts of about the same size, each of less than two full manifests."""
    count = max(1, len(entries) // FULL_FILES)
    bounds = [len(entries) * index // count for index in range(count + 1)]
    for start, end in pairwise(bounds):
        if start < end:
            yield entries[start:end]


def _carried(entry: Entry, snapshot: IcebergSnapshot, gone: set[str]) -> Entry:
    """Return an entry of the parent as the snapshot has it. It keeps its sequence numbers."""
    path = entry["data_file"]["file_path"]
    if not snapshot.is_earlier:
        # pyiceberg asks for sizes of columns, which earlier versions did not write.
        entry = entry | {"data_file": {"column_sizes": [], **entry["data_file"]}}
    if path in gone:
        return entry | {"status": _DELETED, "snapshot_id": snapshot.number}
    again = (snapshot.again or {}).get(path.removeprefix(f"{snapshot.location}/"))
    if again is not None:
        entry = entry | {"data_file": _data_file(again, snapshot)}
    return entry | {"status": _EXISTING}


def _added_entry(file: TableFile, snapshot: IcebergSnapshot) -> Entry:
    number = snapshot.number
    return {
        "status": _ADDED,
        "snapshot_id": number,
        "sequence_number": number,
        "file_sequence_number": number,
        "data_file": _data_file(file, snapshot),
    }


def _data_file(file: TableFile, snapshot: IcebergSnapshot) -> dict[str, Any]:
    described = earlier_metrics(file) if snapshot.is_earlier else metrics(file, snapshot.columns)
    return {
        "content": 0,
        "file_path": f"{snapshot.location}/{file.path}",
        "file_format": "PARQUET",
        "partition": {PARTITION_COLUMN: file.partition},
        "record_count": file.record_count,
        "file_size_in_bytes": file.size_bytes,
        **described,
    }


def _manifest(name: str, size: int, entries: Sequence[Entry], snapshot: IcebergSnapshot) -> Manifest:
    files, rows = [0, 0, 0], [0, 0, 0]
    for entry in entries:
        files[entry["status"]] += 1
        rows[entry["status"]] += entry["data_file"]["record_count"]
    numbers = [entry["sequence_number"] for entry in entries if entry["status"] != _DELETED]
    partitions = [entry["data_file"]["partition"][PARTITION_COLUMN] for entry in entries]
    listed = {
        "manifest_path": f"{snapshot.location}/{name}",
        "manifest_length": size,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": snapshot.number,
        "min_sequence_number": min(numbers, default=snapshot.number),
        "added_snapshot_id": snapshot.number,
        "added_files_count": files[_ADDED],
        "existing_files_count": files[_EXISTING],
        "deleted_files_count": files[_DELETED],
        "added_rows_count": rows[_ADDED],
        "existing_rows_count": rows[_EXISTING],
        "deleted_rows_count": rows[_DELETED],
        "partitions": [_summary(min(partitions), max(partitions))],
    }
    return Manifest(listed, _ranges(entries))


def _summary(lowest: int, highest: int) -> dict[str, Any]:
    low, high = (number.to_bytes(4, "little", signed=True) for number in (lowest, highest))
    return {"contains_null": False, "contains_nan": False, "lower_bound": low, "upper_bound": high}


def _ranges(entries: Iterable[Entry]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for entry in entries:
        if entry["status"] == _DELETED:
            continue
        file = entry["data_file"]
        low, high = (_offset(file[bounds]) for bounds in ("lower_bounds", "upper_bounds"))
        partition = file["partition"][PARTITION_COLUMN]
        known = found.get(partition, (low, high))
        found[partition] = (min(low, known[0]), max(high, known[1]))
    return dict(sorted(found.items()))


def _offset(bounds: Iterable[Mapping[str, Any]]) -> int:
    return next(int.from_bytes(each["value"], "little", signed=True) for each in bounds if each["key"] == OFFSET_ID)
