"""Starts the workers of `chaos_workload.py`, kills and pauses them as one seed says, and collects evidence."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType, TracebackType
from typing import Any, Final, NamedTuple, Self

from sparktxn import Consumer, Store, TopicPartition
from sparktxn._foundation.values.structs import TransactionState, TransactionStatus
from sparktxn.store import read_task
from sparktxn.testing.faultproxy import FaultProxy, RequestFault
from tests.crash.chaos_workload import (
    FENCED,
    GROUP,
    INPUTS,
    OUTPUT,
    PROGRESS,
    STARTS_AGAIN,
    Task,
    progress_of,
)
from tests.crash.journal_checker import Evidence, notes_of
from tests.crash.worker_forker import WorkerForker

__all__ = ["ChaosRun", "NetworkFaults", "Plan", "Report", "stopped"]

_ENDS_WITHIN_S: Final = 300.0
"""A machine with other work takes minutes for what takes seconds on a quiet one."""


class Plan(NamedTuple):
    """What is done to the workers. A gap is the time from one blow to the next.

    `others` are roles more, by their numbers of workers, in the place of the vacuumer. `topics` are topics more, with
    their settings. So many kills of ten are of a writer.
    """

    kills: int
    pauses: int
    writers: int
    gap_max_s: float
    timeout_ms: int = 1_000
    others: Mapping[str, int] = MappingProxyType({})
    topics: Mapping[str, tuple[int, dict[str, str]]] = MappingProxyType({})
    kills_of_writers: int = 7


class Report(NamedTuple):
    """What came of it."""

    seed: int
    kills: int
    pauses: int
    deaths: Counter[str]
    notes: Counter[str]
    seconds: float
    requests: int = 0

    def __str__(self) -> str:
        deaths = ", ".join(f"{count} {name}" for name, count in sorted(self.deaths.items()))
        notes = ", ".join(f"{count} {what}" for what, count in sorted(self.notes.items()))
        return (
            f"seed {self.seed}: {self.kills} kills, {self.pauses} pauses in {self.seconds:.1f} s, "
            f"{self.requests} requests; ends of processes: {deaths}; notes: {notes}"
        )


class NetworkFaults:
    """Faults at random between the workers and a server, from entering to leaving the context."""

    _FAULTS: Final = (
        *(
            RequestFault.DROP_AFTER,
            RequestFault.DROP_AFTER,
            RequestFault.UNAVAILABLE_BEFORE,
            RequestFault.UNAVAILABLE_AFTER,
        ),
        *(
            RequestFault.DROP_AFTER,
            RequestFault.UNAVAILABLE_AFTER,
            RequestFault.CONFLICT_BEFORE,
            RequestFault.DELAY,
            RequestFault.DELAY,
            RequestFault.HANG_AFTER,
        ),
    )

    def __init__(self, proxy: FaultProxy, seed: int, create_method: str = "PUT") -> None:
        self._proxy = proxy
        self._create_method = create_method
        self._random = Random(f"weather/{seed}")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._blow, daemon=True)
        self.requests = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _blow(self) -> None:
        while not self._over.wait(self._random.uniform(0.05, 0.4)):
            self.requests += len(self._proxy.requests)
            self._proxy.clear()
            fault = self._random.choice(self._FAULTS)
            reads = fault in (RequestFault.UNAVAILABLE_BEFORE, RequestFault.DELAY) and self._random.random() < 0.3
            path = self._random.choice(("/_log/", "/_log/", "/topics/"))
            times = self._random.choice((1, 1, 2))
            method = "GET" if reads else self._create_method
            self._proxy.inject(fault, method=method, path=path, times=times, delay_s=self._random.uniform(0.05, 0.5))
        self.requests += len(self._proxy.requests)
        self._proxy.clear()


class _Wake(NamedTuple):
    """When a paused writer goes on: its time-out has passed, and the log has another state of its transactional id."""

    at_s: float
    pid: int
    name: str
    before: TransactionState | None


class _Worker:
    """The newest process of one worker."""

    def __init__(self, role: str, name: str) -> None:
        self.role, self.name = role, name
        self.incarnation = -1
        self.pid = 0
        self.paused = False
        self.done = False


def stopped(pid: int) -> bool:
    """Pause all threads of a process: one may be in a call of the disk, and ends it first. False if it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    while True:
        states = _states_of_threads(pid)
        if states.get(pid, "Z") in "ZX":
            return False
        if set(states.values()) <= set("Tt"):
            return True
        time.sleep(0.001)


