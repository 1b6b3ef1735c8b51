"""Kafka's clients behind gateways that are killed and paused: the answers they got are held against the store.

Writers number their records, some in transactions. Copiers read committed records, and write them to another topic in
transactions that commit their offsets, too. The clients are aiokafka's: they find another gateway by themselves.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from sparktxn import Consumer
from sparktxn import TopicPartition as NativePartition
from sparktxn._programs.gateway.gatewayserver import serve
from sparktxn._programs.gateway.gatewaysettings import GatewaySettings
from sparktxn.store import Store
from tests.servers import HOST, free_ports

INPUT, OUTPUT, GROUP = "input", "output", "copiers"
PARTITIONS = 2
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["sparktxn._programs.gateway.gatewayserver", "tests.crash.gateway_workload"])
CLIENT_ERRORS = (KafkaError, OSError, asyncio.TimeoutError, AssertionError, ValueError, KeyError)
CALL_S = 20.0
START_S = 120.0
STUCK_S = 600.0
BLOWS_AT_ONCE = 0.25


def _serve(uri: str, options: dict[str, str], port: int, peers: str, stores: bool) -> None:
    settings = GatewaySettings(stores_transactions=stores)
    with Store.open(uri, options=options, create=True) as store:
        serve(store, f"{HOST}:{port}", peers=peers, settings=settings, on_start=lambda *_: None)


class Gateways:
    """Processes of gateways, each at a port of its own that it keeps; those that are `storing` store transactions."""

    def __init__(self, uri: str, options: dict[str, str], count: int, storing: Collection[int] = ()) -> None:
        self._storing = frozenset(storing)
        self._uri = uri
        self._options = options
        self._ports = free_ports(count)
        self.addresses = [f"{HOST}:{port}" for port in self._ports]
        self._processes: list[Any] = [self._started(number) for number in range(count)]

    def _started(self, number: int) -> Any:
        stores = number in self._storing
        arguments = (self._uri, self._options, self._ports[number], ",".join(self.addresses), stores)
        process = FORKED.Process(target=_serve, args=arguments)
        process.start()
        return process

    async def listening(self, number: int) -> None:
        """Return once a gateway takes clients: a blow to one that is still starting would show nothing."""
        async with asyncio.timeout(START_S):
            while True:
                exit_code = self._processes[number].exitcode
                assert exit_code is None, f"a gateway has ended by itself, with {exit_code}"
                with suppress(OSError):
                    _, writer = await asyncio.open_connection(HOST, self._ports[number])
                    writer.close()
                    return
                await asyncio.sleep(0.02)

    def signal(self, number: int, signal_number: int) -> None:
        """Send a signal to one; after SIGKILL another one takes its port."""
        process = self._processes[number]
        os.kill(process.pid, signal_number)
        if signal_number == signal.SIGKILL:
            process.join()
            self._processes[number] = self._started(number)

    def end(self, number: int, signal_number: int) -> None:
        """End one by a signal, and wait until it has ended."""
        process = self._processes[number]
        os.kill(process.pid, signal_number)
        process.join()
        assert process.exitcode in (0, -signal_number), f"a gateway has ended with {process.exitcode}"

    def start(self, number: int) -> None:
        """Start one that has ended, at its port."""
        self._processes[number] = self._started(number)

    def pid(self, number: int) -> int | None:
        """Return the process of one."""
        return self._processes[number].pid

    def close(self) -> None:
        """End them all."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(30)
            assert process.exitcode == 0, f"a gateway has ended with {process.exitcode}"


@dataclass
class Told:
    """The answers that clients got: values by outcome, and the values of each transaction."""

    stored: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    transactions: list[list[bytes]] = field(default_factory=list)
    copies: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def done(self) -> int:
        """Return how much clients have done."""
        return len(self.stored) + self.copies

    def note(self, error: BaseException) -> None:
        """Count an error that a client has raised."""
        self.errors[type(error).__name__] += 1


