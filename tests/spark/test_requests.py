"""How many requests a micro-batch makes to S3: each of them waits for the network, and so does the query."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from pyspark_txnlog import sparkinternals
from pyspark_txnlog.connecting import storehandles
from pyspark_txnlog.options.options import WRITE_STREAM, WriteOptions
from pyspark_txnlog.writing import batch_writer
from pyspark_txnlog.writing.stream_writer import StagedMicroBatch, TxnLogStreamWriter
from sparktxn import Store
from sparktxn._engine.format import names
from sparktxn.testing.faultproxy import FaultProxy
from tests.servers import S3Server

BUCKET: Final = "spark-requests"
VALUE: Final = StructType().add("value", "binary")
PARTITIONS: Final = 3


def shown(request: tuple[str, str]) -> str:
    return unquote(" ".join(request))


class Driver:
    """The two Python workers of a driver: one plans, one commits, and each has handles of its own."""

    def __init__(self, address: str, options: dict[str, str], proxy: FaultProxy, patch: pytest.MonkeyPatch) -> None:
        self.options = WriteOptions.parse({"path": address, "topic": "t", **options}, WRITE_STREAM)
        self.proxy = proxy
        self.patch = patch
        self.handles: dict[str, OrderedDict[object, Store]] = {"plan": OrderedDict(), "commit": OrderedDict()}

    def worker(self, name: str) -> None:
        self.patch.setattr(storehandles, "_stores", self.handles[name])
        modules = {"plan": sparkinternals.PLANNING_WORKER, "commit": sparkinternals.COMMITTING_WORKER}
        for module in modules.values():
            self.patch.delitem(sys.modules, module, raising=False)
        self.patch.setitem(sys.modules, modules[name], ModuleType(modules[name]))

    def run(self, batch_id: int) -> tuple[list[str], list[str], list[str]]:
        """One micro-batch; the requests for planning it, for its rows, and after its tasks."""
        self.worker("plan")
        planned = self._counted()
        writers = [TxnLogStreamWriter(self.options, VALUE) for _ in range(2)]
        requests_to_plan = planned()
        staged = self._counted()
        rows = pa.record_batch({"value": pa.array([b"%d" % number for number in range(30)], pa.binary())})
        assert writers[1]._plan is not None
        segments = batch_writer.stage_rows(writers[1]._plan, "t", iter([rows]), inline=True)
        requests_for_rows = staged()
        assert len(segments) == PARTITIONS
        self.worker("commit")
        committed = self._counted()
        message = StagedMicroBatch(segments, "query", "run", batch_id)
        TxnLogStreamWriter(self.options, VALUE).commit([message], batch_id)
        return requests_to_plan, requests_for_rows, committed()

    def _counted(self) -> Callable[[], list[str]]:
        """Return what counts the requests from here on, but for the listing of intents.

        That one is made by the share of time that it takes, so a machine's load decides in which micro-batch it is.
        """
        before = len(self.proxy.requests)
        return lambda: [
            text for request in self.proxy.requests[before:] if names.INTENTS not in (text := shown(request))
        ]

    def close(self) -> None:
        for handles in self.handles.values():
            for store in handles.values():
                store.close()


@pytest.fixture
def driver(moto_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Driver]:
    moto_server.create_bucket(BUCKET)
    with FaultProxy(moto_server.endpoint_url) as proxy:
        options = {**moto_server.options, "storage.endpoint_url": proxy.endpoint_url}
        with Store.open(f"s3://{BUCKET}/{request.param}", options=options, create=True) as store:
            store.create_topic("t", PARTITIONS, settings={"append.inline.bytes": request.param})
        made = Driver(f"s3://{BUCKET}/{request.param}", options, proxy, monkeypatch)
        yield made
        made.close()


@pytest.mark.moto
@pytest.mark.parametrize(
    ("driver", "uploads"), [("0", PARTITIONS), ("16384", 0)], indirect=["driver"], ids=["files", "inline"]
)
def test_a_micro_batch_makes_few_requests(driver: Driver, uploads: int) -> None:
    driver.run(0)
    for batch_id in (1, 2):
        # As if the trigger were slow: nothing is known any more from the micro-batch before.
        (store,) = driver.handles["plan"].values()
        store.log._follower.refreshed_s -= 10
        planning, rows, commit = driver.run(batch_id)
        assert len(planning) <= 2, planning
        assert len(rows) == uploads, rows
        assert len(commit) <= 4, commit
    planning, _, commit = driver.run(3)
    assert planning == [], "a fast trigger plans from what the micro-batch before has read"
    assert len(commit) <= 4, commit


def test_knowledge_that_leads_to_an_error_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storehandles, "_stores", OrderedDict())
    address = str(tmp_path / "store")
    with Store.open(address, create=True) as other:
        other.create_topic("first")
        options = WriteOptions.parse({"path": address, "topic": "first"}, WRITE_STREAM)
        TxnLogStreamWriter(options, VALUE)
        other.create_topic("t")
        later = WriteOptions.parse({"path": address, "topic": "t"}, WRITE_STREAM)
        plan = TxnLogStreamWriter(later, VALUE)._plan
        assert plan is not None
        assert list(plan.topics) == ["t"]
