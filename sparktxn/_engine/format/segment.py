"""Segments: the records of one partition as a Parquet or an Arrow IPC file, or inline (PROTOCOL.md, "Segments").

A fresh segment stores no offsets: the record at row `i` has the offset `base + i`, and the log holds the base. A file
that a rewrite has made has a column of them. A column that may be null and is null in every row is left out of the file
and reads back as null.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from sparktxn._engine.format.decodeguard import (
    DECODED_BYTES_MAX,
    TooLarge,
    check_arrow,
    check_parquet,
    check_stream,
    may_expand,
)
from sparktxn._engine.format.schema import (
    OFFSET_COLUMN,
    RECORD_SCHEMA,
    TIMESTAMP_COLUMN,
    check_schema,
    offset_column,
    parse_type,
    stored_schema,
    type_text,
)
from sparktxn._engine.format.statistics import columns_with_statistics, shares_its_path
from sparktxn._foundation.values.arrowvalues import byte_strings, integers, lists_of_pairs, without_hidden_nulls
from sparktxn.errors import ConfigurationError, DamagedObject

__all__ = [
    "INLINE_BYTES_MAX",
    "RECORD_SCHEMA",
    "TIMESTAMP_COLUMN",
    "InlineSegment",
    "StreamReader",
    "check_schema",
    "checksum",
    "decode_inline",
    "decode_row_groups",
    "decode_segment",
    "decode_stream",
    "encode_inline",
    "encode_segment",
    "encode_stream",
    "is_stream",
    "parquet_options",
    "parse_type",
    "record_columns",
    "stored_schema",
    "stream_bytes",
    "timestamp_range_ms",
    "type_text",
]


# Inline records: those of a small append, which its log entry carries (PROTOCOL.md, "Inline records").
#
# They are an Arrow IPC stream with one record batch, and mostly a Zstandard frame of it. The frame says how long the
# stream is, so that nothing is decoded which decodes to more.

INLINE_BYTES_MAX: Final = 65_536
"""An append carries at most so many bytes: the state machine of every process refuses more."""

_DECODED_BYTES_MAX: Final = 8 << 20
_FRAME: Final = b"\x28\xb5\x2f\xfd"
_CONTINUATION: Final = b"\xff\xff\xff\xff"
_LEVEL: Final = 1
# Stated, since pyarrow would ask the environment at each call.
_WRITTEN: Final = ipc.IpcWriteOptions(use_threads=False)
_UNCOMPRESSED: Final = frozenset({"none", "uncompressed"})

# A frame of fewer bytes saves less than decoding it costs.
_COMPRESSED_FROM_BYTES: Final = 1_024

# RFC 8878, section 3.1.1.1: what the frame's descriptor says of the fields after it.
_SINGLE_SEGMENT: Final = 0x20
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_SIZE_FORMATS: Final = ("<B", "<H", "<I", "<Q")
_TWO_BYTES_FROM: Final = 256


def encode_stream(table: pa.Table, compression: str) -> bytes:
    """Return the bytes of `table` as an append carries them.

    Args:
        table: at least one row; no column is null throughout.
        compression: topic setting ``compression.type``; each codec but none means Zstandard here.

    Raises:
        TooLarge: no reader would decode them.
    """
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=_WRITTEN) as writer:
        # One batch: a stream with several would repeat what describes them.
        writer.write_table(table.combine_chunks())
    stream = sink.getvalue()
    if stream.size > _DECODED_BYTES_MAX:
        raise TooLarge(_too_large(stream.size))
    if compression in _UNCOMPRESSED or stream.size < _COMPRESSED_FROM_BYTES:
        return bytes(stream)
    # Made for each call: threads share none, and pyarrow makes its context anew for each call.
    return bytes(pa.Codec("zstd", _LEVEL).compress(stream, asbytes=True))


def is_stream(data: bytes) -> bool:
    """Return True if `data` begins as inline records do."""
    return data[:4] in (_FRAME, _CONTINUATION)


class StreamReader:
    """Decodes streams one after the other; an equal schema is not decoded again."""

    def __init__(self) -> None:
        self._head: bytes = b""
        self.schema: pa.Schema | None = None

    def read(self, data: bytes, *, guarded: bool = False) -> pa.RecordBatch:
        """Return the rows that `encode_stream` was given. `schema` is theirs, the same object where it is equal.

        Args:
            data: what `encode_stream` has returned.
            guarded: check first that no buffer was compressed by itself: such a one may decode to any size.

        Raises:
            TooLarge: it decodes to more than an append's records can, or does not say to how much. Where it is
                guarded: it is not one batch of plain buffers.
            Exception: of any kind, if the bytes are not such a stream.
        """
        stream = pa.py_buffer(data) if not data.startswith(_FRAME) else _decompressed(data)
        if guarded:
            check_stream(stream)
        # A message has a mark of four bytes, the size of its metadata, and the metadata; a schema has no body.
        end = 8 + int.from_bytes(stream[4:8], "little")
        head = bytes(stream[:end])
        if self.schema is None or head != self._head:
            self._head, self.schema = head, ipc.read_schema(stream)
        return ipc.read_record_batch(stream[end:], self.schema)


def decode_stream(data: bytes, *, guarded: bool = True) -> pa.Table:
    """Return the rows that `encode_stream` was given.

    Raises:
        TooLarge, Exception: as `StreamReader.read`.
    """
    return pa.Table.from_batches([StreamReader().read(data, guarded=guarded)])


def stream_bytes(data: bytes) -> int:
    """Return about how many bytes a stream decodes to; `data` need be none."""
    try:
        return _content_bytes(data) if data.startswith(_FRAME) else len(data)
    except (TooLarge, IndexError, struct.error):
        return len(data)


def _decompressed(data: bytes) -> pa.Buffer:
    size = _content_bytes(data)
    if size > _DECODED_BYTES_MAX:
        raise TooLarge(_too_large(size))
    return pa.decompress(data, decompressed_size=size, codec="zstd")


def _too_large(size_bytes: int) -> str:
    return f"it decodes to {size_bytes} bytes: expected {_DECODED_BYTES_MAX} at most"


def _content_bytes(frame: bytes) -> int:
    """Return how many bytes a Zstandard frame says that it holds.

    Raises:
        TooLarge: it does not say.
        IndexError, struct.error: it ends before it does.
    """
    descriptor = frame[4]
    is_single = bool(descriptor & _SINGLE_SEGMENT)
    kind = descriptor >> 6
    if kind == 0 and not is_single:
        raise TooLarge("it does not say how many bytes it decodes to")
    place = 5 + (0 if is_single else 1) + _DICTIONARY_BYTES[descriptor & 3]
    (size,) = struct.unpack_from(_SIZE_FORMATS[kind], frame, place)
    return int(size) + (_TWO_BYTES_FROM if kind == 1 else 0)


_HEADERS_TYPE: Final = RECORD_SCHEMA.field("headers").type
_TIMESTAMP_TYPE: Final = RECORD_SCHEMA.field("timestamp").type
_WITHOUT_HEADERS: Final = pa.schema([field for field in RECORD_SCHEMA if field.name != "headers"])

_PARQUET_MAGIC: Final = b"PAR1"
_ARROW_MAGIC: Final = b"ARROW1"
_ROW_GROUP_ROWS: Final = 1_048_576
_PAGE_BYTES: Final = 1_048_576
"""As Spark's own files have it. Each page needs a context of zstd, so pages of an eighth of it cost more time."""

