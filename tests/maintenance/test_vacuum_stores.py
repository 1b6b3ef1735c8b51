"""The vacuum on a local disk, on S3 and on emulators of other clouds, under real producers and consumers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktxn import Consumer, Producer, TopicPartition
from sparktxn.admin import AdminClient
from sparktxn.maintenance import VacuumReport, vacuum
from sparktxn.store import Store, read_task
from tests.servers import ObjectServer

EVERYTHING = {"vacuum.retention.ms": 0, "vacuum.segment.age.ms": 0, "vacuum.temporary.age.ms": 3_600_000}
OPTIONS = {"store.fsync": "false", "checkpoint.entries": "4", "checkpoint.seal.segments": "2"}
TIMEOUT_MS = 3_000
"""Long enough for a transaction on a busy machine, and short enough to wait for."""


class Shop:
    """A topic of two partitions, with transactions that commit and abort, and records deleted from its beginning."""

    def __init__(self, uri: str, options: dict[str, Any]) -> None:
        self.settings = {"bootstrap.servers": uri, **options}
        self.store = Store.open(uri, options=options, create=True)
        self.store.create_topic("orders", 2)
        self.expected: list[bytes] = []

    def trade(self, transactions: int, **more: Any) -> None:
        settings = {**self.settings, "transactional.id": "shop"}
        with Producer({**settings, **more}) as producer:
            producer.init_transactions()
            for number in range(transactions):
                producer.begin_transaction()
                value = b"%d" % (len(self.expected) + number)
                for partition in range(2):
                    producer.produce("orders", value, partition=partition)
                if number % 3 == 2:
                    producer.flush()
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    self.expected.append(value)

    def read(self) -> list[list[bytes]]:
        """All values of each partition, by an engine's plan."""
        view = self.store.view(["orders"])
        found: list[list[bytes]] = [[], []]
        for task in self.store.plan(view, self.store.ranges(view)):
            for batch in read_task(task, self.store.options):
                found[task.partition] += batch.column("value").to_pylist()
        return found

    def vacuum(self) -> VacuumReport:
        self.store.log.checkpoint()
        return vacuum(self.store, EVERYTHING)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(str(tmp_path / "shop"), OPTIONS)
    yield shop
    shop.store.close()


def live_through_vacuums(shop: Shop, *, rounds: int) -> None:
    consumer = Consumer({**shop.settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    consumed: list[bytes | None] = []
    with consumer:
        for number in range(rounds):
            shop.trade(6, **{"store.append.inline.bytes": 16_384 if number % 2 else 0})
            consumed += [message.value() for message in consumer.consume(4, 10.0)]
            assert shop.vacuum().horizon > 1
            assert shop.read() == [shop.expected, shop.expected]
        assert consumed == shop.expected
        assert consumer.poll(0.1) is None


def delete_what_was_read(shop: Shop) -> None:
    with AdminClient(shop.settings) as admin:
        admin.delete_records([TopicPartition("orders", 0, 10)])[TopicPartition("orders", 0)].result()
        left = shop.read()[0]
        assert 0 < len(left) < len(shop.expected)
        begin_s, traded, segments = time.monotonic(), 0, 0
        while not segments and time.monotonic() < begin_s + 120:
            shop.trade(6, **{"store.append.inline.bytes": 0, "transaction.timeout.ms": TIMEOUT_MS})
            traded += 4
            # The floor keeps what is younger than twice the longest transaction may take, by the store's clock.
            time.sleep(TIMEOUT_MS / 1_000)
            segments += shop.vacuum().segments
        assert segments > 0
        assert shop.read() == [left + shop.expected[-traded:], shop.expected]


def test_clients_live_through_vacuums_on_a_local_disk(shop: Shop, tmp_path: Path) -> None:
    live_through_vacuums(shop, rounds=4)
    delete_what_was_read(shop)
    runs = [Path(folder) for folder, below, files in os.walk(tmp_path) if not below and not files]
    assert [folder for folder in runs if folder.name.count("-") > 1 or folder.parent.name == "_checkpoints"] == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("moto_server", marks=[pytest.mark.moto, pytest.mark.nightly]),
        pytest.param("fake_gcs_server", marks=pytest.mark.clouds),
        pytest.param("azurite_server", marks=pytest.mark.clouds),
    ],
)
def test_clients_live_through_vacuums_on_a_server(request: pytest.FixtureRequest, name: str) -> None:
    server: ObjectServer = request.getfixturevalue(name)
    server.create_bucket("vacuum")
    shop = Shop(server.uri("vacuum", "shop"), OPTIONS | server.options)
    live_through_vacuums(shop, rounds=2)
    shop.store.close()


def test_temporary_files_of_killed_writers_go_once_they_are_old(shop: Shop, tmp_path: Path) -> None:
    shop.trade(6, **{"store.append.inline.bytes": 0})
    folder = tmp_path / "shop" / "topics" / "orders-1" / "kafka_partition=0"
    old, young, foreign = (folder / name for name in (f".{'a' * 20}-7", f".{'b' * 20}-8", ".nfs0001"))
    for file in (old, young, foreign):
        file.write_bytes(b"half a segm")
    for file in (old, foreign):
        os.utime(file, (time.time() - 7_200, time.time() - 7_200))
    assert vacuum(shop.store, EVERYTHING, dry_run=True).temporary_files == 1
    assert old.exists()
    assert shop.vacuum().temporary_files == 1
    assert (old.exists(), young.exists(), foreign.exists()) == (False, True, True)
    assert shop.read() == [shop.expected, shop.expected]
