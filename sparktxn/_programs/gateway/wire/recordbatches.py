"""Kafka's record batches (magic 2) to columns, and back, with their compression, by compiled code only.

aiokafka's codec reads and writes records; Arrow holds them. What a producer may have made wrong is found before the
codec sees it, but for the records themselves.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder
from kio.schema.errors import ErrorCode as WireCode

from sparktxn._engine.format.segment import record_columns
from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn.errors import ErrorCode, KafkaError, KafkaException

# The payloads of Kafka's record batches, decompressed up to a limit, so that no batch takes more memory than that.
#
# And compressed, as a topic's ``compression.type`` says.

UNCOMPRESSED, _GZIP, _SNAPPY, _LZ4, ZSTD = range(5)
_STREAMED: Final = {_GZIP: "gzip", _LZ4: "lz4", ZSTD: "zstd"}
_GZIP_LEVEL: Final = 1  # the next ones take twice the time or more, for a tenth less
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
"""A frame of blocks of 64 KiB that do not refer to each other: Java's client reads no others. Arrow writes others."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_IS_PLAIN: Final = 1 << 31
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_PART_BYTES: Final = 1 << 20


class CorruptPayload(Exception):
    """A payload is not what its codec writes."""


class PayloadTooLarge(Exception):
    """A payload has more bytes than are allowed."""


def codec_of(compression: str) -> int:
    """Return Kafka's number of the codec that a value of ``compression.type`` names; other values name none."""
    return {"gzip": _GZIP, "snappy": _SNAPPY, "lz4": _LZ4, "zstd": ZSTD}.get(compression, UNCOMPRESSED)


def compressed(codec: int, payload: bytearray) -> bytes:
    """Return a payload as the codec with Kafka's number `codec` writes it."""
    if codec == _LZ4:
        return _lz4(payload)
    if codec == _GZIP:
        return bytes(pa.Codec("gzip", compression_level=_GZIP_LEVEL).compress(payload, asbytes=True))
    return bytes(pa.Codec({_SNAPPY: "snappy", ZSTD: "zstd"}[codec]).compress(payload, asbytes=True))


def _lz4(payload: bytearray) -> bytes:
    codec = pa.Codec("lz4_raw")
    parts = [_LZ4_HEADER]
    for start in range(0, len(payload), _LZ4_BLOCK_BYTES):
        block = bytes(payload[start : start + _LZ4_BLOCK_BYTES])
        data, flag = codec.compress(block, asbytes=True), 0
        if len(data) >= len(block):
            data, flag = block, _LZ4_IS_PLAIN
        parts += [(len(data) | flag).to_bytes(4, "little"), data]
    return b"".join([*parts, bytes(4)])


def decompressed(codec: int, payload: memoryview, bytes_max: int) -> bytes | memoryview:
    """Return a payload without its compression; `codec` is Kafka's number of it.

    Raises:
        CorruptPayload: the codec is unknown, or did not write it.
        PayloadTooLarge: it has more than `bytes_max` bytes.
    """
    if codec == UNCOMPRESSED:
        return payload
    try:
        if codec == _SNAPPY:
            return _snappy(payload, bytes_max)
        if codec in _STREAMED:
            return _streamed(_STREAMED[codec], payload, bytes_max)
    except (OSError, pa.ArrowException, ValueError, EOFError) as error:
        raise CorruptPayload(str(error)) from error
    raise CorruptPayload(f"no codec of Kafka has the number {codec}")


def _streamed(name: str, payload: memoryview, bytes_max: int) -> bytes:
    parts = []
    left_bytes = bytes_max
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(payload)), name) as stream:
        while part := stream.read(min(_PART_BYTES, left_bytes + 1)):
            left_bytes -= len(part)
            if left_bytes < 0:
                raise PayloadTooLarge(f"a batch has more than {bytes_max} bytes")
            parts.append(part)
    return b"".join(parts)


