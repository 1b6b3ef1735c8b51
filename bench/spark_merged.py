"""Reads of old stores: small transactions that were folded and maintained, against plain files with the same rows.

The peer of all stores has their rows in as many Parquet files as the first one, with the same columns. It is one for
all, as what plain files take goes by their number. The environment variable ``BENCH_MERGED_ROUNDS`` says how often each
case is measured, five times unless it is set; Spark's cases in a driver of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.figures import Figure, alternate, median
from bench.records import RECORDS, batch, temporary_folder, topic_store
from sparktxn import Producer, Store, TopicPartition, to_duckdb, to_polars
from sparktxn.admin import AdminClient
from sparktxn.maintenance import maintain
from sparktxn.store import merged_files

__all__ = ["measure"]

_PARTITIONS: Final = 6
_TRANSACTIONS: Final = 5_000
_ROUNDS: Final = int(os.environ.get("BENCH_MERGED_ROUNDS", "5"))
_OPTIONS: Final = {"store.fsync": "false"}
_AT_ONCE: Final = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
_COUNT_MS_MORE: Final = 30.0

_TARGETS: Final = {"count": 1.1, "sum": 1.1, "all columns": 1.2}


def measure() -> list[Figure]:
    """Return the figures."""
    with temporary_folder() as folder:
        _write_small(f"{folder}/small")
        _cut(f"{folder}/small", f"{folder}/cut")
        _write_large(f"{folder}/large")
        shutil.copytree(f"{folder}/large", f"{folder}/maintained")
        with Store.open(f"{folder}/maintained", options=_OPTIONS) as store:
            maintain(store, {"rewrite.min.segments": 2})
        size = _write_plain(f"{folder}/small", f"{folder}/plain-small")
        seconds = _run(folder)
        return [size, *_spark_figures(seconds), *_engine_figures(folder)]


def _write_small(folder: str) -> None:
    """Write small transactions in a process that folds, then maintain twice: the second vacuum takes what is left."""
    rows = batch(_TRANSACTIONS * RECORDS)
    with topic_store(folder, _PARTITIONS, **_OPTIONS) as store:
        with Producer({"bootstrap.servers": folder, "transactional.id": "writer", **_OPTIONS}) as producer:
            producer.init_transactions()
            for first in range(0, rows.num_rows, RECORDS):
                with producer.transaction():
                    producer.produce_arrow("t", rows.slice(first, RECORDS))
        maintain(store, {"rewrite.min.segments": 2})
        maintain(store, _AT_ONCE)


def _write_large(folder: str) -> None:
    with (
        topic_store(folder, _PARTITIONS, **_OPTIONS),
        Producer({"bootstrap.servers": folder, "transactional.id": "writer", **_OPTIONS}) as producer,
    ):
        producer.init_transactions()
        with producer.transaction():
            producer.produce_arrow("t", batch(_TRANSACTIONS * RECORDS))


def _cut(small: str, folder: str) -> None:
    """Copy a store, move a log start into the middle of a file, and leave a transaction open."""
    shutil.copytree(small, folder)
    with Store.open(folder, options=_OPTIONS) as store:
        view = store.view(["t"])
        end = view.partitions["t", 0].log_end_offset
    admin = AdminClient({"bootstrap.servers": folder, **_OPTIONS})
    # The files of a store are larger than a tenth of a partition.
    for future in admin.delete_records([TopicPartition("t", 0, end // 20)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": folder, "transactional.id": "open", **_OPTIONS})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce_arrow("t", batch(RECORDS))
    producer.flush()
    # To close it would abort the transaction: the process ends without.


def _write_plain(store_folder: str, folder: str) -> Figure:
    """Write the rows of a store's files into as many plain ones; return what their offsets take."""
    ours = plain = 0
    with Store.open(store_folder, options=_OPTIONS) as store:
        view = store.view(["t"])
        tasks = store.plan(view, store.ranges(view))
        files, rest = merged_files(tasks)
        names = [file.task.segment_name(file.task.segments[0]) for file in files]
        names += [task.segment_name(segment) for task in rest for segment in task.segments]
    os.mkdir(folder)
    for number, name in enumerate(names):
        source, target = Path(store_folder, name), f"{folder}/{number}.parquet"
        table = pq.ParquetFile(source).read()
        has_offsets = "offset" in table.column_names
        without = table.drop_columns(["offset"]) if has_offsets else table
        options: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "use_dictionary": ["key"]}
        pq.write_table(without, target, write_page_index=True, **options)
        plain += os.stat(target).st_size
        offsets = table["offset"] if has_offsets else pa.array(range(table.num_rows), pa.int64())
        encoding = {"column_encoding": {"offset": "DELTA_BINARY_PACKED"}}
        numbered = without.append_column("offset", offsets)
        pq.write_table(numbered, target, write_page_index=True, **options, **encoding)
        ours += os.stat(target).st_size
    return Figure("size of merged files, against no column", ours / plain, "times", 1.01, True, f"{len(names)} files")


