"""The time of a commit while all jobs of maintenance run in another process, against the same store without them.

A file system in memory shows what writer and jobs make each other wait for. On a disk they wait for its fsync, too.
"""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

from bench.figures import Figure, median
from bench.records import temporary_folder, topic_store, values
from sparktxn import Producer

__all__ = ["measure"]

_TURNS = 4
_TURN_S = 8.0
_RECORDS = 10
_PARTITIONS = 2
_PAUSE_S = 0.002
_MEMORY = Path("/dev/shm")

_KEEPER = """
import sys, time
from sparktxn.maintenance import maintain
from sparktxn.store import Store
jobs, rounds, failed = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "rewrite.min.segments": 2}, 0, 0
with Store.open(sys.argv[1]) as store:
    print("ready", flush=True)
    for line in sys.stdin:
        ends = time.monotonic() + float(line)
        while time.monotonic() < ends:
            failed += len(maintain(store, jobs).failed)
            rounds += 1
        print(rounds, failed, flush=True)
"""


def _latencies(producer: Producer, payload: list[bytes], seconds: float) -> list[float]:
    """Commit small transactions for some time; return how many milliseconds each took."""
    found = []
    ends = time.perf_counter() + seconds
    while (started := time.perf_counter()) < ends:
        producer.begin_transaction()
        for number, value in enumerate(payload):
            producer.produce("t", value, b"key", partition=number % _PARTITIONS)
        producer.commit_transaction()
        found.append(1_000 * (time.perf_counter() - started))
        # A writer that never waits takes a whole core: jobs would be measured as its rivals for one.
        time.sleep(_PAUSE_S)
    return found


def _p99(latencies: list[float]) -> float:
    return sorted(latencies)[int(0.99 * len(latencies))]


def _turns(folder: str, keeper: subprocess.Popen[str]) -> tuple[list[list[float]], list[list[float]], list[int]]:
    """Write in turns with the jobs and without; return the times of both, and (rounds of all jobs, failed jobs)."""
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    assert keeper.stdout.readline().split() == ["ready"]
    alone, along, said = [], [], [0, 0]
    payload = values(_RECORDS)
    with Producer({"bootstrap.servers": folder, "transactional.id": "writer"}) as producer:
        producer.init_transactions()
        _latencies(producer, payload, 2)
        for _ in range(_TURNS):
            alone.append(_latencies(producer, payload, _TURN_S))
            print(_TURN_S, file=keeper.stdin, flush=True)
            along.append(_latencies(producer, payload, _TURN_S))
            # Its last round ends before the turn without jobs begins.
            said = [int(word) for word in keeper.stdout.readline().split()]
    return alone, along, said


def _measured(where: str, parent: str | None) -> list[Figure]:
    with temporary_folder(parent) as folder:
        topic_store(folder, _PARTITIONS).close()
        keeper = subprocess.Popen(
            [sys.executable, "-c", _KEEPER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with keeper:
            alone, along, (rounds, failed) = _turns(folder, keeper)
    assert rounds >= _TURNS, f"{rounds} rounds"
    assert not failed, f"{failed} jobs have failed"
    first, second = median([_p99(one) for one in alone]), median([_p99(one) for one in along])
    commits = sum(map(len, along))
    medians = [f"median {median([*chain(*one)]):.1f} ms" for one in (alone, along)]
    return [
        Figure(f"p99 of a commit, {where}", first, "ms", note=medians[0]),
        Figure(f"p99 of a commit while all jobs run, {where}", second, "ms", note=medians[1]),
        Figure(
            f"p99 with jobs / without, {where}", second / first, "x", 2, True, f"{rounds} rounds, {commits:,} commits"
        ),
    ]


def measure() -> list[Figure]:
    """Returns the figures."""
    figures = _measured("disk", None)
    if _MEMORY.is_dir():
        figures += _measured("memory", str(_MEMORY))
    else:
        print(f"not measured without a disk: {_MEMORY} is not here")
    return figures