def _snappy(payload: memoryview, bytes_max: int) -> bytes:
    """Return what snappy has compressed: raw, as librdkafka writes it, or in the blocks of Java's snappy."""
    if bytes(payload[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(payload, bytes_max)
    parts = []
    left_bytes, start = bytes_max, _XERIAL_HEADER_BYTES
    while start < len(payload):
        end = start + 4 + int.from_bytes(payload[start : start + 4])
        if end > len(payload) or end <= start + 4:
            raise CorruptPayload("a block of snappy is cut off")
        part = _snappy_block(payload[start + 4 : end], left_bytes)
        left_bytes -= len(part)
        parts.append(part)
        start = end
    return b"".join(parts)


def _snappy_block(block: memoryview, bytes_max: int) -> bytes:
    size_bytes = shift = 0
    for byte in block[:5]:
        size_bytes |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise CorruptPayload("a block of snappy has no length")
    if size_bytes > bytes_max:
        raise PayloadTooLarge(f"a batch has more than {bytes_max} bytes")
    return bytes(pa.Codec("snappy").decompress(pa.py_buffer(block), size_bytes, asbytes=True))


BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""What one batch may have at most once it is decompressed."""

_EXPECTED_RATIO: Final = 8
_EXPECTED_BYTES_MIN: Final = 64 * 1024
_ROW_BYTES: Final = 32
"""What a record takes in columns in addition to its bytes in the batch."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_HEADER_BYTES: Final = _HEADER.size
_CHECKED_FROM: Final = 21  # the checksum covers all that follows it
_ATTRIBUTES: Final = struct.Struct(">h")
_MAGIC: Final = 2
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_NO_TIMESTAMP: Final = -1
_MEMBERS: Final = tuple(map(attrgetter, ("key", "value", "headers", "timestamp")))
_BATCH_ROWS: Final = 10_000
_ABORT: Final = b"\0\0\0\0"
_NO_COORDINATOR: Final = b"\0\0\0\0\0\0"


class ProducedBatch(NamedTuple):
    """A batch that a producer has sent, its `records` as columns of Kafka's record.

    `producer_id`, `producer_epoch` and `base_sequence` are -1 where the producer is not idempotent. `digest` is one of
    its records, the same for a batch that is sent again. It is empty where none was asked for.
    """

    records: pa.Table
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    digest: bytes


def transaction_of(data: bytes) -> ProducerIdAndEpoch | None:
    """Return which producer a batch says that it is of, without decoding it; None if it is in no transaction."""
    if len(data) < _HEADER_BYTES:
        return None
    header = _HEADER.unpack_from(data)
    return ProducerIdAndEpoch(header[9], header[10]) if header[5] & _TRANSACTIONAL else None


def payload_limits(data: bytes) -> Sequence[int]:
    """Return how many bytes a batch may have once it is decompressed: few, as most have, and if it has more all."""
    if len(data) < _HEADER_BYTES or not _HEADER.unpack_from(data)[5] & _CODEC_MASK:
        return (BATCH_BYTES_MAX,)
    expected = max(_EXPECTED_BYTES_MIN, _EXPECTED_RATIO * len(data))
    return (expected, BATCH_BYTES_MAX) if expected < BATCH_BYTES_MAX else (BATCH_BYTES_MAX,)


def decoded_bytes(data: bytes, payload_max: int) -> int:
    """Return how many bytes a decoded batch takes at most beyond the encoded ones; 0 if it is not compressed."""
    if len(data) < _HEADER_BYTES or not _HEADER.unpack_from(data)[5] & _CODEC_MASK:
        return 0
    count: int = _HEADER.unpack_from(data)[12]
    return payload_max + _ROW_BYTES * min(max(0, count), payload_max)


def decode_batch(
    data: bytes, now_ms: int, payload_max: int = BATCH_BYTES_MAX, *, names_transactional: bool = True
) -> ProducedBatch:
    """Return the one batch that a produce request has for a partition; records without a time get `now_ms`.

    A batch of an idempotent producer gets a digest; in a transaction only with `names_transactional`.

    Raises:
        PayloadTooLarge: it has more than `payload_max` bytes, and may have more.
        KafkaException: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, UNSUPPORTED_FOR_MESSAGE_FORMAT.
    """
    if len(data) < _HEADER_BYTES:
        raise _refused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {len(data)} bytes has no header")
    header = _HEADER.unpack_from(data)
    _, length, _, magic, checksum, attributes, last_delta, _, _, producer_id, epoch, sequence, count = header
    if magic != _MAGIC:
        raise _refused(WireCode.unsupported_for_message_format, f"a batch has magic {magic}, expected {_MAGIC}")
    if length != len(data) - 12:
        raise _refused(ErrorCode.INVALID_RECORD, "a partition of a produce request has other than one batch")
    if google_crc32c.value(data[_CHECKED_FROM:]) != checksum:
        raise _refused(ErrorCode.CORRUPT_MESSAGE, "a batch is not what its checksum says")
    if attributes & _CONTROL:
        raise _refused(ErrorCode.INVALID_RECORD, "a producer has sent a control batch")
    if count < 1 or last_delta != count - 1:
        raise _refused(ErrorCode.INVALID_RECORD, f"a batch of {count} records ends with number {last_delta}")
    try:
        payload = decompressed(attributes & _CODEC_MASK, memoryview(data)[_HEADER_BYTES:], payload_max)
    except PayloadTooLarge as error:
        if payload_max < BATCH_BYTES_MAX:
            raise
        raise _refused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except CorruptPayload as error:
        raise _refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if count > len(payload):
        raise _refused(ErrorCode.INVALID_RECORD, f"a batch of {len(payload)} bytes says that it has {count} records")
    records = _records(_plain(data, attributes, payload), now_ms)
    is_transactional = bool(attributes & _TRANSACTIONAL)
    is_named = producer_id >= 0 and (names_transactional or not is_transactional)
    digest = hashlib.blake2b(payload, digest_size=16).digest() if is_named else b""
    return ProducedBatch(records, producer_id, epoch, sequence, is_transactional, digest)


def _plain(data: bytes, attributes: int, payload: bytes | memoryview) -> bytes:
    """Return the batch without compression. Its checksum is not made anew: it has been checked."""
    if not attributes & _CODEC_MASK:
        return data
    plain = bytearray(data[:_HEADER_BYTES])
    _ATTRIBUTES.pack_into(plain, _CHECKED_FROM, attributes & ~_CODEC_MASK)
    struct.pack_into(">i", plain, 8, _HEADER_BYTES - 12 + len(payload))
    plain += payload
    return bytes(plain)


def _records(batch: bytes, now_ms: int) -> pa.Table:
    """Return the records as columns, some at a time: as objects of Python they take many times their bytes."""
    found = chain(DefaultRecordBatch(batch))
    tables = [_some_records(found, now_ms)]
    while tables[-1].num_rows == _BATCH_ROWS:
        tables.append(_some_records(found, now_ms))
    return pa.concat_tables(tables, promote_options="default") if len(tables) > 1 else tables[0]


def _some_records(records: Iterator[Any], now_ms: int) -> pa.Table:
    try:
        found = list(islice(records, _BATCH_ROWS))
        keys, values, headers, times = (list(map(member, found)) for member in _MEMBERS)
    except Exception as error:  # the codec raises its own error, and others for what cannot be
        raise _refused(ErrorCode.INVALID_RECORD, f"a batch has a record that cannot be read: {error}") from error
    if _NO_TIMESTAMP in times:
        times = [now_ms if time == _NO_TIMESTAMP else time for time in times]
    return record_columns(keys, values, headers, times)


def encode_batches(rows: pa.RecordBatch, *, log_append_time: bool, codec: int = UNCOMPRESSED) -> Iterator[bytearray]:
    """Yield record batches of rows of Kafka's record with their offsets, in order; gaps between offsets are kept.

    With `log_append_time` all records of a batch have one time, so a batch ends where the time changes. `codec` is
    Kafka's number of what compresses them; a batch that it makes larger stays as it is.
    """
    for run in _runs_of_one_time(rows) if log_append_time else (rows,):
        for start in range(0, run.num_rows, _BATCH_ROWS):
            batch = _encoded(run.slice(start, _BATCH_ROWS), log_append_time)
            yield batch if codec == UNCOMPRESSED else _compressed(batch, codec)


def _runs_of_one_time(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts, each of which has one time in milliseconds."""
    times = rows.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    changes = pc.indices_nonzero(pc.not_equal(times[1:], times[:-1])).to_pylist()
    bounds = [0, *(place + 1 for place in changes), rows.num_rows]
    for start, end in pairwise(bounds):
        yield rows.slice(start, end - start)


def _compressed(batch: bytearray, codec: int) -> bytearray:
    payload = compressed(codec, batch[_HEADER_BYTES:])
    if len(payload) + _HEADER_BYTES >= len(batch):
        return batch
    made = batch[:_HEADER_BYTES] + payload
    struct.pack_into(">i", made, 8, len(made) - 12)
    _sign(made, _ATTRIBUTES.unpack_from(made, _CHECKED_FROM)[0] | codec)
    return made


def _encoded(rows: pa.RecordBatch, log_append_time: bool) -> bytearray:
    offsets = rows.column("offset").cast(pa.int64())
    base_offset = offsets[0].as_py()
    times = _integers(rows.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()))
    builder = DefaultRecordBatchBuilder(_MAGIC, 0, 0, -1, -1, -1, 2**31 - 1)
    appended = map(
        builder.append,
        _integers(pc.subtract(offsets, base_offset)),
        times,
        _values(rows.column("key")),
        _values(rows.column("value")),
        _headers(rows),
    )
    deque(appended, maxlen=0)  # takes them all, and keeps none
    return _placed(builder.build(), base_offset, max(times) if log_append_time else None)


def _integers(column: pa.Array) -> memoryview:
    """Return a column of int64 without nulls as what Python iterates over, without a list of it."""
    return memoryview(column.buffers()[1]).cast("q")[column.offset : column.offset + len(column)]


def _values(column: pa.Array) -> Iterable[bytes | None]:
    if column.null_count == len(column):
        return repeat(None)
    values: list[bytes | None] = column.to_pylist()
    return values


def _headers(rows: pa.RecordBatch) -> Any:
    if "headers" not in rows.schema.names or rows.column("headers").null_count == rows.num_rows:
        return repeat([])
    pairs = rows.column("headers").to_pylist()
    return [[] if found is None else [(pair["key"], pair["value"]) for pair in found] for found in pairs]


def _placed(batch: bytearray, base_offset: int, append_time_ms: int | None) -> bytearray:
    """Return a new batch at its offset; with the time of its entry, if that is the time of all its records.

    It is changed where it is: a copy of a large one costs more than the rest of this.
    """
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, 0)  # the leader's epoch, which never changes
    if append_time_ms is not None:
        (attributes,) = _ATTRIBUTES.unpack_from(batch, _CHECKED_FROM)
        _sign(batch, attributes | _LOG_APPEND_TIME, append_time_ms)
    return batch


def _sign(batch: bytearray, attributes: int, time_max_ms: int | None = None) -> None:
    _ATTRIBUTES.pack_into(batch, _CHECKED_FROM, attributes)
    if time_max_ms is not None:
        struct.pack_into(">q", batch, 35, time_max_ms)
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[_CHECKED_FROM:])))


def control_batch(offset: int, timestamp_ms: int) -> bytearray:
    """Return a batch with one control record: a reader passes its offset, and hands nothing out.

    It says that a transaction of no producer was aborted.
    """
    builder = DefaultRecordBatchBuilder(_MAGIC, 0, 1, -1, -1, -1, 1 << 10)
    builder.append(0, timestamp_ms, _ABORT, _NO_COORDINATOR, [])
    batch = _placed(builder.build(), offset, None)
    _sign(batch, _TRANSACTIONAL | _CONTROL)
    return batch


def _refused(code: ErrorCode | WireCode, reason: str) -> KafkaException:
    return KafkaException(KafkaError(code.value, reason))
