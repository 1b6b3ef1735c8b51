"""Inline records: those of a small append, which its log entry carries (PROTOCOL.md, "Inline records").

They are an Arrow IPC stream with one record batch, and mostly a Zstandard frame of it. The frame says how long the
stream is, so that nothing is decoded which decodes to more.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa
import pyarrow.ipc as ipc

from sparktxn.format.decodeguard import TooLarge, check_stream

__all__ = [
    "INLINE_BYTES_MAX",
    "StreamReader",
    "decode_stream",
    "encode_stream",
    "is_stream",
    "stream_bytes",
]

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
