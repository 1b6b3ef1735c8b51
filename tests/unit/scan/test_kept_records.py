"""Records that the log's follower has kept: reading them asks the store for nothing, and gives the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from sparktxn._engine.log.follow.inlinerecords import inline_cache
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.clock import SystemClock
from sparktxn._rows.scan import segmentbytes
from sparktxn._rows.scan.plan import plan_ranges
from sparktxn._rows.scan.reader import read
from sparktxn._rows.scan.segmentbytes import are_kept
from sparktxn.maintenance import rewrite
from tests.world import World


class Silent:
    """A store that must not be asked: a request fails the test."""

    def __init__(self, objects: ObjectStore) -> None:
        self.uri = objects.uri

    def __getattr__(self, name: str) -> Any:
        pytest.fail(f"the store is asked for {name}")


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"t": 1})
    yield made
    made.close()


def write(world: World, random: Random, count: int) -> None:
    """Small segments and large ones, plain, committed and aborted; now and then a checkpoint or a rewrite."""
    with world.producer() as plain, world.transactional() as transactional:
        for number in range(count):
            in_transaction = random.random() < 0.5
            producer = transactional if in_transaction else plain
            if in_transaction:
                producer.begin_transaction()
            size = 20_000 if random.random() < 0.1 else 10
            for place in range(random.randrange(1, 4)):
                producer.produce("t", random.randbytes(size), f"{number}.{place}".encode(), partition=0)
            if not in_transaction:
                producer.flush()
            elif random.random() < 0.3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            if random.random() < 0.03:
                world.store.log.checkpoint()
    if random.random() < 0.2:
        rewrite(world.store)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_kept_is_read_without_a_request(world: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    write(world, random, random.randrange(10, 60))
    view = world.store.view(["t"])
    partition = view.partitions["t", 0]
    objects = world.store.log.objects
    expected = world.rows("t")
    silent = Silent(objects)
    of_store = inline_cache
    monkeypatch.setattr(segmentbytes, "inline_cache", lambda _: of_store(objects))
    monkeypatch.setattr("sparktxn._engine.log.follow.inlinerecords.inline_cache", lambda _: of_store(objects))
    end = partition.last_stable_offset
    kept = 0
    for start in range(partition.log_start_offset, end):
        if are_kept(objects, partition, start, end):
            kept += 1
            tasks = plan_ranges(silent, world.uri, view, {("t", 0): (start, end)})
            rows = [row for task in tasks for batch in read(silent, task) for row in batch.to_pylist()]
            assert rows == [row for row in expected if row["offset"] >= start]
    newest = partition.segments[-1:]
    if newest and not partition.rewritten and of_store(objects).get(newest[0].name) is not None:
        assert kept


def test_records_that_another_handle_has_followed_are_not_kept(world: World) -> None:
    world.produce("one")
    view = world.store.view(["t"]).partitions["t", 0]
    assert are_kept(world.store.log.objects, view, 0, 1)
    assert not are_kept(MemoryStore("another", SystemClock()), view, 0, 1)


def test_only_so_many_segments_count_as_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        world.produce(str(number))
    view = world.store.view(["t"]).partitions["t", 0]
    monkeypatch.setattr(segmentbytes, "_KEPT_SEGMENTS_MAX", 3)
    assert [are_kept(world.store.log.objects, view, start, 4) for start in range(5)] == [False, True, True, True, False]


def test_an_end_is_kept_without_what_follows_it(world: World) -> None:
    world.produce("small")
    world.produce("x" * 100_000)
    view = world.store.view(["t"]).partitions["t", 0]
    assert are_kept(world.store.log.objects, view, 0, 1)
    assert not are_kept(world.store.log.objects, view, 0, 2)
