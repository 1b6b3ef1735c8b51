"""Inline records that lie about their sizes, or are not a stream as writers make it: refused, with little memory."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
import pytest

from sparktxn._engine.format.segment import RECORD_SCHEMA, decode_segment, decode_stream, encode_inline
from sparktxn.errors import DamagedObject

ZEROS = 256 << 20
MEMORY_BYTES_MAX = 10 << 20
EMPTY = {"key": None, "value": None, "headers": None, "timestamp": 7}


def records(rows: int = 3, value: bytes = b"v") -> pa.Table:
    return pa.Table.from_pylist([EMPTY | {"value": value}] * rows, RECORD_SCHEMA)


def stream_of(*batches: pa.RecordBatch, compression: str | None = None, ends: bool = True) -> bytes:
    """An Arrow IPC stream; `compression` is that of its buffers."""
    sink = io.BytesIO()
    writer = ipc.new_stream(sink, batches[0].schema, options=ipc.IpcWriteOptions(compression=compression))
    for batch in batches:
        writer.write_batch(batch)
    if ends:
        writer.close()
    return sink.getvalue()


def framed(stream: bytes) -> bytes:
    return bytes(pa.compress(stream, codec="zstd", asbytes=True))


def batch_of(value: pa.Array) -> pa.RecordBatch:
    rows = len(value)
    timestamp = RECORD_SCHEMA.field("timestamp").type
    columns = [pa.nulls(rows, pa.binary()), value, pa.array([7] * rows, timestamp)]
    return pa.RecordBatch.from_arrays(columns, ["key", "value", "timestamp"])


def one_batch(rows: int = 3) -> pa.RecordBatch:
    return records(rows).to_batches()[0]


def sized(frame: bytes, size: int) -> bytes:
    """A Zstandard frame of the same blocks that says it decodes to `size` bytes."""
    kind, is_single = frame[4] >> 6, bool(frame[4] & 0x20)
    blocks = 5 + (0 if is_single else 1) + {0: int(is_single), 1: 2, 2: 4, 3: 8}[kind]
    return frame[:4] + bytes([0xE0 | frame[4] & 0x04]) + struct.pack("<Q", size) + frame[blocks:]


def compressed_zeros() -> bytes:
    """A buffer of many zeros, compressed by itself, in a frame of the whole."""
    return framed(stream_of(batch_of(pa.array([bytes(ZEROS)], pa.binary())), compression="zstd"))


def a_dictionary() -> bytes:
    """A large value that each row repeats."""
    indices = pa.array([0] * 100_000, pa.int8())
    return framed(stream_of(batch_of(pa.DictionaryArray.from_arrays(indices, pa.array([b"v" * 1_000_000])))))


def a_view_of_one_value() -> bytes:
    """The same without a dictionary: the rows are views of one buffer."""
    data = pa.py_buffer(b"v" * 1_000_000)
    views = struct.pack("<i4sii", 1_000_000, b"vvvv", 0, 0) * 100_000
    array = pa.Array.from_buffers(pa.binary_view(), 100_000, [None, pa.py_buffer(views), data])
    return framed(stream_of(batch_of(array)))


def a_run() -> bytes:
    """The same as one run."""
    run = pa.RunEndEncodedArray.from_arrays(pa.array([100_000], pa.int32()), pa.array([b"v" * 1_000_000]))
    return framed(stream_of(batch_of(run)))


def repeated_lists() -> bytes:
    """Rows that are views of one long list."""
    headers = pa.array([[{"key": "k" * 1_000, "value": None}] * 200], RECORD_SCHEMA.field("headers").type)
    rows = 100_000
    array = pa.ListViewArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array([200] * rows, pa.int32()), headers.values
    )
    timestamp = pa.array([7] * rows, RECORD_SCHEMA.field("timestamp").type)
    batch = pa.RecordBatch.from_arrays(
        [pa.nulls(rows, pa.binary()), pa.nulls(rows, pa.binary()), array, timestamp], RECORD_SCHEMA.names
    )
    return framed(stream_of(batch))


def a_long_frame() -> bytes:
    return framed(stream_of(batch_of(pa.array([bytes(ZEROS)], pa.binary()))))


BOMBS: dict[str, Callable[[], bytes]] = {
    made.__name__.replace("_", " "): made
    for made in (compressed_zeros, a_dictionary, a_view_of_one_value, a_run, repeated_lists, a_long_frame)
}


def refused(data: bytes, rows: int | None = None, *, verified: bool = False) -> str:
    with pytest.raises(DamagedObject) as raised:
        decode_segment(data, "object", schema=RECORD_SCHEMA, record_count=rows, verified=verified)
    return str(raised.value)


IN_LITTLE_MEMORY = """
import resource, sys
# The bomb comes from outside: what made it would have filled the memory of this process before.
data = sys.stdin.buffer.read()
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
from tests.fuzz.test_inline_bombs import encode_inline, records, refused
from sparktxn._engine.format.segment import RECORD_SCHEMA, decode_segment
# What the first call loads is not memory of the records.
decode_segment(encode_inline(records(2_000), compression="zstd"), "warm", schema=RECORD_SCHEMA)
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) << 10
start = peak()
print(refused(data))
print(peak() - start)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_few_bytes_that_decode_to_many_are_refused_with_little_memory(python: list[str], bomb: str) -> None:
    data = BOMBS[bomb]()
    assert len(data) < 65_536
    run = subprocess.run(
        [*python, "-c", IN_LITTLE_MEMORY],
        input=data,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-2_000:]
    assert int(run.stdout.split()[-1]) < MEMORY_BYTES_MAX, run.stdout
    assert b"malloc" not in run.stdout, "it was refused by chance"