# Kafka's record needs no check of its columns: small commits are measured in microseconds.
_RECORD_ENCODING: Final = {"timestamp": "DELTA_BINARY_PACKED"}
_OFFSET_ENCODING: Final = {**_RECORD_ENCODING, OFFSET_COLUMN: "DELTA_BINARY_PACKED"}

# Tiny Arrow segments are the format's purpose: compressing one costs six times its encoding.
_ARROW_COMPRESSED_FROM_BYTES: Final = 32_768

# For a segment of a small commit a call of Arrow's kernels costs more than a loop.
_LOOPED_ROWS_MAX: Final = 1_024

# A dictionary pays when values repeat; a sample shows it. Below its size the cost of trying is not earned back.
_SAMPLE_ROWS: Final = 1_024
_SAMPLE_DISTINCT_MAX: Final = _SAMPLE_ROWS // 8

_ARROW_COMPRESSION: Final[dict[str, str | None]] = {
    "zstd": "zstd",
    "producer": "zstd",
    "lz4": "lz4",
    "uncompressed": None,
    "none": None,
}
_PARQUET_COMPRESSION: Final = {
    "zstd": "zstd",
    "producer": "zstd",
    "lz4": "lz4",
    "snappy": "snappy",
    "gzip": "gzip",
    "uncompressed": "none",
    "none": "none",
}