class Workload:
    """The clients of one run."""

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        self.addresses = list(addresses)
        self.told = Told()
        self.ending = False
        self._seed = seed

    async def _with_clients(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work` again and again; a client that has failed is given up by it."""
        while not self.ending:
            try:
                await work()
            except CLIENT_ERRORS as error:
                self.told.note(error)
                await asyncio.sleep(0.1)

    async def write(self, name: str) -> None:
        """Write numbered records outside transactions, each batch once the one before it is answered.

        Each producer has a name: what one was not answered may be stored after records of the next one.
        """
        number = 0
        producers = count()

        async def work() -> None:
            nonlocal number
            author = f"{name}.{next(producers)}".encode()
            producer = AIOKafkaProducer(
                bootstrap_servers=self.addresses, enable_idempotence=True, request_timeout_ms=5_000
            )
            async with asyncio.timeout(CALL_S):
                await producer.start()
            try:
                while not self.ending:
                    values = [b"%s/%06d" % (author, number + place) for place in range(5)]
                    number += len(values)
                    async with asyncio.timeout(CALL_S):
                        sent = [
                            await producer.send(INPUT, value, partition=place % PARTITIONS)
                            for place, value in enumerate(values)
                        ]
                        for value, outcome in zip(values, sent, strict=True):
                            await outcome
                            self.told.stored.add(value)
            finally:
                await _stopped(producer)

        await self._with_clients(work)

    async def write_transactions(self, name: str) -> None:
        """Write transactions over all partitions, some of which are aborted."""
        number = 0
        draw = random.Random(f"{self._seed}/{name}")

        async def work() -> None:
            nonlocal number
            producer = AIOKafkaProducer(
                bootstrap_servers=self.addresses, transactional_id=name, request_timeout_ms=5_000
            )
            async with asyncio.timeout(CALL_S):
                await producer.start()
            try:
                while not self.ending:
                    values = [b"%s/%06d" % (name.encode(), number + place) for place in range(4)]
                    number += len(values)
                    self.told.transactions.append(values)
                    async with asyncio.timeout(CALL_S):
                        await producer.begin_transaction()
                        sent = [
                            await producer.send(INPUT, value, partition=place % PARTITIONS)
                            for place, value in enumerate(values)
                        ]
                        await _all_taken(sent)
                        if draw.random() < 0.2:
                            await producer.abort_transaction()
                            self.told.refused.update(values)
                        else:
                            await producer.commit_transaction()
                            self.told.stored.update(values)
            finally:
                await _stopped(producer)

        await self._with_clients(work)

    async def copy(self, number: int) -> None:
        """Copy each committed record of a partition to the same one of another topic, exactly once.

        The transactional id belongs to the partition: aiokafka's transactions name no member of a group (KIP-447).
        """
        name = f"copier-{number}"

        async def work() -> None:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.addresses,
                group_id=GROUP,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                request_timeout_ms=5_000,
            )
            producer = AIOKafkaProducer(
                bootstrap_servers=self.addresses, transactional_id=name, request_timeout_ms=5_000
            )
            try:
                async with asyncio.timeout(CALL_S):
                    # First: what an earlier one has left open is aborted, and its offsets with it.
                    await producer.start()
                    await consumer.start()
                consumer.assign([TopicPartition(INPUT, number)])
                while not self.ending:
                    async with asyncio.timeout(CALL_S):
                        await self._copy_once(consumer, producer)
            finally:
                await _stopped(consumer)
                await _stopped(producer)

        await self._with_clients(work)

    async def _copy_once(self, consumer: Any, producer: Any) -> None:
        found = await consumer.getmany(timeout_ms=200, max_records=50)
        if not found:
            return
        await producer.begin_transaction()
        sent = [
            await producer.send(OUTPUT, message.value, partition=partition.partition)
            for partition, messages in found.items()
            for message in messages
        ]
        await _all_taken(sent)
        ends = {partition: messages[-1].offset + 1 for partition, messages in found.items()}
        await producer.send_offsets_to_transaction(ends, GROUP)
        await producer.commit_transaction()
        self.told.copies += sum(map(len, found.values()))


async def _all_taken(sent: list[Awaitable[Any]]) -> None:
    """Raise the error of a record that was not taken: aiokafka commits without those that it has given up."""
    for outcome in sent:
        await outcome


async def _stopped(client: Any) -> None:
    with suppress(*CLIENT_ERRORS, asyncio.CancelledError):
        async with asyncio.timeout(5):
            await client.stop()


def committed_values(uri: str, options: dict[str, str], topic: str, count: int = PARTITIONS) -> list[list[bytes]]:
    """Return the committed values of each of `count` partitions, in order, as a native consumer reads them."""
    consumer = Consumer({**options, "bootstrap.servers": uri, "group.id": "checker"})
    partitions: list[list[bytes]] = [[] for _ in range(count)]
    try:
        consumer.assign([NativePartition(topic, number, 0) for number in range(count)])
        ends = [consumer.get_watermark_offsets(NativePartition(topic, number))[1] for number in range(count)]
        while any(
            position.offset < ends[position.partition]
            for position in consumer.position([NativePartition(topic, number) for number in range(count)])
        ):
            for message in consumer.consume(1_000, 0.5):
                assert message.error() is None
                number, value = message.partition(), message.value()
                assert number is not None
                assert value is not None
                partitions[number].append(value)
    finally:
        consumer.close()
    return partitions


def check(told: Told, written: list[list[bytes]], copied: list[list[bytes]] | None = None) -> list[str]:
    """Return what the store contradicts of the answers, or of the order in which they wrote."""
    wrong = []
    counts = Counter(value for values in written for value in values)
    wrong += [f"{value!r} was stored {count} times" for value, count in counts.items() if count > 1]
    wrong += [f"{value!r} was acknowledged, and is not there" for value in told.stored if value not in counts]
    wrong += [f"{value!r} was aborted, and is there" for value in told.refused if value in counts]
    for values in told.transactions:
        if len({value in counts for value in values}) > 1:
            wrong.append(f"a part of transaction {values} is there")
    for values in written:
        by_writer: dict[bytes, list[bytes]] = {}
        for value in values:
            by_writer.setdefault(value.partition(b"/")[0], []).append(value)
        moved = [writer for writer, own in by_writer.items() if own != sorted(own)]
        wrong += [f"the records of {writer!r} changed places" for writer in moved]
    if copied is not None:
        for number, (source, copies) in enumerate(zip(written, copied, strict=True)):
            if source != copies:
                missing, more = Counter(source) - Counter(copies), Counter(copies) - Counter(source)
                wrong.append(f"partition {number}: {missing} not copied, {more} too often, or in other order")
    return wrong


@dataclass(frozen=True)
class Blows:
    """What the gateways suffer."""

    kills: int
    pauses: int
    gap_s: float
    pause_s: float = 1.0


async def strike(gateways: Gateways, blows: Blows, seed: int, done: Callable[[], int]) -> None:
    """Kill and pause gateways that serve, at random moments: most once clients have `done` more, some at once."""
    draw = random.Random(seed)
    all_ = ["kill"] * blows.kills + ["pause"] * blows.pauses
    draw.shuffle(all_)
    before = -1
    for blow in all_:
        if draw.random() >= BLOWS_AT_ONCE:
            await _gone_on(done, before)
        await asyncio.sleep(draw.uniform(0, 2 * blows.gap_s))
        number = draw.randrange(len(gateways.addresses))
        await gateways.listening(number)
        if blow == "kill":
            gateways.signal(number, signal.SIGKILL)
        else:
            gateways.signal(number, signal.SIGSTOP)
            await asyncio.sleep(draw.uniform(0, 2 * blows.pause_s))
            gateways.signal(number, signal.SIGCONT)
        before = done()


async def _gone_on(done: Callable[[], int], before: int) -> None:
    try:
        async with asyncio.timeout(STUCK_S):
            while done() <= before:
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"no client has done anything for {STUCK_S} s") from None


async def run(gateways: Gateways, blows: Blows, seed: int, drained: Callable[[], bool], drain_s: float) -> Told:
    """Run the clients under blows; then let the copiers come to the end, as `drained` says."""
    workload = Workload(gateways.addresses, seed)
    writers = [asyncio.create_task(workload.write(f"w{number}")) for number in range(2)]
    writers += [asyncio.create_task(workload.write_transactions(f"t{number}")) for number in range(2)]
    draining = Workload(gateways.addresses, seed)
    draining.told = workload.told
    copiers = [asyncio.create_task(draining.copy(number)) for number in range(PARTITIONS)]
    await strike(gateways, blows, seed, workload.told.done)
    await asyncio.sleep(1)
    workload.ending = True
    await asyncio.gather(*writers)
    async with asyncio.timeout(drain_s):
        while not await asyncio.to_thread(drained):
            await asyncio.sleep(0.5)
    draining.ending = True
    await asyncio.gather(*copiers)
    return workload.told
