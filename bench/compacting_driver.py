"""What `bench.compacting` runs in an environment of its own: Delta Lake's OPTIMIZE, alone and while writers append.

Prints one line of JSON. Writers and compactions are threads of one JVM: only there is Delta's log safe on a disk.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from bench.peers_driver import DELTA
from bench.spark_cases import cpu_seconds, noop, records, session


def _timed(act: Callable[[], object]) -> tuple[float, float]:
    cpu_s, started = cpu_seconds(), time.perf_counter()
    act()
    return time.perf_counter() - started, cpu_seconds() - cpu_s


def merge(spark: SparkSession, table: str, rounds: int, rows: int) -> list[tuple[float, float, float, float]]:
    """Compact copies of a table, and read each: seconds and CPU of both. The first two do not count."""
    found = []
    for number in range(rounds + 2):
        copy = f"{table}-{number}"
        shutil.copytree(table, copy)
        merging = _timed(lambda: spark.sql(f"OPTIMIZE delta.`{copy}`").collect())  # noqa: B023
        frame = spark.read.format("delta").load(copy)
        assert frame.count() == rows
        scanning = _timed(lambda: noop(frame))  # noqa: B023
        shutil.rmtree(copy)
        if number > 1:
            found.append((*merging, *scanning))
    return found


def contend(
    spark: SparkSession, table: str, writers: int, compactors: int, rows: int, seconds: float
) -> tuple[int, int, int, int]:
    """Append and compact side by side: (appends, failed ones, compactions, failed ones)."""
    frame = records(spark, rows).selectExpr("key", "value", "timestamp'2024-05-01 12:00:00' timestamp").cache()
    frame.count()
    acts: list[Callable[[], object]] = [
        lambda: frame.coalesce(1).write.format("delta").mode("append").save(table),
        lambda: spark.sql(f"OPTIMIZE delta.`{table}`").collect(),
    ]
    for act in acts:
        act()
    before = spark.read.format("delta").load(table).count()
    done, failed = [0, 0], [0, 0]
    lock = threading.Lock()
    ends = time.perf_counter() + seconds

    def repeat(role: int) -> None:
        while time.perf_counter() < ends:
            try:
                acts[role]()
            except Exception as error:  # whatever it is, the caller has to do it again
                print(f"{role}: {str(error)[:300]}", file=sys.stderr)
                with lock:
                    failed[role] += 1
            else:
                with lock:
                    done[role] += 1

    threads = [threading.Thread(target=repeat, args=(role,)) for role in [0] * writers + [1] * compactors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spark.read.format("delta").load(table).count() == before + done[0] * rows
    return done[0], failed[0], done[1], failed[1]


def main(jars: str, packages: str, use: str, table: str, *numbers: str) -> None:
    """Measure, and print what was found."""
    spark = session(**{"spark.jars.packages": packages, "spark.jars.ivy": jars, **DELTA})
    if use == "merge":
        print(json.dumps(merge(spark, table, *map(int, numbers))))
    else:
        print(json.dumps(contend(spark, table, *map(int, numbers[:-1]), float(numbers[-1]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
