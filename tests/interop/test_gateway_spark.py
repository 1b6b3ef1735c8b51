"""Spark's own connector for Kafka on gateways: `format("kafka")`, both ways, in peace and under kills."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import pytest

from sparktxn import Producer
from sparktxn.store import Store
from tests.crash.gateway_workload import INPUT, OUTPUT, PARTITIONS, Blows, Gateways, committed_values, strike
from tests.interop.conftest import environment
from tests.interop.gateway.javajars import SPARK
from tests.interop.gateway.serving import Gateway
from tests.interop.kafkatools import fetch_jars
from tests.interop.peers import run
from tests.seeds import seed_of

pytestmark = pytest.mark.interop

PROGRAMS: Final = Path(__file__).parent / "programs"
STREAMS: Final = {"topic", "files"}
LIVES: Final = 3
BATCH_S: Final = 180
ABORTED_EACH: Final = 4


@pytest.fixture(scope="module")
def python() -> Path:
    return environment("delta-spark-test")


@pytest.fixture(scope="module")
def jars() -> str:
    try:
        return ",".join(map(str, fetch_jars(SPARK)))
    except OSError as error:
        pytest.skip(f"Spark's connector for Kafka cannot be had here: {error}")


def test_a_batch_and_a_stream_are_written_and_read(python: Path, jars: str, tmp_path: Path) -> None:
    program = str(PROGRAMS / "spark_kafka.py")
    with Gateway(tmp_path, partition_count=2) as served:
        printed = run(python, [program, served.address, jars, str(tmp_path)], PYSPARK_PYTHON=str(python))
    found = json.loads(printed.splitlines()[-1])
    assert found == {"written": list(range(100)), "streamed": list(range(100))}


class Spark:
    """A driver with both streams, in a session of its own: its JVM is killed with it."""

    def __init__(self, python: Path, jars: str, addresses: list[str], folder: Path, life: int) -> None:
        self._printed = folder / f"printed-{life}"
        self._errors = folder / f"errors-{life}"
        command = [str(python), str(PROGRAMS / "spark_kafka_streams.py"), ",".join(addresses), jars, str(folder)]
        environment_ = {**os.environ, "PYSPARK_PYTHON": str(python)}
        with self._printed.open("w") as printed, self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdout=printed, stderr=errors, env=environment_, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def batches(self) -> Counter[str]:
        """Return how many batches of each stream have ended."""
        lines = self._printed.read_text().splitlines()
        return Counter(json.loads(line)[0] for line in lines if line.endswith("]") and line.startswith('["'))

    def goes_on(self) -> None:
        """Return once each stream has ended two more batches: the second of them has begun since."""
        before, end_s = self.batches(), time.monotonic() + BATCH_S
        while any(self.batches()[name] < before[name] + 2 for name in STREAMS):
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < end_s, f"no batch in {BATCH_S} s: {self.said()}"
            time.sleep(0.1)

    def said(self) -> str:
        """Return the end of its standard error."""
        return self._errors.read_text()[-3000:]

    def result(self) -> Any:
        """Return what it prints at its end."""
        assert self._process.wait(BATCH_S) == 0, self.said()
        return json.loads(self._printed.read_text().splitlines()[-1])


@contextmanager
def written(uri: str) -> Iterator[list[int]]:
    """Write numbered records in transactions until the block ends; the list has those that are committed."""
    committed: list[int] = []
    ending = threading.Event()

    def write() -> None:
        number = 0
        with Producer({"bootstrap.servers": uri, "transactional.id": "writer"}) as producer:
            producer.init_transactions()
            while not ending.wait(0.05):
                values = range(5 * number, 5 * number + 5)
                producer.begin_transaction()
                for value in values:
                    producer.produce(INPUT, str(value), partition=value % PARTITIONS)
                if number % ABORTED_EACH:
                    producer.commit_transaction()
                    committed.extend(values)
                else:
                    producer.abort_transaction()
                number += 1

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            yield committed
        finally:
            ending.set()
        writing.result()


def test_streams_lose_nothing_when_gateways_and_spark_are_killed(python: Path, jars: str, tmp_path: Path) -> None:
    """A topic gets each record at least once, as Spark says of its sink; files get it once, by their checkpoint."""
    uri, seed = str(tmp_path / "store"), seed_of("spark and gateways", 1)
    with Store.open(uri, create=True) as store:
        for topic in (INPUT, OUTPUT):
            store.create_topic(topic, PARTITIONS)
    gateways = Gateways(uri, {}, 3)
    try:
        with written(uri) as committed:
            for life in range(LIVES - 1):
                with Spark(python, jars, gateways.addresses, tmp_path, life) as spark:
                    spark.goes_on()
                    blows = Blows(kills=5, pauses=1, gap_s=0.5)
                    asyncio.run(strike(gateways, blows, seed + life, lambda: spark.batches().total()))
                    spark.goes_on()
        (tmp_path / "end").touch()
        with Spark(python, jars, gateways.addresses, tmp_path, LIVES) as spark:
            in_files = spark.result()
    finally:
        gateways.close()
    copied = Counter(int(value) for values in committed_values(uri, {}, OUTPUT) for value in values)
    print(f"seed {seed}: {len(committed)} records, {copied.total() - len(copied)} of them copied again")
    assert in_files == committed
    assert sorted(copied) == committed
