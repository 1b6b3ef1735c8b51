"""Counts and greatest offsets from the log: the same as reading all rows gives, and no segment is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyspark_txnlog
from sparktxn import Producer, Store, TopicPartition, read_task
from sparktxn._engine.objectstore.local import LocalStore
from sparktxn.admin import AdminClient
from tests.spark.readers import batch_reader, commit

pytestmark = pytest.mark.spark


def aborted_and_open(store: Store) -> None:
    """Commit, abort, commit, and leave one transaction open, in two partitions."""
    commit(store, range(10), partition=0)
    settings = {"bootstrap.servers": store.uri, "transaction.timeout.ms": 900_000}
    with Producer({**settings, "transactional.id": "aborts"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(7):
            producer.produce("t", str(number), partition=number % 2)
        producer.flush(10)
        producer.abort_transaction()
    commit(store, range(10, 15), partition=1)


def rows(store: Store, **options: str) -> list[tuple[int, int]]:
    """Read all rows; return their partitions and offsets."""
    reader = batch_reader(store, **options)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [
        (partition, offset)
        for batch in batches
        for partition, offset in zip(
            batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
        )
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": "offset"},
        {"isolationLevel": "read_uncommitted"},
        {"startingOffsets": '{"t":{"0":4,"1":0}}', "endingOffsets": '{"t":{"0":8,"1":-1}}'},
    ],
    ids=str,
)
def test_counts_and_offsets_are_those_of_the_rows(
    store: Store, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topic("t", 2)
    aborted_and_open(store)
    with AdminClient({"bootstrap.servers": store.uri}) as admin:
        for future in admin.delete_records([TopicPartition("t", 0, 2)]).values():
            future.result()
    found = rows(store, **options)
    assert found, "there is something to count"
    get = LocalStore.get

    def no_segment(self: LocalStore, name: str) -> Any:
        assert not name.endswith((".parquet", ".arrow")), f"{name} is fetched"
        return get(self, name)

    monkeypatch.setattr(LocalStore, "get", no_segment)
    assert pyspark_txnlog.count(store.uri, "t", options) == len(found)
    greatest = {partition: max(offset for at, offset in found if at == partition) for partition, _ in found}
    assert pyspark_txnlog.max_offset(store.uri, "t", options) == greatest


def test_an_empty_topic_has_no_rows(store: Store) -> None:
    store.create_topic("t", 2)
    assert pyspark_txnlog.count(store.uri, "t") == 0
    assert pyspark_txnlog.max_offset(store.uri, "t") == {}


def test_the_rows_of_an_internal_topic_are_read_to_be_counted(store: Store) -> None:
    store.create_topic("t")
    commit(store, range(3))
    view = store.view(["__transaction_state"])
    offsets = [
        offset
        for task in store.plan_commits(view, 0)
        for batch in read_task(task)
        for offset in batch.column("_offset").to_pylist()
    ]
    assert pyspark_txnlog.count(store.uri, "__transaction_state") == len(offsets) > 1
    assert pyspark_txnlog.max_offset(store.uri, "__transaction_state") == {0: offsets[-1]}


def test_as_of_an_entry(store: Store, tmp_path: Path) -> None:
    store.create_topic("t")
    commit(store, range(3))
    entry = store.view().entry
    commit(store, range(3, 5))
    assert pyspark_txnlog.count(store.uri, "t", asOfEntry=entry) == 3
    assert pyspark_txnlog.count(store.uri, "t") == 5
