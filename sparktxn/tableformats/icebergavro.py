"""The Avro files of an Iceberg table's metadata: their schemas, and bytes that are the same in each process.

A file is written by the schemas of Avro's own specification for its header and its one block. So its bytes depend on
nothing that a library may choose: no compression, and a mark between blocks that is the same in each file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro
import msgspec

from sparktxn.format.names import PARTITION_COLUMN

__all__ = ["EARLIER_ENTRY", "ENTRY", "LIST", "Schema", "decode_file", "encode_file"]

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
