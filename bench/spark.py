"""Spark reads, writes and plans: against plain Parquet files with the same rows in the same run, and in memory.

The environment variable ``BENCH_SPARK_ROWS`` is the number of rows, ten million unless it is set. With ``100000``,
``BENCH_SPARK_ROUNDS=1``, a run takes about three minutes on a machine that does nothing
else. Ratios of CPU time stand next to those of wall time: other processes of the machine disturb them less.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure, median
from bench.peers import compare, run_peers
from bench.records import temporary_folder
from sparktxn import StagedSegment, Store

__all__ = ["BATCHES", "measure", "run_driver"]

_ROWS: Final = int(os.environ.get("BENCH_SPARK_ROWS", "10000000"))
_ROUNDS: Final = int(os.environ.get("BENCH_SPARK_ROUNDS", "3"))
BATCHES: Final = int(os.environ.get("BENCH_SPARK_BATCHES", "400"))
_MEGABYTES_MAX: Final = 600

_SEGMENTS: Final = 100_000
_PLAN_MEGABYTES_MAX: Final = 500

_COMPARED: Final[tuple[tuple[str, str, str, float | None], ...]] = (
    ("read", "count, scan()", "count, parquet", 1.05),
    ("read", "noop, scan()", "noop, parquet", 1.05),
    ("read", "noop, scan() of a store with aborted", "noop, scan()", 1.02),
    ("read", "sum, scan()", "sum, parquet", 1.05),
    ("read", "sum, format with columns", "sum, parquet", 1.6),
    ("read", "all columns, scan()", "all columns, anchor", 1.2),
    ("read", "all columns, format", "all columns, anchor", 1.4),
    ("read", "sum, ready batches", "sum, parquet", None),
    ("read", "sum, format with columns", "sum, ready batches", None),
    ("read", "all columns, ready batches", "all columns, anchor", None),
    ("read", "all columns, format", "all columns, ready batches", None),
    ("write", "write()", "parquet", 1.15),
    ("write", "format", "parquet", 1.3),
    ("write", "dropping", "parquet", None),
    ("write", "format", "dropping", None),
    ("narrow", "narrow, written by format", "narrow, written by parquet", 1.5),
    ("narrow", "narrow, count by scan()", "narrow, count by parquet", 1.5),
    ("narrow", "narrow, sum by scan()", "narrow, sum by parquet", 1.5),
    ("narrow", "narrow, 1 % by scan()", "narrow, 1 % by parquet", 1.5),
    ("write", "parquet by partition", "parquet", None),
    ("write", "write()", "parquet by partition", None),
)
"""(use, ours, the peer's, how many times the peer's time ours may take; None where it is only stated)."""


def measure() -> list[Figure]:
    """The figures of Spark."""
    figures = []
    ours: dict[str, Any] = {}
    with temporary_folder() as folder:
        for use in ("narrow", "write", "read"):
            seconds, megabytes = run_driver(folder, use)
            ours |= seconds
            figures += [_ratio(seconds, *compared) for compared in _COMPARED if compared[0] == use]
            name = f"Spark {use}, {_ROWS:,} rows: largest Python process"
            figures.append(Figure(name, megabytes, "MB peak", _MEGABYTES_MAX, True))
        peers = run_peers(folder, _ROWS, _ROUNDS, 0)
        if peers is not None:
            figures += compare(ours, peers, _ROWS)
        figures += _planning(folder)
    return figures


def _ratio(seconds: dict[str, dict[str, list[float]]], use: str, ours: str, peer: str, target: float | None) -> Figure:
    ratios = {
        kind: median([mine / theirs for mine, theirs in zip(seconds[ours][kind], seconds[peer][kind], strict=True)])
        for kind in ("wall", "cpu")
    }
    least_s, peer_s = min(seconds[ours]["wall"]), min(seconds[peer]["wall"])
    note = f"of {peer}; CPU {ratios['cpu']:.2f}; least of each {least_s:.2f} s and {peer_s:.2f} s"
    return Figure(f"Spark {use}: {ours}", ratios["wall"], "times", target, True, note)


def _planning(folder: str) -> list[Figure]:
    """Planning a read of many segments; there are no files, for planning reads none."""
    with Store.open(f"{folder}/many", create=True) as store:
        topic = store.create_topic("t", 6)
        for first in range(0, _SEGMENTS, 1_000):
            store.commit([_segment(topic.topic_id, number) for number in range(first, first + 1_000)])
    figures = []
    for use, what, target_s in (("plan-format", "format", 1.0), ("plan-scan", "scan()", 10.0)):
        found, megabytes = run_driver(folder, use)
        name = f"Spark plans {_SEGMENTS:,} segments: {what}"
        figures.append(Figure(name, found["wall"], "s", target_s, True, f"CPU {found['cpu']:.2f} s"))
        figures.append(Figure(f"{name}, the driver's Python", megabytes, "MB peak", _PLAN_MEGABYTES_MAX, True))
    return figures


def _segment(topic_id: int, number: int) -> StagedSegment:
    return StagedSegment(
        topic="t",
        topic_id=topic_id,
        partition=number % 6,
        segment=f"{0:020d}-{number:020d}.parquet",
        record_count=1_000,
        size_bytes=100_000,
        checksum="00000000",
        timestamp_min_ms=0,
        timestamp_max_ms=number,
        payload_bytes=0,
    )


def run_driver(
    folder: str, use: str, batches: int = BATCHES, rows: int = _ROWS, rounds: int = _ROUNDS
) -> tuple[Any, float]:
    """Return what a driver of its own prints, and the largest peak of a Python process in megabytes."""
    megabytes = 0.0
    # Spark prints more than a pipe holds, and so do the times of thousands of micro-batches.
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        driver = subprocess.Popen(
            [sys.executable, "-m", "bench.spark_driver", folder, use, str(rows), str(rounds), str(batches)],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=printed,
            stderr=errors,
        )
        while driver.poll() is None:
            megabytes = max([megabytes, *map(_peak_megabytes, _python_processes(driver.pid))])
            time.sleep(0.1)
        printed.seek(0)
        errors.seek(0)
        if driver.returncode:
            raise RuntimeError(errors.read())
        return json.loads(printed.read().splitlines()[-1]), megabytes


def _python_processes(root: int) -> list[int]:
    """The Python processes among `root` and what it has started, Spark's workers with them."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        fields = _fields(status)
        if "PPid" in fields:
            parents[int(status.parent.name)] = int(fields["PPid"]), fields["Name"]
    found = {root}
    while more := {pid for pid, (parent, _) in parents.items() if parent in found and pid not in found}:
        found |= more
    return [pid for pid in found if pid in parents and parents[pid][1].startswith("python")]


def _peak_megabytes(pid: int) -> float:
    """The most that the process ever had in memory; 0 if it has ended."""
    return int(_fields(Path(f"/proc/{pid}/status")).get("VmHWM", "0 kB").split()[0]) / 1024


def _fields(status: Path) -> dict[str, str]:
    try:
        return dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
    except OSError:
        return {}
