"""What an entry may carry: all of it can be read again, and it stays small whatever is committed at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format import segment as inline
from sparktxn._engine.format.commands import Append
from sparktxn._engine.format.entry import decode_entry
from sparktxn._rows.stage.stagedsegment import INLINE_LIST_BYTES_MAX
from tests.world import World

PARTITIONS = 600


@pytest.fixture
def world() -> Iterator[World]:
    made = World({"t": 1, "wide": PARTITIONS})
    yield made
    made.close()


def test_records_of_no_bytes_are_not_inline_where_no_reader_would_decode_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timestamp is not part of a record's size, and equal ones compress to nearly nothing."""
    bytes_max = 1 << 16  # of 8 MiB, which takes a million records
    monkeypatch.setattr(inline, "_DECODED_BYTES_MAX", bytes_max)
    count = bytes_max // 8 + 1
    world.store.create_topic("nulls", 1, settings={"segment.rows": "10000000"})
    producer = world.transactional(queue_buffering_max_messages=10_000_000)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce("nulls", None, None, 0, timestamp=1_700_000_000_000)
    producer.commit_transaction()
    view = world.store.view(["nulls"])
    segments = view.partitions["nulls", 0].segments
    assert sum(segment.record_count for segment in segments) == count
    assert not any(names.is_inline(segment.name) for segment in segments)
    assert len(world.rows("nulls")) == count


def test_a_transaction_over_many_partitions_carries_only_so_many_bytes(world: World) -> None:
    producer = world.transactional()
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce("wide", str(partition), partition=partition)
    producer.commit_transaction()
    entry = world.entry()
    data = world.store.log.objects.get(names.entry(entry))
    assert data is not None
    appends = [one for one in decode_entry(data, "", entry).commands if isinstance(one, Append)]
    carried = [len(one.data) for one in appends if one.data]
    assert 0 < sum(carried) <= INLINE_LIST_BYTES_MAX
    assert 0 < len(carried) < len(appends)
    assert sorted(map(int, world.texts("wide"))) == list(range(PARTITIONS))
