"""Folding: what small transactions cost their writer and their readers where their process folds them, in one process.

Nothing is synced to the disk. The same transactions go to a store without folding in turn, and their records to a third
store in large files.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from bench.figures import Figure, alternate
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


def measure() -> list[Figure]:
    """Returns the figures."""
    return _figures(_TRANSACTIONS, _PAUSE_S) + _figures(_MANY, _MANY_PAUSE_S)
