"""A Kafka broker of one node, on loopback: broker and controller in one process of Java, with its data in a folder."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
import urllib.error
import uuid
from pathlib import Path
from typing import Final, Self

from tests.interop.brokerjars import JARS
from tests.interop.kafkatools import fetch_jars, java

_READY_S: Final = 120
_JAVA: Final = ("-Xms256m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


class CannotStartError(Exception):
    """There is no Java, the jars cannot be had, or the broker does not become ready."""


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for found in (first, second):
            found.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


class Broker:
    """A broker; `address` is for clients."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._controller = _free_ports()
        self.address = f"127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start the broker, and wait until it listens.

        Raises:
            CannotStartError: it cannot be had here.
        """
        try:
            jars = fetch_jars(JARS)
            command = [java(), *_JAVA, "-cp", os.pathsep.join(map(str, jars))]
        except (OSError, urllib.error.URLError, AssertionError) as error:
            raise CannotStartError(str(error)) from error
        settings = self._folder / "server.properties"
        settings.write_text(_SETTINGS.format(port=self._port, controller=self._controller, folder=self._folder))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        made = subprocess.run(
            [*command, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(settings)],
            capture_output=True,
            text=True,
            timeout=_READY_S,
            check=False,
        )
        if made.returncode:
            raise CannotStartError(made.stdout[-500:] + made.stderr[-500:])
        log = self._folder / "broker.log"
        self._process = subprocess.Popen(
            [*command, "kafka.Kafka", str(settings)], stdout=log.open("wb"), stderr=subprocess.STDOUT
        )
        end = time.monotonic() + _READY_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise CannotStartError(f"the broker does not listen: {log.read_text()[-1000:]}")
            time.sleep(0.2)
        return self

    def stop(self) -> None:
        """End the process; calling twice is harmless."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return True
        except OSError:
            return False
