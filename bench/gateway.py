"""A gateway next to a Kafka broker with its defaults: confluent-kafka writes and reads at both, in turns."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.broker import broker, with_confluent_kafka
from bench.figures import Figure, median
from bench.records import temporary_folder
from sparktxn._programs.gateway.gatewaysettings import parse_endpoint
from sparktxn.store import Store
from tests.gateway.gateways import encoded_request
from tests.gateway.requests import batch, produce_members

__all__ = ["measure"]

_ROUNDS: Final = int(os.environ.get("BENCH_GATEWAY_ROUNDS", "3"))
_CACHE: Final = Path(__file__).parents[1] / ".venv-peers" / "jars"
_ROOT: Final = Path(__file__).parents[1]
_CONNECTIONS: Final = 1_000
_CASES: Final[dict[str, list[tuple[str, float | None]]]] = {
    "large": [
        ("transactions of 10,000 records: written, of the broker's rate", 1.0),
        ("transactions of 10,000 records: read, of the broker's rate", 1.0),
    ],
    "small": [("transactions of 100 records, of the broker's rate", 0.5)],
    "clients": [("transactions of 100 records, 50 clients, of the broker's rate", 1.0)],
}


@contextmanager
def _gateway(store: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a gateway while the block runs; yield its address and its process."""
    command = [sys.executable, "-m", "sparktxn", "gateway", "-b", str(store), "-X", "store.fsync=true", "--json"]
    process = subprocess.Popen([*command, *options, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"], process
    finally:
        process.terminate()
        process.wait(60)


class _Driver:
    """The process that has confluent-kafka."""

    def __init__(self, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "bench.gateway_driver"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=_ROOT, env=environment, stdin=pipe, stdout=pipe, text=True)

    def run(self, case: str, servers: str) -> list[float]:
        """Run a case against one of the two."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(case, servers, file=self._process.stdin, flush=True)
        found: list[float] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)


def _in_turns(driver: _Driver, case: str, broker_: str, gateway: str) -> list[tuple[list[float], list[float]]]:
    """(broker's, gateway's) figures of each round."""
    return [(driver.run(case, broker_), driver.run(case, gateway)) for _ in range(_ROUNDS)]


def measure() -> Iterator[Figure]:
    """All figures of the gateway."""
    environment = with_confluent_kafka(_CACHE)
    with temporary_folder() as folder:
        for name in ("store", "stored"):
            with Store.open(f"{folder}/{name}", create=True) as store:
                store.create_topic("memory", 1)
        with (
            broker(Path(folder, "broker"), sys.executable, _CACHE, 1) as kafka,
            _gateway(Path(folder, "store")) as (address, process),
            _gateway(Path(folder, "stored"), "--store-transactions") as (storing, _),
        ):
            driver = _Driver(environment)
            yield from _figures(driver, kafka, address)
            yield from _stored(driver, kafka, storing)
            driver.close()
            yield from _memory(address, process.pid)


def _figures(driver: _Driver, kafka: str, address: str) -> Iterator[Figure]:
    for case, rows in _CASES.items():
        rounds = _in_turns(driver, case, kafka, address)
        for number, (name, target) in enumerate(rows):
            own = median([gateway[number] for _, gateway in rounds])
            ratio = median([gateway[number] / broker_[number] for broker_, gateway in rounds])
            yield Figure(name, ratio, "x", target)
            yield Figure(f"{name.partition(', of')[0]}", own, "/s")
    bulk = _in_turns(driver, "bulk", kafka, address)
    names = [f"{done}, {size} each" for size in ("100 bytes", "1 KB", "1 MB") for done in ("written", "read")]
    for number, name in enumerate(names):
        yield Figure(f"records without transactions: {name}", median([own[number] for _, own in bulk]), "MB/s", 100.0)
        yield Figure(f"the broker: {name}", median([other[number] for other, _ in bulk]), "MB/s")
    latency = _in_turns(driver, "latency", kafka, address)
    for number, (name, limit_ms) in enumerate((("median", 15.0), ("99th of 100", 60.0))):
        own = median([found[number] for _, found in latency])
        yield Figure(f"from production to reading: {name}", own, "ms", limit_ms, True)
        yield Figure(f"the broker: {name}", median([found[number] for found, _ in latency]), "ms")


def _stored(driver: _Driver, kafka: str, address: str) -> Iterator[Figure]:
    """Transactions whose records are stored before their commit."""
    for case, rows in _CASES.items():
        rounds = _in_turns(driver, case, kafka, address)
        for number, (name, _) in enumerate(rows):
            ratio = median([gateway[number] / broker_[number] for broker_, gateway in rounds])
            yield Figure(f"with --store-transactions: {name}", ratio, "x")


def _memory(address: str, pid: int) -> Iterator[Figure]:
    """The memory of a gateway to which 1,000 connections send 1 MB at once."""
    asyncio.run(_send_all(address))
    peak_kb = next(
        int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in line
    )
    yield Figure("memory, 1,000 connections that send 1 MB at once", peak_kb / 1e6, "GB", 1.0, True)


async def _send_all(address: str) -> None:
    frame = encoded_request(0, 9, 1, produce_members("memory", 0, batch([b"z" * 10_000] * 100)))
    endpoint = parse_endpoint("address", address)
    opened: list[Any] = [await asyncio.open_connection(*endpoint) for _ in range(_CONNECTIONS)]

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame)
        await writer.drain()
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        writer.close()

    await asyncio.gather(*(send(*streams) for streams in opened))
