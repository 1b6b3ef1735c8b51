"""Records as they are stored: blocks of many segments, whose rows and offsets are those of each segment."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pyarrow.ipc as ipc
import pytest

from sparktxn._rows.scan import storedrecords
from sparktxn._rows.scan.plan import ReadTask
from sparktxn._rows.scan.storedrecords import stored_blocks, stored_records
from sparktxn.maintenance import rewrite
from tests.world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"t": 1})
    yield made
    made.close()


def task_of(world: World) -> ReadTask:
    view = world.store.view(["t"])
    (task,) = world.store.plan(view, world.store.ranges(view), by_segment=True)
    return task


def write(world: World, count: int, *, seed: int = 1) -> None:
    """Segments of one to three records, now and then with a key or a header, or in a transaction."""
    random = Random(seed)
    with world.producer() as plain, world.transactional() as transactional:
        for number in range(count):
            in_transaction = random.random() < 0.2
            producer = transactional if in_transaction else plain
            if in_transaction:
                producer.begin_transaction()
            key = b"key" if random.random() < 0.1 else None
            for place in range(random.randrange(1, 4)):
                producer.produce("t", f"{number}.{place}", key, partition=0)
            producer.commit_transaction() if in_transaction else producer.flush()


def check(world: World) -> list[int]:
    """Blocks have the rows of a plain read, with their offsets; return how many segments each has."""
    task = task_of(world)
    blocks = list(stored_blocks(world.store.log.objects, task, offsets=True))
    found = pa.concat_tables([rows for _, rows in blocks]).select(["offset", "key", "value"])
    assert found.to_pylist() == [{name: row[name] for name in found.column_names} for row in world.rows("t")]
    assert [segment for segments, _ in blocks for segment in segments] == list(task.segments)
    assert all(rows.num_rows == sum(one.row_count for one in segments) for segments, rows in blocks)
    each = list(stored_records(world.store.log.objects, task, offsets=True))
    assert pa.concat_tables([rows for _, rows in each]).select(found.column_names) == found
    assert all(rows.num_rows == segment.row_count for segment, rows in each)
    assert all(rows.column("offset")[0].as_py() == segment.base_offset for segment, rows in each)
    return [len(segments) for segments, _ in blocks]


def test_inline_segments_are_decoded_some_dozens_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema is decoded once for neighbours that share it."""
    write(world, 150)
    schemas: list[pa.Schema] = []
    decode = ipc.read_schema

    def counted(stream: pa.Buffer) -> pa.Schema:
        schemas.append(decode(stream))
        return schemas[-1]

    monkeypatch.setattr(ipc, "read_schema", counted)
    assert check(world) == [1, 4, 16, 64, 64, 1]
    assert len(schemas) < 150
    assert check(world) == check(world)


def test_blocks_of_a_merged_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write(world, 60)
    before = world.rows("t")
    rewrite(world.store, {"rewrite.min.segments": 2})
    assert world.rows("t") == before
    assert check(world) == [60], "one file"
    write(world, 5, seed=2)
    assert sum(check(world)) == 65
    monkeypatch.setattr(storedrecords, "_BLOCK_BYTES", 256)
    sizes = check(world)
    assert len(sizes) > 10
    rewrite(world.store, {"rewrite.min.segments": 2})
    assert check(world)
    assert world.rows("t")[: len(before)] == before


def test_a_block_of_inline_segments_is_bounded_by_what_they_decode_to(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storedrecords, "_BLOCK_BYTES", 10_000)
    for size in (4_000, 4_000, 4_000, 20_000, 100, 100):
        world.produce("x" * size)
    assert check(world) == [1, 2, 1, 1, 1]
