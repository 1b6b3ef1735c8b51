"""Files that grow row group by row group: their rows, limits and memory, whatever the sizes of the tables that come."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn._engine.format import names
from sparktxn._engine.format.segment import stored_schema
from sparktxn._foundation.process.background import Background, InlineBackground, ThreadBackground
from sparktxn._rows.stage import buffers as buffers_module
from sparktxn._rows.stage import segmentwriter
from sparktxn._rows.stage.buffers import Buffers, GrowingSegment, Limits, TopicBuffer
from sparktxn._rows.stage.pendingsegment import PendingSegment, Uploads
from sparktxn._rows.stage.recordsizes import payload_bytes
from sparktxn._rows.stage.stagedsegment import StagedSegment, StageTopic
from sparktxn.errors import StoreUnavailable
from sparktxn.testing.clocks import ManualClock
from tests.unit.stage.stores import CountingIds, ScriptedStore, stage_topic, stored

COLUMNS = (("id", "int64", False), ("x", "double", True), ("text", "string", True))
SCHEMA = stored_schema(COLUMNS)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of 2 kB, and files of 6 kB."""
    use_small_files(monkeypatch)


def use_small_files(patched: pytest.MonkeyPatch) -> None:
    for module in (segmentwriter, buffers_module):
        patched.setattr(module, "ROW_GROUP_BYTES", 2_000)
        patched.setattr(module, "ROW_GROUP_ROWS", 60)
    patched.setattr(buffers_module, "FILE_BYTES", 6_000)
    patched.setattr(buffers_module, "_FILE_BYTES_MAX", 9_000)
    patched.setattr(buffers_module, "_ROW_GROUP_BYTES_MIN", 300)


@pytest.fixture
def threads() -> Iterator[Background]:
    made = ThreadBackground("test-growing", 2)
    yield made
    made.close(10)


