"""The records that the benchmarks write: JSON-like values of 100 bytes, and stores that hold them."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sparktxn.store import Store

__all__ = ["RECORDS", "batch", "produce_small", "temporary_folder", "topic_store", "values"]

RECORDS = 100
"""Records of a transaction in the commit benchmarks."""

_CARRIERS = ("AA", "B6", "DL", "EV", "UA", "US", "WN")


def values(count: int, seed: int = 7) -> list[bytes]:
    """`count` JSON-like values of 100 bytes each."""
    chosen = random.Random(seed)
    found = []
    for number in range(count):
        text = (
            f'{{"flight":{number % 9_973},"carrier":"{chosen.choice(_CARRIERS)}","delay":{chosen.randrange(-20, 400)},'
            f'"tail":"N{chosen.randrange(10_000, 99_999)}","origin":"JFK","note":"'
        )
        found.append((text + "x" * (98 - len(text)) + '"}').encode())
    return found


def batch(rows: int) -> pa.Table:
    """Kafka records as columns: key, value and timestamp."""
    distinct = values(min(rows, 50_000))
    column = pa.array(distinct, pa.binary())
    repeats = -(-rows // len(distinct))
    value = pa.concat_arrays([column] * repeats).slice(0, rows)
    key = pa.array([b"%d" % (number % 1_000) for number in range(rows)], pa.binary())
    timestamp = pa.array(range(1_700_000_000_000, 1_700_000_000_000 + rows), pa.int64())
    return pa.table({"key": key, "value": value, "timestamp": timestamp.cast(pa.timestamp("ms", tz="UTC"))})


def produce_small(producer: Any, rows: int) -> None:
    """Write `rows` records to topic ``t`` in transactions of `RECORDS`, by our producer or confluent-kafka's."""
    producer.init_transactions()
    records = values(RECORDS)
    for _ in range(rows // RECORDS):
        producer.begin_transaction()
        for value in records:
            producer.produce("t", value, b"key", 0)
        producer.commit_transaction()


@contextmanager
def temporary_folder(parent: str | None = None) -> Iterator[str]:
    """A folder that is gone afterwards, on the disk of temporary files if no other `parent` is named."""
    folder = tempfile.mkdtemp(prefix="sparktxn-bench-", dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def topic_store(folder: str, partitions: int, *, settings: dict[str, str] | None = None, **options: str) -> Store:
    """A new store with topic ``t``."""
    store = Store.open(folder, options=options, create=True)
    store.create_topic("t", partitions, settings=settings or {})
    return store
