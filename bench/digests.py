"""The digest of a micro-batch's rows: the CPU time of staging with it and without, of Spark and its Python workers.

Rows come from Parquet files with Spark's reader, and end as segments on the disk, without syncs. The ways take turns.
The environment variables ``BENCH_DIGEST_ROWS`` and ``BENCH_DIGEST_ROUNDS`` say how many rows and turns, 300,000 and 11
unless they are set. Other processes of the machine disturb the ratios: let it do nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bench.figures import Figure, median
from bench.records import temporary_folder
from bench.spark_cases import cpu_seconds, session
from pyspark_txnlog.writing.foreach import stage_frame, with_row_hashes
from sparktxn import StagedSegment, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["measure"]

_ROWS: Final = int(os.environ.get("BENCH_DIGEST_ROWS", "300000"))
_ROUNDS: Final = int(os.environ.get("BENCH_DIGEST_ROUNDS", "11"))
_WARM: Final = 2
_RATIO_MAX: Final = 1.15

_NUMBER: Final = "cast(id as string)"
_COLUMNS: Final[dict[str, tuple[Sequence[str], pa.Schema | None]]] = {
    "100 bytes": ((f"{_NUMBER} key", f"cast(substring(concat(sha2({_NUMBER}, 512)), 1, 100) as binary) value"), None),
    "typed": (
        ("id number", "id / 7.0D fraction", f"substring(sha2({_NUMBER}, 256), 1, 11) name"),
        pa.schema([("number", pa.int64()), ("fraction", pa.float64()), ("name", pa.string())]),
    ),
    "1 KiB": (
        (
            f"{_NUMBER} key",
            f"cast(array_join(transform(sequence(1, 8), x -> sha2(concat({_NUMBER}, x), 512)), '') as binary) value",
        ),
        None,
    ),
}
"""By the name of the rows: their columns in SQL, and the schema of a typed topic."""

_Stage = Callable[[], Sequence[StagedSegment]]


def measure() -> Iterator[Figure]:
    """Yield the figures of digests."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session()
    try:
        for name, (columns, schema) in _COLUMNS.items():
            with temporary_folder() as folder:
                spark.range(_ROWS, numPartitions=2).selectExpr(*columns).write.parquet(f"{folder}/rows")
                yield from _compared(spark, folder, name, schema)
    finally:
        spark.stop()


def _compared(spark: SparkSession, folder: str, name: str, schema: pa.Schema | None) -> list[Figure]:
    with Store.open(f"{folder}/store", options={"store.fsync": "false"}, create=True) as store:
        store.create_topic("t", 4, schema=schema)
        ways = _ways(store, spark.read.parquet(f"{folder}/rows"))
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(_WARM + _ROUNDS):
            for way, stage in ways.items():
                started = cpu_seconds()
                assert sum(segment.record_count for segment in stage()) == _ROWS
                taken[way].append((cpu_seconds() - started) / _ROWS * 1e6)
    return _figures(name, {way: found[_WARM:] for way, found in taken.items()})


def _ways(store: Store, frame: DataFrame) -> dict[str, _Stage]:
    plan = store.stage_plan(["t"])
    return {
        "none": lambda: stage_frame(frame, plan, "t", digests=False),
        "by Spark's plan": lambda: stage_frame(with_row_hashes(frame, plan, "t"), plan, "t"),
        "in Python": lambda: stage_frame(frame, plan, "t"),
    }


def _figures(name: str, taken: dict[str, list[float]]) -> list[Figure]:
    without = taken.pop("none")
    figures = [Figure(f"{name}, no digest", min(without), "µs/row", note=f"median {median(without):.2f}")]
    for way, found in taken.items():
        ratio = median([one / other for one, other in zip(found, without, strict=True)])
        note = f"least {min(found):.2f} µs, {min(found) / min(without):.2f} times the least without"
        target = _RATIO_MAX if way == "by Spark's plan" else None
        figures.append(Figure(f"{name}, {way}", ratio, "times", target, at_most=True, note=note))
    return figures
