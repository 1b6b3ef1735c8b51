"""Buffers cut columns into segments at a topic's limits, whatever the sizes of the tables that they get."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktxn.background import Background, InlineBackground, ThreadBackground
from sparktxn.clock import Deadline
from sparktxn.format.segment import RECORD_SCHEMA
from sparktxn.stage.buffers import Buffers, Limits, TopicBuffer
from sparktxn.stage.recordsizes import payload_bytes
from sparktxn.stage.segments import Uploads
from sparktxn.testing.clocks import ManualClock
from tests.unit.stage.stores import CountingIds, ScriptedStore, stage_topic, stored

CLOCK = ManualClock()


def buffers_of(objects: ScriptedStore, background: Background, bytes_max: int = 2**40) -> Buffers:
    uploads = Uploads(objects, CountingIds(), CLOCK, background, lambda _: 3, 60.0, 2, counts_payload=True)
    return Buffers(uploads, Limits(0, 0, bytes_max))


def records(values: list[bytes]) -> pa.Table:
    columns = {
        "key": pa.nulls(len(values), pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(len(values), RECORD_SCHEMA.field("headers").type),
        "timestamp": pa.array([5] * len(values), pa.int64()).cast(RECORD_SCHEMA.field("timestamp").type),
    }
    return pa.table(columns, schema=RECORD_SCHEMA)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=300), max_size=12), max_size=6), st.integers(1, 5), st.integers(1, 400))
def test_segments_hold_all_rows_in_order_within_the_limits(
    tables: list[list[bytes]], rows_max: int, bytes_max: int
) -> None:
    objects, stage = ScriptedStore(), stage_topic(segment_rows=str(rows_max))
    topic = TopicBuffer(stage)
    topic.segment_bytes = bytes_max
    buffers = buffers_of(objects, InlineBackground())
    for table in tables:
        buffers.add_table(topic.partitions[0], records(table))
    found = [stored(objects, stage, segment.finish(Deadline(CLOCK, None))) for segment in buffers.take()]
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
    found = [stored(objects, stage, segment.finish(Deadline(CLOCK, None))) for segment in buffers.take()]
    background.close()
    assert [value for table in found for value in table["value"].to_pylist()] == values
