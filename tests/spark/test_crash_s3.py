"""Exactly once on a real S3 server whose answers get lost, through the death of driver and JVM.

The answer to the put of an entry is dropped after the server has stored it, so the commit learns its fate by reading
back. What the store holds is fetched by bare requests and counted by a reader that has only `json` and `pyarrow`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from sparktxn.testing.faultproxy import FaultProxy, RequestFault
from tests.servers import S3Server
from tests.spark.drivers import Driver, committed_batches, fill, numbers
from tests.spark.objects import copy_objects

pytestmark = [pytest.mark.spark, pytest.mark.seaweedfs, pytest.mark.crash, pytest.mark.nightly]

BUCKET = "spark-crash"


class Scene:
    """A filled store on the server, and a driver that reaches it through the proxy."""

    def __init__(self, server: S3Server, proxy: FaultProxy, folder: Path) -> None:
        self.server, self.proxy, self.folder = server, proxy, folder
        server.create_bucket(BUCKET)
        newest = fill(f"s3://{BUCKET}/{folder.name}", server.options)
        # A run's first entry initialises the transactional id; the second run begins with micro-batch 2.
        self.entries = {0: newest + 2, 1: newest + 3, 2: newest + 5}
        self.driver = Driver(
            folder, f"s3a://{BUCKET}/{folder.name}", {**server.options, "storage.endpoint_url": proxy.endpoint_url}
        )

    def entry_path(self, batch_id: int) -> str:
        """Where the entry of a micro-batch is put."""
        return f"/{BUCKET}/{self.folder.name}/_log/{self.entries[batch_id]:020d}.json"

    def requests(self, batch_id: int) -> list[str]:
        """What was asked of a micro-batch's entry, up to now."""
        return [method for method, path in self.proxy.requests if path == self.entry_path(batch_id)]

    def copy(self, name: str) -> Path:
        """The store as it is now, on a local disk."""
        return copy_objects(self.server, BUCKET, self.folder.name, self.folder / name)


@pytest.fixture
def scene(seaweed_server: S3Server, tmp_path: Path) -> Iterator[Scene]:
    with FaultProxy(seaweed_server.endpoint_url) as proxy:
        yield Scene(seaweed_server, proxy, tmp_path)


def kill_when_put(scene: Scene, process: subprocess.Popen[bytes], batch_id: int) -> None:
    """Kills the driver as soon as the server holds the entry of the micro-batch."""
    deadline_s = time.monotonic() + 120
    try:
        while scene.server.request("GET", scene.entry_path(batch_id))[0] != 200:
            assert process.poll() is None, scene.driver.stderr()
            assert time.monotonic() < deadline_s, scene.driver.stderr()
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.kafka("K138")
def test_lost_answers_and_a_driver_killed_twice_write_each_row_once(scene: Scene) -> None:
    driver, proxy = scene.driver, scene.proxy
    proxy.inject(RequestFault.DROP_AFTER, method="PUT", path=scene.entry_path(0))
    proxy.inject(RequestFault.DROP_AFTER, method="PUT", path=scene.entry_path(1))
    assert driver.run(kill_at_commit=2) == -signal.SIGKILL, driver.stderr()
    assert committed_batches(scene.copy("first")) == {scene.entries[0]: 0, scene.entries[1]: 1}, "both are put, once"
    asked = scene.requests(0)
    assert "GET" in asked[asked.index("PUT") :], "the first commit learnt its fate by reading back"
    assert driver.knows(0), "and was acknowledged"
    assert not driver.knows(1), "of the second Spark does not know"

    proxy.inject(RequestFault.HANG_AFTER, method="PUT", path=scene.entry_path(2), times=100)
    kill_when_put(scene, driver.start(), batch_id=2)
    assert driver.knows(1), "the second one was recognised when it came again"
    assert committed_batches(scene.copy("second")) == {entry: batch_id for batch_id, entry in scene.entries.items()}
    assert not driver.knows(2), "this time the driver died while it waited for the answer"

    proxy.clear()
    assert driver.run() == 0, driver.stderr()
    assert "input rows 100" in driver.stdout(), "Spark ran the third micro-batch again"
    store = scene.copy("recovered")
    assert list(committed_batches(store).values()) == [0, 1, 2, 3], "and the log took it once"
    assert numbers(store, "even") == list(range(0, 200, 2))
    assert numbers(store, "odd") == list(range(1, 200, 2))
