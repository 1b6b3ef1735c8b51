"""Folding: what small transactions cost their writer and their readers where their process folds them, in one process.

Nothing is synced to the disk. The same transactions go to a store without folding in turn, and their records to a third
store in large files.

What a writer gives for folding is measured with processes of their own. One folds as by default and grows old. In turn
with it, fresh ones write without folding. Meanwhile the old one is stopped, its folds included.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bench.figures import Figure, alternate, median
from bench.reading import poll_rate
from bench.records import RECORDS, batch, temporary_folder
from sparktxn.maintenance import maintain
from sparktxn.maintenance.folding import Folder
from sparktxn.producer import Producer
from sparktxn.store import Store, read_task

__all__ = ["measure"]

_OPTIONS = {"store.fsync": "false", "checkpoint.fold.bytes.per.minute": "0"}
_AT_ONCE = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
_BYTES_PER_MINUTE = 134_217_728
_TRANSACTIONS = 5_000
_PAUSE_S = 2.0
_MANY = 50_000
_MANY_PAUSE_S = 10.0
_TURN = 250
_ROUNDS = 5
_AGES = (11_000, 50_000)
_PAIRS = 3
_FRESH_S = 8
_AGED_S = 25
"""Longer than from one fold to the next: what folds cost is a part of the rate."""
_WARM = 300


class _Written:
    """A store that is written in transactions, with folding or without, and how long they have taken."""

    def __init__(self, folder: str, *, pause_s: float | None = None) -> None:
        self.folder = folder
        self.seconds = 0.0
        self.store = Store.open(folder, options=_OPTIONS, create=True)
        self.store.create_topic("t", 1)
        if pause_s is not None:
            self.store.log.on_checkpoint = Folder(self.store.log, _BYTES_PER_MINUTE, pause_s=pause_s).after_checkpoint
        self.producer = Producer({"bootstrap.servers": folder, "transactional.id": "writer", **_OPTIONS})
        self.producer.init_transactions()

    def write(self, tables: list[pa.Table]) -> None:
        """A transaction for each table."""
        started = time.perf_counter()
        for table in tables:
            with self.producer.transaction():
                self.producer.produce_arrow("t", table)
        self.seconds += time.perf_counter() - started

    def scan_ms(self) -> float:
        """The CPU time of a scan of everything."""
        started = time.process_time()
        view = self.store.view(["t"])
        tasks = self.store.plan(view, self.store.ranges(view))
        assert sum(batch.num_rows for task in tasks for batch in read_task(task, self.store.options))
        return 1_000 * (time.process_time() - started)

    def objects(self) -> int:
        """How many files the store has."""
        return sum(path.is_file() for path in Path(self.folder).rglob("*"))

    def close(self) -> None:
        """Close the clients."""
        self.producer.close()
        self.store.close()


def _tables(transactions: int) -> list[pa.Table]:
    rows = batch(transactions * RECORDS)
    return [rows.slice(first, RECORDS) for first in range(0, rows.num_rows, RECORDS)]


def _written(folder: Path, transactions: int, pause_s: float) -> tuple[_Written, _Written, _Written]:
    """Return a store with folding, one without, and one in large files: the first two are written in turn."""
    folded = _Written(str(folder / "folded"), pause_s=pause_s)
    unfolded = _Written(str(folder / "unfolded"))
    tables = _tables(transactions)
    for first in range(0, transactions, _TURN):
        for store in (folded, unfolded):
            store.write(tables[first : first + _TURN])
    large = _Written(str(folder / "large"))
    large.write([pa.concat_tables(tables)])
    # The last fold begins after a pause, and takes a moment.
    time.sleep(2 * pause_s + 2)
    return folded, unfolded, large


def _figures(transactions: int, pause_s: float) -> list[Figure]:
    name = f"{transactions:,} transactions of {RECORDS} records"
    with temporary_folder() as folder:
        folded, unfolded, large = _written(Path(folder), transactions, pause_s)
        rows = transactions * RECORDS
        before = unfolded.scan_ms()
        scan, peer, ratio = alternate(folded.scan_ms, large.scan_ms, _ROUNDS)
        polls = [[poll_rate(store.folder, rows) for store in (folded, unfolded, large)] for _ in range(2)]
        poll_folded, poll_unfolded, poll_large = (max(one[index] for one in polls) for index in range(3))
        objects = folded.objects(), unfolded.objects()
        # What the first call replaces goes once the second has moved the horizon.
        for _ in range(2):
            maintain(folded.store, _AT_ONCE)
        maintained = folded.objects()
        _, _, ratio_maintained = alternate(folded.scan_ms, large.scan_ms, _ROUNDS)
        for store in (folded, unfolded, large):
            store.close()
    return [
        Figure(
            f"{name}: commits/s, folding / not",
            unfolded.seconds / folded.seconds,
            "x",
            0.8,
            note=f"{transactions / folded.seconds:.0f}/s, {transactions / unfolded.seconds:.0f}/s",
        ),
        Figure(f"{name}: scan, folded / large files", ratio, "x", 1.3, True, f"{scan:.0f} ms, {peer:.0f} ms"),
        Figure(f"{name}: scan, not folded / large files", before / peer, "x"),
        Figure(f"{name}: scan after maintain / large files", ratio_maintained, "x", 1.3, True),
        Figure(f"{name}: poll(), folded / not", poll_folded / poll_unfolded, "x", 2, note=f"{poll_folded:,.0f}/s"),
        Figure(f"{name}: poll(), folded / large files", poll_folded / poll_large, "x"),
        Figure(f"{name}: objects", objects[0], "", note=f"not folded: {objects[1]:,}"),
        Figure(f"{name}: objects after two maintains", maintained, "", 2_000, True),
    ]


@contextmanager
def _writer(bytes_per_minute: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.folding_driver"]
    with (
        temporary_folder() as folder,
        subprocess.Popen(
            [*command, folder, str(bytes_per_minute)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def _asked(writer: subprocess.Popen[str], what: str, number: int) -> tuple[float, float]:
    """Let a writer commit; return its commits per second, and the milliseconds of a processor for each."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    print(what, number, file=writer.stdin, flush=True)
    count, seconds, cpu_s = map(float, writer.stdout.readline().split())
    return count / seconds, 1_000 * cpu_s / count


