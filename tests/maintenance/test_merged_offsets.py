"""The column of offsets in files that a rewrite has made, and what is wrong with one that is not so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparktxn.clock import SystemClock
from sparktxn.format import names
from sparktxn.format.schema import with_offsets
from sparktxn.format.segment import checksum, encode_segment, stored_schema
from sparktxn.maintenance import rewrite, verify
from sparktxn.maintenance.segmentcheck import SegmentsToCheck, check_segments, stored_segment
from sparktxn.objectstore.memory import MemoryStore
from sparktxn.structs import SegmentRef
from tests.world import World, next_number


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"t": 1})
    yield made
    made.close()


def merged_file(world: World, topic: str) -> pq.ParquetFile:
    objects = world.store.log.objects
    (name,) = (info.name for info in objects.list(names.TOPICS) if names.has_offsets(info.name))
    assert f"/{topic}-" in name
    return pq.ParquetFile(pa.BufferReader(objects.get(name)))


def test_it_says_the_offset_of_each_row(world: World) -> None:
    world.produce("0", "1", "2")
    with world.transactional().transaction():
        pass
    with (producer := world.transactional("shop")).transaction():
        producer.produce("t", b"3")
    world.produce("5")
    expected = [row["offset"] for row in world.rows("t")]
    assert expected == [0, 1, 2, 3, 5]
    rewrite(world.store, {"rewrite.min.segments": 2})
    file = merged_file(world, "t")
    assert file.read(columns=["offset"]).column(0).to_pylist() == expected
    assert not file.schema_arrow.field("offset").nullable
    column = file.metadata.row_group(0).column(file.metadata.num_columns - 1)
    assert column.path_in_schema == "offset"
    assert "DELTA_BINARY_PACKED" in column.encodings
    assert (column.statistics.min, column.statistics.max) == (0, 5)
    assert column.has_column_index
    assert [row["offset"] for row in world.rows("t")] == expected
    assert verify(world.store).problems == ()


def test_a_typed_topic_may_have_a_column_of_that_name(world: World) -> None:
    world.store.create_topic("typed", 1, schema=pa.schema([("offset", pa.int64())]))
    for number in range(3):
        stager = world.store.stage_plan(["typed"]).open(seed=number, default_topic="typed")
        stager.write(pa.record_batch({"offset": [10 * number]}))
        world.store.commit(stager.finish())
    before = world.rows("typed")
    assert [(row["offset"], row["_offset"]) for row in before] == [(0, 0), (10, 2), (20, 4)]
    rewrite(world.store, {"rewrite.min.segments": 2})
    found = merged_file(world, "typed").read(columns=["offset", "_offset"]).to_pylist()
    assert found == [{"offset": row["offset"], "_offset": row["_offset"]} for row in before]
    assert world.rows("typed") == before


@pytest.mark.parametrize(
    ("offsets", "is_sound"), [([3, 4], True), ([4, 3], False), ([3, 5], False), ([2, 3], False), ([3, 3], False)]
)
def test_verifying_compares_it_with_the_log(offsets: Sequence[int], is_sound: bool) -> None:
    schema = with_offsets(stored_schema(None))
    record = {"value": b"x", "timestamp": 1}
    rows = pa.Table.from_pylist([record | {"offset": offset} for offset in offsets], schema)
    data = encode_segment(rows, segment_format="parquet", compression="zstd")
    objects = MemoryStore(f"offsets-{next_number()}", SystemClock())
    file = names.merged_segment_file(1, "0" * 20)
    name = names.segment("t", 1, 0, file)
    objects.put_if_absent(name, data)
    segment = SegmentRef(file, 3, 2, len(data), checksum(data), 2, -1, -1, -1, -1, 1, 1, 2)
    task = SegmentsToCheck(objects.uri, None, (stored_segment(name.removesuffix(file), segment),))
    problems = check_segments(objects, task).problems
    assert ["offsets do not grow" in each.problem for each in problems] == ([] if is_sound else [True])


def test_verifying_misses_it_where_the_name_has_it() -> None:
    rows = pa.Table.from_pylist([{"value": b"x", "timestamp": 1}], stored_schema(None))
    data = encode_segment(rows, segment_format="parquet", compression="zstd")
    objects = MemoryStore(f"offsets-{next_number()}", SystemClock())
    file = names.merged_segment_file(1, "0" * 20)
    name = names.segment("t", 1, 0, file)
    objects.put_if_absent(name, data)
    segment = SegmentRef(file, 3, 1, len(data), checksum(data), 2, -1, -1, -1, -1, 1, 1, 2)
    task = SegmentsToCheck(objects.uri, None, (stored_segment(name.removesuffix(file), segment),))
    (problem,) = check_segments(objects, task).problems
    assert "offset" in problem.problem
