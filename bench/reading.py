"""Reading rows per second, against plain Parquet in the same run."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq

from bench.broker import poll_rates
from bench.figures import Figure, median
from bench.records import batch, produce_small, temporary_folder, topic_store
from sparktxn import Consumer, Producer, TopicPartition
from sparktxn.maintenance import rewrite
from sparktxn.store import Store

__all__ = ["fill", "measure"]

_CACHE = Path(__file__).parents[1] / ".venv-peers" / "jars"
_ROWS = 2_000_000
_ROUNDS = 3
_SMALL_ROWS = 100_000
_SMALL_ROUNDS = 5


def fill(folder: str, rows: int, rows_per_call: int = 500_000) -> None:
    """Writes `rows` records of 100-byte values to topic ``t``, with `produce_arrow`."""
    topic_store(folder, 1).close()
    producer = Producer({"bootstrap.servers": folder, "transactional.id": "filler"})
    producer.init_transactions()
    table = batch(rows_per_call)
    for _ in range(rows // rows_per_call):
        producer.begin_transaction()
        producer.produce_arrow("t", table)
        producer.commit_transaction()
    producer.close()


def _consumer(folder: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": folder, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    return consumer


def arrow_rate(folder: str, rows: int) -> float:
    """Rows per CPU second of `consume_arrow`."""
    consumer = _consumer(folder)
    read = 0
    started = time.process_time()
    while read < rows:
        table = consumer.consume_arrow(timeout=10)
        read += table.num_rows
    return read / (time.process_time() - started)


def poll_rate(folder: str, rows: int) -> float:
    """Messages per wall second of a `poll()` loop."""
    consumer = _consumer(folder)
    read = 0
    started = time.perf_counter()
    while read < rows:
        message = consumer.poll(10)
        if message is not None and message.error() is None:
            read += 1
    return read / (time.perf_counter() - started)


def plain_rate(folder: str, rows: int) -> float:
    """Rows per CPU second of reading the same files with pyarrow alone."""
    files = sorted(Path(folder).glob("topics/t-*/kafka_partition=0/*.parquet"))
    started = time.process_time()
    read = 0
    for file in files:
        read += pq.ParquetFile(file, pre_buffer=False).read(use_threads=False).num_rows
    return read / (time.process_time() - started)


def small_transactions(folder: str, rows: int, inline_bytes: int) -> None:
    """Writes `rows` records in transactions of 100, carried by entries or as a file each."""
    topic_store(folder, 1, **{"store.fsync": "false"}).close()
    settings = {"store.fsync": "false", "store.append.inline.bytes": inline_bytes}
    with Producer({"bootstrap.servers": folder, "transactional.id": "small", **settings}) as producer:
        produce_small(producer, rows)


def _small_figures() -> list[Figure]:
    """What poll() makes of transactions of 100 records, against one of all of them, in one run."""
    with ExitStack() as stack:
        large, inline, files = (stack.enter_context(temporary_folder()) for _ in range(3))
        fill(large, _SMALL_ROWS, _SMALL_ROWS)
        small_transactions(inline, _SMALL_ROWS, 16_384)
        small_transactions(files, _SMALL_ROWS, 0)
        rates = [[poll_rate(folder, _SMALL_ROWS) for folder in (large, inline, files)] for _ in range(_SMALL_ROUNDS)]
        with Store.open(inline, options={"store.fsync": "false"}) as store:
            rewrite(store)
        merged = median([poll_rate(inline, _SMALL_ROWS) for _ in range(_SMALL_ROUNDS)])
        peer, carried, filed = (median([one[index] for one in rates]) for index in range(3))
        against_broker = _against_broker(large, carried, merged)
    return [
        *against_broker,
        Figure("poll(), transactions of 100, inline", carried, "messages/s", note=f"files {filed:,.0f}/s"),
        Figure("poll(), transactions of 100, inline, against one large transaction", carried / peer, "x", 0.5),
        Figure("poll(), transactions of 100, rewritten, against one large transaction", merged / peer, "x", 0.8),
    ]


def _against_broker(folder: str, carried: float, merged: float) -> list[Figure]:
    """Both rates against confluent-kafka's `poll()` of the same transactions; none, with a message, if it cannot be."""
    try:
        broker = median(poll_rates(Path(folder, "broker"), _CACHE, _SMALL_ROWS, _SMALL_ROUNDS))
    except OSError as error:
        print(f"no figures against Kafka: {error}", file=sys.stderr)
        return []
    name, note = "poll(), transactions of 100", f"{broker:,.0f}/s"
    return [
        Figure(f"{name}, inline, against a broker", carried / broker, "x", 0.8, note=note),
        Figure(f"{name}, rewritten, against a broker", merged / broker, "x", 2),
    ]


def measure() -> list[Figure]:
    """The figures of reading."""
    with temporary_folder() as folder:
        fill(folder, _ROWS)
        rounds = [
            (arrow_rate(folder, _ROWS), plain_rate(folder, _ROWS), poll_rate(folder, _ROWS // 2))
            for _ in range(_ROUNDS)
        ]
    arrow, plain, poll = (median([one[index] for one in rounds]) for index in range(3))
    return [
        Figure("consume_arrow, 100-byte values, zstd", arrow, "rows/s/core", 5_000_000),
        Figure("consume_arrow, against plain Parquet files", arrow / plain, "x", note=f"plain {plain:,.0f} rows/s"),
        Figure("poll() loop", poll, "messages/s", 500_000),
        *_small_figures(),
    ]