def _states_of_threads(pid: int) -> dict[int, str]:
    states = {}
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            states[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()[0]
    return states


class ChaosRun:
    """One store's trial: `run`, then `evidence`."""

    def __init__(self, folder: Path, uri: str, options: dict[str, Any], seed: int, plan: Plan) -> None:
        self._folder, self._uri, self._options = folder, uri, options
        self._seed, self._plan = seed, plan
        self._random = Random(f"blows/{seed}")
        names = [("writer", f"writer-{number}") for number in range(plan.writers)]
        names += [("transformer", "transformer-0"), ("viewer", "viewer-0")]
        names += [("sweeper", "sweeper-0")]
        for role, count in (plan.others or {"vacuumer": 1}).items():
            names += [(role, f"{role}-{number}") for number in range(count)]
        self._workers = [_Worker(role, name) for role, name in names]
        self._killed: set[int] = set()
        self._wakes: list[_Wake] = []
        self._replaced: dict[int, str] = {}
        self._deaths: Counter[str] = Counter()
        folder.mkdir(parents=True, exist_ok=True)

    def run(
        self, workers_options: dict[str, Any], weather: AbstractContextManager[NetworkFaults | None] | None = None
    ) -> Report:
        """Starts all workers, strikes as planned, and lets them end in peace. `workers_options` reach the store too."""
        began_s = time.monotonic()
        self._workers_options = workers_options
        self._create_topics()
        kills = pauses = 0
        blows = ["kill"] * self._plan.kills + ["replace", "outlast"] * (self._plan.pauses // 2)
        blows += ["replace"] * (self._plan.pauses % 2)
        self._random.shuffle(blows)
        with (
            WorkerForker(remote="://" in self._uri) as self._forker,
            Store.open(self._uri, options=self._options) as self._store,
        ):
            with weather or nullcontext() as blowing:
                for worker in self._workers:
                    self._start(worker)
                for blow in blows:
                    self._live(self._random.uniform(0.0, self._plan.gap_max_s))
                    victim = self._victim(blow)
                    if blow == "kill":
                        self._killed.add(victim.pid)
                        os.kill(victim.pid, signal.SIGKILL)
                        kills += 1
                        continue
                    self._until(partial(self._paused, victim, blow), f"pause {victim.name}")
                    pauses += 1
                    at_s = time.monotonic() + 2 * self._plan.timeout_ms / 1000
                    self._wakes.append(_Wake(at_s, victim.pid, victim.name, self._transaction(victim.name)))
                    if blow == "replace":
                        self._replaced[victim.pid] = victim.name
                        self._start(victim)
                    else:
                        victim.paused = True  # until its successor starts
                self._until(lambda: not self._wakes and not self._replaced, "end all pauses")
            others = tuple(dict.fromkeys(worker.role for worker in self._workers))[2:]
            for roles in (("writer",), ("transformer",), others):
                for role in roles:
                    (self._folder / f"stop-{role}").touch()
                self._until(partial(self._done, roles), f"end {roles}")
        notes = Counter(note["what"] for notes in notes_of(self._folder).values() for note in notes)
        requests = blowing.requests if blowing is not None else 0
        seconds = time.monotonic() - began_s
        return Report(self._seed, kills, pauses, self._deaths, notes, seconds, requests)

    def _create_topics(self) -> None:
        with Store.open(self._uri, options=self._options, create=True) as store:
            for topic, count in {**INPUTS, OUTPUT: INPUTS["orders"], PROGRESS: self._plan.writers}.items():
                arrow = {"segment.format": "arrow"} if self._random.random() < 0.5 else {}
                store.create_topic(topic, count, settings=arrow)
            for topic, (count, settings) in self._plan.topics.items():
                store.create_topic(topic, count, settings=settings)

    def _paused(self, victim: _Worker, blow: str) -> bool:
        """Pause a writer: one that is to outlast its time-out only while it has a transaction open in the log."""
        if blow == "outlast" and not self._is_open(victim):
            return False
        if not stopped(victim.pid):  # it was coming to its own end: its successor is struck
            return False
        if blow == "replace" or self._is_open(victim):
            return True
        os.kill(victim.pid, signal.SIGCONT)
        return False

    def _transaction(self, name: str) -> TransactionState | None:
        with self._store.log.within(_ENDS_WITHIN_S):
            self._store.log.refresh()
        return self._store.log.transaction(name)

    def _is_open(self, writer: _Worker) -> bool:
        state = self._transaction(writer.name)
        return state is not None and state.status is TransactionStatus.ONGOING

    def _victim(self, blow: str) -> _Worker:
        """Return the worker to strike: writers mostly, and only they are paused."""
        ready = [worker for worker in self._workers if not worker.paused and not worker.done]
        writers = [worker for worker in ready if worker.role == "writer"]
        others = [worker for worker in ready if worker.role != "writer"]
        if writers and (blow != "kill" or not others or self._random.random() * 10 < self._plan.kills_of_writers):
            return self._random.choice(writers)
        assert others, "everybody is paused: plan fewer pauses, or longer gaps"
        return self._random.choice(others)

    def _start(self, worker: _Worker) -> None:
        worker.incarnation += 1
        worker.paused = False
        worker.pid = self._forker.start(
            Task(
                worker.role,
                worker.name,
                worker.incarnation,
                self._uri,
                self._workers_options,
                str(self._folder),
                self._seed,
                self._plan.timeout_ms,
            )
        )

    def _live(self, seconds: float) -> None:
        """Let the time pass: wake the writers that are due, and start again the workers that have ended."""
        until_s = time.monotonic() + seconds
        while True:
            for wake in [wake for wake in self._wakes if wake.at_s <= time.monotonic()]:
                if self._transaction(wake.name) != wake.before:
                    self._wakes.remove(wake)
                    os.kill(wake.pid, signal.SIGCONT)
            self._start_again()
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, 0.01))

    def _start_again(self) -> None:
        for pid, code in self._forker.ended().items():
            by_pid = {worker.pid: worker for worker in self._workers}
            worker = by_pid.get(pid)
            replaced = self._replaced.pop(pid, None)
            expected = {0: "at peace", FENCED: "fenced", STARTS_AGAIN: "to start again", -signal.SIGKILL: "killed"}
            if code not in expected or (code == -signal.SIGKILL and pid not in self._killed):
                raise AssertionError(f"{worker.name if worker else replaced} ended with {code}:\n{self._outputs()}")
            self._deaths[f"replaced and {expected[code]}" if replaced else expected[code]] += 1
            if worker is not None:
                worker.done = code == 0
                if not worker.done:
                    self._start(worker)

    def _until(self, done: Callable[[], bool], what: str) -> None:
        gives_up_s = time.monotonic() + _ENDS_WITHIN_S
        while not done():
            assert time.monotonic() < gives_up_s, f"it takes too long to {what}:\n{self._outputs()}"
            self._live(0.01)

    def _done(self, roles: tuple[str, ...]) -> bool:
        return all(worker.done for worker in self._workers if worker.role in roles)

    def _outputs(self) -> str:
        written = [(path.name, path.read_text()[-3000:]) for path in sorted(self._folder.glob("*.output"))]
        return "\n".join(f"--- {name}\n{text}" for name, text in written if text)

    def evidence(self) -> Evidence:
        """What the store holds now, and all notes."""
        records: dict[tuple[str, int], list[tuple[int, dict[str, Any]]]] = {}
        entries: dict[tuple[str, int, int], int] = {}
        with Store.open(self._uri, options=self._options) as store:
            view = store.view([*INPUTS, OUTPUT])
            for partition in view.partitions.values():
                assert partition.last_stable_offset == partition.log_end_offset, "a transaction is left open"
            for task in store.plan(view, store.ranges(view), columns=["offset", "value", "entry"]):
                found = records.setdefault((task.topic, task.partition), [])
                for batch in read_task(task, self._options):
                    for row in batch.to_pylist():
                        found.append((row["offset"], json.loads(row["value"])))
                        entries[task.topic, task.partition, row["offset"]] = row["entry"]
        progress = {
            worker.name: self._offset(progress_of(worker.name), PROGRESS, int(worker.name.rsplit("-", 1)[1]))
            for worker in self._workers
            if worker.role == "writer"
        }
        consumed = {number: self._offset(GROUP, "orders", number) for number in range(INPUTS["orders"])}
        return Evidence(records, entries, progress, consumed, notes_of(self._folder))

    def _offset(self, group: str, topic: str, partition: int) -> int:
        settings = {"bootstrap.servers": self._uri, **self._options, "group.id": group}
        with Consumer(settings) as consumer:
            return max(0, int(consumer.committed([TopicPartition(topic, partition)], 10)[0].offset))