def _fresh() -> tuple[float, float]:
    with _writer(0) as fresh:
        _asked(fresh, "commits", _WARM)
        return _asked(fresh, "seconds", _FRESH_S)


def _writers_figures() -> list[Figure]:
    """What a writer that folds commits at some ages, against fresh ones that do not fold."""
    figures = []
    commits = 0
    with _writer(_BYTES_PER_MINUTE) as aged:
        for age in _AGES:
            _asked(aged, "commits", max(1, age - commits))
            commits = max(age, commits)
            pairs = []
            for _ in range(_PAIRS):
                os.kill(aged.pid, signal.SIGSTOP)
                fresh = _fresh()
                os.kill(aged.pid, signal.SIGCONT)
                pairs.append((_asked(aged, "seconds", _AGED_S), fresh))
                commits += int(_AGED_S * pairs[-1][0][0])
            name = f"commits/s with folding after {age:,} entries"
            ours, theirs = (median([pair[side][0] for pair in pairs]) for side in (0, 1))
            cpu_ms, fresh_cpu_ms = (median([pair[side][1] for pair in pairs]) for side in (0, 1))
            load = os.getloadavg()[0]
            figures += [
                Figure(name, ours, "/s", note=f"fresh, no folding {theirs:,.0f}/s; load {load:.1f}"),
                Figure(
                    f"{name} / fresh without",
                    median([one[0] / fresh[0] for one, fresh in pairs]),
                    "x",
                    0.9,
                    note=f"{cpu_ms:.2f} ms, {fresh_cpu_ms:.2f} ms of a processor",
                ),
            ]
    return figures


def measure() -> list[Figure]:
    """Returns the figures."""
    return _writers_figures() + _figures(_TRANSACTIONS, _PAUSE_S) + _figures(_MANY, _MANY_PAUSE_S)
