"""A Kafka broker on loopback, for benchmarks that compare with one: its jars come from Maven Central, once."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["KAFKA", "broker", "poll_rates", "with_confluent_kafka"]

KAFKA: Final = "4.1.0"
_ROOT: Final = Path(__file__).parents[1]
_READY_S: Final = 120.0
_SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
_FETCH: Final = """\
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder.config("spark.jars.packages", sys.argv[1]).config("spark.jars.ivy", sys.argv[2]).getOrCreate()
"""


def _class_path(python: str, cache: Path) -> str:
    """The broker's jars, fetched by Spark's own resolver, and the Scala library, which Spark has.

    Raises:
        OSError: they cannot be fetched.
    """
    jars = cache / "broker"
    if not list(jars.glob("jars/*kafka_2.13*")):
        fetched = subprocess.run(
            [python, "-c", _FETCH, f"org.apache.kafka:kafka_2.13:{KAFKA}", str(jars)], capture_output=True, text=True
        )
        if fetched.returncode:
            raise OSError(f"the jars of Kafka {KAFKA} cannot be fetched:\n{fetched.stderr[-2_000:]}")
    home = subprocess.run([python, "-c", "import pyspark; print(pyspark.__path__[0])"], capture_output=True, text=True)
    (scala,) = Path(home.stdout.strip(), "jars").glob("scala-library-*.jar")
    return f"{jars}/jars/*:{scala}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def broker(folder: Path, python: str, cache: Path, partitions: int) -> Iterator[str]:
    """Run a broker while the block runs; yield its address.

    Args:
        folder: where its log and settings are.
        python: a Python with pyspark, whose resolver fetches the jars into `cache`.
        cache: where the jars stay.
        partitions: those of topics that it makes by itself.

    Raises:
        OSError: there is no Java, the jars cannot be fetched, or the broker does not answer.
    """
    java = shutil.which("java")
    if java is None:
        raise OSError("there is no java on the PATH")
    class_path = _class_path(python, cache)
    folder.mkdir(parents=True)
    port = _free_port()
    settings = folder / "server.properties"
    settings.write_text(
        _SETTINGS.format(port=port, controller=_free_port(), folder=folder, partitions=partitions), encoding="ascii"
    )
    command = [java, "-Xmx1g", "-cp", class_path]
    cluster_id = "A" * 22
    subprocess.run(
        [*command, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings)],
        check=True,
        capture_output=True,
    )
    with (folder / "broker.log").open("wb") as output:
        process = subprocess.Popen([*command, "kafka.Kafka", str(settings)], stdout=output, stderr=output)
    try:
        _wait_ready(process, port)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def with_confluent_kafka(cache: Path) -> dict[str, str]:
    """Return the environment of a process that finds confluent-kafka, which is fetched into `cache` once.

    Raises:
        OSError: it cannot be had.
    """
    packages = cache / "confluent-kafka"
    if not packages.exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages), "confluent-kafka"]
        installed = subprocess.run(install, capture_output=True, text=True)
        if installed.returncode:
            raise OSError(f"confluent-kafka cannot be installed: {installed.stderr[-1_000:]}")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(_ROOT)])}


def poll_rates(folder: Path, cache: Path, rows: int, rounds: int) -> list[float]:
    """Return what confluent-kafka's `poll()` reads in a second of a broker's transactions of 100, in several rounds.

    Raises:
        OSError: the broker or confluent-kafka cannot be had, or what it ran has failed.
    """
    environment = with_confluent_kafka(cache)
    with broker(folder, sys.executable, cache, 1) as address:
        command = [sys.executable, "-m", "bench.kafka_driver", address, str(rows), str(rounds)]
        driver = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True)
    if driver.returncode:
        raise OSError(f"the driver of confluent-kafka has failed: {driver.stderr[-2_000:]}")
    found: list[float] = json.loads(driver.stdout.splitlines()[-1])
    return found


def _wait_ready(process: subprocess.Popen[bytes], port: int) -> None:
    waits_until = time.monotonic() + _READY_S
    while time.monotonic() < waits_until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise OSError(f"the broker does not answer on port {port}: exit code {process.poll()}")
