"""Transactional producers that move between gateways, as clients do it, and what a reader must find of them.

A producer keeps its sequences over its transactions, as those of Kafka's classic protocol do. How it goes on after a
transaction that has failed is its `Manner`. A batch may be sent twice, and its answer may be lost.
"""

from __future__ import annotations

import asyncio
import enum
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from sparktxn._foundation.values.structs import ProducerIdAndEpoch
from sparktxn.errors import ErrorCode
from sparktxn.store import Store
from tests.gateway.gateways import Gateway, RawClient, gateway, raw_client
from tests.gateway.requests import add_partition, batch, end, init_producer, produce, read_all

TX = "mover"
TOPIC = "t"
PARTITIONS = 2
ELSEWHERE = {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
"""How older versions of requests learn that their transaction was opened elsewhere."""


class Manner(enum.Enum):
    """Which sequence comes after a transaction that has failed."""

    BUMPS = "an epoch of its own"  # Java's and librdkafka's
    GOES_ON = "after all that were sent"
    REUSES = "after all that were acknowledged"  # aiokafka's


class Site:
    """A gateway and a connection to it, both of which may be replaced."""

    def __init__(self, folder: Path, numbers: count[int]) -> None:
        self._folder = folder
        self._numbers = numbers
        self._stack = AsyncExitStack()
        self.client: RawClient

    async def start(self, *, stores: bool) -> None:
        """Serve the store, with a log of its own, with the option or without."""
        link = self._folder / f"log{next(self._numbers)}"
        await asyncio.to_thread(link.symlink_to, self._folder / "store", True)
        served: Gateway = await self._stack.enter_async_context(gateway(link, stores_transactions=stores))
        self.client = await self._stack.enter_async_context(raw_client(served))

    async def stop(self) -> None:
        """End the gateway; what it has in memory is lost."""
        await self._stack.aclose()


@asynccontextmanager
async def sites(folder: Path, *stores: bool) -> AsyncIterator[list[Site]]:
    """Serve a store of one topic at as many gateways as there are options."""
    with Store.open(str(folder / "store"), create=True, options={"store.fsync": "false"}) as store:
        store.create_topic(TOPIC, PARTITIONS)
    numbers = count()
    found = [Site(folder, numbers) for _ in stores]
    try:
        for site, each in zip(found, stores, strict=True):
            await site.start(stores=each)
        yield found
    finally:
        for site in found:
            await site.stop()


class Sent(NamedTuple):
    """A batch as it was sent."""

    partition: int
    records: bytes
    values: tuple[bytes, ...]


class Refused(Exception):
    """An answer that no client expects."""


class MovingProducer:
    """A client of one transactional id: its sequences, what it has committed, and its open transaction."""

    def __init__(self, manner: Manner) -> None:
        self.manner = manner
        self.identity: ProducerIdAndEpoch
        self.committed: dict[int, list[bytes]] = defaultdict(list)
        self.stored: list[Sent] = []
        """The batches of committed transactions, under the epoch that is current."""
        self._values = count()
        self._sequences: dict[int, int] = defaultdict(int)
        self._open: list[Sent] = []

    async def init(self, site: Site) -> None:
        """Initialise at a gateway."""
        self.identity = await init_producer(site.client, TX)

    async def begin(self, site: Site, *partitions: int) -> bool:
        """Begin a transaction; False if it has to be aborted."""
        self._open = []
        codes = [await add_partition(site.client, TX, self.identity, TOPIC, each) for each in partitions]
        return not self._is_elsewhere(max(codes))

    def make(self, partition: int, size: int) -> Sent:
        """Return the next batch for a partition."""
        values = tuple(b"%d" % next(self._values) for _ in range(size))
        records = batch(values, self.identity, self._sequences[partition], transactional=True)
        return Sent(partition, records, values)

    async def send(self, site: Site, sent: Sent) -> bool:
        """Send a batch for the first time, or again; False if the transaction has to be aborted."""
        answer = await produce(site.client, TOPIC, sent.partition, sent.records, transactional_id=TX)
        return not self._is_elsewhere(answer.error_code.value)

    def acknowledged(self, sent: Sent) -> None:
        """Note that a batch was acknowledged."""
        self._sequences[sent.partition] += len(sent.values)
        self._open.append(sent)

    def failed(self, sent: Sent) -> None:
        """Note that a batch was refused."""
        if self.manner is Manner.GOES_ON:
            self._sequences[sent.partition] += len(sent.values)

    async def commit(self, site: Site) -> bool:
        """Commit; False if the transaction has to be aborted."""
        if self._is_elsewhere(await end(site.client, TX, self.identity, committed=True)):
            return False
        for sent in self._open:
            self.committed[sent.partition] += sent.values
        self.stored += self._open
        return True

    async def abort(self, site: Site, *, failed: bool = False) -> None:
        """Abort, and go on in this producer's manner."""
        code = await end(site.client, TX, self.identity, committed=False)
        if code:
            raise Refused(f"abort: {ErrorCode(code).name}")
        if failed and self.manner is Manner.BUMPS:
            self.identity = await init_producer(site.client, TX, self.identity)
            self._sequences.clear()
            self.stored.clear()

    async def send_again(self, site: Site, sent: Sent) -> int:
        """Send a batch of a committed transaction again, as from a connection that was left; return the code."""
        answer = await produce(site.client, TOPIC, sent.partition, sent.records, transactional_id=TX)
        return int(answer.error_code.value)

    async def check(self, site: Site) -> None:
        """Check that a reader finds what was committed, once, in order."""
        for partition in range(PARTITIONS):
            found = await read_all(site.client, TOPIC, partition)
            assert found == self.committed[partition], (partition, found, self.committed[partition])

    @staticmethod
    def _is_elsewhere(code: int) -> bool:
        if code in ELSEWHERE:
            return True
        if code:
            raise Refused(ErrorCode(code).name)
        return False


async def random_history(folder: Path, seed: int, steps: int = 25) -> None:
    """Have a producer move between two gateways that are restarted, with and without the option.

    Raises:
        Refused, AssertionError: it was stopped, or a reader finds something else than it has committed.
    """
    random = Random(seed)
    producer = MovingProducer(random.choice(list(Manner)))
    async with sites(folder, random.random() < 0.5, random.random() < 0.5) as both:
        await producer.init(random.choice(both))
        failures = 0
        for _ in range(steps):
            if random.random() < 0.2:
                restarted = random.choice(both)
                await restarted.stop()
                await restarted.start(stores=random.random() < 0.5)
            failures = 0 if await _transaction(random, producer, both) else failures + 1
            assert failures < 20
        site = random.choice(both)
        assert await producer.begin(site, 0, 1), "after the last move each transaction is committed"
        for partition in range(PARTITIONS):
            sent = producer.make(partition, 1)
            assert await producer.send(site, sent)
            producer.acknowledged(sent)
        assert await producer.commit(site)
        await producer.check(site)


async def _transaction(random: Random, producer: MovingProducer, both: list[Site]) -> bool:
    """Run one transaction, at one gateway or at several; return whether it was committed."""
    site = random.choice(both)
    may_move = True
    if not await producer.begin(site, 0, 1):
        await producer.abort(site, failed=True)
        return False
    for _ in range(random.randrange(4)):
        if producer.stored and random.random() < 0.3:
            await producer.send_again(site, random.choice(producer.stored[-8:]))
        sent = producer.make(random.randrange(PARTITIONS), random.randint(1, 3))
        if random.random() < 0.2:  # its answer is lost
            await producer.send(site, sent)
        if may_move and random.random() < 0.15:
            site, may_move = random.choice(both), False
        if random.random() < 0.05:
            await site.stop()
            await site.start(stores=random.random() < 0.5)
        if not await producer.send(site, sent):
            producer.failed(sent)
            await producer.abort(site, failed=True)
            return False
        producer.acknowledged(sent)
    if may_move and random.random() < 0.15:
        site = random.choice(both)
    if random.random() < 0.3:
        await producer.abort(site)
        return False
    if await producer.commit(site):
        return True
    await producer.abort(site, failed=True)
    return False
