"""Kafka's own transactional copiers, of its system tests, behind gateways that are killed and paused.

They are Java's clients, so they speak version 2 of transactions (KIP-890). Their records themselves add partitions to a
transaction, and each transaction has an epoch of its own.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from sparktxn import Producer
from sparktxn.admin import AdminClient
from sparktxn.store import Store
from tests.crash.gateway_workload import GROUP, INPUT, OUTPUT, PARTITIONS, Gateways, committed_values
from tests.interop.gateway.javajars import STREAMS
from tests.interop.kafkatools import fetch_jars, java
from tests.seeds import seed_of

pytestmark = pytest.mark.interop

COPIERS: Final = ("copier-0", "copier-1")
JVM: Final = ("-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
TRANSACTIONS: Final = 200
RECORDS_EACH: Final = 200
ABORTED_EACH: Final = 5
COPIED_AT_ONCE: Final = 20
KILLS_MIN: Final = 5
TEST_S: Final = 600


@pytest.fixture(scope="module")
def class_path() -> str:
    try:
        return os.pathsep.join(map(str, fetch_jars(STREAMS)))
    except OSError as error:
        pytest.skip(f"Kafka's jars cannot be had here: {error}")


class Copier:
    """One copier, started again whenever it ends: a client's fatal error ends it, and so does the end of its input."""

    def __init__(self, class_path: str, addresses: list[str], transactional_id: str, folder: Path) -> None:
        self._command = [
            *(java(), *JVM, "-cp", class_path, "org.apache.kafka.tools.TransactionalMessageCopier"),
            *("--broker-list", ",".join(addresses), "--transactional-id", transactional_id),
            *("--input-topic", INPUT, "--input-partition", "-1", "--output-topic", OUTPUT),
            *("--consumer-group", GROUP, "--group-mode", "--use-group-metadata", "--enable-random-aborts"),
            *("--transaction-size", str(COPIED_AT_ONCE), "--transaction-timeout", "20000"),
        ]
        self._printed = folder / transactional_id
        self.lives = 0
        self._begin()

    def _begin(self) -> None:
        with self._printed.open("a") as printed:
            self._process = subprocess.Popen(self._command, stdout=printed, stderr=subprocess.STDOUT)
        self.lives += 1

    def keep_going(self) -> None:
        """Start it again if it has ended."""
        if self._process.poll() is not None:
            self._begin()

    def end(self) -> None:
        """Kill it: what it has open is left to a time-out."""
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """Return the end of what it has printed."""
        return self._printed.read_text()[-2000:]


def fill(uri: str) -> None:
    """Write numbered records in transactions, of which each fifth is aborted."""
    with Producer({"bootstrap.servers": uri, "transactional.id": "writer"}) as producer:
        producer.init_transactions()
        for transaction in range(TRANSACTIONS):
            producer.begin_transaction()
            for record in range(RECORDS_EACH):
                producer.produce(INPUT, f"{transaction}/{record}", partition=record % PARTITIONS)
            if transaction % ABORTED_EACH:
                producer.commit_transaction()
            else:
                producer.abort_transaction()


async def strike_until(gateways: Gateways, copiers: list[Copier], uri: str, seed: int) -> int:
    """Kill and pause gateways while the copiers work, until all is copied; return how many were killed."""
    draw = random.Random(seed)
    kills, end_s = 0, time.monotonic() + TEST_S
    wanted = len_of(uri, INPUT)
    while len_of(uri, OUTPUT) < wanted:
        assert time.monotonic() < end_s, [copier.said() for copier in copiers]
        for copier in copiers:
            copier.keep_going()
        await asyncio.sleep(draw.uniform(0.2, 2))
        number = draw.randrange(len(gateways.addresses))
        await gateways.listening(number)
        if draw.random() < 0.75:
            gateways.signal(number, signal.SIGKILL)
            kills += 1
        else:
            gateways.signal(number, signal.SIGSTOP)
            await asyncio.sleep(draw.uniform(0.2, 4))
            gateways.signal(number, signal.SIGCONT)
    return kills


def len_of(uri: str, topic: str) -> int:
    """Return how many records of a topic are committed."""
    return sum(map(len, committed_values(uri, {}, topic)))


def test_copiers_copy_each_record_once_when_gateways_are_killed(class_path: str, tmp_path: Path) -> None:
    uri, seed = str(tmp_path / "store"), seed_of("copiers and gateways", 1)
    with Store.open(uri, create=True) as store:
        for topic in (INPUT, OUTPUT):
            store.create_topic(topic, PARTITIONS)
    fill(uri)
    gateways = Gateways(uri, {}, 3)
    copiers = [Copier(class_path, gateways.addresses, name, tmp_path) for name in COPIERS]
    try:
        kills = asyncio.run(strike_until(gateways, copiers, uri, seed))
    finally:
        for copier in copiers:
            copier.end()
        gateways.close()
    found = AdminClient({"bootstrap.servers": uri}).describe_transactions(COPIERS)
    epochs = [found[name].result().producer_epoch for name in COPIERS]
    print(f"seed {seed}: {kills} kills, {[copier.lives for copier in copiers]} lives, epochs {epochs}")
    assert kills >= KILLS_MIN
    assert max(epochs) > kills + sum(copier.lives for copier in copiers), "each transaction has an epoch of its own"
    assert committed_values(uri, {}, OUTPUT) == committed_values(uri, {}, INPUT)
