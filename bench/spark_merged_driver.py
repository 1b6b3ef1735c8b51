"""What `bench.spark_merged` runs in a process of its own: Spark over stores and over plain files with the same rows.

Prints one line of JSON: for each case the wall seconds and the CPU seconds of the process and its children, by round.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.spark_cases import Case, measured, noop, session, total
from pyspark_txnlog import scan

__all__ = ["main"]


def _plain(spark: SparkSession, folder: str) -> DataFrame:
    columns = "key binary, value binary, timestamp timestamp, offset bigint"
    files = [f"file://{entry.path}" for entry in os.scandir(folder)]
    return (
        spark.read.schema(columns)
        .parquet(*files)
        .select(
            *("key", "value", F.lit("t").alias("topic"), F.lit(0).alias("partition"), "offset", "timestamp"),
            F.lit(0).alias("timestampType"),
        )
    )


def _cases(frames: Mapping[str, DataFrame]) -> list[Case]:
    """Each action on all frames, one after the other: those that are compared are in the same mood of the machine."""
    actions: dict[str, Callable[[DataFrame], object]] = {"count": DataFrame.count, "sum": total, "all columns": noop}
    return [(f"{name}, {what}", partial(act, frame)) for what, act in actions.items() for name, frame in frames.items()]


def main(folder: str, rounds: int) -> None:
    """Measure all cases; print what was found."""
    spark = session()
    frames = {name: scan(spark, f"{folder}/{name}", "t") for name in ("small", "cut", "large", "maintained")}
    frames["plain-small"] = _plain(spark, f"{folder}/plain-small")
    for name in ("small", "large"):
        reader = spark.read.format("txnlog").option("topic", "t")
        frames[f"{name}, format"] = reader.load(f"{folder}/{name}")
    cases = _cases(frames)
    described = scan(spark, f"{folder}/small", "t", includeTxnMetadata=True)
    cases.append(("small, all columns and transactions", lambda: noop(described)))
    cases.append(("small, planning", lambda: scan(spark, f"{folder}/small", "t")))
    print(json.dumps(measured(cases, rounds)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
