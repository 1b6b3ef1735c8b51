"""Every decoder of stored or given bytes, with valid inputs to begin from and the errors that it may raise.

The valid inputs are the objects of a store that holds every kind of object and command. A decoder here is what its
callers do with the bytes: an entry is also applied to the state before it. A checksum that is kept elsewhere is the
right one, so that the parsing behind the checksum is reached whatever the bytes are.

`StagedSegment`, `StagePlan` and `ReadTask` are pickled between processes of one job: pickles are trusted, as in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import google_crc32c
import msgspec
import pyarrow as pa

from pyspark_txnlog.options.offsets import parse_offsets
from pyspark_txnlog.options.options import READ, ReadOptions
from sparktxn._engine.format import checkpoint, names
from sparktxn._engine.format.appends import decode_appends, encode_appends
from sparktxn._engine.format.checkpoint import (
    PartRef,
    checked_head,
    decode_head,
    decode_hint,
    decode_marker,
    decode_opened_head,
    decode_part,
    digest,
    encode_head,
    encode_marker,
)
from sparktxn._engine.format.commands import Append
from sparktxn._engine.format.copies import CopyDocument, decode_copy, encode_copy
from sparktxn._engine.format.entry import decode_entry, decode_intent, decode_store, encode_intent, seal_document
from sparktxn._engine.format.manifest import decode_manifest
from sparktxn._engine.format.schema import parse_type
from sparktxn._engine.format.segment import checksum, decode_segment, encode_inline, encode_segment, stored_schema
from sparktxn._engine.format.snapshot import decode_snapshot
from sparktxn._engine.format.txnindex import decode_transaction_index
from sparktxn._engine.format.vacuumhint import VacuumHint, decode_vacuum_hint, encode_vacuum_hint
from sparktxn._engine.log.follow.checkpointheads import newest_head
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._engine.objectstore.uri import parse_uri
from sparktxn._foundation.process.clock import SystemClock
from sparktxn.errors import ConfigurationError, StoreError
from tests.compatibility.workload import written

__all__ = ["DECODERS", "Decoder", "sealed"]

OBJECT_NAME = "topics/a-1/0/object"
TYPED = (
    *(("id", "int64", False), ("name", "string", True), ("price", "decimal128(9, 2)", True), ("day", "date32", True)),
    ("tags", "list<struct<a: string not null, b: list<int32>>>", True),
)
TOKEN = "0123456789abcdefghij"
_VACUUM_HINT = VacuumHint(
    horizon=9, segment_floor=7, listed_ms=5, objects=3, folders=("topics/a-1/kafka_partition=0/",)
)


class Decoder(NamedTuple):
    """One decoder. `shape` says what a structured mutation may change: a sealed document, JSON, text or bytes."""

    name: str
    decode: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    shape: str
    errors: tuple[type[Exception], ...] = (StoreError,)


@cache
def _store() -> MemoryStore:
    """The store, written once per process."""
    with written("memory://fuzz", {"checkpoint.entries": 16, "checkpoint.seal.segments": 4}, 6):
        return MemoryStore("fuzz", SystemClock())


@cache
def _objects(pattern: str) -> tuple[bytes, ...]:
    """The store's objects whose whole name matches, in the order of their names."""
    named = [info.name for info in _store().list("") if re.fullmatch(pattern, info.name)]
    found = tuple(data for data in _store().get_many(named) if data is not None)
    assert found, f"the store has no object {pattern}"
    return found


def sealed(body: bytes) -> bytes:
    """A JSON object with the checksum that it should have."""
    return body[:-1] + b',"checksum":"%08x"}' % google_crc32c.value(body[:-1])


class _Replica:
    """Replicas that stand before each of the store's entries; one is made again when it has taken an input."""

    def __init__(self) -> None:
        self._tails: dict[int, Tail] = {}

    def at(self, entry: int) -> Tail:
        tail = self._tails.get(entry)
        if tail is None or tail.entry != entry:
            tail = Tail(_store(), newest_head(_store(), at_most=entry))
            tail.advance(at_most=entry)
            self._tails[entry] = tail
        return tail


_replica = _Replica()


