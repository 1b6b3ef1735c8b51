"""The payloads of Kafka's record batches, decompressed up to a limit, so that no batch takes more memory than that.

And compressed, as a topic's ``compression.type`` says.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = ["UNCOMPRESSED", "ZSTD", "CorruptPayload", "PayloadTooLarge", "codec_of", "compressed", "decompressed"]

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
