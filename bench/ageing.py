"""Micro-batches of 100 rows through Spark, so many that it shows whether they take longer as a query and its log grow.

``BENCH_AGEING_BATCHES`` is the number of micro-batches of each way, 10,000 unless it is set. They take turns of 500.
"""

from __future__ import annotations

import os
from typing import Any, Final

from bench.figures import Figure, median
from bench.records import temporary_folder
from bench.spark import run_driver

__all__ = ["measure"]

_BATCHES: Final = int(os.environ.get("BENCH_AGEING_BATCHES", "10000"))
_COMPARED: Final = 100
"""How many of the first and of the last micro-batches are compared."""


def measure() -> list[Figure]:
    """The figures of ageing."""
    with temporary_folder() as folder:
        found = run_driver(folder, "ageing", _BATCHES)[0]
    return [_ageing(found, sink) for sink in ("write_stream", "txnlog")]


def _ageing(found: dict[str, Any], sink: str) -> Figure:
    times = found[f"{sink} micro-batches"]
    first, last = median(times[:_COMPARED]), median(times[-_COMPARED:])
    tenths = [median(times[begin : begin + len(times) // 10]) for begin in range(0, len(times), len(times) // 10)]
    note = f"{first:.0f} and {last:.0f} ms, of {len(times):,}; tenths {', '.join(f'{tenth:.0f}' for tenth in tenths)}"
    return Figure(f"micro-batch: last {_COMPARED} / first, {sink}", last / first, "times", 1.1, True, note)
