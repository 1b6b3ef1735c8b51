"""The manifests of a snapshot of an Iceberg table, in Avro: its files in groups with metrics, and their list.

A snapshot names the manifests of the one before again. Only those are decoded that have a removed file, or that are
merged, since there are too many small ones. Which ones may have a removed file is known from the list: its header says
which offsets of which partitions are in each manifest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import chain, pairwise
from typing import Any, Final

import fastavro
import msgspec
import pyarrow as pa
from msgspec import Struct

from sparktxn._engine.format.names import PARTITION_COLUMN
from sparktxn._engine.format.schema import stored_schema, with_offsets
from sparktxn._engine.format.statistics import OFFSET_ID, TIMESTAMP_ID, leaves, number_of, numbered_columns
from sparktxn._foundation.values.fieldtypes import Columns
from sparktxn._rows.tableformats.version import TableFile

# The Avro files of an Iceberg table's metadata: their schemas, and bytes that are the same in each process.
#
# A file is written by the schemas of Avro's own specification for its header and its one block. So its bytes depend
# on nothing that a library may choose: no compression, and a mark between blocks that is the same in each file.

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = b"txnlog table \x00\x00\x01"

_HEADER: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "org.apache.avro.file.Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
        ],
    }
)
_BLOCK: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "block",
        "fields": [
            {"name": "count", "type": "long"},
            {"name": "records", "type": "bytes"},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
        ],
    }
)

_encoder: Final = msgspec.json.Encoder(order="sorted")


class Schema:
    """An Avro schema, with its text as files have it."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.text: Final = _encoder.encode(schema)
        self.parsed: Final = fastavro.parse_schema(schema)


def encode_file(schema: Schema, metadata: Mapping[str, str], records: Sequence[Mapping[str, Any]]) -> bytes:
    """Return an Avro file of the records. The metadata is put into its header."""
    file, block = BytesIO(), BytesIO()
    meta = {name: text.encode() for name, text in metadata.items()}
    meta |= {"avro.schema": schema.text, "avro.codec": b"null"}
    fastavro.schemaless_writer(file, _HEADER, {"magic": _MAGIC, "meta": meta, "sync": _SYNC})
    for record in records:
        fastavro.schemaless_writer(block, schema.parsed, record)
    if records:
        whole = {"count": len(records), "records": block.getvalue(), "sync": _SYNC}
        fastavro.schemaless_writer(file, _BLOCK, whole)
    return file.getvalue()


