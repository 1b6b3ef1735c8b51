"""Reads a store on a local disk with nothing but `json` and `pyarrow`: a second opinion.

It shares no code with sparktxn and follows docs/PROTOCOL.md ("Entries", "Segments", "Inline records"). Entries come in
the order of their numbers, and an `append` names a segment or carries it. Records of a transaction count from the entry
with its `end_txn`, if that commits. It wants every entry from 1 on, so it serves stores that no vacuum has touched.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["CommittedSegment", "LogEntry", "committed", "entries", "rows_of"]

_ZSTANDARD = b"\x28\xb5\x2f\xfd"


class CommittedSegment(NamedTuple):
    """Records that became visible together with an entry: in the file `path`, or in `data` if their entry has them."""

    entry: int
    topic: str
    partition: int
    record_count: int
    path: Path
    data: bytes = b""


class LogEntry(NamedTuple):
    """One entry's number, time and commands."""

    number: int
    timestamp_ms: int
    commands: list[dict[str, Any]]


def entries(store: Path, after: int = 0) -> Iterator[LogEntry]:
    """The entries from `after` + 1 on, until the first that does not exist."""
    number = after
    while (path := store / "_log" / f"{(number := number + 1):020d}.json").exists():
        document = json.loads(path.read_bytes())
        if document["entry"] != number:
            raise ValueError(f"{path} holds entry {document['entry']}")
        yield LogEntry(number, document["timestamp_ms"], document["commands"])


def committed(store: Path) -> Iterator[CommittedSegment]:
    """All committed segments in the order in which they became visible; those of one entry became visible at once."""
    topics: dict[int, str] = {}
    waiting: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for entry in entries(store):
        for command in entry.commands:
            if command["type"] == "create_topic":
                topics[len(topics) + 1] = command["name"]
            elif command["type"] == "append" and command.get("txn", -1) == -1:
                yield _segment(store, topics, entry.number, command)
            elif command["type"] == "append":
                waiting.setdefault((command["producer"], command["txn"]), []).append(command)
            elif command["type"] == "end_txn":
                appends = waiting.pop((command["producer"], command["txn"]), [])
                if command["committed"]:
                    yield from (_segment(store, topics, entry.number, append) for append in appends)


def _segment(store: Path, topics: dict[int, str], entry: int, append: dict[str, Any]) -> CommittedSegment:
    topic, topic_id, partition = topics[append["topic"]], append["topic"], append["partition"]
    path = store / "topics" / f"{topic}-{topic_id}" / f"kafka_partition={partition}" / append["segment"]
    data = base64.b64decode(append.get("data", ""), validate=True)
    return CommittedSegment(entry, topic, partition, append["records"], path, data)


def rows_of(segment: CommittedSegment) -> pa.Table:
    """The segment's records."""
    if segment.data:
        return _inline_rows(segment.data)
    if segment.path.suffix == ".arrow":
        with pa.OSFile(str(segment.path)) as source:
            return pa.ipc.open_file(source).read_all()
    return pq.ParquetFile(segment.path).read()


def _inline_rows(data: bytes) -> pa.Table:
    """The rows of an Arrow stream, which may be one Zstandard frame."""
    if data.startswith(_ZSTANDARD):
        data = pa.CompressedInputStream(io.BytesIO(data), "zstd").read()
    return pa.ipc.open_stream(data).read_all()
