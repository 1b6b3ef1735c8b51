"""What a store must look like after a run under kills, by a reader that knows JSON, Parquet and PROTOCOL.md alone.

The view after every entry is read. It must hold whole micro-batches: all numbers below a multiple of a micro-batch's
size, each once over both topics. No entry may add more than one micro-batch, or end inside of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.compatibility.independent_reader import StoreReader
from tests.compatibility.independent_replay import Record, Replay
from tests.kills.queries import OUTPUTS, ROWS_PER_BATCH

__all__ = ["Findings", "check"]

_SHOWN_MAX: Final = 5


class Findings(NamedTuple):
    """What was read, and all that is wrong with it, the first in the log first."""

    entries: int
    batches: int
    rows: int
    problems: tuple[str, ...]


class _CachingReader(StoreReader):
    """Reads each segment once: views after many entries name the same ones."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._rows: dict[str, list[tuple[int, Record]]] = {}

    def _segment(self, topic: Record, partition: int, segment: Record) -> list[tuple[int, Record]]:
        # Merged segments share one file, of which each has its own rows.
        place = f"{topic['name']}/{partition}/{segment['name']}/{segment['base_offset']}"
        if place not in self._rows:
            self._rows[place] = super()._segment(topic, partition, segment)
        return self._rows[place]


def check(
    store: Path, batches: int, rows_per_batch: int = ROWS_PER_BATCH, ends: Iterable[int] | None = None
) -> Findings:
    """Read the view after every entry of the store in a local folder; at least `batches` inputs must be there.

    Micro-batches have one input of `rows_per_batch` numbers each, or end after as many inputs as `ends` says.

    Raises:
        Damaged: an object is not what PROTOCOL.md says, or an entry breaks a rule for writers.
    """
    reader, replay = _CachingReader(store), Replay()
    whole, problems = 0, []
    known = sorted(set(ends)) if ends is not None else range(1, batches + 1)
    view: dict[tuple[str, int, int], Record] = {}
    for entry, commands in reader.entries(0, "00000000"):
        replay.apply(entry["entry"], entry["timestamp_ms"], commands)
        if not any(command["type"] in ("append", "end_txn") for command in commands):
            continue
        view = _view(reader, replay)
        number = entry["entry"]
        counts = Counter(_number(row) for row in view.values())
        found = _wrong(counts, rows_per_batch)
        if not found:
            now_whole = len(counts) // rows_per_batch
            if now_whole not in (whole, next((end for end in known if end > whole), whole)):
                found = [f"there were {whole} micro-batches and now are {now_whole}"]
            whole = now_whole
        problems += [f"entry {number}: {problem}" for problem in found]
    problems += _out_of_order(view)
    if whole < batches:
        problems.append(f"the log ends with {whole} whole micro-batches: expected {batches}")
    return Findings(replay.entry, whole, len(view), tuple(problems))


def _view(reader: StoreReader, replay: Replay) -> dict[tuple[str, int, int], Record]:
    """The committed records of the outputs, by topic, partition and offset."""
    return {
        (topic, *place): row
        for topic in OUTPUTS
        if replay.get("topic", topic) is not None
        for place, row in reader.records(replay, topic, "read_committed").items()
    }


def _number(row: Record) -> int:
    value: bytes = row["value"]
    return int(value.split(b"|")[0])


def _wrong(counts: Counter[int], rows_per_batch: int) -> list[str]:
    """Return what is wrong with the numbers of one view."""
    problems = []
    more = sorted(number for number, count in counts.items() if count > 1)
    if more:
        problems.append(f"{len(more)} numbers are there more than once: {more[:_SHOWN_MAX]}")
    batches = -(-(max(counts, default=-1) + 1) // rows_per_batch)
    missing = [number for number in range(batches * rows_per_batch) if number not in counts]
    if missing:
        problems.append(f"{len(missing)} numbers of {batches} micro-batches are missing: {missing[:_SHOWN_MAX]}")
    return problems


def _out_of_order(view: dict[tuple[str, int, int], Record]) -> list[str]:
    """Return what is wrong with the order of each key's numbers, and with its partition."""
    problems = []
    last: dict[tuple[str, bytes], tuple[int, int]] = {}
    for (topic, partition, offset), row in sorted(view.items(), key=lambda item: item[0]):
        key, number = (topic, row["key"]), _number(row)
        before: tuple[Any, int] = last.get(key, (partition, -1))
        if before[0] != partition:
            problems.append(f"key {row['key']!r} of {topic!r} is in partitions {before[0]} and {partition}")
        elif before[1] >= number:
            problems.append(f"{topic}/{partition}/{offset} has {number} after {before[1]}, of the same key")
        last[key] = (partition, number)
    return problems