def checksum(data: bytes) -> str:
    """Return the CRC-32C of `data` as 8 lower-case hexadecimal digits.

    >>> checksum(b"123456789")
    'e3069283'
    """
    return f"{google_crc32c.value(data):08x}"


def encode_segment(table: pa.Table, *, segment_format: str, compression: str) -> bytes:
    """Return the bytes of a segment that holds the rows of `table`, in their order.

    Args:
        table: at least one row, in the topic's `stored_schema`.
        segment_format: ``parquet`` or ``arrow`` (topic setting ``segment.format``).
        compression: topic setting ``compression.type``.

    Raises:
        ConfigurationError: the format does not know that compression.
    """
    if table.num_rows == 0:
        raise ValueError("a segment holds at least one record")
    table = _without_null_columns(table)
    return _encode_parquet(table, compression) if segment_format == "parquet" else _encode_arrow(table, compression)


def record_columns(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes | None]] | None],
    times_ms: Iterable[int],
) -> pa.Table:
    """Return Kafka's records as segments store them, without the column of headers where no record has any."""
    # A buffer of integers needs no conversion by Arrow, which would check each type.
    times = integers(times_ms, _TIMESTAMP_TYPE)
    columns = [byte_strings(keys), byte_strings(values), times]
    if not any(headers):
        return pa.Table.from_arrays(columns, schema=_WITHOUT_HEADERS)
    columns.insert(2, lists_of_pairs(headers, _HEADERS_TYPE))
    return pa.Table.from_arrays(columns, schema=RECORD_SCHEMA)


def timestamp_range_ms(table: pa.Table, schema: pa.Schema) -> tuple[int, int]:
    """Return the least and the greatest timestamp of at least one record, of a topic with this `stored_schema`."""
    timestamps = table.column(schema.names[-1])
    if len(timestamps) > _LOOPED_ROWS_MAX:
        found = pc.min_max(timestamps)
        return found["min"].value, found["max"].value
    values: list[int] = []
    for chunk in timestamps.chunks:
        values += memoryview(chunk.buffers()[1]).cast("q")[chunk.offset : chunk.offset + len(chunk)]
    return min(values), max(values)


def encode_inline(table: pa.Table, *, compression: str) -> bytes:
    """Return the rows of `table` as an append carries them; the arguments are those of `encode_segment`.

    Raises:
        TooLarge: no reader would decode them, few as their bytes may be.
    """
    if table.num_rows == 0:
        raise ValueError("a segment holds at least one record")
    return encode_stream(_without_null_columns(table), compression)


def _without_null_columns(table: pa.Table) -> pa.Table:
    rows = table.num_rows
    null = [index for index, column in enumerate(table.columns) if column.null_count == rows]
    return table.select([index for index in range(table.num_columns) if index not in null]) if null else table


def _codec(known: dict[str, Any], compression: str, segment_format: str) -> Any:
    try:
        return known[compression]
    except KeyError:
        raise ConfigurationError(
            f"setting 'compression.type' is {compression!r}: {segment_format} segments take {', '.join(known)}"
        ) from None


def _bytes(sink: pa.BufferOutputStream) -> bytes:
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _encode_parquet(table: pa.Table, compression: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **parquet_options(table, compression)) as writer:
        writer.write_table(without_hidden_nulls(table), row_group_size=_ROW_GROUP_ROWS)
    return _bytes(sink)


