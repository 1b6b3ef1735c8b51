"""A compacted topic in Spark: both orders, batch and streaming, and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog import scan
from pyspark_txnlog.native.native_scan import count, max_offset
from sparktxn import Producer, Store
from sparktxn.maintenance import compact, rewrite
from tests.spark.readers import Query, batch_reader, numbers_of, stream_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEYS = 10
LEFT = list(range(20, 30))


@pytest.fixture(autouse=True)
def topic(store: Store) -> None:
    """Transactions of two records over two partitions; a key has one partition."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    store.create_topic("t", 2, settings=settings)
    put(store, range(30))


def put(store: Store, numbers: range) -> None:
    with Producer({"bootstrap.servers": store.uri, "transactional.id": "prices"}) as producer:
        producer.init_transactions()
        for first in numbers[::2]:
            with producer.transaction():
                for number in (first, first + 1):
                    producer.produce("t", str(number), str(number % KEYS), partition=number % 2)


def test_both_orders_read_what_is_left_and_a_stream_goes_on(store: Store) -> None:
    streams = {
        order: Query(stream_reader(store, startingOffsets="earliest", order=order)) for order in ("commit", "offset")
    }
    for query in streams.values():
        assert sorted(query.run()) == list(range(30))
    assert compact(store).removed_records == 20
    for order in ("commit", "offset"):
        assert numbers_of(batch_reader(store, order=order)) == LEFT
    limited = Query(stream_reader(store, startingOffsets="earliest", maxOffsetsPerTrigger="3"))
    assert sorted(limited.run()) == LEFT, "a micro-batch has half of what one compaction covers"
    assert not limited.run()
    limited = Query(stream_reader(store, startingOffsets="earliest", order="offset", maxOffsetsPerTrigger="10"))
    batches = []
    while not limited.is_idle():
        batches.append(limited.run())
    assert sum(map(bool, batches)) > 1, "offset order has no such rule"
    assert sorted(number for batch in batches for number in batch) == LEFT
    put(store, range(30, 32))
    for query in streams.values():
        assert sorted(query.run()) == [30, 31]


def test_time_travel_reads_all_records(store: Store) -> None:
    entry = store.view(["t"]).entry
    compact(store)
    assert numbers_of(batch_reader(store, asOfEntry=str(entry))) == list(range(30))


def test_counts_are_those_of_the_rows(store: Store) -> None:
    compact(store)
    frame = scan_rows(store)
    assert count(store.uri, "t") == len(frame) == KEYS
    greatest = {number: max(offset for partition, offset in frame if partition == number) for number in (0, 1)}
    assert max_offset(store.uri, "t") == greatest


def scan_rows(store: Store) -> list[tuple[int, int]]:
    reader = batch_reader(store)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


def test_sparks_own_reader_gets_what_is_left(spark: SparkSession, store: Store) -> None:
    columns = ["partition", "offset", "value"]
    before = sorted(map(tuple, scan(spark, store.uri, subscribe="t").select(*columns).collect()))
    expected = [row for row in before if int(row[2]) in LEFT]
    compact(store)
    for _ in range(2):
        assert sorted(map(tuple, scan(spark, store.uri, subscribe="t").select(*columns).collect())) == expected
        frame = spark.read.format("txnlog").option("subscribe", "t").load(store.uri)
        assert sorted(map(tuple, frame.select(*columns).collect())) == expected
        assert frame.count() == KEYS
        put(store, range(30, 30))
        rewrite(store, {"rewrite.min.segments": 2})
