"""A segment that is written piece by piece, by one thread or by two."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from sparktxn.background import Background, ThreadBackground
from sparktxn.errors import ConfigurationError
from sparktxn.format.segment import RECORD_SCHEMA, decode_segment
from sparktxn.maintenance.segmentwriter import SegmentWriter


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
    monkeypatch.setattr("sparktxn.maintenance.segmentwriter._ROW_GROUP_BYTES", 20_000)
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


def test_what_fails_in_the_second_thread_reaches_the_caller(background: Background) -> None:
    writer = SegmentWriter("brotli", background)
    writer.add(table(0, 10), 500)
    with pytest.raises(ConfigurationError, match="compression"):
        writer.finish()