def decode_file(schema: Schema, data: bytes, *earlier: Schema) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the metadata and the records of a file that `encode_file` has written with the schema, or an earlier one.

    Raises:
        ValueError: it is damaged, or has another schema.
    """
    file = BytesIO(data)
    try:
        header: Any = fastavro.schemaless_reader(file, _HEADER, None)
        text = header["meta"].get("avro.schema")
        found = next((each for each in (schema, *earlier) if each.text == text), None)
        if header["magic"] != _MAGIC or found is None:
            raise ValueError("it is not an Avro file, or one of another schema")
        metadata = {name: text.decode() for name, text in header["meta"].items()}
        return metadata, _records(found, file) if file.tell() < len(data) else []
    except (EOFError, IndexError, OverflowError, struct.error) as error:
        raise ValueError(f"it cannot be decoded: {error!r}") from error


def _records(schema: Schema, file: BytesIO) -> list[dict[str, Any]]:
    block: Any = fastavro.schemaless_reader(file, _BLOCK, None)
    if block["sync"] != _SYNC or file.read(1):
        raise ValueError("it is not a header and one block")
    records = BytesIO(block["records"])
    # Each record has bytes, so a damaged count ends with an error.
    found: list[Any] = [fastavro.schemaless_reader(records, schema.parsed, None) for _ in range(block["count"])]
    if records.read(1):
        raise ValueError("its block has more than its records")
    return found


def _field(number: int, name: str, data_type: Any, *, optional: bool = False) -> dict[str, Any]:
    if optional:
        return {"field-id": number, "name": name, "type": ["null", data_type], "default": None}
    return {"field-id": number, "name": name, "type": data_type}


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _map(number: int, name: str, key: int, value: int, value_type: str) -> dict[str, Any]:
    """Return a field that is a map from numbers of columns, in the form that Iceberg has for Avro."""
    item = _record(f"k{key}_v{value}", _field(key, "key", "int"), _field(value, "value", value_type))
    return _field(number, name, {"type": "array", "logicalType": "map", "items": item}, optional=True)


_DATA_FILE: Final = (
    _field(134, "content", "int"),
    _field(100, "file_path", "string"),
    _field(101, "file_format", "string"),
    _field(102, "partition", _record("r102", _field(1000, PARTITION_COLUMN, "int", optional=True))),
    _field(103, "record_count", "long"),
    _field(104, "file_size_in_bytes", "long"),
)
_COLUMN_SIZES: Final = _map(108, "column_sizes", 117, 118, "long")
_METRICS: Final = (
    _map(109, "value_counts", 119, 120, "long"),
    _map(110, "null_value_counts", 121, 122, "long"),
    _map(125, "lower_bounds", 126, 127, "bytes"),
    _map(128, "upper_bounds", 129, 130, "bytes"),
)


def _entry(*data_file: dict[str, Any]) -> Schema:
    return Schema(
        _record(
            "manifest_entry",
            _field(0, "status", "int"),
            _field(1, "snapshot_id", "long", optional=True),
            _field(3, "sequence_number", "long", optional=True),
            _field(4, "file_sequence_number", "long", optional=True),
            _field(2, "data_file", _record("r2", *data_file)),
        )
    )


ENTRY: Final = _entry(*_DATA_FILE, _COLUMN_SIZES, *_METRICS)
"""A file of a manifest, without the fields that Iceberg lets a writer leave out and that would say nothing."""

EARLIER_ENTRY: Final = _entry(*_DATA_FILE, *_METRICS)
"""A file as earlier versions of this package wrote it."""

_SUMMARY: Final = _record(
    "r508",
    _field(509, "contains_null", "boolean"),
    _field(518, "contains_nan", "boolean", optional=True),
    _field(510, "lower_bound", "bytes", optional=True),
    _field(511, "upper_bound", "bytes", optional=True),
)

LIST: Final = Schema(
    _record(
        "manifest_file",
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
        _field(507, "partitions", {"type": "array", "items": _SUMMARY, "element-id": 508}, optional=True),
    )
)
"""A manifest as a list of manifests names it."""


# What an Iceberg table's manifests say of the columns of a file: counts, sizes and bounds (Iceberg's Appendix D).

_TEXT_MAX: Final = 16
"""So many characters of a text are kept, as Iceberg does it by default."""

_LAST_CHARACTER: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_INT64_MAX: Final = 2**63 - 1

_YEARS_DAYS: Final = (-719_162, 2_932_896)
"""The first day of the year 1, and the last one of 9999: pyiceberg shows no others."""
_DAY_US: Final = 86_400_000_000
_US: Final = {"ms": 1000, "us": 1}


def metrics(file: TableFile, columns: Columns | None) -> dict[str, list[dict[str, Any]]]:
    """Return what a file's entry has of its columns and fields of structs, by their numbers.

    Of a file without statistics it is what the log has.
    """
    if file.statistics is None:
        return {"column_sizes": [], **earlier_metrics(file)}
    numbers = _numbers(columns)
    found: dict[int, tuple[Any, ...]] = {}
    for each in file.statistics:
        number, data_type = numbers.get(each.names, (None, None))
        if number is None:
            continue
        low, high = each.low, each.high
        if number == OFFSET_ID:
            low, high = file.offset_min, file.offset_max
        is_known = each.type == data_type and low is not None and high is not None
        low, high = _bounds(low, high, each.type) if is_known else (None, None)
        found[number] = each.size_bytes, each.value_count, each.null_count, low, high
    names = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    return {
        name: [
            {"key": number, "value": found[number][place]}
            for number in sorted(found)
            if found[number][place] is not None
        ]
        for place, name in enumerate(names)
    }


def earlier_metrics(file: TableFile) -> dict[str, list[dict[str, Any]]]:
    """Return what earlier versions of this package wrote: the bounds that the log has, of times and offsets."""
    counted = (TIMESTAMP_ID, OFFSET_ID)
    return {
        "value_counts": [{"key": number, "value": file.record_count} for number in counted],
        "null_value_counts": [{"key": number, "value": 0} for number in counted],
        "lower_bounds": _earlier_bounds(file.timestamp_min_ms, file.offset_min),
        "upper_bounds": _earlier_bounds(file.timestamp_max_ms, file.offset_max),
    }


def _earlier_bounds(timestamp_ms: int, offset: int) -> list[dict[str, Any]]:
    """Return a bound of each column that has one; none of timestamps whose microseconds Iceberg cannot hold."""
    bounds = {TIMESTAMP_ID: timestamp_ms * 1000, OFFSET_ID: offset}
    return [
        {"key": number, "value": value.to_bytes(8, "little", signed=True)}
        for number, value in bounds.items()
        if -_INT64_MAX <= value <= _INT64_MAX
    ]


@lru_cache
def _numbers(columns: Columns | None) -> Mapping[tuple[str, ...], tuple[int, pa.DataType]]:
    """Return the numbers and types of columns and of fields of structs, by the names that lead to them."""
    schema = with_offsets(stored_schema(columns))
    numbered = numbered_columns(schema)
    found: dict[tuple[str, ...], tuple[int, pa.DataType]] = {}
    for leaf in leaves(schema):
        if leaf.names is not None:
            field = numbered.field(leaf.names[0])
            for name in leaf.names[1:]:
                field = field.type.field(name)
            number = number_of(field)
            assert number is not None
            found[leaf.names] = (number, leaf.type)
    return found


def _bounds(low: Any, high: Any, data_type: pa.DataType) -> tuple[bytes | None, bytes | None]:
    if pa.types.is_string(data_type):
        return _least_text(low), _greatest_text(high)
    return _value(low, data_type), _value(high, data_type)


def _value(value: Any, data_type: pa.DataType) -> bytes | None:
    """Return a value as Iceberg has single ones; None for types without bounds, and times that engines cannot show."""
    if pa.types.is_boolean(data_type):
        return bytes([value])
    if pa.types.is_floating(data_type):
        return struct.pack("<f" if pa.types.is_float32(data_type) else "<d", value)
    if pa.types.is_decimal(data_type):
        return int(value).to_bytes(_signed_size(value), "big", signed=True)
    if pa.types.is_date(data_type):
        return _int(value, 4) if _YEARS_DAYS[0] <= value <= _YEARS_DAYS[1] else None
    if pa.types.is_timestamp(data_type):
        microseconds = value * _US[data_type.unit]
        return _int(microseconds, 8) if _YEARS_DAYS[0] <= microseconds // _DAY_US <= _YEARS_DAYS[1] else None
    if pa.types.is_integer(data_type):
        return _int(value, 8 if pa.types.is_int64(data_type) else 4)
    return None


def _int(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little", signed=True)


def _signed_size(value: int) -> int:
    """Return how many bytes a number takes at least, with its sign."""
    return (value if value >= 0 else ~value).bit_length() // 8 + 1


def _least_text(value: bytes) -> bytes | None:
    text = _decoded(value)
    return None if text is None else text[:_TEXT_MAX].encode()


def _greatest_text(value: bytes) -> bytes | None:
    """Return a text that is not less than another, and is cut; None if none with so few characters is."""
    text = _decoded(value)
    if text is None or len(text) <= _TEXT_MAX:
        return None if text is None else value
    for place in reversed(range(_TEXT_MAX)):
        code = ord(text[place])
        if code < _LAST_CHARACTER:
            following = code + 1
            if following in _SURROGATES:
                following = _SURROGATES.stop
            return (text[:place] + chr(following)).encode()
    return None


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:  # of foreign bytes
        return None


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