def _run(folder: str) -> dict[str, dict[str, list[float]]]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_merged_driver", folder, str(_ROUNDS)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _spark_figures(seconds: dict[str, dict[str, list[float]]]) -> list[Figure]:
    figures = []
    for what, target in _TARGETS.items():
        figures.append(_ratio(seconds, f"scan(): {what}", f"small, {what}", f"plain-small, {what}", target))
        figures.append(_ratio(seconds, f"scan(), cut: {what}", f"cut, {what}", f"plain-small, {what}", 1.3))
        figures.append(
            _ratio(seconds, f"one large write, maintained: {what}", f"maintained, {what}", f"large, {what}", 1.1)
        )
        ratios = [_paired(seconds, f"{kind}, format, {what}", f"plain-small, {what}") for kind in ("small", "large")]
        name = f'format("txnlog"): {what}, ratio to plain files, small / large'
        figures.append(Figure(name, ratios[0] / ratios[1], "times", 1.1, True, f"{ratios[0]:.2f}, {ratios[1]:.2f}"))
    for what in ("all columns", "planning"):
        note = f"small, {what}" + (" and transactions" if what == "all columns" else "")
        figures.append(Figure(f"scan(): {note}", min(seconds[note]["wall"]), "s"))
    return figures


def _paired(seconds: dict[str, dict[str, list[float]]], ours: str, peer: str) -> float:
    return median([mine / theirs for mine, theirs in zip(seconds[ours]["wall"], seconds[peer]["wall"], strict=True)])


def _ratio(seconds: dict[str, dict[str, list[float]]], name: str, ours: str, peer: str, target: float) -> Figure:
    least_s, peer_s = min(seconds[ours]["wall"]), min(seconds[peer]["wall"])
    note = f"least {least_s / peer_s:.2f}, of {least_s:.3f} s and {peer_s:.3f} s"
    if name.endswith("count") and 1_000 * (least_s - peer_s) <= _COUNT_MS_MORE:
        # So few milliseconds more reach the goal, whatever the ratio is.
        return Figure(name, _paired(seconds, ours, peer), "times", None, True, f"{note}; within {_COUNT_MS_MORE:g} ms")
    return Figure(name, _paired(seconds, ours, peer), "times", target, True, note)


def _engine_figures(folder: str) -> list[Figure]:
    """What the lengths of all values take DuckDB and Polars: a store's time against that of its plain files."""
    figures = []
    for name, ours, peer in (("DuckDB", _duckdb, _plain_duckdb), ("Polars", _polars, _plain_polars)):
        ratios = {}
        for kind in ("small", "large"):
            store, plain = f"{folder}/{kind}", f"{folder}/plain-small/*.parquet"
            ours(store)
            peer(plain)
            _, _, ratios[kind] = alternate(_timed(ours, store), _timed(peer, plain), _ROUNDS)
        note = f"{ratios['small']:.2f}, {ratios['large']:.2f}"
        what = f"{name}: sum, ratio to plain files, small / large"
        figures.append(Figure(what, ratios["small"] / ratios["large"], "times", 1.1, True, note))
    return figures


def _timed(work: Callable[[str], object], folder: str) -> Callable[[], float]:
    def measured() -> float:
        started = time.perf_counter()
        work(folder)
        return time.perf_counter() - started

    return measured


def _duckdb(folder: str) -> object:
    return to_duckdb(folder, "t", columns=["value"]).aggregate("sum(octet_length(value))").fetchall()


def _plain_duckdb(files: str) -> object:
    return duckdb.read_parquet(files).aggregate("sum(octet_length(value))").fetchall()


def _polars(folder: str) -> object:
    return pc.sum(pc.binary_length(to_polars(folder, "t", columns=["value"])["value"].to_arrow()))


def _plain_polars(files: str) -> object:
    return pc.sum(pc.binary_length(pl.read_parquet(files, columns=["value"])["value"].to_arrow()))