def rows_of(first: int, count: int, *, nan_at: int = -1, wide: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    columns = [
        pa.array(numbers, pa.int64()),
        pa.array([math.nan if number == nan_at else number / 2 for number in numbers], pa.float64()),
        pa.array([f"{number % 7}" + "é" * wide for number in numbers], pa.string()),
        pa.array(numbers, pa.int64()).cast(SCHEMA.field("_timestamp").type),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def buffers_of(objects: ScriptedStore, background: Background, bytes_max: int = 2**40) -> Buffers:
    uploads = Uploads(objects, CountingIds(), ManualClock(), background, lambda: 3, 60.0, 2, counts_payload=True)
    return Buffers(uploads, Limits(10**9, 10**9, bytes_max))


def topic_of(partition_count: int = 1, **given: str) -> StageTopic:
    return stage_topic("t", partition_count, schema=COLUMNS, **given)


def footer(objects: ScriptedStore, stage: StageTopic, staged: StagedSegment) -> pq.FileMetaData:
    data = objects.get(names.segment(stage.name, stage.topic_id, staged.partition, staged.segment))
    assert data is not None
    return pq.ParquetFile(pa.BufferReader(data)).metadata


def finished(segments: list[PendingSegment]) -> list[StagedSegment]:
    return [segment.finish() for segment in segments]


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 150)), max_size=12),
    st.sampled_from(["none", "zstd"]),
    st.integers(20, 400),
    st.integers(1_024, 20_000),
    st.integers(0, 40),
    st.booleans(),
)
def test_files_hold_all_rows_in_order_within_the_limits(
    tables: list[tuple[int, int]], compression: str, rows_max: int, bytes_max: int, wide: int, is_threaded: bool
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        use_small_files(patched)
        limits = {"segment_rows": str(rows_max), "segment_bytes": str(bytes_max), "compression_type": compression}
        stage = topic_of(3, **limits)
        objects, topic = ScriptedStore(), TopicBuffer(stage)
        background = ThreadBackground("test-growing", 2) if is_threaded else InlineBackground()
        buffers = buffers_of(objects, background)
        given_rows: dict[int, list[pa.Table]] = defaultdict(list)
        first = 0
        for partition, count in tables:
            table = rows_of(first, count, wide=wide)
            given_rows[partition].append(table)
            buffers.add_table(topic.partitions[partition], table)
            first += count
        segments = buffers.take()
        found: dict[int, list[pa.Table]] = defaultdict(list)
        for segment in segments:
            staged = segment.finish()
            rows = stored(objects, stage, staged)
            found[staged.partition].append(rows)
            times = rows.column("_timestamp").cast(pa.int64()).to_pylist()
            assert (staged.timestamp_min_ms, staged.timestamp_max_ms) == (min(times), max(times))
            assert staged.payload_bytes == payload_bytes(rows)
            assert rows.num_rows <= rows_max
            assert rows.num_rows == 1 or payload_bytes(rows) <= bytes_max
            assert staged.size_bytes <= 9_000 + 2_500, (
                "a file with the row group that was the last to fit, and its footer"
            )
        background.close(10)
        for partition, own in given_rows.items():
            assert pa.concat_tables(found[partition]).equals(pa.concat_tables(own))


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("step", [1, 7, 333, 1_000])
def test_files_do_not_depend_on_how_fast_a_thread_is(threads: Background, compression: str, step: int) -> None:
    made = []
    for background in (InlineBackground(), threads):
        objects, stage = ScriptedStore(), topic_of(compression_type=compression)
        topic, buffers = TopicBuffer(stage), buffers_of(objects, background)
        for first in range(0, 1_000, step):
            buffers.add_table(topic.partitions[0], rows_of(first, min(step, 1_000 - first), wide=5))
        made.append([(segment.record_count, segment.checksum) for segment in finished(buffers.take())])
    assert made[0] == made[1]
    assert len(made[0]) > 1 or compression == "zstd"


def test_a_task_goes_on_with_its_file_while_it_has_rows() -> None:
    """By its size in bytes: rows that compress well are in few files, and others in more."""
    counts = {}
    for compression in ("none", "zstd"):
        objects, stage = ScriptedStore(), topic_of(compression_type=compression)
        topic, buffers = TopicBuffer(stage), buffers_of(objects, InlineBackground())
        for first in range(0, 2_000, 100):
            buffers.add_table(topic.partitions[0], rows_of(first, 100, wide=20))
        staged = finished(buffers.take())
        counts[compression] = len(staged)
        assert all(segment.size_bytes >= 6_000 for segment in staged[:-1])
        groups = [footer(objects, stage, segment).num_row_groups for segment in staged]
        assert max(groups) > 2
    assert counts["none"] > counts["zstd"]


def test_few_rows_are_one_segment_of_one_row_group_as_ever() -> None:
    objects, stage = ScriptedStore(), topic_of()
    topic, buffers = TopicBuffer(stage), buffers_of(objects, InlineBackground())
    buffers.add_table(topic.partitions[0], rows_of(0, 40))
    (segment,) = buffers.take()
    assert not isinstance(segment, GrowingSegment)
    found = footer(objects, stage, segment.finish())
    assert (found.num_row_groups, found.num_rows) == (1, 40)


def test_each_row_group_says_what_it_has() -> None:
    """So that a condition on a range leaves out the others."""
    objects, stage = ScriptedStore(), topic_of()
    topic, buffers = TopicBuffer(stage), buffers_of(objects, InlineBackground())
    buffers.add_table(topic.partitions[0], rows_of(0, 300))
    (staged,) = finished(buffers.take())
    found = footer(objects, stage, staged)
    assert found.num_row_groups >= 5
    bounds = [found.row_group(group).column(0).statistics for group in range(found.num_row_groups)]
    ranges = [(each.min, each.max) for each in bounds]
    assert ranges == sorted(ranges)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 299
    assert all(first[1] + 1 == second[0] for first, second in itertools.pairwise(ranges))
    assert found.row_group(0).column(3).statistics is not None, "the timestamp"


@pytest.mark.parametrize("nan_at", [0, 59, 60, 200, 299])
def test_a_nan_in_any_row_group_takes_the_statistics_of_its_column(nan_at: int) -> None:
    objects, stage = ScriptedStore(), topic_of()
    topic, buffers = TopicBuffer(stage), buffers_of(objects, InlineBackground())
    buffers.add_table(topic.partitions[0], rows_of(0, 300, nan_at=nan_at))
    (staged,) = finished(buffers.take())
    found = footer(objects, stage, staged)
    assert all(
        found.row_group(group).column(1).statistics is None
        or not found.row_group(group).column(1).statistics.has_min_max
        for group in range(found.num_row_groups)
    )
    rows = stored(objects, stage, staged)
    assert rows.column("id").to_pylist() == list(range(300))
    assert [row for row, value in enumerate(rows.column("x").to_pylist()) if math.isnan(value)] == [nan_at]


def test_a_file_whose_upload_fails_is_uploaded_again_with_the_same_bytes() -> None:
    objects, stage = ScriptedStore(), topic_of()
    topic, buffers = TopicBuffer(stage), buffers_of(objects, InlineBackground())
    buffers.add_table(topic.partitions[0], rows_of(0, 300))
    objects.script = ["dropped"] * 1_000
    (segment,) = buffers.take()
    with pytest.raises(StoreUnavailable):
        segment.finish()
    objects.script = []
    assert stored(objects, stage, segment.finish()).equals(rows_of(0, 300))
    assert len({data for _, data in objects.puts}) == 1


@pytest.mark.parametrize("partition_count", [1, 3, 40])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_memory_is_bounded_however_many_partitions_grow(
    partition_count: int, compression: str, threads: Background
) -> None:
    """Columns that wait take at most half of what may wait, and files that grow as much again."""
    limit = 30_000
    objects, stage = ScriptedStore(), topic_of(partition_count, compression_type=compression)
    topic, buffers = TopicBuffer(stage), buffers_of(objects, threads, bytes_max=2 * limit)
    for number in range(600):
        buffers.add_table(topic.partitions[number % partition_count], rows_of(number * 50, 50, wide=10))
        assert buffers.buffered_bytes() < limit
        growing = [partition.growing for partition in topic.partitions.values() if partition.growing is not None]
        assert sum(segment.memory_bytes for segment in growing) < limit
    staged = finished(buffers.take())
    assert sum(segment.record_count for segment in staged) == 600 * 50
    assert all(partition.growing is None for partition in topic.partitions.values())


def test_rows_after_columns_come_after_them() -> None:
    objects, stage = ScriptedStore(), topic_of()
    topic, buffers = TopicBuffer(stage), buffers_of(objects, InlineBackground())
    buffers.add_table(topic.partitions[0], rows_of(0, 150))
    taken = buffers.take()
    buffers.add_table(topic.partitions[0], rows_of(150, 150))
    staged = finished(buffers.take())
    assert [id(segment) for segment in taken] == [id(segment) for segment in buffers.take()[: len(taken)]]
    rows = pa.concat_tables([stored(objects, stage, segment) for segment in staged])
    assert rows.equals(rows_of(0, 300))


def test_a_file_that_is_dropped_takes_no_rows_and_is_never_uploaded() -> None:
    objects, stage = ScriptedStore(), topic_of()
    topic, buffers = TopicBuffer(stage), buffers_of(objects, InlineBackground())
    buffers.add_table(topic.partitions[0], rows_of(0, 150))
    (segment,) = buffers.take()
    assert isinstance(segment, GrowingSegment)
    segment.drop()
    segment.start()
    assert not objects.puts
    with pytest.raises(AssertionError, match="takes no more rows"):
        segment.add(rows_of(0, 1), 1)


@pytest.mark.parametrize("segment_format", ["parquet", "arrow"])
def test_an_arrow_segment_is_encoded_at_once(segment_format: str) -> None:
    objects, stage = ScriptedStore(), topic_of(segment_format=segment_format)
    topic, buffers = TopicBuffer(stage), buffers_of(objects, InlineBackground())
    buffers.add_table(topic.partitions[0], rows_of(0, 300))
    (segment,) = buffers.take()
    assert isinstance(segment, GrowingSegment) is (segment_format == "parquet")
    assert stored(objects, stage, segment.finish()).equals(rows_of(0, 300))
