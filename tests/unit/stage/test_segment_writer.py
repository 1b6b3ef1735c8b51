"""A segment that is written piece by piece, by one thread or by two."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn._engine.format.segment import RECORD_SCHEMA, decode_segment, stored_schema
from sparktxn._foundation.process.background import Background, ThreadBackground
from sparktxn._rows.stage.segmentwriter import SegmentWriter
from sparktxn._rows.tableformats.columnstatistics import statistics_of
from sparktxn.errors import ConfigurationError


@pytest.fixture
def background() -> Iterator[Background]:
    made = ThreadBackground("test-encoding", 1)
    yield made
    made.close(10)


def table(first: int, rows: int) -> pa.Table:
    numbers = range(first, first + rows)
    columns = {"key": [b"%d" % number for number in numbers], "value": [b"x" * (number % 97) for number in numbers]}
    made = pa.table(columns | {"timestamp": pa.array(numbers, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))})
    empty = {field.name: pa.nulls(rows, field.type) for field in RECORD_SCHEMA if field.name not in made.schema.names}
    arrays = {name: made.column(name) for name in made.schema.names} | empty
    return pa.table({name: arrays[name] for name in RECORD_SCHEMA.names}).cast(RECORD_SCHEMA)


def test_a_second_thread_makes_the_same_file_and_as_much_is_known_of_it(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktxn._rows.stage.segmentwriter.ROW_GROUP_BYTES", 20_000)
    tables = [table(first, 100) for first in range(0, 2_000, 100)]
    alone, by_two = SegmentWriter("zstd"), SegmentWriter("zstd", background)
    for each in tables:
        alone.add(each, 500)
        by_two.add(each, 500)
        assert (by_two.record_count, by_two.decoded_bytes) == (alone.record_count, alone.decoded_bytes)
        # What is being written counts as it was added: no size depends on how fast a thread is.
        assert alone.size_bytes_max <= by_two.size_bytes_max <= alone.size_bytes_max + 30_000
    data = by_two.finish()
    assert data == alone.finish()
    rows = decode_segment(data, "segment", schema=RECORD_SCHEMA, record_count=2_000)
    assert rows.equals(pa.concat_tables(tables))


def test_a_column_has_no_statistics_if_its_first_nan_comes_late(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparktxn._rows.stage.segmentwriter.ROW_GROUP_BYTES", 2_000)
    columns = (
        ("id", "int64", False),
        ("x", "double", True),
        ("all", "float", True),
        ("list", "list<double>", True),
        ("at", "timestamp[us, tz=UTC]", True),
        ("pairs", "map<string, int32>", True),
    )
    schema = stored_schema(columns)
    row = {"all": 1.5, "list": [math.nan], "at": datetime(1500, 1, 1, tzinfo=UTC), "pairs": [("a", 1)]}
    tables = [
        pa.Table.from_pylist(
            [{**row, "id": n, "x": math.nan if n == 275 else n / 2, "_timestamp": n} for n in range(first, first + 50)],
            schema=schema,
        )
        for first in range(0, 500, 50)
    ]
    alone, by_two = SegmentWriter("zstd"), SegmentWriter("zstd", background)
    for each in tables:
        alone.add(each, 500)
        by_two.add(each, 500)
    data = by_two.finish()
    assert data == alone.finish()
    decoded = decode_segment(data, "segment", schema=schema, record_count=500)
    # NaN is not equal to itself.
    assert repr(decoded.to_pylist()) == repr(pa.concat_tables(tables).to_pylist())
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert len(groups) > 5
    for group in groups:
        columns_with = {
            column.path_in_schema for column in map(group.column, range(group.num_columns)) if column.statistics
        }
        assert columns_with == {"id", "at"}
    (times,) = (each for each in statistics_of(metadata) if each.names == ("_timestamp",))
    assert (times.null_count, times.low, times.high) == (0, 0, 499)


def test_what_fails_in_the_second_thread_reaches_the_caller(background: Background) -> None:
    writer = SegmentWriter("brotli", background)
    writer.add(table(0, 10), 500)
    with pytest.raises(ConfigurationError, match="compression"):
        writer.finish()
