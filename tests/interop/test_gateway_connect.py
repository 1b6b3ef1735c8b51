"""Kafka Connect with Debezium for PostgreSQL at gateways with users: each change once, whatever is killed.

A task that has lost its transaction with a gateway is started again, as an operator does.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from sparktxn import Consumer, KafkaError
from sparktxn._foundation.process.clock import RandomIds
from sparktxn._programs.gateway.security.users import user_lines
from tests.commandline import txnlog
from tests.gateway.processes import new_store
from tests.interop.gateway.connect import CannotStartError, Postgres, Worker
from tests.servers import HOST, free_ports

pytestmark = pytest.mark.interop

TABLE: Final = "public.orders"
TOPIC: Final = f"shop.{TABLE}"
SNAPSHOT: Final = 1_000
ROUNDS: Final = 4
INSERTED: Final = 500
CHANGED: Final = 50
"""In each round so many rows are updated, and so many others deleted."""
PROGRESS_S: Final = 240
"""So long may it take after a kill until all changes before it are there."""
_LOST: Final = "TransactionAbortableException"
"""Why a task fails that has a transaction open at a gateway that is killed; it does not begin again by itself."""
CONNECTOR: Final = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": "1",
    "exactly.once.support": "required",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "filtered",
    "topic.prefix": "shop",
    "table.include.list": TABLE,
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "2",
    "database.hostname": HOST,
    "database.user": "postgres",
    "database.password": "none",
    "database.dbname": "postgres",
    "errors.retry.timeout": "-1",
}


class Gateways:
    """Two gateways with `--peers` and users, each at a port that it keeps over a kill."""

    def __init__(self, store: str, users: Path) -> None:
        self.addresses = [f"{HOST}:{port}" for port in free_ports(2)]
        self._words = ("--store", store, "--sasl-users", str(users), "--peers", ",".join(self.addresses))
        self._log = (users.parent / "gateways.log").open("ab")
        self._running = [self._started(address) for address in self.addresses]

    def _started(self, address: str) -> subprocess.Popen[bytes]:
        command = [*txnlog(), "gateway", *self._words, "--listen", address]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)

    def kill(self, number: int) -> None:
        """Kill one with SIGKILL, and start it again."""
        self._running[number].kill()
        self._running[number].wait()
        self._running[number] = self._started(self.addresses[number])

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._log.close()


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    try:
        started = Postgres()
    except CannotStartError as error:
        pytest.skip(f"no PostgreSQL can be had here: {error}")
    yield started
    started.close()


def known(address: str, password: str) -> dict[str, str]:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{login} required username="connect" password="{password}";',
    }


class Changes:
    """What a reader of the store finds in the topic: each change with its row, in order for each key."""

    def __init__(self, store: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": store, "group.id": "reader", "auto.offset.reset": "earliest"})
        self._consumer.subscribe([TOPIC])
        self.found: list[tuple[int, str, str | None]] = []

    def read(self, seconds: float) -> None:
        for message in self._consumer.consume(1_000, timeout=seconds):
            error = message.error()
            if error is not None:  # until Connect has created the topic
                assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            change = None if value is None else json.loads(value)
            row = (change["after"] or {}).get("name") if change else None
            self.found.append((json.loads(key)["id"], change["op"] if change else "tombstone", row))

    def read_until(self, wanted: int, worker: Worker) -> None:
        end_s = time.monotonic() + PROGRESS_S
        while len(self.found) < wanted:
            for reason in worker.failed_tasks("shop"):
                assert _LOST in reason, reason
                worker.restart_failed_tasks("shop")
            assert time.monotonic() < end_s, f"{len(self.found)} of {wanted}: {worker.said()}"
            self.read(1)

    def close(self) -> None:
        self._consumer.close()


def expected_changes() -> Counter[tuple[int, str, str | None]]:
    """Each row of the snapshot, and of each round those that are inserted, updated and deleted."""
    found: Counter[tuple[int, str, str | None]] = Counter((n, "r", "new") for n in range(SNAPSHOT))
    for number in range(ROUNDS):
        first = SNAPSHOT + number * INSERTED
        found.update((n, "c", "new") for n in range(first, first + INSERTED))
        found.update((n, "u", f"round {number}") for n in range(number * CHANGED, (number + 1) * CHANGED))
        gone = range(SNAPSHOT - (number + 1) * CHANGED, SNAPSHOT - number * CHANGED)
        found.update((n, kind, None) for n in gone for kind in ("d", "tombstone"))
    return found


def change_rows(postgres: Postgres, number: int) -> None:
    first, changed, gone = SNAPSHOT + number * INSERTED, number * CHANGED, SNAPSHOT - (number + 1) * CHANGED
    for start in range(first, first + INSERTED, CHANGED):
        postgres.sql(f"INSERT INTO orders SELECT n, 'new' FROM generate_series({start}, {start + CHANGED - 1}) n")
    postgres.sql(
        f"UPDATE orders SET name = 'round {number}' WHERE id BETWEEN {changed} AND {changed + CHANGED - 1}",
        f"DELETE FROM orders WHERE id BETWEEN {gone} AND {gone + CHANGED - 1}",
    )


def test_debezium_brings_each_change_once_when_gateways_and_the_worker_are_killed(
    postgres: Postgres, tmp_path: Path
) -> None:
    store, password = new_store(tmp_path), "the secret of connect"
    users = tmp_path / "users"
    users.write_text("\n".join(user_lines("connect", password, RandomIds())) + "\n")
    users.chmod(0o600)
    postgres.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, name text)",
        f"INSERT INTO orders SELECT n, 'new' FROM generate_series(0, {SNAPSHOT - 1}) n",
    )
    with ExitStack() as stack:
        gateways = Gateways(store, users)
        stack.callback(gateways.close)
        try:
            worker = Worker(tmp_path, known(",".join(gateways.addresses), password))
        except CannotStartError as error:
            pytest.skip(str(error))
        stack.callback(worker.close)
        worker.put("shop", {**CONNECTOR, "database.port": str(postgres.port)})
        changes = Changes(store)
        stack.callback(changes.close)
        wanted = SNAPSHOT
        changes.read_until(wanted, worker)
        blows: list[Callable[[], Any]] = [lambda: gateways.kill(0), worker.kill, lambda: gateways.kill(1), lambda: None]
        for number, blow in enumerate(blows):
            change_rows(postgres, number)
            blow()
            wanted += INSERTED + 3 * CHANGED
            changes.read_until(wanted, worker)
        changes.read(5)
    assert Counter(changes.found) == expected_changes()
    for key in range(SNAPSHOT - ROUNDS * CHANGED, SNAPSHOT):
        assert [kind for found, kind, _ in changes.found if found == key] == ["r", "d", "tombstone"]
    assert password not in (tmp_path / "worker.log").read_text()
