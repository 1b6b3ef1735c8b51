"""Spark's Python workers between two steps: each collects all garbage, and its next step waits for that."""

from __future__ import annotations

import gc

from pyspark_txnlog.sparkinternals import in_worker

__all__ = ["pass_over_modules"]

_passes_over = False


def pass_over_modules() -> None:
    """Have the garbage collector pass over what the process has by now, once in each of Spark's worker processes.

    To go through the modules alone takes tens of milliseconds, and a small micro-batch has four workers. A program's
    own process is left as it is.
    """
    global _passes_over
    if not _passes_over and in_worker():
        _passes_over = True
        gc.freeze()
