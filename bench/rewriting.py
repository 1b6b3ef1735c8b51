"""Rewriting small transactions: files, and the scan before and after against the same records in large files."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

from bench.figures import Figure, alternate
from bench.records import temporary_folder
from bench.synthesis import fill_with_segments
from sparktxn.maintenance import rewrite
from sparktxn.producer import Producer
from sparktxn.store import Store, read_task

__all__ = ["measure"]

_OPTIONS = {"store.fsync": "false"}
_TRANSACTIONS = 2_000
_ROUNDS = 7
_PLANNED = 1_000_000
_PLANNED_PARTITIONS = 6

_PLAN = """
import sys, time
from sparktxn import Store
from sparktxn.maintenance import plan_rewrite, rewrite
with Store.open(sys.argv[1]) as store:
    started = time.process_time()
    if sys.argv[2] == "whole":
        tasks = plan_rewrite(store)
        files, count = sum(task.files for task in tasks), len(tasks)
    else:
        report = rewrite(store, dry_run=True)
        files, count = report.segment_files, report.ranges
    print(time.process_time() - started, files, count)
# Not getrusage: its peak is inherited from the process that started this one.
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def _table(first: int, rows: int) -> pa.Table:
    numbers = range(first, first + rows)
    values = [b'{"order": %d, "amount": %d, "note": "%s"}' % (n, n * 104_729 % 100_003, b"x" * 40) for n in numbers]
    return pa.table({"key": [b"key %d" % n for n in numbers], "value": values})


def _filled(folder: str, tables: list[pa.Table]) -> Store:
    """A store with a transaction for each table."""
    store = Store.open(folder, options=_OPTIONS, create=True)
    store.create_topic("t", 1)
    with Producer({"bootstrap.servers": folder, "transactional.id": "writer", **_OPTIONS}) as producer:
        producer.init_transactions()
        for table in tables:
            with producer.transaction():
                producer.produce_arrow("t", table)
    return store


def _scan(store: Store, rows: int) -> float:
    started = time.process_time()
    view = store.view(["t"])
    tasks = store.plan(view, store.ranges(view))
    assert sum(batch.num_rows for task in tasks for batch in read_task(task, store.options)) == rows
    return 1_000 * (time.process_time() - started)


def _planning() -> list[Figure]:
    """Returns the figures of a plan that has very many segments, in a process of its own."""
    with temporary_folder() as folder:
        store = Store.open(folder, options=_OPTIONS, create=True)
        store.create_topic("t", _PLANNED_PARTITIONS)
        fill_with_segments(store, "t", _PLANNED // _PLANNED_PARTITIONS)
        store.close()
        found = {how: _planned(folder, how) for how in ("whole", "task by task")}
    name = f"planning a rewrite of {_PLANNED:,} segments"
    figures = []
    for how, (cpu_s, tasks, megabytes) in found.items():
        figures.append(Figure(f"{name}, {how}", cpu_s, "s CPU", 10, at_most=True, note=f"{tasks} tasks"))
        figures.append(Figure(f"{name}, {how}: memory", megabytes, "MB peak"))
    return figures


def _planned(folder: str, how: str) -> tuple[float, int, float]:
    """Return the seconds of a processor, how many tasks there are, and the greatest memory."""
    command = [sys.executable, "-c", _PLAN, folder, how]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    cpu_s, files, tasks, megabytes = done.stdout.split()
    assert int(files) > 0.99 * _PLANNED
    return float(cpu_s), int(tasks), float(megabytes)


def measure() -> list[Figure]:
    """Returns the figures."""
    figures = _planning()
    for each in (50, 500):
        rows = each * _TRANSACTIONS
        tables = [_table(first, each) for first in range(0, rows, each)]
        with temporary_folder() as folder:
            small = _filled(str(Path(folder) / "small"), tables)
            large = _filled(str(Path(folder) / "large"), [pa.concat_tables(tables)])
            before = min(_scan(small, rows) for _ in range(2))
            started = time.process_time()
            report = rewrite(small)
            cost_s = time.process_time() - started
            after, peer, ratio = alternate(lambda: _scan(small, rows), lambda: _scan(large, rows), _ROUNDS)  # noqa: B023
            small.close()
            large.close()
        name = f"{_TRANSACTIONS} transactions of {each} records"
        note = f"large files: {peer:.0f} ms; before: {before:.0f} ms in {report.segment_files} files"
        figures += [
            Figure(f"{name}: scan after a rewrite", after, "ms", note=note),
            Figure(f"{name}: after a rewrite / large files", ratio, "x", 1.1 if each > 50 else None, at_most=True),
            Figure(f"{name}: rewriting them", cost_s, "s", note=f"into {report.new_files} files"),
        ]
    return figures
