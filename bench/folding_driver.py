"""A writer process for `bench.folding`: it commits transactions of 100 records on demand, without fsync.

It reads lines from its standard input. ``commits N`` commits N transactions, and ``seconds S`` commits for S seconds.
The answer to each is how many were committed, in how many seconds, and how many seconds of a processor they took.
"""

from __future__ import annotations

import sys
import time

from bench.commits import producing
from bench.records import topic_store

__all__ = ["main"]


def main(folder: str, bytes_per_minute: str, formats: str = "") -> None:
    """Write to a new store at `folder`, whose small segments are folded at so many bytes per minute (0: never).

    With `formats` the topic is a table, which the process publishes.
    """
    options = {"store.fsync": "false", "checkpoint.fold.bytes.per.minute": bytes_per_minute}
    # The store stays open, so that the log and its folds live as long as the process.
    with topic_store(folder, 1, settings={"table.formats": formats} if formats else {}, **options):
        commit = producing(folder, 1, "false", **{"checkpoint.fold.bytes.per.minute": bytes_per_minute})
        for line in sys.stdin:
            what, number = line.split()
            count, started, cpu_started = 0, time.perf_counter(), time.process_time()
            ends = started + float(number)
            while count < int(number) if what == "commits" else time.perf_counter() < ends:
                commit()
                count += 1
            print(count, time.perf_counter() - started, time.process_time() - cpu_started, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
