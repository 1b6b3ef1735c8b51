"""A driver of a run under kills: runs one query until all its micro-batches are recorded."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.kills.blows import Blows
from tests.kills.queries import Query

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_FAILURES_MAX: Final = 4
"""How often the query may fail with nothing done in between: then it cannot go on."""


def main() -> int:
    """Return 0 when all is done, 3 if the query cannot go on, 4 if another driver has taken its place."""
    query = Query.parse(Path(sys.argv[1]).read_text())
    blows = Blows(Path(query.folder))
    spark = _session(query)
    failures, seen = 0, (0, 0)
    while blows.recorded() < query.batches:
        running = query.start(spark)
        try:
            _follow(running, blows, query.batches)
        except StreamingQueryException as failed:
            print("query failed:", str(failed)[:3000], file=sys.stderr, flush=True)
            if (blows.folder / "driver").read_text() != str(os.getpid()):
                return 4
            done = (blows.recorded(), blows.dealt())
            failures = 1 if done != seen else failures + 1
            seen = done
            if failures >= _FAILURES_MAX:
                return 3
    spark.stop()
    return 0


def _follow(running: StreamingQuery, blows: Blows, batches: int) -> None:
    """Wait until the query is done, and stop it.

    Raises:
        StreamingQueryException: it failed.
    """
    while running.isActive and blows.recorded() < batches:
        time.sleep(0.05)
    error = running.exception()
    running.stop()
    if error is not None:
        raise error


def _session(query: Query) -> SparkSession:
    session = (
        SparkSession.builder.master(query.master)
        .appName("kills")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{query.folder}/warehouse")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.streaming.minBatchesToRetain", "1000")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


if __name__ == "__main__":
    sys.exit(main())
