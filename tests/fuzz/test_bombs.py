"""A few bytes that decode to many: refused before they are decoded."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn._engine.format import decodeguard, segment
from sparktxn._engine.format.manifest import MANIFEST_SCHEMA, decode_manifest
from sparktxn._engine.format.segment import RECORD_SCHEMA, decode_segment, encode_segment
from sparktxn.errors import DamagedObject

ROWS = 1_000
LIMIT = 1_000_000


def records(value: pa.Array, headers: pa.Array | None = None) -> pa.Table:
    rows = len(value)
    columns = {
        "key": pa.nulls(rows, pa.binary()),
        "value": value,
        "headers": headers if headers is not None else pa.nulls(rows, RECORD_SCHEMA.field("headers").type),
        "timestamp": pa.nulls(rows, RECORD_SCHEMA.field("timestamp").type).fill_null(
            pa.scalar(7, RECORD_SCHEMA.field("timestamp").type)
        ),
    }
    return pa.table(columns)


def repeated(value: bytes, rows: int = ROWS) -> pa.DictionaryArray:
    indices = pa.repeat(pa.scalar(0, pa.int32()), rows)
    return pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.binary()))


def as_parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", store_schema=False, dictionary_pagesize_limit=1 << 30)
    return sink.getvalue()


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decodeguard, "DECODED_BYTES_MAX", LIMIT)
    monkeypatch.setattr(segment, "DECODED_BYTES_MAX", LIMIT)


def refused(data: bytes, rows: int = ROWS) -> str:
    with pytest.raises(DamagedObject) as raised:
        decode_segment(data, "object", schema=RECORD_SCHEMA, record_count=rows)
    return str(raised.value)


@pytest.mark.usefixtures("small_limit")
def test_a_dictionary_that_every_row_repeats_is_counted_as_often_as_it_is_repeated() -> None:
    whole = decode_segment(as_parquet(records(repeated(b"v" * 900))), "object", schema=RECORD_SCHEMA, record_count=ROWS)
    assert whole.column("value").to_pylist() == [b"v" * 900] * ROWS, "900 kB are not too much, however they are encoded"
    assert "decodes to over" in refused(as_parquet(records(repeated(b"v" * 1_100))))


@pytest.mark.usefixtures("small_limit")
def test_a_large_value_that_few_rows_repeat_is_no_bomb() -> None:
    indices = pa.array([0] + [1] * (ROWS - 1), pa.int32())
    value = pa.DictionaryArray.from_arrays(indices, pa.array([b"v" * 400_000, b"w"], pa.binary()))
    read = decode_segment(as_parquet(records(value)), "object", schema=RECORD_SCHEMA, record_count=ROWS)
    assert read.schema.equals(RECORD_SCHEMA)
    assert read.column("value").to_pylist() == value.to_pylist()


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("segment_format", ["parquet", "arrow"])
def test_zeros_that_compress_well_are_counted_whole(segment_format: str) -> None:
    plain = records(pa.array([bytes(2_000)] * ROWS, pa.binary())).cast(RECORD_SCHEMA)
    data = encode_segment(plain, segment_format=segment_format, compression="zstd")
    assert len(data) < 50_000
    assert "decodes to over" in refused(data)


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("segment_format", ["parquet", "arrow"])
def test_lists_without_end_are_counted(segment_format: str) -> None:
    headers = pa.array([[{"key": "", "value": None}] * 200] * ROWS, RECORD_SCHEMA.field("headers").type)
    plain = records(pa.array([b""] * ROWS, pa.binary()), headers).cast(RECORD_SCHEMA)
    assert "decodes to over" in refused(encode_segment(plain, segment_format=segment_format, compression="zstd"))


def test_columns_that_expand_are_refused() -> None:
    sink = io.BytesIO()
    table = records(repeated(b"v" * 100))
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert "dictionaries" in refused(sink.getvalue())


def test_more_rows_than_a_manifest_has_are_refused_before_they_are_read() -> None:
    rows = 1_000_001
    columns = [
        pa.repeat(pa.scalar("x" if field.type == pa.string() else 1, field.type), rows) for field in MANIFEST_SCHEMA
    ]
    with pytest.raises(DamagedObject, match="1000001 rows"):
        decode_manifest(as_parquet(pa.table(columns, schema=MANIFEST_SCHEMA)), "object")


BOMB = """
import resource, sys
limit = int(sys.argv[1])
from tests.fuzz.test_bombs import as_parquet, records, refused, repeated
data = as_parquet(records(repeated(b"v" * 1_000_000, 1_000_000)))
assert len(data) < 100_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(refused(data, 1_000_000))
"""


def test_a_terabyte_in_a_few_kilobytes_is_refused_with_little_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-c", BOMB, str(6 << 30)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "decodes to over" in run.stdout, run.stderr[-2000:]
