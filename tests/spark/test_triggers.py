"""Each trigger's progress."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark_txnlog import ProgressListener
from sparktxn import Store, metrics
from sparktxn.metrics.families import STREAM_FAMILIES
from tests.spark.readers import commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def topic(store: Store) -> Store:
    store.create_topic("t", 2)
    return store


@pytest.mark.spark
def test_each_trigger_reports_its_progress(spark: SparkSession, topic: Store, tmp_path: Path) -> None:
    listener = ProgressListener(prometheus_file=tmp_path / "spark.prom")
    spark.streams.addListener(listener)
    try:
        for number in range(3):
            commit(topic, range(10 * number, 10 * number + 10))
        source = spark.readStream.format("txnlog").option("subscribe", "t").option("startingOffsets", "earliest")
        frame = source.option("maxOffsetsPerTrigger", 10).load(topic.uri)

        def run(**trigger: Any) -> list[Any]:
            writer = frame.writeStream.format("noop").queryName("reading")
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**trigger).start()
            if "processingTime" in trigger:
                query.processAllAvailable()
                query.stop()
            query.awaitTermination(120)
            return [each for each in query.recentProgress if each.numInputRows]

        available = [json.loads(each.sources[0].latestOffset) for each in run(availableNow=True)]
        assert [found["backlogRows"] for found in available] == [20, 10, 0]
        assert [found["backlogTransactions"] for found in available] == [2, 1, 0]
        assert [found["batchTransactions"] for found in available] == [1, 1, 1]
        commit(topic, range(30, 45))
        commit(topic, range(45, 50))
        (once,) = run(once=True)
        report = json.loads(once.sources[0].latestOffset)
        assert (once.numInputRows, report["batchTransactions"], report["backlogRows"]) == (20, 2, 0)
        commit(topic, range(50, 55))
        (timed,) = run(processingTime="0 seconds")
        assert (timed.numInputRows, json.loads(timed.sources[0].endOffset)["entry"]) == (5, topic.view().entry)
        # Listeners get events in the background: those of the runs before come first.
        deadline_s = time.monotonic() + 60
        while [(each["batch_rows"], each["running"]) for each in listener.gauges().values()] != [(5, 0)]:
            assert time.monotonic() < deadline_s, listener.gauges()
            time.sleep(0.05)
        (gauges,) = listener.gauges().values()
        assert (gauges["batch_rows"], gauges["entry"], gauges["backlog_rows"]) == (5, topic.view().entry, 0)
        text = (tmp_path / "spark.prom").read_text()
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
        assert names == [*STREAM_FAMILIES, *metrics.FAMILIES]
        assert 'txnlog_stream_running{query_id="' in text
        # The driver has followed the log of this store.
        (gets,) = re.findall(r'^txnlog_client_requests_total\{request="get"\} ([0-9]+)$', text, re.MULTILINE)
        assert int(gets) > 0
    finally:
        spark.streams.removeListener(listener)
