"""A rewritten topic in Spark: both orders, batch and streaming."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog import scan
from sparktxn import Store
from sparktxn.maintenance import rewrite
from tests.spark.readers import Query, batch_reader, commit, numbers_of, stream_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def topic(store: Store) -> None:
    """Transactions of two records over two partitions."""
    store.create_topic("t", 2)
    for number in range(0, 24, 2):
        commit(store, range(number, number + 2))


def test_both_orders_read_the_same_rows_and_a_stream_goes_on(store: Store) -> None:
    streams = {
        order: Query(stream_reader(store, startingOffsets="earliest", order=order)) for order in ("commit", "offset")
    }
    expected = {order: sorted(query.run()) for order, query in streams.items()}
    assert set(map(tuple, expected.values())) == {tuple(range(24))}
    read = {order: numbers_of(batch_reader(store, order=order)) for order in ("commit", "offset")}
    assert rewrite(store).ranges == 2
    for order in ("commit", "offset"):
        assert numbers_of(batch_reader(store, order=order)) == read[order]
        limited = Query(stream_reader(store, startingOffsets="earliest", order=order, maxOffsetsPerTrigger="5"))
        found: list[int] = []
        while some := limited.run():
            found += some
        assert sorted(found) == list(range(24))
    commit(store, range(24, 26))
    for query in streams.values():
        assert sorted(query.run()) == [24, 25]


def test_sparks_own_reader_gets_the_parts_of_files_too(spark: SparkSession, store: Store) -> None:
    columns = ["partition", "offset", "value"]
    before = sorted(map(tuple, scan(spark, store.uri, subscribe="t").select(*columns).collect()))
    assert rewrite(store).ranges == 2
    assert sorted(map(tuple, scan(spark, store.uri, subscribe="t").select(*columns).collect())) == before
    frame = spark.read.format("txnlog").option("subscribe", "t").load(store.uri)
    assert sorted(map(tuple, frame.select(*columns).collect())) == before
