"""Topics as tables: what a publication costs, what engines pay to read one, and what a writer gives for them.

Peers of scans are tables of the same rows that delta-rs and pyiceberg have written, in as many files with the same
compression. DuckDB 1.5.5 and pyiceberg contradict this project's packages, so they run in an environment
of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.figures import Figure, median
from bench.folding import BYTES_PER_MINUTE, Rate, asked, together, writer
from bench.records import batch, temporary_folder, values
from bench.synthesis import fill_with_segments
from sparktxn._engine.objectstore import ObjectStore
from sparktxn._foundation.config.maintenance import RewriteSettings
from sparktxn.maintenance import maintain, publish_tables
from sparktxn.maintenance.publishing.publish import plan_unpublished
from sparktxn.maintenance.rewriting.rewrite import do_tasks
from sparktxn.producer import Producer
from sparktxn.store import Store
from tests.interop.peers import CannotInstallError, python_with

__all__ = ["measure"]

_FAST = {"store.fsync": "false", "checkpoint.fold.bytes.per.minute": "0"}
_NEW_FILES = 100
_ROUNDS = 7
_SCANNED_ROWS = 1_000_000
_SCAN_ROUNDS = 11
_SEGMENTS = 20
_PARTITIONS = 6
_AGE = 5_000
_TURNS = 16
_TURN_S = 8.0
"""So that each writer goes on for more than two minutes."""


class _Listings:
    """Counts the listings of topics."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    def list(self, prefix: str, after: str = "") -> Any:
        """List, and count."""
        self.count += 1
        return self._objects.list(prefix, after)


def _publications(formats: str, files: int) -> Iterator[Figure]:
    """What a publication of new files costs: they have been written, as by a publisher that died after that."""
    with temporary_folder() as folder:
        with Store.open(folder, create=True, options=_FAST) as first:
            first.create_topic("t", _NEW_FILES, settings={"table.formats": formats})
            fill_with_segments(first, "t", files // _NEW_FILES, is_merged=True)
        with Store.open(folder, options=_FAST) as store:
            publish_tables(store)
            objects = _Listings(store.log.objects)
            store.log.objects = objects
            with Producer({"bootstrap.servers": folder, "transactional.id": "w", **_FAST}) as producer:
                producer.init_transactions()
                cpu_ms = [_publication(store, objects, producer) for _ in range(_ROUNDS)]
        # Of a hundred versions one has a checkpoint, which is the mean of these.
        yield Figure(
            f"{formats}: publish {_NEW_FILES} new files, {files:,} files before",
            median(cpu_ms),
            "ms CPU",
            100 if files > 10_000 else 20,
            True,
            f"{min(cpu_ms):.1f} to {max(cpu_ms):.1f} ms, {objects.count} listings",
        )


def _publication(store: Store, objects: _Listings, producer: Producer) -> float:
    with producer.transaction():
        for number in range(_NEW_FILES):
            producer.produce("t", b"value", partition=number)
    view = store.view(["t"])
    settings = RewriteSettings(target_bytes=1 << 25, min_segments=1)
    assert not do_tasks(store.log, plan_unpublished(store.log.objects, view, {}, {}, settings)).lost
    objects.count = 0
    started = time.process_time()
    (table,) = publish_tables(store).tables
    cpu_ms = 1_000 * (time.process_time() - started)
    assert table.added_files == _NEW_FILES
    return cpu_ms


def _distinct(count: int) -> pa.Table:
    """Return records of which no two have the same value."""
    rows = batch(count)
    return rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(values(count), pa.binary()))


def _scans() -> Iterator[Figure]:
    """What engines pay for a published table, against a table that delta-rs or pyiceberg has written."""
    try:
        python = python_with("engines-test")
    except CannotInstallError as error:
        print(f"no figures of DuckDB and pyiceberg: {error}", file=sys.stderr)
        return
    with temporary_folder() as folder:
        rows = _distinct(_SCANNED_ROWS)
        store_folder = f"{folder}/store"
        with Store.open(store_folder, create=True, options=_FAST) as store:
            store.create_topic("t", _PARTITIONS, settings={"table.formats": "delta,iceberg"})
            with Producer({"bootstrap.servers": store_folder, "transactional.id": "w", **_FAST}) as producer:
                producer.init_transactions()
                size = _SCANNED_ROWS // _SEGMENTS
                for first in range(0, _SCANNED_ROWS, size):
                    with producer.transaction():
                        producer.produce_arrow("t", rows.slice(first, size))
            publish_tables(store)
            maintain(store, {"rewrite.min.segments": 2})
        driver = Path(__file__).parent / "tables_driver.py"
        command = [str(python), str(driver), f"{store_folder}/topics/t-1", f"{folder}/peers", str(_SCAN_ROUNDS)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise RuntimeError(run.stderr[-2_000:])
        for name, pairs in json.loads(run.stdout.splitlines()[-1]).items():
            ratio = median([ours / theirs for ours, theirs in pairs])
            ours, theirs = (median([pair[which] for pair in pairs]) for which in (0, 1))
            note = f"{1_000 * ours:.0f} ms, {1_000 * theirs:.0f} ms; load {os.getloadavg()[0]:.1f}"
            yield Figure(f"{name}: published table / written by the peer", ratio, "x", 1.1, True, note)


def _writers() -> Iterator[Figure]:
    """What a writer commits while its process folds and publishes its topic, against folding alone, in turns.

    Each stands still while the other one writes. So the table lags by more than its target sooner than in a minute of
    the writer's own, and is published more often.
    """
    with (
        temporary_folder() as folder,
        writer(f"{folder}/table", BYTES_PER_MINUTE, "delta,iceberg") as table,
        writer(f"{folder}/folded", BYTES_PER_MINUTE) as folded,
    ):
        rates: list[list[Rate]] = [[], []]
        for process in (table, folded):
            asked(process, "commits", _AGE)
            os.kill(process.pid, signal.SIGSTOP)
        for _ in range(_TURNS):
            for process, found in zip((table, folded), rates, strict=True):
                os.kill(process.pid, signal.SIGCONT)
                found.append(asked(process, "seconds", _TURN_S))
                os.kill(process.pid, signal.SIGSTOP)
        ours, theirs = map(together, rates)
        versions = len(list(Path(folder, "table", "topics").glob("*/_delta_log/*.json")))
    yield Figure(
        "commits/s of a writer whose topic is published / folded alone",
        ours.commits / ours.seconds / (theirs.commits / theirs.seconds),
        "x",
        0.95,
        note=f"{ours}; folded: {theirs}; {versions} versions; load {os.getloadavg()[0]:.1f}",
    )


def measure() -> Iterator[Figure]:
    """Yield the figures as they are measured."""
    for files in (1_000, 100_000):
        for formats in ("delta", "iceberg"):
            yield from _publications(formats, files)
    yield from _scans()
    yield from _writers()
