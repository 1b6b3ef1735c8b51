"""Record batches: what producers send is read value by value, and what is written is read so by clients."""

from __future__ import annotations

import tracemalloc
from random import Random

import pyarrow as pa
import pytest
from aiokafka.record._crecords import DefaultRecordBatchBuilder, MemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as WireCode

from sparktxn._engine.format.schema import RECORD_SCHEMA
from sparktxn._programs.gateway.wire.recordbatches import (
    BATCH_BYTES_MAX,
    control_batch,
    decode_batch,
    decompressed,
    encode_batches,
)
from sparktxn._programs.gateway.wire.recordbatches import compressed as lz4
from sparktxn.errors import KafkaException
from tests.gateway.requests import batch, compressed

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

records = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=20),
        st.integers(0, 2) | st.integers(0, 2**40),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@given(records)
def test_a_batch_is_read_as_it_was_sent(rows):
    builder = DefaultRecordBatchBuilder(2, 0, 0, 7, 3, 5, 1 << 30)
    for place, (key, value, time, headers) in enumerate(rows):
        builder.append(place, time, key, value, headers)
    found = decode_batch(bytes(builder.build()), 0)
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.is_transactional) == (7, 3, 5, False)
    assert _rows(found.records) == rows


def _rows(table: pa.Table) -> list[tuple]:
    headers = table.column("headers").to_pylist() if "headers" in table.column_names else [None] * table.num_rows
    return [
        (key, value, time, [(pair["key"], pair["value"]) for pair in pairs or []])
        for key, value, time, pairs in zip(
            table.column("key").to_pylist(),
            table.column("value").to_pylist(),
            table.column("timestamp").cast(pa.int64()).to_pylist(),
            headers,
            strict=True,
        )
    ]


@given(records, st.lists(st.integers(1, 1000), min_size=20, max_size=20), st.booleans())
def test_what_is_written_is_read_with_its_offsets(rows, steps, log_append_time):
    offsets = [5 + sum(steps[: place + 1]) for place in range(len(rows))]
    keys, values, times, headers = zip(*rows, strict=True)
    table = pa.record_batch(
        {
            "offset": pa.array(offsets, pa.int64()),
            "key": pa.array(keys, RECORD_SCHEMA.field("key").type),
            "value": pa.array(values, RECORD_SCHEMA.field("value").type),
            "timestamp": pa.array(times, RECORD_SCHEMA.field("timestamp").type),
            "headers": pa.array(headers, RECORD_SCHEMA.field("headers").type),
        }
    )
    read = []
    for data in encode_batches(table, log_append_time=log_append_time):
        batches = MemoryRecords(bytes(data))
        while batches.has_next():
            each = batches.next_batch()
            assert each.validate_crc()
            read += [(one.offset, one.key, one.value, one.timestamp, one.headers) for one in each]
            assert each.timestamp_type == int(log_append_time)
    assert read == [(o, k, v, t, h) for o, (k, v, t, h) in zip(offsets, rows, strict=True)]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_each_compression_is_read(number):
    plain = batch([b"x" * 100] * 50)
    payload = bytes(pa.Codec(NAMES[number]).compress(plain[61:], asbytes=True)) if number != 2 else _snappy(plain[61:])
    assert decode_batch(compressed(plain, number, payload), 0).records == decode_batch(plain, 0).records


def test_blocks_of_javas_snappy_are_read():
    plain = batch([b"x" * 100] * 50)
    blocks = [_snappy(plain[61:1000]), _snappy(plain[1000:])]
    payload = b"\x82SNAPPY\x00" + b"\0\0\0\1\0\0\0\1" + b"".join(len(each).to_bytes(4) + each for each in blocks)
    assert decode_batch(compressed(plain, 2, payload), 0).records == decode_batch(plain, 0).records


def _snappy(data: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(data, asbytes=True))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_payload_that_would_fill_the_memory_is_refused_before_it_does(number):
    zeros = bytes(BATCH_BYTES_MAX + 1)
    payload = _snappy(zeros) if number == 2 else bytes(pa.Codec(NAMES[number]).compress(zeros, asbytes=True))
    data = compressed(batch([b"1"]), number, payload)
    tracemalloc.start()
    with pytest.raises(KafkaException) as refused:
        decode_batch(data, 0)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.error.code() == WireCode.message_too_large.value
    assert peak_bytes < 2 * BATCH_BYTES_MAX


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 7])
def test_a_payload_that_its_codec_has_not_written_is_refused(number):
    with pytest.raises(KafkaException) as refused:
        decode_batch(compressed(batch([b"1"]), number, b"no such thing"), 0)
    assert refused.value.error.code() == WireCode.corrupt_message.value


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("log_append_time", [False, True])
def test_what_is_compressed_is_read_as_it_was(number, log_append_time):
    values = [b"%d " % place + b"x" * 100 for place in range(3_000)]
    rows = _rows_to_encode(values)
    plain = [bytes(each) for each in encode_batches(rows, log_append_time=log_append_time)]
    made = [bytes(each) for each in encode_batches(rows, log_append_time=log_append_time, codec=number)]
    assert len(made) == len(plain)
    for before, after in zip(plain, made, strict=True):
        assert len(after) < len(before) / 3
        assert after[22] == before[22] | number
        assert after[23:61] == before[23:61]
        assert after[:8] + after[12:17] == before[:8] + before[12:17]
        assert decode_batch(after, 0).records == decode_batch(before, 0).records


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_what_becomes_no_smaller_stays_as_it_is(number):
    rows = _rows_to_encode([Random(1).randbytes(20)])
    (plain,), (made,) = (list(encode_batches(rows, log_append_time=False, codec=codec)) for codec in (0, number))
    assert made == plain


def test_a_frame_of_lz4_has_blocks_that_refer_to_no_other():
    """Java's client reads only such: bit 5 of the first byte after the magic number."""
    data = bytearray(Random(1).randbytes(100_000) + bytes(200_000))
    made = lz4(3, data)
    assert made[4] & 0x20
    assert decompressed(3, memoryview(made), len(data)) == data


def _rows_to_encode(values: list[bytes]) -> pa.RecordBatch:
    columns = {
        "offset": pa.array([5 + place for place in range(len(values))], pa.int64()),
        "key": pa.nulls(len(values), pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array([1_700_000_000_000] * len(values), pa.timestamp("ms", tz="UTC")),
    }
    return pa.record_batch(columns)


def test_a_control_batch_is_passed_by_clients():
    each = MemoryRecords(bytes(control_batch(12, 1))).next_batch()
    assert each.is_control_batch
    assert each.validate_crc()
    assert (each.base_offset, each.next_offset) == (12, 13)
