from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from sparktxn._engine.format.names import parse_segment_born
from sparktxn._engine.format.segment import RECORD_SCHEMA, stored_schema
from sparktxn._rows.stage import uploading
from sparktxn._rows.stage.stagedsegment import StagedSegment, StageTopic
from sparktxn._rows.stage.uploading import upload_segment
from sparktxn.errors import CommandRefused, DamagedObject, ErrorCode, StoreUnavailable
from sparktxn.testing.clocks import ManualClock
from tests.each import each
from tests.unit.stage.stores import CountingIds, ScriptedStore, stage_topic, stored

TABLE = pa.Table.from_pylist(
    [
        {"key": b"a", "value": b"12", "timestamp": 30},
        {"key": None, "value": b"345", "timestamp": 10},
        {"key": b"bb", "value": None, "headers": [{"key": "h", "value": b"6"}], "timestamp": 20},
    ],
    schema=RECORD_SCHEMA,
)


def upload(
    objects: ScriptedStore, topic: StageTopic, table: pa.Table = TABLE, clock: ManualClock | None = None
) -> StagedSegment:
    clock = clock or ManualClock()
    return upload_segment(objects, CountingIds(), 42, topic, 0, table, clock=clock)


@pytest.mark.parametrize("segment_format", ["parquet", "arrow"])
def test_what_a_staged_segment_says_of_itself(segment_format: str) -> None:
    objects, topic = ScriptedStore(), stage_topic(segment_format=segment_format)
    staged = upload(objects, topic)
    assert stored(objects, topic, staged).equals(TABLE)
    assert (staged.topic, staged.topic_id, staged.partition) == ("t", 7, 0)
    assert parse_segment_born(staged.segment) == 42
    assert staged.segment.endswith("." + segment_format)
    assert (staged.timestamp_min_ms, staged.timestamp_max_ms) == (10, 30)
    assert staged.payload_bytes == (1 + 2) + 3 + (2 + 2) + 3 * 8


@pytest.mark.parametrize("count", [1_024, 1_025])
def test_the_range_of_timestamps_of_slices(count: int) -> None:
    """Below a size a loop, above it a kernel: both see the slice only."""
    timestamps = pa.array([-5, *range(100, 100 + count), 10**6], pa.int64()).cast(RECORD_SCHEMA.field("timestamp").type)
    table = pa.table(
        {"key": pa.nulls(count + 2, pa.binary()), "value": pa.nulls(count + 2, pa.binary()),
         "headers": pa.nulls(count + 2, RECORD_SCHEMA.field("headers").type), "timestamp": timestamps},
        schema=RECORD_SCHEMA,
    )  # fmt: skip
    staged = upload(ScriptedStore(), stage_topic(), pa.concat_tables([table.slice(1, 1), table.slice(2, count - 1)]))
    assert (staged.record_count, staged.timestamp_min_ms, staged.timestamp_max_ms) == (count, 100, 99 + count)


def test_a_typed_topic() -> None:
    topic = stage_topic(schema=(("n", "int64", True), ("s", "string", False)))
    rows = [{"n": 1, "s": "ab", "_timestamp": 5}, {"n": None, "s": "c", "_timestamp": 4}]
    table = pa.Table.from_pylist(rows, schema=stored_schema(topic.schema))
    objects = ScriptedStore()
    staged = upload(objects, topic, table)
    assert stored(objects, topic, staged).equals(table)
    assert (staged.timestamp_min_ms, staged.timestamp_max_ms) == (4, 5)
    assert staged.payload_bytes == 8 + 3 + 2 * 8


@pytest.mark.parametrize("settings", [{"segment_format": "arrow"}, {"compression_type": "none"}])
def test_the_payload_does_not_depend_on_order_or_encoding(settings: dict[str, Any]) -> None:
    reverse = TABLE.take([2, 1, 0])
    parts = [reverse.slice(0, 1), reverse.slice(1, 2)]
    topic = stage_topic(**settings)
    split = sum(upload(ScriptedStore(), topic, part).payload_bytes for part in parts)
    assert split == upload(ScriptedStore(), stage_topic()).payload_bytes


@each(
    [
        (["lost"], 1),
        (["exists"], 1),
        (["dropped"], 2),
        (["dropped", "dropped", "dropped"], 4),
        (["dropped", "lost"], 2),
        (["dropped", "exists"], 2),
    ]
)
def test_an_unclear_answer_is_resolved_by_reading_back(script: list[str], puts: int) -> None:
    objects, topic = ScriptedStore(list(script)), stage_topic()
    staged = upload(objects, topic)
    assert stored(objects, topic, staged).equals(TABLE)
    assert len(objects.puts) == puts
    assert len(set(objects.puts)) == 1, "every attempt puts the same bytes under the same name"


def test_what_was_read_back_is_made_durable() -> None:
    objects = ScriptedStore(["lost"])
    upload(objects, stage_topic())
    assert objects.made_durable == [objects.puts[0][0]]


def test_a_failed_read_back_is_tried_again() -> None:
    objects, topic = ScriptedStore(["lost"], unreadable=1), stage_topic()
    assert stored(objects, topic, upload(objects, topic)).equals(TABLE)
    assert len(objects.puts) == 2


def test_a_store_that_never_answers() -> None:
    clock = ManualClock()
    objects = ScriptedStore(["dropped"] * 100)
    before_s = clock.monotonic_s()
    with pytest.raises(StoreUnavailable, match=re.escape("topics/t-7/kafka_partition=0/00000000000000000042-")):
        upload(objects, stage_topic(), clock=clock)
    assert 1 < len(objects.puts) < 20
    assert clock.monotonic_s() - before_s <= 10


def test_the_deadline_ends_the_attempts() -> None:
    clock = ManualClock()

    class SlowStore(ScriptedStore):
        def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None):
            clock.sleep(min(36.0, timeout_s or 0))
            return super().put_if_absent(name, data)

    objects = SlowStore(["dropped"] * 100)
    with pytest.raises(StoreUnavailable):
        upload(objects, stage_topic(), clock=clock)
    assert len(objects.puts) == 2


def test_others_bytes_under_our_name_are_damage() -> None:
    with pytest.raises(DamagedObject, match="other bytes"):
        upload(ScriptedStore(["taken"]), stage_topic())


def test_more_than_one_put_can_carry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploading, "OBJECT_SIZE_MAX", 100)
    objects = ScriptedStore()
    with pytest.raises(CommandRefused, match=r"topic 't' has .* expected at most 100") as caught:
        upload(objects, stage_topic())
    assert caught.value.error == ErrorCode.MESSAGE_TOO_LARGE
    assert not objects.puts
