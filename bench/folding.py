"""Folding: what small transactions cost their writer and their readers where their process folds them, in one process.

Nothing is synced to the disk. The same transactions go to a store without folding in turn, and their records to a third
store in large files.

What a writer gives for folding is measured with processes of their own. One folds as by default and grows old. In turns
with it, fresh ones write without folding. Meanwhile the old one is stopped, its folds included. Readers then read what
it leaves.
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
from typing import NamedTuple

import pyarrow as pa

from bench.figures import Figure, alternate
from bench.reading import poll_rate
from bench.records import RECORDS, batch, temporary_folder
from sparktxn.maintenance import maintain
from sparktxn.maintenance.publishing.background import Folder
from sparktxn.producer import Producer
from sparktxn.store import Store, read_task

__all__ = ["BYTES_PER_MINUTE", "Rate", "asked", "measure", "together", "writer"]

_OPTIONS = {"store.fsync": "false", "checkpoint.fold.bytes.per.minute": "0"}
_AT_ONCE = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
BYTES_PER_MINUTE = 134_217_728
_TRANSACTIONS = 5_000
_PAUSE_S = 2.0
_TURN = 250
_ROUNDS = 5
_ROWS_POLLED_MAX = 1_000_000
_AGES = (11_000, 50_000)
_TURNS = 10
_TURN_S = 2.5
"""As long for both writers: a turn begins with cold caches. All turns are longer than from one fold to the next."""
_WARM = 300
_LAST_FOLD_S = 20
"""The writer's default pause, and the time for a fold that nothing disturbs."""


class _Opened:
    """A store that is read."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.store = Store.open(folder, options=_OPTIONS, create=True)

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
        self.store.close()


class _Written(_Opened):
    """A store that is written in transactions, with folding or without, and how long they have taken."""

    def __init__(self, folder: str, *, pause_s: float | None = None) -> None:
        super().__init__(folder)
        self.seconds = 0.0
        self.store.create_topic("t", 1)
        if pause_s is not None:
            self.store.log.on_checkpoint = Folder(self.store.log, BYTES_PER_MINUTE, pause_s=pause_s).after_checkpoint
        self.producer = Producer({"bootstrap.servers": folder, "transactional.id": "writer", **_OPTIONS})
        self.producer.init_transactions()

    def write(self, tables: list[pa.Table]) -> None:
        """A transaction for each table."""
        started = time.perf_counter()
        for table in tables:
            with self.producer.transaction():
                self.producer.produce_arrow("t", table)
        self.seconds += time.perf_counter() - started

    def close(self) -> None:
        """Close the clients."""
        self.producer.close()
        super().close()


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


def _compared() -> Iterator[Figure]:
    """What folding costs and gives: a store with it, one without it and one in large files."""
    with temporary_folder() as folder:
        folded, unfolded, large = _written(Path(folder), _TRANSACTIONS, _PAUSE_S)
        yield Figure(
            f"{_named(_TRANSACTIONS)}: commits/s, folding / not",
            unfolded.seconds / folded.seconds,
            "x",
            0.8,
            note=f"{_TRANSACTIONS / folded.seconds:.0f}/s, {_TRANSACTIONS / unfolded.seconds:.0f}/s",
        )
        yield from _reading(_TRANSACTIONS, folded, large, unfolded)
        for store in (folded, unfolded, large):
            store.close()


def _reading(transactions: int, folded: _Opened, large: _Opened, unfolded: _Opened | None = None) -> Iterator[Figure]:
    """What readers pay for a folded store, against the same records in large files, and in a store without folding."""
    name = _named(transactions)
    scan, peer, ratio = alternate(folded.scan_ms, large.scan_ms, _ROUNDS)
    yield Figure(f"{name}: scan, folded / large files", ratio, "x", 1.3, True, f"{scan:.0f} ms, {peer:.0f} ms")
    if unfolded is not None:
        yield Figure(f"{name}: scan, not folded / large files", unfolded.scan_ms() / peer, "x")
    rows = min(transactions * RECORDS, _ROWS_POLLED_MAX)
    stores = [store for store in (folded, large, unfolded) if store is not None]
    polls = [[poll_rate(store.folder, rows) for store in stores] for _ in range(2)]
    poll_folded, poll_large, *poll_unfolded = (max(one[index] for one in polls) for index in range(len(stores)))
    for other in poll_unfolded:
        yield Figure(f"{name}: poll(), folded / not", poll_folded / other, "x", 2, note=f"{poll_folded:,.0f}/s")
    yield Figure(f"{name}: poll(), folded / large files", poll_folded / poll_large, "x")
    note = "" if unfolded is None else f"not folded: {unfolded.objects():,}"
    yield Figure(f"{name}: objects", folded.objects(), "", note=note)
    # What the first call replaces goes once the second has moved the horizon.
    for _ in range(2):
        maintain(folded.store, _AT_ONCE)
    yield Figure(f"{name}: objects after two maintains", folded.objects(), "", 2_000, True)
    _, _, ratio = alternate(folded.scan_ms, large.scan_ms, _ROUNDS)
    yield Figure(f"{name}: scan after maintain / large files", ratio, "x", 1.3, True)


def _named(transactions: int) -> str:
    return f"{transactions:,} transactions of {RECORDS} records"


@contextmanager
def writer(folder: str, bytes_per_minute: int, formats: str = "") -> Iterator[subprocess.Popen[str]]:
    """Start a process of `bench.folding_driver`, and kill it in the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.folding_driver", folder, str(bytes_per_minute), formats],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Rate(NamedTuple):
    """What a writer has committed: how many, in how many seconds, and with how many of a processor."""

    commits: int
    seconds: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.commits / self.seconds:,.0f}/s, {1_000 * self.cpu_s / self.commits:.2f} ms of a processor"