def parquet_options(table: pa.Table, compression: str) -> dict[str, Any]:
    """Return how a Parquet segment is written that begins with the rows of `table`.

    Raises:
        ConfigurationError: Parquet does not know that compression.
    """
    codec = _codec(_PARQUET_COMPRESSION, compression, "parquet")
    return {
        "compression": codec,
        "compression_level": 1 if codec == "zstd" else None,
        "use_dictionary": _repeating_columns(table) or False,
        "column_encoding": _column_encoding(table.schema),
        "write_statistics": columns_with_statistics(table),
        "data_page_size": _PAGE_BYTES,
        "store_schema": False,
        # So that a condition on offsets reaches pages.
        "write_page_index": offset_column(table.schema) in table.schema.names,
    }


def _column_encoding(schema: pa.Schema) -> dict[str, str]:
    """Return the encodings that are not the default, which is a dictionary where asked for and else PLAIN."""
    if TIMESTAMP_COLUMN not in schema.names:
        return _OFFSET_ENCODING if OFFSET_COLUMN in schema.names else _RECORD_ENCODING
    shared = shares_its_path(schema)
    return {
        field.name: "DELTA_BINARY_PACKED" for field in schema if _is_integer(field.type) and field.name not in shared
    }


def _is_integer(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_timestamp(data_type) or pa.types.is_date32(data_type))


def _repeating_columns(table: pa.Table) -> list[str]:
    """Return the columns of text, bytes and fractions whose values repeat enough for a dictionary."""
    if table.num_rows < _SAMPLE_ROWS:
        return []
    sample = table.slice(0, _SAMPLE_ROWS)
    shared = shares_its_path(table.schema)
    return [
        field.name
        for field, column in zip(sample.schema, sample.columns, strict=True)
        if field.name not in shared
        and not (_is_integer(field.type) or pa.types.is_nested(field.type) or pa.types.is_boolean(field.type))
        and pc.count_distinct(column).as_py() <= _SAMPLE_DISTINCT_MAX
    ]


def _encode_arrow(table: pa.Table, compression: str) -> bytes:
    codec = _codec(_ARROW_COMPRESSION, compression, "arrow")
    if table.nbytes < _ARROW_COMPRESSED_FROM_BYTES:
        codec = None
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema, options=ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return _bytes(sink)


def decode_segment(
    data: bytes,
    name: str,
    *,
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    record_count: int | None = None,
    verified: bool = False,
) -> pa.Table:
    """Return the rows of a segment, with exactly `columns` in that order (None: all of `schema`), typed as `schema`.

    Args:
        data: the object's bytes.
        name: the object's name, for the error.
        schema: the topic's `stored_schema` now; columns that it has gained since read as null.
        columns: the columns to read; only these are decoded.
        record_count: how many records the log says that the segment has.
        verified: the caller has compared `data` with the checksum in the log. The bytes are then what a writer of this
            store has staged, so the guard against files that expand without bound is left out. On a segment of one
            record it costs more than decoding.

    Raises:
        DamagedObject: the bytes are not a segment with these columns and this many records.
    """
    wanted = schema if columns is None else pa.schema([schema.field(column) for column in columns])
    decode = {_PARQUET_MAGIC: _decode_parquet, _ARROW_MAGIC[:4]: _decode_arrow}.get(data[:4])
    if decode is None and is_stream(data):
        decode = _decode_inline
    if decode is None:
        raise DamagedObject(name, f"it starts with {data[:6]!r}: expected a Parquet or an Arrow IPC file")
    with _damage_of(name):
        found, row_count = decode(data, name, wanted, record_count, guarded=not verified)
        table = _conform(found, name, wanted, row_count)
        table.validate(full=True)
    return table


