"""1, 4, 8 and 16 writer processes on one store, each against one alone; and what 8 followers see alongside."""

from __future__ import annotations

import multiprocessing
import struct
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import NamedTuple

from bench.figures import Figure, median
from bench.records import temporary_folder, topic_store, values
from sparktxn import Consumer, Producer, TopicPartition

__all__ = ["FOLLOWERS", "measure", "run"]

_SECONDS = 6.0
_WARM_COMMITS = 80
"""So many that each process has made or adopted a checkpoint: its imports are not a cost of a commit."""
_IDLE_S = 1.0
"""A follower looks each 0.5 s after so long without a record: what it finds then is not how it follows."""
_PARTITIONS = 8
FOLLOWERS = 8
_ROUNDS = 3
_RATIOS = {4: None, 8: 0.95, 16: 0.8}
"""Commits a second of so many writers, of those of one: the least that is wanted."""

Results = multiprocessing.Queue  # of _Done, or of the text of an error


class _Done(NamedTuple):
    """What a process has done: how often, its processor time, and how long each commit, or each record's way, took."""

    count: int
    cpu_s: float
    latencies_s: list[float]


class _Run(NamedTuple):
    """Writers and followers side by side."""

    writers: list[_Done]
    followers: list[_Done]

    @property
    def rate(self) -> float:
        """Commits a second."""
        return sum(one.count for one in self.writers) / _SECONDS

    @property
    def evenness(self) -> float:
        """Commits of the slowest writer, of those of the fastest."""
        counts = [one.count for one in self.writers]
        return min(counts) / max(counts)

    @property
    def cpu_ms(self) -> float:
        """The writers' processor time of a commit."""
        return sum(one.cpu_s for one in self.writers) / sum(one.count for one in self.writers) * 1000


def _quantiles_ms(done: list[_Done]) -> tuple[float, float]:
    """(p50, p99)"""
    found = sorted(latency for one in done for latency in one.latencies_s)
    return found[len(found) // 2] * 1000, found[int(len(found) * 0.99)] * 1000


def _write(folder: str, number: int, barrier: Barrier) -> _Done:
    producer = Producer({"bootstrap.servers": folder, "transactional.id": f"writer-{number}"})
    producer.init_transactions()
    value = values(1)[0]

    def commit() -> float:
        started = time.monotonic()
        producer.begin_transaction()
        producer.produce("t", value, struct.pack("d", started), number % _PARTITIONS)
        producer.commit_transaction()
        return time.monotonic() - started

    for _ in range(_WARM_COMMITS):
        commit()
    barrier.wait()
    barrier.wait()  # once the followers have read all of that
    cpu_s, ends = time.process_time(), time.monotonic() + _SECONDS
    latencies_s = []
    while time.monotonic() < ends:
        latencies_s.append(commit())
    done = _Done(len(latencies_s), time.process_time() - cpu_s, latencies_s)
    producer.close()
    return done


def _follow(folder: str, number: int, barrier: Barrier) -> _Done:
    consumer = Consumer({"bootstrap.servers": folder, "group.id": f"f-{number}", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", partition) for partition in range(_PARTITIONS)])
    consumer.poll(0.05)
    barrier.wait()
    while consumer.poll(_IDLE_S) is not None:
        pass
    barrier.wait()
    cpu_s, started = time.process_time(), time.monotonic()
    count, latencies_s = 0, []
    while time.monotonic() < started + _SECONDS:
        message = consumer.poll(0.2)
        key = message.key() if message is not None and message.error() is None else None
        if key is not None:
            count += 1
            (produced,) = struct.unpack("d", key)
            if produced > started + _IDLE_S:
                latencies_s.append(time.monotonic() - produced)
    done = _Done(count, time.process_time() - cpu_s, latencies_s)
    consumer.close()
    return done


def _reported(
    work: Callable[[str, int, Barrier], _Done], folder: str, number: int, barrier: Barrier, results: Results
) -> None:
    try:
        results.put((work.__name__, work(folder, number, barrier)))
    except BaseException as error:
        barrier.abort()
        results.put((repr(error), None))
        raise


def run(writers: int, followers: int = 0) -> _Run:
    """Let so many writers commit for some seconds, with so many followers alongside."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(writers + followers), context.Queue()
    with temporary_folder() as folder:
        topic_store(folder, _PARTITIONS).close()
        processes = [
            context.Process(target=_reported, args=(work, folder, number, barrier, results))
            for work, count in ((_write, writers), (_follow, followers))
            for number in range(count)
        ]
        for process in processes:
            process.start()
        found = [results.get() for _ in processes]
        for process in processes:
            process.join()
    failures = [name for name, done in found if done is None]
    if failures:
        raise RuntimeError(f"{len(failures)} of {writers} writers and {followers} followers failed: {failures[0]}")
    return _Run(
        [done for name, done in found if name == _write.__name__],
        [done for name, done in found if name == _follow.__name__],
    )


def measure() -> list[Figure]:
    """The figures of contention: commits of one record."""
    rounds = [{count: run(count) for count in (1, *_RATIOS)} for _ in range(_ROUNDS)]
    figures = []
    for count in (1, *_RATIOS):
        p50_ms, p99_ms = _quantiles_ms([one for each in rounds for one in each[count].writers])
        cpu_ms = median([each[count].cpu_ms for each in rounds])
        note = f"p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms, processor {cpu_ms:.2f} ms a commit"
        figures.append(
            Figure(f"{count} writers, in all", median([each[count].rate for each in rounds]), "/s", note=note)
        )
    for count, wanted in _RATIOS.items():
        ratio = median([each[count].rate / each[1].rate for each in rounds])
        figures.append(Figure(f"{count} writers, in all, against one", ratio, "x", wanted))
        evenness = median([each[count].evenness for each in rounds])
        figures.append(Figure(f"{count} writers, slowest against fastest", evenness, "x", 0.8))
    for count in (1, 8, 16):
        found = run(count, FOLLOWERS)
        p50_ms, p99_ms = _quantiles_ms(found.followers)
        beside = f"beside {count} writers, {FOLLOWERS} followers"
        records_ms = sum(one.cpu_s for one in found.followers) / sum(one.count for one in found.followers) * 1000
        note = (
            f"{found.rate:.0f} commits/s; processor {found.cpu_ms:.2f} ms a commit, {records_ms:.2f} ms a record read"
        )
        figures.append(
            Figure(f"{beside}: from produce to poll, p50", p50_ms, "ms", 15 if count == 8 else None, True, note=note)
        )
        figures.append(Figure(f"{beside}: from produce to poll, p99", p99_ms, "ms", 300 if count == 8 else None, True))
    return figures
