"""A record as `txnlog consume` prints it: by a format string, or as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sparktxn.cli.failures import WrongUsage
from sparktxn.consumer.messages import messages_of
from sparktxn.kafka.message import TIMESTAMP_LOG_APPEND_TIME, Headers, Message
from sparktxn.transfer.jsonrows import encoded, json_bytes, json_values

__all__ = ["Printer", "Record", "format_printer", "json_line", "readable", "record_of", "records_of", "unescaped"]

Printer = Callable[["Record"], bytes]


class Record(NamedTuple):
    """One record. A typed topic's has `columns`, and as its value the columns as JSON."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    is_log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: Headers
    columns: dict[str, Any] | None = None


def record_of(message: Message) -> Record:
    """Return a client's message as a record."""
    kind, timestamp_ms = message.timestamp()
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp_ms,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        message.key(),
        message.value(),
        message.headers() or [],
    )


def records_of(batch: pa.RecordBatch, topic: str, partition: int) -> Iterator[Record]:
    """Yield the rows of a batch as a reader of the topic gets it."""
    messages = messages_of(batch, topic, partition)
    yield from _typed(batch) if messages is None else map(record_of, messages)


def _typed(batch: pa.RecordBatch) -> Iterator[Record]:
    names = [name for name in batch.schema.names if not name.startswith("_")]
    times = batch.column("_timestamp").cast(pa.int64()).to_pylist()
    places = [batch.column(name).to_pylist() for name in ("_topic", "_partition", "_offset")]
    values = (json_values(batch.schema.field(name), batch.column(name)) for name in names)
    rows = (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))
    for columns, timestamp_ms, topic, partition, offset in zip(rows, times, *places, strict=True):
        yield Record(topic, partition, offset, timestamp_ms, False, None, encoded(columns), [], columns)


def json_line(record: Record) -> bytes:
    """Return a record as JSON on a line; bytes that are not UTF-8 are in ``key_base64`` or ``value_base64``."""
    row: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": "log_append" if record.is_log_append_time else "create",
    }
    if record.columns is not None:
        row["value"] = record.columns
    else:
        row |= json_bytes("key", record.key) | json_bytes("value", record.value)
        row["headers"] = [{"name": name} | json_bytes("value", value) for name, value in record.headers]
    return encoded(row) + b"\n"


def readable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with bytes as text; those that are not UTF-8 are base64, under their name with ``_base64``."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            found |= json_bytes(name, value)
        elif isinstance(value, dict):
            found[name] = readable(value)
        elif isinstance(value, list):
            found[name] = [readable(item) if isinstance(item, dict) else item for item in value]
        else:
            found[name] = value
    return found


_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PARTS = re.compile(r"\\(?P<hex>x[0-9a-fA-F]{2})|\\(?P<escape>.)|%(?P<token>.)|(?P<text>[^\\%]+|[\\%])", re.DOTALL)
_TOKENS: Final = "%t %p %o %k %s %h %T %K %S %%"


def unescaped(text: str) -> bytes:
    r"""Return the bytes that ``\n``, ``\t``, ``\x1e`` and their like mean.

    Raises:
        WrongUsage: an escape is unknown.
    """
    return b"".join(_escape(part, text) for part in _PARTS.finditer(text))


def _escape(part: re.Match[str], text: str) -> bytes:
    if part["hex"]:
        return bytes([int(part["hex"][1:], 16)])
    if part["escape"]:
        if part["escape"] not in _ESCAPES:
            raise WrongUsage(rf"{text!r} has the unknown escape \{part['escape']}: expected \n \r \t \0 \\ or \xNN")
        return _ESCAPES[part["escape"]]
    return part[0].encode("utf-8", "surrogateescape")


def format_printer(text: str, *, null: bytes = b"") -> Printer:
    r"""Return what prints a record by kcat's format string; `null` is printed for a key or a value that is null.

    Its tokens are topic, partition, offset, key, value, headers, timestamp in milliseconds, and the lengths of key and
    value in bytes (-1 for null)::

        %t %p %o %k %s %h %T %K %S %%

    Raises:
        WrongUsage: a token or an escape is unknown.
    """
    tokens: dict[str, Printer] = {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: null if record.key is None else record.key,
        "s": lambda record: null if record.value is None else record.value,
        "h": lambda record: b",".join(_header(name, value, null) for name, value in record.headers),
        "T": lambda record: b"%d" % record.timestamp_ms,
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
    }
    parts: list[Printer] = []
    for part in _PARTS.finditer(text):
        token = part["token"]
        if token in tokens:
            parts.append(tokens[token])
        elif token not in (None, "%"):
            raise WrongUsage(f"--format {text!r} has the unknown token %{token}: expected {_TOKENS}")
        else:
            plain = b"%" if token else _escape(part, text)
            parts.append(lambda record, plain=plain: plain)  # type: ignore[misc]
    return lambda record: b"".join(part(record) for part in parts)


def _header(name: str, value: bytes | None, null: bytes) -> bytes:
    return name.encode() + b"=" + (null if value is None else value)
