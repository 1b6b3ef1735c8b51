"""The newest offsets of keys, with hardly any memory for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from sparktxn.maintenance import compact, plan_compact, run_compact_task
from sparktxn.maintenance.rewriting import compactfiles
from sparktxn.maintenance.rewriting.compactfiles import newest_offsets
from tests.world import World

RECORDS = 400
KEYS = 90


@pytest.fixture
def filled() -> Iterator[World]:
    world = World({})
    world.store.create_topic("prices", settings={"cleanup.policy": "compact"})
    with world.producer() as producer:
        for number in range(RECORDS):
            producer.produce("prices", b"v", b"%d" % (number * number % KEYS))
            if number % 50 == 0:
                producer.flush()
    yield world
    world.close()


def newest() -> list[int]:
    return sorted({number * number % KEYS: number for number in range(RECORDS)}.values())


@pytest.mark.parametrize(("buffer_bytes", "waiting_bytes"), [(1 << 30, 1 << 20), (1 << 30, 64), (300, 64), (64, 64)])
def test_they_are_the_same_whatever_the_memory(
    filled: World, buffer_bytes: int, waiting_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactfiles, "_WAITING_BYTES", waiting_bytes)
    readings = 0
    keys = compactfiles._keys

    def counted(*arguments: object) -> object:
        nonlocal readings
        readings += 1
        return keys(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compactfiles, "_keys", counted)
    (task,) = plan_compact(filled.store)
    found = newest_offsets(filled.store.log.objects, task.read, buffer_bytes)
    assert found.between(0, RECORDS).to_pylist() == newest()
    assert found.between(7, 50).to_pylist() == [offset for offset in newest() if 7 <= offset < 50]
    assert (readings > 1) == (buffer_bytes < 1_000), "the keys were not divided, or without need"


def test_keys_with_one_hash_are_still_told_apart(filled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can divide them: they take the memory that they take."""
    monkeypatch.setattr(compactfiles, "crc32", lambda key: 5)
    monkeypatch.setattr(compactfiles, "_SHARES_MAX", 8)
    monkeypatch.setattr(compactfiles, "_WAITING_BYTES", 64)
    (task,) = plan_compact(filled.store)
    done = run_compact_task(replace(task, buffer_bytes=64), filled.store.options)
    assert sum(segment.row_count for segment in done.segments) == len(newest())
    assert compact(filled.store).left_records == len(newest())
