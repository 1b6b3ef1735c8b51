"""Many processes on one S3-like log: what they commit together in virtual time, with intents and without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import pytest
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Append, CreateTopic, InitProducerId
from sparktxn._engine.format.segment import checksum
from sparktxn._engine.log.write.committer import Alongside
from sparktxn._engine.log.write.intents import Intents
from sparktxn._engine.objectstore.contract import ObjectInfo, PutOutcome
from tests.producercommands import ProducerCommands
from tests.seeds import examples
from tests.simulation.simulator import FaultRates, Process, Simulator
from tests.world import open_log

WRITERS = 16
SECONDS = examples(4, 10)
UPLOAD_S, PUT_S, GET_S, LIST_S = 0.030, 0.030, 0.012, 0.015


class DistantObjects:
    """The simulation's objects as a process far from them sees them: each request takes its time, side by side."""

    probe_is_cheap = False

    def __init__(self, process: Process) -> None:
        self._process = process
        self._inner = process.simulator.shared
        self.uri = self._inner.uri

    def _takes(self, seconds: float) -> None:
        self._process.sleep(seconds * self._process.random.uniform(0.25, 0.75))

    def get(self, name: str) -> bytes | None:
        self._takes(GET_S)
        found = self._inner.get(name)
        self._takes(GET_S)
        return found

    def get_many(self, names: Sequence[str]) -> list[bytes | None]:
        if not names:
            return []
        self._takes(GET_S)
        found = self._inner.get_many(names)
        self._takes(GET_S)
        return found

    def put_if_absent(self, name: str, data: bytes, *, timeout_s: float | None = None) -> PutOutcome:
        self._takes(PUT_S)
        outcome = self._inner.put_if_absent(name, data)
        self._takes(PUT_S)
        return outcome

    def put(self, name: str, data: bytes) -> None:
        self._takes(PUT_S)
        self._inner.put(name, data)
        self._takes(PUT_S)

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        self._takes(LIST_S)
        found = self._inner.list(prefix, after)
        self._takes(LIST_S)
        return found

    def list_names(self, folder: str, after: str = "") -> Sequence[str]:
        self._takes(LIST_S)
        found = self._inner.list_names(folder, after)
        self._takes(LIST_S)
        return found

    def delete(self, names: Iterable[str]) -> None:
        # The product deletes in the background, which does not hold its caller up.
        self._inner.delete(names)

    def make_durable(self, name: str) -> None: ...

    def contention_lock(self, while_waiting: object = None) -> AbstractContextManager[None]:
        return self._inner.contention_lock()

    def close(self) -> None: ...


def carrying(append: Append, token: str) -> Append:
    data = b"x" * 4_096
    return replace(
        append, segment=names.inline_segment(token), size_bytes=len(data), checksum=checksum(data), data=data
    )


def committed(writers: int, seed: int, *, producers: int = 1, inline: bool = False) -> tuple[float, float]:
    """(commits per second, 99th percentile of a commit's seconds) of so many processes that never rest.

    The producers of a process commit together. With `inline` their entry carries 4 kB of each, else each uploads.
    """
    simulator = Simulator(seed, rates=FaultRates({}), steps_max=1_000_000)
    latencies: list[float] = []

    def program(number: int, process: Process) -> None:
        objects = DistantObjects(process)
        log = open_log(
            objects,  # type: ignore[arg-type]
            process.clock,
            process.ids,
            background=process.background,
            checkpoint_entries=100_000,
        )
        if number == 0:
            log.submit([CreateTopic("topic", "topic", writers * producers)])
        process.sleep(5.0)
        numbers = range(number * producers, (number + 1) * producers)
        told = log.submit([InitProducerId(f"init-{each}", f"job-{each}") for each in numbers])
        own = [ProducerCommands.of(f"job-{each}", result) for each, result in zip(numbers, told, strict=True)]
        process.sleep(starts_s - (simulator.now_s - began_s))
        transaction = 0
        while simulator.now_s - began_s < ends_s:
            started_s = simulator.now_s
            if not inline:
                process.sleep(UPLOAD_S)
            transaction += 1
            tickets = []
            for each, producer in zip(numbers, own, strict=True):
                append = producer.append((1, each), transaction - 1, transaction=transaction)
                append = carrying(append, process.ids.token()) if inline else append
                tickets.append(log.send([append, producer.end(transaction)]))
            for ticket in tickets:
                ticket.wait()
                if started_s - began_s >= measured_s:
                    latencies.append(simulator.now_s - started_s)

    began_s = simulator.now_s
    starts_s, measured_s, ends_s = 30.0, 33.0, 33.0 + SECONDS
    for number in range(writers):
        simulator.add(f"writer {number}", lambda process, number=number: program(number, process))  # type: ignore[misc]
    simulator.run()
    latencies.sort()
    return len(latencies) / SECONDS, latencies[int(0.99 * len(latencies))]


@pytest.mark.holes(34)
def test_sixteen_writers_commit_several_times_as_much_with_intents_as_by_trying_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, _ = committed(1, seed=1)
    combined, combined_p99_s = committed(WRITERS, seed=1)
    monkeypatch.setattr(Intents, "leave", lambda *_: False)
    monkeypatch.setattr(Intents, "waiting", lambda *_: [])
    monkeypatch.setattr(Alongside, "wait_for_turn", lambda *_: None)
    retried, retried_p99_s = committed(WRITERS, seed=1)
    print(
        f"one {one:.0f}/s, {combined:.0f}/s p99 {combined_p99_s:.2f} s, retried {retried:.0f}/s {retried_p99_s:.2f} s"
    )
    assert combined > 2.5 * retried
    assert combined > 5 * one
    assert combined_p99_s < 1.0


@pytest.mark.nightly
def test_small_transactions_of_many_producers_share_entries() -> None:
    """A lone writer waits for an entry and what confirms it, and 64 producers in 8 processes for a few more.

    However many producers a process has, they wait for the same requests.
    """
    uploading, _ = committed(1, seed=1)
    one, _ = committed(1, seed=1, inline=True)
    many, many_p99_s = committed(8, seed=1, producers=8, inline=True)
    twice, twice_p99_s = committed(8, seed=1, producers=16, inline=True)
    print(f"one {uploading:.0f}/s with uploads, {one:.0f}/s inline")
    print(f"in 8 processes: 64 {many:.0f}/s p99 {many_p99_s:.2f} s, 128 {twice:.0f}/s p99 {twice_p99_s:.2f} s")
    assert one > 1.3 * uploading
    assert many > 15 * one
    assert twice > 1.8 * many
    assert max(many_p99_s, twice_p99_s) < 0.25
