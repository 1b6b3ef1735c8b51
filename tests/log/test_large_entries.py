"""Entries that would be too large put their append commands into an object of their own."""

from __future__ import annotations

import json

import pytest

from sparktxn._engine.format import names
from sparktxn._engine.format.appends import ENTRY_BYTES_MAX
from sparktxn._engine.format.commands import Append, CreateTopic, EndTxn, InitProducerId
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore.memory import MemoryStore
from sparktxn._foundation.process.background import InlineBackground
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn.errors import DamagedObject
from tests.world import open_log

APPENDS = 3_000


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore(RandomIds().token(), SystemClock())


def commit_large(log: Log) -> None:
    log.submit([CreateTopic("create", "t", 2)])
    producer = log.submit([InitProducerId("init", "job")])[0]
    identity = (producer.producer_id, producer.producer_epoch)
    appends = [
        Append(
            topic_id=1,
            partition=index % 2,
            segment=names.segment_file(0, log.ids.token(), "parquet"),
            record_count=1,
            size_bytes=10,
            checksum="00000000",
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=index // 2,
            timestamp_min_ms=1,
            timestamp_max_ms=1,
            transactional_id="job",
            transaction=1,
        )
        for index in range(APPENDS)
    ]
    log.submit([*appends, EndTxn("job", *identity, 1, True)])


def test_a_large_entry_stays_small_and_every_reader_sees_all_its_segments(objects: MemoryStore) -> None:
    commit_large(open_log(objects, background=InlineBackground()))
    data = objects.get(names.entry(3))
    assert data is not None
    assert len(data) < ENTRY_BYTES_MAX
    assert [command["type"] for command in json.loads(data)["commands"]] == ["appends", "end_txn"]
    log = open_log(objects, background=InlineBackground())
    view = log.view(["t"])
    assert [len(view.partitions["t", number].segments) for number in (0, 1)] == [APPENDS // 2, APPENDS // 2]
    assert view.partitions["t", 1].last_stable_offset == APPENDS // 2 + 1


def test_a_missing_append_object_is_named(objects: MemoryStore) -> None:
    commit_large(open_log(objects, background=InlineBackground()))
    (name,) = [info.name for info in objects.list(names.APPENDS)]
    objects.delete([name])
    with pytest.raises(DamagedObject, match=name):
        open_log(objects, background=InlineBackground())