def _entry(data: bytes) -> object:
    """Decodes an entry, and applies it to the state in which its number and its predecessor's checksum are right."""
    number = _number_in(data)
    entry = decode_entry(data, names.entry(number), number)
    tail = _replica.at(min(number, len(_objects(r"_log/\d+\.json"))) - 1)
    tail.apply(entry, len(data))
    tail.parts.catch_up()
    return entry


def _number_in(data: bytes) -> int:
    """The number that an entry says it has, so that it is met where it would be; 1 if it says none of the store's."""
    head = data[:40].split(b'"entry":', 1)
    digits = head[1].split(b",", 1)[0] if len(head) == 2 else b""
    return int(digits) if digits.isdigit() and 0 < len(digits) < 4 and int(digits) else 1


def _part(data: bytes) -> object:
    return decode_part(data, OBJECT_NAME, PartRef(OBJECT_NAME, len(data), digest(data)))


def _head(data: bytes) -> object:
    """Decodes a head as opening does, then each of its parts' references, then all of it as everyone else does."""
    entry = int(newest_head(_store()).entry)  # type: ignore[union-attr]
    opened = decode_opened_head(data, OBJECT_NAME, entry)
    parts = dict(opened.parts)
    head = checked_head(opened)
    assert head == decode_head(data, OBJECT_NAME, entry)
    assert parts == head.parts
    return head


def _packed_head() -> bytes:
    """The newest head, packed although it names few parts."""
    head = newest_head(_store())
    assert head is not None
    with patch.object(checkpoint, "PACKED_PARTS_MIN", 1):
        return encode_head(head)


def _text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: parse(data.decode("utf-8", "surrogateescape"))


def _names(text: str) -> object:
    """All parsers of names; what they take for a name must be that very name again."""
    found = [getattr(names, parse)(text) for parse in vars(names) if parse.startswith("parse_")]
    entry = names.parse_entry(text)
    assert entry is None or names.entry(entry) == text
    head = names.parse_checkpoint_head(text)
    assert head is None or names.checkpoint_head(*head) == text
    return found, names.checked_name(text, OBJECT_NAME)


@cache
def _segments(segment_format: str) -> tuple[bytes, ...]:
    """Segments of each schema, small and larger, compressed and plain; `inline` ones are in no file."""
    found = []
    for schema in (None, TYPED):
        for rows in (1, 40):
            for compression in ("zstd", "none"):
                table = _table(schema, rows)
                if segment_format == "inline":
                    found.append(encode_inline(table, compression=compression))
                else:
                    found.append(encode_segment(table, segment_format=segment_format, compression=compression))
    return tuple(found)


def _table(schema: Any, rows: int) -> pa.Table:
    if schema is None:
        row: dict[str, Any] = {
            "key": b"k",
            "value": b"v" * 20,
            "headers": [{"key": "h", "value": None}],
            "timestamp": 7,
        }
    else:
        tags = [{"a": "x", "b": [1, None]}, {"a": "y", "b": None}]
        row = {"id": 1, "name": "n", "price": None, "day": 5, "tags": tags, "_timestamp": 7}
    return pa.Table.from_pylist([row] * rows, schema=stored_schema(schema))


def _segment(data: bytes) -> None:
    """Decodes a segment as either schema, whole and in part; the log says that it has one record, or 40."""
    errors = []
    for schema in (None, TYPED):
        stored = stored_schema(schema)
        for columns in (None, [stored.names[1]], []):
            for count in (1, 40):
                try:
                    decode_segment(data, OBJECT_NAME, schema=stored, columns=columns, record_count=count)
                except StoreError as error:
                    errors.append(error)
    if len(errors) == 12:
        raise errors[0]


def _appends() -> list[Append]:
    entries = [decode_entry(data, names.STORE, _number_in(data)) for data in _objects(r"_log/\d+\.json")]
    return [command for entry in entries for command in entry.commands if isinstance(command, Append)]


def _intents() -> list[bytes]:
    appends = _appends()
    return [encode_intent(TOKEN, 3, [appends[:2], appends[2:3]])]


