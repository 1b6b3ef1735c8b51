"""What the drivers of Spark's benchmarks share: sessions, rows, and how cases are timed. Imports nothing of ours."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

__all__ = [
    "PARTITIONS",
    "TURN",
    "Case",
    "Sink",
    "cpu_seconds",
    "measured",
    "micro_batches",
    "noop",
    "records",
    "session",
    "total",
]

PARTITIONS = 6
TICKS = os.sysconf("SC_CLK_TCK")
_ROWS_PER_BATCH = 100
_WAIT_S = 600.0
TURN = 100
_STARTING = 5

Case = tuple[str, Callable[[], object]]
Sink = Callable[[DataStreamWriter], DataStreamWriter]


def cpu_seconds() -> float:
    """CPU time of this process and all that it has started, Spark's JVM and its Python workers among them."""
    found: dict[int, tuple[int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        # With the time of ended children that were waited for.
        found[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in ours and pid not in ours}:
        ours |= more
    return sum(found[pid][1] for pid in ours if pid in found) / TICKS


def session(**settings: str) -> SparkSession:
    """A session of two cores; `settings` are by Spark's names."""
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def records(spark: SparkSession, count: int) -> DataFrame:
    """Rows with a key and a value of 100 bytes."""
    return spark.range(count).selectExpr(*_columns("id"))


def _columns(number: str) -> tuple[str, str]:
    value = f"rpad(concat('{{\"flight\":', {number}, ',\"delay\":', {number} % 400, ',\"note\":\"'), 100, 'x')"
    return f"cast(cast({number} % 1000 as string) as binary) key", f"cast({value} as binary) value"


def noop(frame: DataFrame) -> None:
    """Reads all rows."""
    frame.write.format("noop").mode("overwrite").save()


def total(frame: DataFrame) -> None:
    """Reads one stored column."""
    frame.select(F.sum(F.length("value"))).collect()


def measured(cases: list[Case], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Every case once in each round, so that the machine's moods hit all; a first round is not counted."""
    found: dict[str, dict[str, list[float]]] = {name: {"wall": [], "cpu": []} for name, _ in cases}
    for number in range(rounds + 1):
        for name, act in cases:
            cpu_s, started = cpu_seconds(), time.perf_counter()
            act()
            if number:
                found[name]["wall"].append(time.perf_counter() - started)
                found[name]["cpu"].append(cpu_seconds() - cpu_s)
    return found


def micro_batches(
    spark: SparkSession, folder: str, sinks: Mapping[str, Sink], count: int, turn: int = TURN
) -> dict[str, list[float]]:
    """The milliseconds of `count` micro-batches of 100 rows for each sink, each begun when the one before it has ended.

    The sinks take turns, of less than a thousand, so that the machine's moods hit all. The first micro-batches of a
    turn, in which a query starts again, are not counted.
    """
    found: dict[str, list[float]] = {f"{name} micro-batches": [] for name in sinks}
    for counted in range(0, count, turn):
        for name, sink in sinks.items():
            times = _one_turn(spark, f"{folder}/checkpoint-{name}", sink, min(turn, count - counted))
            found[f"{name} micro-batches"] += times
    return found


def _one_turn(spark: SparkSession, checkpoint: str, sink: Sink, count: int) -> list[float]:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS_PER_BATCH).load()
    writer = rows.selectExpr(*_columns("value")).writeStream.option("checkpointLocation", checkpoint)
    query = sink(writer).start()
    waits_until = time.monotonic() + _WAIT_S
    first: int | None = None
    while query.isActive:
        # Only the last one: to fetch all takes time of the processors that run the micro-batches.
        last = query.lastProgress
        if last is not None and first is None:
            first = last["batchId"]
        if last is not None and first is not None and last["batchId"] - first >= count + _STARTING:
            break
        if time.monotonic() > waits_until:
            raise RuntimeError(f"{count} micro-batches took more than {_WAIT_S:g} s")
        time.sleep(0.05)
    failed = query.exception()
    progress = query.recentProgress
    query.stop()
    if failed is not None:
        raise failed
    return [float(one["durationMs"]["triggerExecution"]) for one in progress][_STARTING : _STARTING + count]
