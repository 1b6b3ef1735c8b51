"""Buffers cut columns into segments at a topic's limits, whatever the sizes of the tables that they get."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn._engine.format.segment import RECORD_SCHEMA
from sparktxn._foundation.process.background import Background, InlineBackground, ThreadBackground
from sparktxn._rows.stage.buffers import Buffers, Limits, PartitionBuffer, TopicBuffer
from sparktxn._rows.stage.pendingsegment import Uploads
from sparktxn._rows.stage.recordsizes import payload_bytes
from sparktxn.testing.clocks import ManualClock
from tests.unit.stage.stores import CountingIds, ScriptedStore, stage_topic, stored

CLOCK = ManualClock()


def buffers_of(objects: ScriptedStore, background: Background, bytes_max: int = 2**40, rows_max: int = 0) -> Buffers:
    uploads = Uploads(objects, CountingIds(), CLOCK, background, lambda: 3, 60.0, 2, counts_payload=True)
    return Buffers(uploads, Limits(rows_max, rows_max, bytes_max))


def produce(buffers: Buffers, buffer: PartitionBuffer, value: bytes) -> None:
    """Append a row as a producer does: without a lock while its allowance covers it."""
    size_bytes = len(value)
    if len(buffer.rows) < buffer.rows_max and buffer.size_bytes + size_bytes <= buffer.bytes_max:
        buffer.rows.append((None, value, 5, None, None))
    else:
        buffers.add(buffer, (None, value, 5, None, None), size_bytes)
    buffer.size_bytes += size_bytes


def records(values: list[bytes]) -> pa.Table:
    columns = {
        "key": pa.nulls(len(values), pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(len(values), RECORD_SCHEMA.field("headers").type),
        "timestamp": pa.array([5] * len(values), pa.int64()).cast(RECORD_SCHEMA.field("timestamp").type),
    }
    return pa.table(columns, schema=RECORD_SCHEMA)


@settings(max_examples=60)
@given(st.lists(st.lists(st.binary(max_size=300), max_size=12), max_size=6), st.integers(1, 5), st.integers(1, 400))
def test_segments_hold_all_rows_in_order_within_the_limits(
    tables: list[list[bytes]], rows_max: int, bytes_max: int
) -> None:
    objects, stage = ScriptedStore(), stage_topic(segment_rows=str(rows_max))
    topic = TopicBuffer(stage)
    topic.shared.segment_bytes = topic.shared.column_bytes_max = bytes_max
    buffers = buffers_of(objects, InlineBackground())
    for table in tables:
        buffers.add_table(topic.partitions[0], records(table))
    found = [stored(objects, stage, segment.finish()) for segment in buffers.take()]
    assert [value for table in found for value in table["value"].to_pylist()] == [
        row for rows in tables for row in rows
    ]
    for table in found:
        assert 1 <= table.num_rows <= rows_max
        assert table.num_rows == 1 or payload_bytes(table) <= bytes_max


def test_the_largest_buffer_leaves_when_memory_is_full() -> None:
    objects = ScriptedStore()
    topic = TopicBuffer(stage_topic("t", 3))
    buffers = buffers_of(objects, InlineBackground(), bytes_max=20_000)
    made = [
        buffers.add_table(topic.partitions[number], records([b"x" * size]))
        for number, size in ((0, 1_000), (1, 6_000), (2, 2_000), (0, 1_500))
    ]
    assert [[segment.partition for segment in some] for some in made] == [[], [], [], [1]]


@pytest.mark.parametrize("threads", [1, 3])
def test_uploads_in_the_background_keep_the_order(threads: int) -> None:
    objects, stage = ScriptedStore(), stage_topic("t", segment_rows="5")
    topic = TopicBuffer(stage)
    background = ThreadBackground("test-upload", threads)
    buffers = buffers_of(objects, background)
    values = [b"%03d" % row for row in range(200)]
    for start in range(0, 200, 20):
        buffers.add_table(topic.partitions[0], records(values[start : start + 20]))
    found = [stored(objects, stage, segment.finish()) for segment in buffers.take()]
    background.close()
    assert [value for table in found for value in table["value"].to_pylist()] == values


_PARTITIONS = 12
_QUEUE_ROWS = 60
_QUEUE_BYTES = 6_000


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, _PARTITIONS - 1), st.sampled_from([0, 1, 100, 700])),
            st.just("take"),
        ),
        max_size=300,
    )
)
def test_what_waits_stays_within_the_queue_however_the_rows_are_spread(steps: list[tuple[int, int] | str]) -> None:
    topic = TopicBuffer(stage_topic("t", _PARTITIONS))
    buffers = buffers_of(ScriptedStore(), InlineBackground(), _QUEUE_BYTES, _QUEUE_ROWS)
    written = 0
    for step in steps:
        if isinstance(step, str):
            taken = buffers.take()
            assert sum(segment.record_count for segment in taken) == written
            buffers.settle(taken)
            written = 0
            continue
        partition, size_bytes = step
        try:
            produce(buffers, topic.partitions[partition], b"x" * size_bytes)
        except BufferError:
            assert len(buffers) >= _QUEUE_ROWS - _PARTITIONS
            continue
        written += 1
        assert len(buffers) == written <= _QUEUE_ROWS
        assert buffers.buffered_bytes() <= _QUEUE_BYTES
        waiting = [buffer for buffer in topic.partitions.values() if buffer.record_count()]
        assert all(buffer.seen_rows <= buffer.record_count() + 1 for buffer in waiting)
        assert buffers._seen_rows == sum(buffer.seen_rows for buffer in topic.partitions.values())
        assert buffers._seen_bytes == sum(buffer.seen_bytes for buffer in topic.partitions.values())


@pytest.mark.parametrize("partitions", [50, 800])
def test_a_row_costs_the_same_over_any_number_of_partitions(monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    topic = TopicBuffer(stage_topic("t", partitions))
    buffers = buffers_of(ScriptedStore(), InlineBackground(), rows_max=100_000)
    counted = 0
    count = PartitionBuffer.record_count

    def record_count(buffer: PartitionBuffer) -> int:
        nonlocal counted
        counted += 1
        return count(buffer)

    monkeypatch.setattr(PartitionBuffer, "record_count", record_count)
    for _ in range(3):
        for buffer in map(topic.partitions.__getitem__, range(topic.partition_count)):
            produce(buffers, buffer, b"x")
        buffers.settle(buffers.take())
    assert counted <= 3 * 6 * partitions


def test_large_rows_in_many_partitions_leave_before_memory_is_full() -> None:
    topic = TopicBuffer(stage_topic("t", 400))
    buffers = buffers_of(ScriptedStore(), InlineBackground(), bytes_max=1_000_000, rows_max=100_000)
    for number in range(topic.partition_count):
        # After many small rows: what waits is then summed up seldom.
        produce(buffers, topic.partitions[number], b"x" * (1 if number < 300 else 50_000))
        assert buffers.buffered_bytes() <= 1_000_000


def test_a_partition_has_a_buffer_once_it_is_written_to() -> None:
    """A new producer that writes to one partition of many pays for one."""
    topic = TopicBuffer(stage_topic("t", 10_000))
    assert topic.partitions[7] is topic.partitions[7]
    assert len(topic.partitions) == 1
    for partition in (-1, 10_000):
        with pytest.raises(IndexError):
            topic.partitions[partition]