def _copies() -> list[bytes]:
    members: Any = {"token": TOKEN, "horizon": 3, "entry": 42, "entry_checksum": "0c7e11fa"}
    whole = [encode_copy(CopyDocument(copy=2, complete=complete, **members)) for complete in (False, True)]
    # Earlier versions named topics, of a copy of these alone.
    some = msgspec.json.encode(
        {"format": 1, "copy": 2, "complete": True, "topics": {"orders": 1, "trips": 4}, **members}
    )
    return [*whole, seal_document(some)[0]]


def _marker(data: bytes) -> object:
    return decode_marker(data)


_OFFSETS = (b"earliest", b'{"flights":{"0":23,"1":-2}}', b'{"a":{"0":0},"b.c":{"12":-1}}')
_ASSIGNED = (b'{"flights":[0,1]}', b'{"a":[3],"b.c":[0,0]}')
_TYPES = (
    b"int64",
    b"map<string, list<struct<a: int64 not null, b: decimal128(9, 2)>>>",
    b"timestamp[us, tz=UTC]",
    b"map<string, list<int8> not null>",
)
_URIS = (b"s3://bucket/a/b", b"file:///tmp/x", b"/tmp/x", b"memory://m")
_NAMES = (names.entry(42).encode(), names.checkpoint_head(7, TOKEN).encode(), b"topics/a-1/0/x.parquet", b"../x")

DECODERS = {
    decoder.name: decoder
    for decoder in (
        Decoder("entry", _entry, lambda: _objects(r"_log/\d+\.json"), "sealed"),
        Decoder("store", lambda data: decode_store(data, OBJECT_NAME), lambda: _objects(names.STORE), "sealed"),
        Decoder("head", _head, lambda: _objects(r"_log/_checkpoints/[^/]*\.json")[-1:], "sealed"),
        Decoder("packed head", _head, lambda: [_packed_head()], "sealed"),
        Decoder("intent", lambda data: decode_intent(data, OBJECT_NAME, 3, TOKEN), _intents, "sealed"),
        Decoder("copy", lambda data: decode_copy(data, OBJECT_NAME, 2), _copies, "sealed"),
        Decoder("part", _part, lambda: _objects(r"_log/_checkpoints/.*/\d+\.json"), "json"),
        Decoder("hint", decode_hint, lambda: _objects(names.LAST_CHECKPOINT), "json", ()),
        Decoder("vacuum hint", decode_vacuum_hint, lambda: [encode_vacuum_hint(_VACUUM_HINT)], "json", ()),
        Decoder("marker", _marker, lambda: [encode_marker([TOKEN])], "json", ()),
        Decoder(
            "appends",
            lambda data: decode_appends(data, OBJECT_NAME, checksum(data)),
            lambda: [encode_appends(_appends())],
            "bytes",
        ),
        Decoder(
            "manifest",
            lambda data: decode_manifest(data, OBJECT_NAME),
            lambda: _objects(r".*/manifest"),
            "bytes",
        ),
        Decoder(
            "txnindex",
            lambda data: decode_transaction_index(data, OBJECT_NAME),
            lambda: _objects(r".*\.txnindex"),
            "bytes",
        ),
        Decoder(
            "snapshot", lambda data: decode_snapshot(data, OBJECT_NAME), lambda: _objects(r".*\.snapshot"), "snapshot"
        ),
        Decoder("parquet", _segment, lambda: _segments("parquet"), "bytes"),
        Decoder("arrow", _segment, lambda: _segments("arrow"), "bytes"),
        Decoder("inline", _segment, lambda: _segments("inline"), "bytes"),
        Decoder("names", _text(_names), lambda: _NAMES, "text"),
        Decoder("type", _text(parse_type), lambda: _TYPES, "text", (ConfigurationError,)),
        Decoder("uri", _text(parse_uri), lambda: _URIS, "text", (ConfigurationError,)),
        Decoder(
            "offsets",
            _text(lambda text: parse_offsets("startingOffsets", text)),
            lambda: _OFFSETS,
            "json",
            (ConfigurationError,),
        ),
        Decoder(
            "assign",
            _text(lambda text: ReadOptions.parse({"path": "/s", "assign": text}, READ)),
            lambda: _ASSIGNED,
            "json",
            (ConfigurationError,),
        ),
    )
}