@pytest.mark.parametrize("size", [0, 1, 500, 10_000, 8 << 20, (8 << 20) + 1, 2**40, 2**63, 2**64 - 1])
def test_a_frame_that_lies_about_its_size(size: int) -> None:
    data = framed(stream_of(one_batch(60)))
    assert decode_segment(sized(data, len(stream_of(one_batch(60)))), "o", schema=RECORD_SCHEMA).num_rows == 60
    for verified in (False, True):
        assert "object" in refused(sized(data, size), verified=verified)


@pytest.mark.parametrize(
    "frame", [b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\x00", b"\x28\xb5\x2f\xfd\x00\x58\x01\x00\x00"]
)
def test_a_frame_that_does_not_say_its_size(frame: bytes) -> None:
    for verified in (False, True):
        assert "object" in refused(frame, verified=verified)


def test_a_long_frame_is_refused_also_where_its_checksum_was_compared() -> None:
    assert "bytes: expected 8388608 at most" in refused(a_long_frame(), verified=True)


def test_several_batches() -> None:
    for data in (stream_of(one_batch(), one_batch()), framed(stream_of(one_batch(), one_batch()))):
        for rows in (None, 3, 6):
            refused(data, rows)
        refused(data, 6, verified=True)


def test_something_that_follows_the_batch() -> None:
    for more in (b"x", bytes(8), b"\xff\xff\xff\xff" + bytes(4), stream_of(one_batch())):
        refused(stream_of(one_batch()) + more)


def test_a_stream_may_lack_its_end_mark() -> None:
    for data in (stream_of(one_batch(), ends=False), framed(stream_of(one_batch(), ends=False))):
        for verified in (False, True):
            read = decode_segment(data, "o", schema=RECORD_SCHEMA, record_count=3, verified=verified)
            assert read.equals(records())


def test_no_batch_and_an_empty_one() -> None:
    refused(stream_of(one_batch())[: len(stream_of(one_batch())) // 3])
    refused(stream_of(one_batch().slice(0, 0)))
    sink = io.BytesIO()
    ipc.new_stream(sink, RECORD_SCHEMA).close()
    for verified in (False, True):
        refused(sink.getvalue(), verified=verified)


def test_buffers_that_are_compressed_by_themselves() -> None:
    """Where the checksum was compared, they are the writer's own: they are read."""
    for compression in ("zstd", "lz4"):
        data = stream_of(one_batch(500), compression=compression)
        refused(data)
        rows = decode_segment(data, "o", schema=RECORD_SCHEMA, record_count=500, verified=True)
        assert rows.equals(records(500))


def test_buffers_outside_of_the_body() -> None:
    """Each number of the batch's metadata is replaced, one at a time, by several that are too large or negative."""
    data = stream_of(one_batch())
    schema_bytes = 8 + struct.unpack_from("<i", data, 4)[0]
    metadata_bytes = struct.unpack_from("<i", data, schema_bytes + 4)[0]
    for place in range(schema_bytes + 8, schema_bytes + 8 + metadata_bytes, 8):
        for number in (-1, 1, 7, 2**20, 2**31, 2**40, 2**62, 2**63 - 1):
            _meet(data[:place] + struct.pack("<q", number) + data[place + 8 :])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
def test_offsets_outside_of_the_values(kind: pa.DataType) -> None:
    """Also of a column that has another type than the topic says: a cast must not follow them."""
    width = "<q" if kind in (pa.large_binary(), pa.large_string()) else "<i"
    right = struct.pack(width, 7_001) + struct.pack(width, 14_002)
    timestamp = pa.array([7, 7], RECORD_SCHEMA.field("timestamp").type)
    values = pa.array([b"v" * 7_001] * 2, kind)
    data = stream_of(pa.RecordBatch.from_arrays([values, timestamp], ["value", "timestamp"]))
    assert data.count(right) == 1
    for wrong in (-5, 0, 2**20, 2**30, 2**31 - 1):
        for changed in (
            struct.pack(width, wrong) + right[len(right) // 2 :],
            right[: len(right) // 2] + struct.pack(width, wrong),
        ):
            _meet(data.replace(right, changed))
    refused(data.replace(right, right[: len(right) // 2] + struct.pack(width, 2**30)))


def _meet(data: bytes) -> None:
    for verified in (False, True):
        with suppress(DamagedObject):
            decode_segment(data, "object", schema=RECORD_SCHEMA, verified=verified).to_pylist()


def test_no_byte_is_decoded_beyond_what_was_written() -> None:
    table: Any = decode_stream(encode_inline(records(4), compression="zstd"))
    assert table.num_rows == 4
