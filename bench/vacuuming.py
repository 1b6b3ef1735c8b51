"""A vacuum of a store that keeps many segments and deletes few: what it costs, and how many pages it lists."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

from bench.figures import Figure
from bench.synthesis import RECORDS, fill_with_segments
from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Command, CommandResult, DeleteRecords, InitProducerId
from sparktxn._engine.objectstore import ObjectStore
from sparktxn.maintenance import vacuum
from sparktxn.store import Store

__all__ = ["measure"]

_PARTITIONS = 6
_DELETED = 1_000
_PAGE = 1_000
_AT_ONCE = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0}
_tokens = count()


class _Pages:
    """Counts the requests that listings of topics take on S3, which answers with a thousand names at once."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.pages = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    def list(self, prefix: str, after: str = "") -> Any:
        """List, and count."""
        found = self._objects.list(prefix, after)
        if prefix.startswith(names.TOPICS):
            self.pages += max(1, -(-len(found) // _PAGE))
        return found


def _submit(store: Store, command: Command) -> CommandResult:
    return store.log.submit([command])[0]


def _delete(store: Store, vacuums: int) -> None:
    """Move the log starts past as many segments as one vacuum is to delete, in the state of an old checkpoint."""
    before = vacuums * -(-_DELETED // _PARTITIONS) * RECORDS
    topic_id = store.view(["t"]).topics["t"].topic_id
    for partition in range(_PARTITIONS):
        _submit(store, DeleteRecords(f"delete {next(_tokens)}", topic_id, partition, before))
    for _ in range(2):
        store.log.checkpoint()
        _submit(store, InitProducerId(f"init {next(_tokens)}"))


def _vacuums(kept: int) -> list[tuple[float, int, int]]:
    """Return seconds of a processor, pages and deleted segments of two vacuums, the first of which lists everything."""
    uri = f"memory://vacuuming-{next(_tokens)}"
    # A handle keeps the store's memory alive.
    with Store.open(uri, create=True) as first:
        first.create_topic("t", _PARTITIONS)
        fill_with_segments(first, "t", kept // _PARTITIONS, files=True)
        objects = first.log.objects
    found = []
    with Store.open(uri) as store:
        pages = _Pages(objects)
        store.log.objects = pages
        for number in (1, 2):
            _delete(store, number)
            pages.pages = 0
            started = time.process_time()
            report = vacuum(store, _AT_ONCE)
            found.append((time.process_time() - started, pages.pages, report.segments))
    return found


def measure() -> list[Figure]:
    """Returns the figures."""
    figures = []
    for kept in (20_000, 200_000, 1_000_000):
        for what, (cpu_s, pages, deleted) in zip(("first", "later"), _vacuums(kept), strict=True):
            assert deleted >= _DELETED
            name = f"{what} vacuum, {kept:,} segments kept"
            figures.append(Figure(name, cpu_s, "s CPU", note=f"{pages} pages listed, {deleted:,} segments deleted"))
    return figures
