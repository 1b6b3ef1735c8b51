"""Micro-batches of 100 rows through Spark, in turns with sinks that drop them, and what Kafka's and Delta's take.

``BENCH_SPARK_BATCHES`` is the number of micro-batches of each sink, 400 unless it is set. Kafka's sink and Delta Lake
run on an earlier Spark, so each sink is compared with Spark's own dropping sink of the same version.
"""

from __future__ import annotations

from typing import Any, Final

from bench.figures import Figure, median
from bench.peers import run_peers
from bench.records import temporary_folder
from bench.spark import BATCHES, run_driver

__all__ = ["measure"]

_MORE: Final = (
    ("write_stream()", "write_stream", "noop", 20.0),
    ('format("txnlog")', "txnlog", "dropping", 20.0),
    ("the same with store.fsync=false", "unsynced", "dropping", None),
    ("a sink in Python that drops", "dropping", "noop", None),
)
"""(name, ours, the sink that drops, how many milliseconds more ours may take)."""


def measure() -> list[Figure]:
    """The figures of micro-batches."""
    with temporary_folder() as folder:
        ours = run_driver(folder, "stream")[0]
        figures = [_more(ours, *compared) for compared in _MORE]
        peers = run_peers(folder, 0, 0, BATCHES)
    if peers is not None:
        figures += [_against(ours, peers, peer, target) for peer, target in (("kafka", 10.0), ("delta", 0.0))]
    return figures


def _median_ms(found: dict[str, Any], sink: str) -> float:
    return median(found[f"{sink} micro-batches"])


def _more(ours: dict[str, Any], name: str, sink: str, dropping: str, target: float | None) -> Figure:
    sink_ms, dropping_ms = _median_ms(ours, sink), _median_ms(ours, dropping)
    note = f"medians of {sink_ms:.0f} and {dropping_ms:.0f} ms"
    return Figure(f"micro-batch: {name}, more than {dropping}", sink_ms - dropping_ms, "ms", target, True, note)


def _against(ours: dict[str, Any], peers: dict[str, Any], peer: str, target: float) -> Figure:
    """What ours takes above Spark's dropping sink, less what the peer's takes above that of its Spark."""
    mine = _median_ms(ours, "write_stream") - _median_ms(ours, "noop")
    theirs = _median_ms(peers, peer) - _median_ms(peers, "noop")
    note = f"{mine:.0f} and {theirs:.0f} ms above Spark's dropping sink"
    return Figure(f"micro-batch: write_stream(), more than {peer}", mine - theirs, "ms", target, True, note)