def asked(process: subprocess.Popen[str], what: str, number: float) -> Rate:
    """Let a writer commit so many transactions, or for so many seconds."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(what, number, file=process.stdin, flush=True)
    commits, seconds, cpu_s = process.stdout.readline().split()
    return Rate(int(commits), float(seconds), float(cpu_s))


def _in_turns(aged: subprocess.Popen[str]) -> tuple[Rate, Rate]:
    """Let the writer and a fresh one without folding commit in turns; the writer and its folds stand still meanwhile.

    A fold is a burst. So what is compared are the sums of all turns, and not the turns.
    """
    turns = []
    with temporary_folder() as folder, writer(folder, 0) as fresh:
        os.kill(aged.pid, signal.SIGSTOP)
        asked(fresh, "commits", _WARM)
        for _ in range(_TURNS):
            other = asked(fresh, "seconds", _TURN_S)
            os.kill(aged.pid, signal.SIGCONT)
            turns.append((asked(aged, "seconds", _TURN_S), other))
            os.kill(aged.pid, signal.SIGSTOP)
        os.kill(aged.pid, signal.SIGCONT)
    return together([ours for ours, _ in turns]), together([theirs for _, theirs in turns])


def together(rates: list[Rate]) -> Rate:
    """Return the sum of what was committed in turns."""
    return Rate(sum(one.commits for one in rates), sum(one.seconds for one in rates), sum(one.cpu_s for one in rates))


def _aged() -> Iterator[Figure]:
    """What a writer that folds commits at some ages, against fresh ones that do not; and what it leaves to readers."""
    with temporary_folder() as folder:
        commits = 0
        with writer(f"{folder}/folded", BYTES_PER_MINUTE) as aged:
            for age in _AGES:
                commits += asked(aged, "commits", max(1, age - commits)).commits
                ours, theirs = _in_turns(aged)
                commits += ours.commits
                name = f"a writer with folding after {age:,} entries"
                yield Figure(
                    f"{name}: commits/s / fresh without",
                    ours.commits / ours.seconds / (theirs.commits / theirs.seconds),
                    "x",
                    0.9,
                    note=f"{ours}; fresh: {theirs}; load {os.getloadavg()[0]:.1f}",
                )
                yield Figure(
                    f"{name}: CPU of a commit / fresh without",
                    ours.cpu_s / ours.commits / (theirs.cpu_s / theirs.commits),
                    "x",
                )
            time.sleep(_LAST_FOLD_S)
        folded, large = _Opened(f"{folder}/folded"), _Written(f"{folder}/large")
        large.write([pa.concat_tables(_tables(commits))])
        yield from _reading(commits, folded, large)
        for store in (folded, large):
            store.close()


def measure() -> Iterator[Figure]:
    """Yield the figures as they are measured."""
    yield from _compared()
    yield from _aged()