def decode_row_groups(
    data: bytes,
    name: str,
    *,
    schema: pa.Schema,
    columns: Sequence[str],
    record_count: int,
    rows: range,
    groups: Container[int] | None = None,
    first_rows: Container[int] | None = None,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of a segment as `decode_segment` returns them, a row group at a time, each with its first row.

    No more than one row group is in memory, and those that are not asked for are not decoded. A segment that is not
    a Parquet file counts as one row group.

    Args:
        data: the object's bytes, which the caller has compared with the checksum in the log.
        name: the object's name, for the error.
        schema: the topic's `stored_schema` now; columns that it has gained since read as null.
        columns: the columns to read, at least one; only these are decoded.
        record_count: how many records the log says that the segment has.
        rows: the rows that are asked for, by their places in the segment.
        groups: the numbers of row groups that are asked for; None: all.
        first_rows: the first rows of those that are asked for; None: all.

    Raises:
        DamagedObject: the bytes are not a segment with these columns and this many records.
    """
    if not data.startswith(_PARQUET_MAGIC):
        if first_rows is not None and 0 not in first_rows:
            return
        whole = decode_segment(data, name, schema=schema, columns=columns, record_count=record_count, verified=True)
        yield 0, whole
        return
    wanted = pa.schema([schema.field(column) for column in columns])
    with _damage_of(name):
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        _check_record_count(name, sum(counts), record_count)
        present = set(file.schema_arrow.names)
    first = 0
    for group, count in enumerate(counts):
        is_asked = (groups is None or group in groups) and (first_rows is None or first in first_rows)
        if is_asked and first < rows.stop and rows.start < first + count:
            with _damage_of(name):
                named = [column for column in columns if column in present]
                found = file.read_row_group(group, columns=named, use_threads=False)
                table = _conform(found, name, wanted, count)
                table.validate(full=True)
            yield first, table
            del found, table  # else this row group stays while the next one is decoded
        first += count


def parquet_footer(data: bytes, name: str) -> pq.FileMetaData | None:
    """Return the footer of a Parquet segment; None for one in another format.

    Raises:
        DamagedObject: the bytes have no footer that can be read; `name` is the object's name, for the error.
    """
    if not data.startswith(_PARQUET_MAGIC):
        return None
    try:
        return pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).metadata
    except Exception as error:  # foreign bytes make the decoders below us fail in any way
        raise DamagedObject(name, f"its footer cannot be read: {error}") from error


def _check_record_count(name: str, found: int, record_count: int | None) -> None:
    if found < 1 or (record_count is not None and found != record_count):
        raise DamagedObject(name, f"it has {found} records: expected {record_count or 'at least one'}")


def _decode_parquet(
    data: bytes, name: str, wanted: pa.Schema, record_count: int | None, *, guarded: bool
) -> tuple[pa.Table, int]:
    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    row_count = file.metadata.num_rows
    # Before anything is decoded: buffers are allocated by what the footer says.
    _check_record_count(name, row_count, record_count)
    present = set(file.schema_arrow.names)
    columns = [column for column in wanted.names if column in present]
    suspects = check_parquet(data, columns) if guarded else []
    if suspects:
        return _read_repeated(data, columns, suspects), row_count
    return file.read(columns=columns, use_threads=False), row_count


def _read_repeated(data: bytes, columns: list[str], suspects: list[str]) -> pa.Table:
    """Read `suspects` as dictionaries first: a large value that a few bytes repeat is seen before it is copied."""
    file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False, read_dictionary=suspects)
    table = file.read(columns=columns, use_threads=False)
    left = DECODED_BYTES_MAX
    for column in suspects:
        encoded = table.column(column)
        for chunk in encoded.chunks:
            lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
            left -= pc.sum(lengths.cast(pa.int64())).as_py() or 0
        if left < 0:
            raise TooLarge(f"it decodes to over {DECODED_BYTES_MAX} bytes")
        plain = encoded.cast(encoded.type.value_type)
        table = table.set_column(table.schema.get_field_index(column), column, plain)
    return table


def _decode_arrow(
    data: bytes, name: str, wanted: pa.Schema, record_count: int | None, *, guarded: bool
) -> tuple[pa.Table, int]:
    if guarded:
        # Before anything is decoded: buffers are allocated by what the footer says.
        _check_record_count(name, check_arrow(data), record_count)
    reader = ipc.open_file(pa.BufferReader(data), options=ipc.IpcReadOptions(use_threads=False))
    present = reader.schema.names
    included = [index for index, column in enumerate(present) if column in wanted.names]
    if included and len(included) < len(present):
        options = ipc.IpcReadOptions(included_fields=included, use_threads=False)
        reader = ipc.open_file(pa.BufferReader(data), options=options)
    table = reader.read_all()
    _check_record_count(name, table.num_rows, record_count)
    return table.select([column for column in table.schema.names if column in wanted.names]), table.num_rows


class InlineSegment(NamedTuple):
    """An inline segment: the name of the object that carries it, its bytes, and how many records the log says."""

    name: str
    data: bytes
    record_count: int


def decode_inline(segments: Sequence[InlineSegment], *, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """Return the rows of inline segments of one topic, one after the other, each column in one piece.

    Args:
        segments: at least one; the caller has compared their bytes with the checksums in the log, or has made them.
        schema: the topic's `stored_schema` now.
        columns: the columns to read, at least one.

    Raises:
        DamagedObject: the bytes of one are not a segment with these columns and this many records.
    """
    wanted = pa.schema([schema.field(column) for column in columns])
    reader = StreamReader()
    last: pa.Schema | None = None
    alike: list[tuple[str, list[pa.RecordBatch]]] = []
    for segment in segments:
        try:
            batch = reader.read(segment.data)
            batch.validate(full=True)
        except Exception as error:
            raise _undecodable(segment.name, error) from error
        _check_record_count(segment.name, batch.num_rows, segment.record_count)
        if reader.schema is not last:
            last = reader.schema
            alike.append((segment.name, []))
        alike[-1][1].append(batch)
    found = []
    for name, batches in alike:
        try:
            rows = pa.Table.from_batches(batches)
            found.append(_conform(rows, name, wanted, rows.num_rows))
        except DamagedObject:
            raise
        except Exception as error:
            raise _undecodable(name, error) from error
    return pa.concat_tables(found).combine_chunks()


@contextmanager
def _damage_of(name: str) -> Iterator[None]:
    """Raise DamagedObject for whatever a decoder raises: foreign bytes make it fail in any way."""
    try:
        yield
    except DamagedObject:
        raise
    except Exception as error:
        raise _undecodable(name, error) from error


def _undecodable(name: str, error: Exception) -> DamagedObject:
    return DamagedObject(name, f"it cannot be decoded: {error}")


def _decode_inline(
    data: bytes, name: str, wanted: pa.Schema, record_count: int | None, *, guarded: bool
) -> tuple[pa.Table, int]:
    table = decode_stream(data, guarded=guarded)
    _check_record_count(name, table.num_rows, record_count)
    return table, table.num_rows


def _conform(found: pa.Table, name: str, wanted: pa.Schema, row_count: int) -> pa.Table:
    present = set(found.schema.names)
    arrays = []
    for field in wanted:
        if field.name in present:
            column = found.column(field.name)
            if not column.type.equals(field.type):
                if may_expand(column.type):
                    raise DamagedObject(name, f"its column {field.name!r} is of the type {column.type}")
                # A cast follows the offsets: those of foreign bytes may lead anywhere.
                column.validate(full=True)
                column = column.cast(field.type)
            arrays.append(column)
        elif field.nullable:
            arrays.append(pa.chunked_array([pa.nulls(row_count, field.type)]))
        else:
            raise DamagedObject(name, f"it has no column {field.name!r}")
    for field, column in zip(wanted, arrays, strict=True):
        if not field.nullable and column.null_count:
            raise DamagedObject(name, f"its column {field.name!r} has nulls")
    if not arrays:
        # Only a selection keeps the number of rows of no columns: that is all that counting needs.
        return pa.table({"rows": pa.nulls(row_count)}).select([])
    return pa.Table.from_arrays(arrays, schema=wanted)
