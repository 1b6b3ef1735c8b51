"""The payloads of Kafka's record batches, decompressed up to a limit, so that no batch takes more memory than that."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = ["CorruptPayload", "PayloadTooLarge", "decompressed"]

_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
_STREAMED: Final = {_GZIP: "gzip", _LZ4: "lz4", _ZSTD: "zstd"}
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_PART_BYTES: Final = 1 << 20


class CorruptPayload(Exception):
    """A payload is not what its codec writes."""


class PayloadTooLarge(Exception):
    """A payload has more bytes than are allowed."""


def decompressed(codec: int, payload: memoryview, bytes_max: int) -> bytes | memoryview:
    """Return a payload without its compression; `codec` is Kafka's number of it.

    Raises:
        CorruptPayload: the codec is unknown, or did not write it.
        PayloadTooLarge: it has more than `bytes_max` bytes.
    """
    if codec == _NONE:
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
