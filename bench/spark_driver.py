"""What `bench.spark` runs in a process of its own: Spark, the log and plain Parquet files with the same rows.

Prints one line of JSON: for each case the wall seconds and the CPU seconds of the process and its children, by round.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_txnlog import scan, write
from pyspark_txnlog.batch_reader import make_reader, read_schema
from pyspark_txnlog.options import READ, ReadOptions
from sparktxn import Producer, Store
from sparktxn.scan.plan import ReadTask

PARTITIONS = 6
ABORTED = 1_000
TICKS = os.sysconf("SC_CLK_TCK")
Case = tuple[str, Callable[[], object]]


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


def session() -> SparkSession:
    """A session of two cores."""
    made = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    return made


def records(spark: SparkSession, count: int) -> DataFrame:
    """Rows with a key and a value of 100 bytes."""
    value = "rpad(concat('{\"flight\":', id, ',\"delay\":', id % 400, ',\"note\":\"'), 100, 'x')"
    columns = ("cast(cast(id % 1000 as string) as binary) key", f"cast({value} as binary) value")
    return spark.range(count).selectExpr(*columns)


def noop(frame: DataFrame) -> None:
    """Reads all rows."""
    frame.write.format("noop").mode("overwrite").save()


def total(frame: DataFrame) -> None:
    """Reads one stored column."""
    frame.select(F.sum(F.length("value"))).collect()


def files_of(folder: str) -> list[str]:
    """The segments of the topic."""
    with Store.open(folder) as store:
        tasks: list[ReadTask] = store.plan_commits(store.view(["t"]), 0)
    return [f"file://{folder}/{task.segment_name(segment)}" for task in tasks for segment in task.segments]


def abort_transactions(folder: str, count: int) -> None:
    """Leaves segments of aborted transactions behind."""
    with Producer({"bootstrap.servers": folder, "transactional.id": "aborts", "store.fsync": False}) as producer:
        producer.init_transactions()
        for number in range(count):
            producer.begin_transaction()
            producer.produce("t", b"x" * 100, partition=number % PARTITIONS)
            producer.flush()
            producer.abort_transaction()


def write_cases(spark: SparkSession, folder: str, rows: int) -> list[Case]:
    """Plain Parquet first; each case appends to what was there."""
    log = f"{folder}/written"
    with Store.open(log, create=True) as store:
        store.create_topic("t", PARTITIONS)
    frame = records(spark, rows)
    return [
        ("parquet", lambda: frame.write.mode("append").option("compression", "zstd").parquet(f"{folder}/parquet")),
        ("write()", lambda: write(frame, log, "t")),
        ("format", lambda: frame.write.format("txnlog").mode("append").option("topic", "t").save(log)),
    ]


def read_cases(spark: SparkSession, log: str) -> list[Case]:
    """Each peer is read from the same files as ours."""
    paths = files_of(log)
    plain = spark.read.schema("key binary, value binary, timestamp timestamp").parquet(*paths)
    whole = plain.select(
        *("key", "value", F.lit("t").alias("topic"), F.lit(0).alias("partition")),
        *(F.col("_metadata.row_index").alias("offset"), "timestamp", F.lit(0).alias("timestampType")),
    )
    ours = scan(spark, log, "t")
    abort_transactions(log, ABORTED)
    aborted = scan(spark, log, "t")
    stored = ("key", "value", "timestamp")

    def python(columns: str | None = None) -> DataFrame:
        reader = spark.read.format("txnlog").option("topic", "t")
        return (reader if columns is None else reader.option("columns", columns)).load(log)

    everything, values = python(), python("value")
    return [
        ("count, parquet", lambda: plain.count()),
        ("count, scan()", lambda: ours.count()),
        ("noop, parquet", lambda: noop(plain.select(*stored))),
        ("noop, scan()", lambda: noop(ours.select(*stored))),
        ("noop, scan() of a store with aborted", lambda: noop(aborted.select(*stored))),
        ("sum, parquet", lambda: total(plain)),
        ("sum, scan()", lambda: total(ours)),
        ("sum, format with columns", lambda: total(values)),
        ("all columns, anchor", lambda: noop(whole)),
        ("all columns, scan()", lambda: noop(ours)),
        ("all columns, format", lambda: noop(everything)),
    ]


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


def plan_format(folder: str) -> dict[str, float]:
    """What the Python source plans, from the newest entry to its tasks."""
    options = ReadOptions.parse({"path": f"{folder}/many", "topic": "t"}, READ)
    cpu_s, started = cpu_seconds(), time.perf_counter()
    schema, pinned = read_schema(options)
    parts = make_reader(options, schema, pinned).partitions()
    wall_s = time.perf_counter() - started
    return {"wall": wall_s, "cpu": cpu_seconds() - cpu_s, "tasks": len(parts)}


def plan_scan(folder: str) -> dict[str, float]:
    """The same until Spark knows the tasks of `scan()`."""
    spark = session()
    spark.range(1).count()
    cpu_s, started = cpu_seconds(), time.perf_counter()
    plan = scan(spark, f"{folder}/many", "t")._jdf.queryExecution().toRdd()
    wall_s = time.perf_counter() - started
    return {"wall": wall_s, "cpu": cpu_seconds() - cpu_s, "tasks": plan.getNumPartitions()}


def main(folder: str, use: str, rows: int, rounds: int) -> None:
    """Measures one use; prints what was found."""
    if use == "plan-format":
        found: object = plan_format(folder)
    elif use == "plan-scan":
        found = plan_scan(folder)
    elif use == "write":
        found = measured(write_cases(session(), folder, rows), rounds)
    else:
        spark, log = session(), f"{folder}/store"
        with Store.open(log, create=True) as store:
            store.create_topic("t", PARTITIONS)
        write(records(spark, rows), log, "t")
        found = measured(read_cases(spark, log), rounds)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
