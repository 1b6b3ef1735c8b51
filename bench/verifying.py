"""Verifying a store: bytes per second of a processor, and against reading the same records."""

from __future__ import annotations

import os
import time

import pyarrow as pa

from bench.figures import Figure, alternate
from bench.records import temporary_folder
from sparktxn.maintenance import verify
from sparktxn.producer import Producer
from sparktxn.store import Store, read_task

__all__ = ["measure"]

_OPTIONS = {"store.fsync": "false"}
_BLOCKS = 4
_BLOCK_ROWS = 300_000
_VALUE_BYTES = 200
_ROUNDS = 5


def _fill(store: Store) -> None:
    """Values that no compression makes smaller: each byte is read, checked and decoded."""
    store.create_topic("t", 1)
    data = os.urandom(_BLOCK_ROWS * _VALUE_BYTES)
    values = [data[first : first + _VALUE_BYTES] for first in range(0, len(data), _VALUE_BYTES)]
    keys = [b"%d" % number for number in range(_BLOCK_ROWS)]
    block = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    with Producer({"bootstrap.servers": store.uri, **_OPTIONS}) as producer:
        for _ in range(_BLOCKS):
            producer.produce_arrow("t", block)
            producer.flush()


def _verified(store: Store) -> float:
    started = time.process_time()
    report = verify(store)
    assert not report.problems
    return report.size_bytes / 1e6 / (time.process_time() - started)


def _read(store: Store) -> float:
    started = time.process_time()
    view = store.view(["t"])
    tasks = store.plan(view, store.ranges(view))
    rows = sum(batch.num_rows for task in tasks for batch in read_task(task, store.options))
    assert rows == _BLOCKS * _BLOCK_ROWS
    size_bytes = sum(segment.size_bytes for task in tasks for segment in task.segments)
    return size_bytes / 1e6 / (time.process_time() - started)


def measure() -> list[Figure]:
    """Returns the figures."""
    with temporary_folder() as folder, Store.open(folder, options=_OPTIONS, create=True) as store:
        _fill(store)
        ours, peer, ratio = alternate(lambda: _verified(store), lambda: _read(store), _ROUNDS)
    return [
        Figure("verify, per second of a processor", ours, "MB", 300),
        Figure("verify / reading all columns", ratio, "x", note=f"reading: {peer:.0f} MB"),
    ]
