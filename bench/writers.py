"""Eight writer processes on one store, against one writer alone in the same run."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Barrier

from bench.figures import Figure, median
from bench.records import RECORDS, temporary_folder, topic_store, values
from sparktxn import Producer

__all__ = ["measure"]

_SECONDS = 6.0
_WRITERS = 8


def _write(folder: str, number: int, seconds: float, barrier: Barrier, results: multiprocessing.Queue[object]) -> None:
    try:
        producer = Producer({"bootstrap.servers": folder, "transactional.id": f"writer-{number}"})
        producer.init_transactions()
        payload = values(RECORDS)
        latencies = []

        def commit() -> None:
            producer.begin_transaction()
            for value in payload:
                producer.produce("t", value, b"key", number % _WRITERS)
            producer.commit_transaction()

        commit()  # The first one imports what Arrow needs: the start of a process is not what is measured.
        barrier.wait()
        ends = time.perf_counter() + seconds
        while (started := time.perf_counter()) < ends:
            commit()
            latencies.append(time.perf_counter() - started)
        results.put(latencies)
    except BaseException as error:
        results.put(repr(error))
        raise


def _run(folder: str, writers: int, seconds: float) -> tuple[float, float, int]:
    """(commits per second, p99 in ms, failures) of so many processes."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(writers), context.Queue()
    processes = [
        context.Process(target=_write, args=(folder, number, seconds, barrier, results)) for number in range(writers)
    ]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    latencies = sorted(latency for one in found if isinstance(one, list) for latency in one)
    failures = sum(not isinstance(one, list) for one in found)
    return len(latencies) / seconds, latencies[int(len(latencies) * 0.99)] * 1000 if latencies else 0.0, failures


def measure() -> list[Figure]:
    """The figures of contention."""
    with temporary_folder() as folder:
        topic_store(folder, _WRITERS).close()
        rounds = [(_run(folder, 1, _SECONDS), _run(folder, _WRITERS, _SECONDS)) for _ in range(2)]
    ratio = median([many[0] / one[0] for one, many in rounds])
    one, many = rounds[-1]
    return [
        Figure("1 writer process", one[0], "/s", note=f"p99 {one[1]:.1f} ms"),
        Figure(f"{_WRITERS} writer processes, total", many[0], "/s", note=f"p99 {many[1]:.1f} ms"),
        Figure(f"{_WRITERS} writer processes, total against one", ratio, "x", 0.8),
        Figure(f"{_WRITERS} writer processes, failures", sum(run[1][2] for run in rounds), "", 0, True),
    ]
