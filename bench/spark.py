"""Spark writes and reads ten million records: speed against plain Parquet, and the memory of its Python processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from bench.figures import Figure
from bench.records import temporary_folder, topic_store

__all__ = ["measure"]

_MEGABYTES_MAX = 600
_ROWS = 10_000_000
_PARTITIONS = 6

_DRIVER = """
import json, sys, time
from pyspark.sql import SparkSession
folder, use, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").config("spark.python.unix.domain.socket.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

def records(count):
    value = "rpad(concat('{\\"flight\\":', id, ',\\"delay\\":', id % 400, ',\\"note\\":\\"'), 100, 'x')"
    return spark.range(count).selectExpr("cast(id % 1000 as string) key", value + " value")

def write_log(count):
    records(count).write.format("txnlog").mode("append").option("topic", "t").save(folder + "/store")

def write_parquet(count):
    records(count).write.mode("append").parquet(folder + "/parquet")

def read_log(columns):
    frame = spark.read.format("txnlog").option("topic", "t").option("columns", columns).load(folder + "/store")
    frame.write.format("noop").mode("overwrite").save()

def read_parquet(columns):
    frame = spark.read.parquet(folder + "/parquet").select(*columns.split(","))
    frame.write.format("noop").mode("overwrite").save()

def seconds(act, argument):
    started = time.perf_counter()
    act(argument)
    return time.perf_counter() - started

ours, peer = (write_log, write_parquet) if use == "write" else (read_log, read_parquet)
argument = rows if use == "write" else "key,value"
warm = 1000 if use == "write" else "key"
ours(warm), peer(warm)
print(json.dumps({"ours": seconds(ours, argument), "peer": seconds(peer, argument)}))
spark.stop()
"""


def measure() -> list[Figure]:
    """The figures of Spark."""
    figures = []
    with temporary_folder() as folder:
        topic_store(f"{folder}/store", _PARTITIONS).close()
        for use in ("write", "read"):
            seconds, megabytes = _run(folder, use)
            verb = f"10 M rows, Spark {use}"
            ratio = seconds["peer"] / seconds["ours"]
            figures += [
                Figure(verb, _ROWS / seconds["ours"], "rows/s", note=f"{ratio:.2f} × plain Parquet's rate"),
                Figure(f"{verb}, plain Parquet", _ROWS / seconds["peer"], "rows/s", note="peer"),
                Figure(f"{verb}, largest Python process", megabytes, "MB peak", _MEGABYTES_MAX, True),
            ]
    return figures


def _run(folder: str, use: str) -> tuple[dict[str, float], float]:
    """(seconds of both, the largest peak of a Python process) of a driver of its own."""
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, folder, use, str(_ROWS)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    megabytes = 0.0
    while driver.poll() is None:
        megabytes = max([megabytes, *map(_peak_megabytes, _python_processes(driver.pid))])
        time.sleep(0.1)
    stdout, stderr = driver.communicate()
    if driver.returncode:
        raise RuntimeError(stderr)
    return json.loads(stdout.splitlines()[-1]), megabytes


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
