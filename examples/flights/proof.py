"""What must be true at the end: every flight once, and ``late`` in step with ``delays`` in every read view."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flights.independent_reader import CommittedSegment, committed, entries, rows_of
from flights.job import COUNTS, LATE_MINUTES

__all__ = ["TOPICS", "Check", "Kill", "observe", "prove"]

TOPICS = ("flights", "delays", "late")


class Check(NamedTuple):
    """One figure."""

    what: str
    found: int
    expected: int

    @property
    def right(self) -> bool:
        """True if it is as expected."""
        return self.found == self.expected


class Kill(NamedTuple):
    """What was there when a driver had died: the last micro-batch of `split` in the log, and in Spark's own record."""

    in_log: int
    in_spark: int


def observe(folder: Path) -> Kill:
    """Read the log and Spark's checkpoint."""
    commits = folder / "checkpoints" / "split" / "commits"
    known = [int(path.name) for path in commits.glob("*") if path.name.isdigit()]
    query_id = json.loads((folder / "checkpoints" / "split" / "metadata").read_text())["id"]
    return Kill(max(_batches(folder / "store", query_id), default=-1), max(known, default=-1))


def _batches(store: Path, query_id: str) -> list[int]:
    commands = [command for entry in entries(store) for command in entry.commands]
    return [
        command["batch_id"]
        for command in commands
        if command["type"] == "sink_batch_commit" and command["writer_id"] == query_id
    ]


def prove(folder: Path, flights: pa.Table, kills: list[Kill]) -> list[Check]:
    """All figures, by the independent reader and by Spark."""
    numbers = set(flights.column("n").to_pylist())
    is_late = pc.fill_null(pc.greater(flights.column("dep_delay"), LATE_MINUTES), fill_value=False)
    late = set(flights.filter(is_late).column("n").to_pylist())
    store = folder / "store"
    seen, torn = _read_all(store)
    checks = []
    for topic, expected in (("flights", numbers), ("delays", numbers), ("late", late)):
        found = seen[topic]
        checks.append(Check(f"{topic}: records", found.total(), len(expected)))
        checks.append(Check(f"{topic}: flights missing", len(expected - found.keys()), 0))
        checks.append(Check(f"{topic}: flights too often or out of place", _surplus(found, expected), 0))
    checks.append(Check("read views with late out of step with delays", torn, 0))
    checks.append(Check("kill 2: micro-batches that only the log knew", kills[1].in_log - kills[1].in_spark, 1))
    query_id = json.loads((folder / "checkpoints" / "split" / "metadata").read_text())["id"]
    batches = _batches(store, query_id)
    checks.append(Check("kill 2: times the log holds it at the end", batches.count(kills[1].in_log), 1))
    checks += _by_spark(folder, len(numbers), len(late))
    return checks


def _surplus(found: Counter[int], expected: set[int]) -> int:
    return sum(count - 1 if number in expected else count for number, count in found.items())


def _read_all(store: Path) -> tuple[dict[str, Counter[int]], int]:
    """How often each flight is in each topic, and how many read views had ``late`` out of step with ``delays``.

    A view is the sum of the entries up to its own: while every entry is in step, every view is.
    """
    seen: dict[str, Counter[int]] = {topic: Counter() for topic in TOPICS}
    torn = 0
    due: set[int] = set()
    for _, segments in groupby(committed(store), key=lambda segment: segment.entry):
        for segment in segments:
            for flight in _flights(segment):
                number = flight["n"]
                seen[segment.topic][number] += 1
                if segment.topic == "late" or (segment.topic == "delays" and _is_late(flight)):
                    due ^= {number}
        torn += bool(due)
    return seen, torn


def _is_late(flight: dict[str, Any]) -> bool:
    return flight.get("dep_delay") is not None and flight["dep_delay"] > LATE_MINUTES


def _flights(segment: CommittedSegment) -> Iterator[dict[str, Any]]:
    values: Iterable[bytes] = rows_of(segment).column("value").to_pylist()
    yield from json.loads(b"[" + b",".join(values) + b"]")


def _by_spark(folder: Path, flights: int, late: int) -> list[Check]:
    found = json.loads((folder / COUNTS).read_text())
    checks = []
    for topic, expected in (("flights", flights), ("delays", flights), ("late", late)):
        records, distinct = found.get(topic, (0, 0))
        checks.append(Check(f"{topic}: records, by Spark", records, expected))
        checks.append(Check(f"{topic}: different flights, by Spark", distinct, expected))
    return checks
