"""Opening a store: milliseconds on a local disk, sequential requests on S3."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.commits import age
from bench.figures import Figure, median
from bench.records import temporary_folder, topic_store
from sparktxn._engine.format.commands import CreateTopic, InitProducerId
from sparktxn._engine.log.log import Log
from sparktxn._engine.objectstore import ObjectStore, open_store
from sparktxn._foundation.config.store import StoreSettings
from sparktxn._foundation.process.background import InlineBackground
from sparktxn._foundation.process.clock import RandomIds, SystemClock
from sparktxn.store import Store

__all__ = ["measure"]

_OPEN = """
import sys, time
from sparktxn.store import Store
import sparktxn._engine.objectstore.local, sparktxn._engine.log.log
started = time.perf_counter()
store = Store.open(sys.argv[1])
print((time.perf_counter() - started) * 1000)
"""
_TRIES = 7
_PRODUCERS = 100_000


def _open_ms(folder: str) -> float:
    """The median of opening in fresh processes, imports excluded."""
    command = [sys.executable, "-c", _OPEN, folder]
    return median([float(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(_TRIES)])


def _wide(folder: str) -> None:
    """A store of 10,000 partitions and 100,000 transactional ids."""
    store = Store.open(folder, options={"store.fsync": "false"}, create=True)
    for number in range(10):
        store.create_topic(f"topic-{number}", 1_000)
    for number in range(0, _PRODUCERS, 2):
        commands = [InitProducerId(store.log.ids.token(), f"id-{number + more}") for more in (0, 1)]
        store.log.submit(commands)
    store.log.checkpoint()
    store.close()


class _Counting:
    """Counts the rounds of requests to a store: those of one `get_many` go side by side."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.rounds = 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._objects, name)
        if name not in ("get", "get_many", "get_range", "list", "list_names", "put_if_absent", "put"):
            return value

        def counted(*arguments: Any, **options: Any) -> Any:
            self.rounds += 1
            return value(*arguments, **options)

        return counted


def _s3_rounds() -> tuple[float, float]:
    """(rounds of requests, milliseconds) of opening a store of 10 topics and 200 entries on a loopback S3 server."""
    from tests.servers import MotoServer

    with temporary_folder() as folder, MotoServer(Path(folder)) as server:
        server.create_bucket("bench")
        settings = StoreSettings()
        clock = SystemClock()

        def objects() -> ObjectStore:
            return open_store("s3://bench/store", settings=settings, storage=server.storage, clock=clock)

        def opened(store: Any) -> Log:
            return Log.open(
                store, settings=settings, clock=clock, ids=RandomIds(), background=InlineBackground(), create=True
            )

        log = opened(objects())
        for number in range(10):
            log.submit([CreateTopic(f"c{number}", f"topic-{number}", 2)])
        for number in range(190):
            log.submit([InitProducerId(f"i{number}", f"id-{number % 20}")])
        counting = _Counting(objects())
        started = time.perf_counter()
        opened(counting)
        return counting.rounds, (time.perf_counter() - started) * 1000


def measure() -> list[Figure]:
    """All figures of opening."""
    figures = []
    opened = {}
    for entries in (2_000, 20_000):
        with temporary_folder() as folder:
            store = topic_store(folder, 6, **{"store.fsync": "false", "checkpoint.fold.bytes.per.minute": "0"})
            for number in range(9):
                store.create_topic(f"topic-{number}", 6)
            age(store, entries)
            store.close()
            opened[entries] = _open_ms(folder)
            figures.append(Figure(f"opening, 10 topics, {entries:,} entries", opened[entries], "ms", 10, True))
    figures.append(
        Figure("opening, 20,000 entries against 2,000", opened[20_000] / opened[2_000], "x", note="noise included")
    )
    with temporary_folder() as folder:
        _wide(folder)
        figures.append(
            Figure("opening, 10,000 partitions, 100,000 transactional ids", _open_ms(folder), "ms", 50, True)
        )
    rounds, milliseconds = _s3_rounds()
    figures.append(
        Figure("opening on S3", rounds, "requests", 6, True, note=f"one after another; {milliseconds:.0f} ms")
    )
    return figures
