"""Records as a file that is written while it is sent: some rows at a time are in memory, whatever the topic holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import RawIOBase
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sparktxn._programs.console.pagesource import Source
from sparktxn._programs.console.recordreads import RecordFilter, batches_of, in_pieces
from sparktxn._programs.console.requestparameters import Hidden, RequestParameters
from sparktxn.store import output_schema
from sparktxn.transfer.csvrows import is_text_in_csv
from sparktxn.transfer.jsonrows import encoded, json_bytes, json_values

FORMATS: Final = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
_BATCH_ROWS: Final = 2_048


class Download(msgspec.Struct, frozen=True):
    """A file that is made while its chunks are taken."""

    name: str
    media_type: str
    chunks: Iterator[bytes]


class _Sink(RawIOBase):
    """What writers write to: it keeps only what has not been sent yet."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[bytes] = []

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Keep bytes until they are taken."""
        part = bytes(data)
        self._waiting.append(part)
        return len(part)

    def taken(self) -> bytes:
        """Return what was written since this was last called."""
        found, self._waiting = b"".join(self._waiting), []
        return found


def download(source: Source, asked: RequestParameters, name: str) -> Download:
    """Return the committed records of a topic or of one `partition`, from `offset` on, that meet the filters.

    CSV has text where bytes are UTF-8, else ``base64:`` and base64; JSON Lines has base64 under another name.

    Raises:
        Hidden: this console shows no values.
    """
    if source.hide_values:
        raise Hidden("values are hidden by this console (--hide-values): records cannot be downloaded")
    kind = asked.choice("format", FORMATS, "jsonl")
    view = source.topic_view(name, asked.entry())
    topic = view.topics[name]
    partition = asked.number("partition", most=topic.partition_count - 1)
    start = asked.number("offset", 0) or 0
    wanted = RecordFilter.asked(asked)
    numbers = range(topic.partition_count) if partition is None else [partition]
    schema = output_schema(topic.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in numbers:
            bounds = {(name, number): (start if partition is not None else 0, None)}
            for batch in batches_of(source.store, source.store.plan_view(view, bounds=bounds, rows="all"), _BATCH_ROWS):
                yield from [batch] if wanted.is_empty else _filtered(batch, wanted)

    write = {"csv": _csv, "jsonl": _json_lines, "parquet": _parquet}[kind]
    chunks = write(schema, batches, is_record=topic.schema is None)
    part = "" if partition is None else f"-{partition}"
    return Download(f"{name}{part}.{kind}", FORMATS[kind], chunks)


def _filtered(batch: pa.RecordBatch, wanted: RecordFilter) -> Iterator[pa.RecordBatch]:
    for piece in in_pieces(batch):
        found = piece.filter(pa.array([wanted.meets(row) for row in piece.to_pylist()], pa.bool_()))
        if found.num_rows:
            yield found


_Batches = Callable[[], Iterator[pa.RecordBatch]]


def _pieces(batches: _Batches) -> Iterator[pa.RecordBatch]:
    for batch in batches():
        yield from in_pieces(batch)


def _parquet(schema: pa.Schema, batches: _Batches, *, is_record: bool) -> Iterator[bytes]:
    sink = _Sink()
    writer = pyarrow.parquet.ParquetWriter(pa.PythonFile(sink, "w"), schema, compression="zstd")
    for batch in batches():
        writer.write_batch(batch)
        yield sink.taken()
    writer.close()
    yield sink.taken()


def _json_lines(schema: pa.Schema, batches: _Batches, *, is_record: bool) -> Iterator[bytes]:
    for batch in _pieces(batches):
        columns = [json_values(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
        rows = (dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True))
        yield b"".join(encoded(_members(row) if is_record else row) + b"\n" for row in rows)


def _members(row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name == "headers":
            found[name] = [{"key": one["key"]} | json_bytes("value", one["value"]) for one in value or ()]
        else:
            found |= json_bytes(name, value) if isinstance(value, bytes) else {name: value}
    return found


def _csv(schema: pa.Schema, batches: _Batches, *, is_record: bool) -> Iterator[bytes]:
    sink = _Sink()
    texts = pa.schema(
        [pa.field(field.name, pa.string() if is_text_in_csv(field.type) else field.type) for field in schema]
    )
    writer = pyarrow.csv.CSVWriter(pa.PythonFile(sink, "w"), texts)
    for batch in _pieces(batches):
        columns = [
            _text_column(field, column) if is_text_in_csv(field.type) else column
            for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=texts))
        yield sink.taken()
    writer.close()
    yield sink.taken()


def _text_column(field: pa.Field, column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else _text(value) for value in json_values(field, column)], pa.string())


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        (name, text), *_ = json_bytes("text", value).items()
        return f"base64:{text}" if name != "text" else str(text)
    found = msgspec.to_builtins(value)
    return found if isinstance(found, str) else msgspec.json.encode(value).decode()
