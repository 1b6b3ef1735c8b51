"""Spark Declarative Pipelines: the example, run as its users do, and what its sink shows of each run."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc")  # of pyspark[pipelines]

from sparktxn import Producer, Store
from sparktxn.admin import AdminClient
from sparktxn.tables import read_arrow
from tests.spark.clusters import PATHS, ROOT, SPARK_HOME, finished

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


class Pipeline:
    """The example in a folder of its own, whose store has the topics."""

    def __init__(self, folder: Path, store: Store) -> None:
        shutil.copytree(ROOT / "examples" / "pipeline", folder / "pipeline")
        self._spec = folder / "pipeline" / "spark-pipeline.yaml"
        self._spec.write_text(self._spec.read_text().replace("/tmp/txnlog-pipeline", str(folder)))
        self._settings = {
            "spark.ui.enabled": "false",
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        self.flow = folder / "storage" / "_checkpoints" / "large_orders" / "choose_large_orders"
        self.store = store
        for topic in ("orders", "large_orders"):
            store.create_topic(topic, 1)

    def order(self, *amounts: int) -> None:
        """Add orders."""
        producer = Producer({"bootstrap.servers": self.store.uri})
        for amount in amounts:
            producer.produce("orders", value=str(amount))
        producer.flush()
        producer.close()

    def run(self, *flags: str) -> None:
        """Update the pipeline."""
        settings = [part for name, value in self._settings.items() for part in ("--conf", f"{name}={value}")]
        command = [os.path.join(SPARK_HOME, "bin", "spark-pipelines"), "--remote", "local[2]", *settings]
        environment = {
            **os.environ,
            "PYTHONPATH": PATHS,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TXNLOG_STORE": self.store.uri,
        }
        done = finished([*command, "run", "--spec", str(self._spec), *flags], environment, 400)
        assert done.code == 0, done.stdout + done.stderr[-6000:]

    def written(self) -> list[int]:
        """The amounts that the sink holds."""
        return [int(value) for value in read_arrow(self.store, "large_orders").read_all()["value"].to_pylist()]

    def writers(self) -> set[str]:
        """The transactional ids of sinks."""
        listed = AdminClient({"bootstrap.servers": self.store.uri}).list_transactions().result()
        return {found.transactional_id for found in listed if found.transactional_id.startswith("spark-")}


def test_a_pipeline_writes_each_row_once_until_it_is_refreshed_in_full(tmp_path: Path, store: Store) -> None:
    pipeline = Pipeline(tmp_path, store)
    pipeline.order(250, 30, 100)
    pipeline.run()
    assert pipeline.written() == [250, 100]
    [writer] = pipeline.writers()
    assert writer.removeprefix("spark-") in (pipeline.flow / "0" / "metadata").read_text()

    # As if the driver had died after the commit in the store, and before Spark's own note of it.
    for name in ("0", ".0.crc"):
        (pipeline.flow / "0" / "commits" / name).unlink()
    pipeline.order(700, 99)
    pipeline.run()
    assert pipeline.written() == [250, 100, 700]
    assert pipeline.writers() == {writer}

    pipeline.run("--full-refresh-all")
    assert pipeline.written() == [250, 100, 700, 250, 100, 700]
    assert len(pipeline.writers()) == 2
    assert (pipeline.flow / "1" / "metadata").exists()


AUTO_CDC = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

{target}

@dp.temporary_view
def changes():
    return SparkSession.active().readStream.format("rate").load().selectExpr("value id", "'n' name", "value seq")

dp.create_auto_cdc_flow(target="customers", source="changes", keys=["id"], sequence_by="seq")
"""


@pytest.mark.parametrize(
    ("target", "refusal"),
    [
        ('dp.create_streaming_table("customers", format="txnlog")', "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE"),
        ('dp.create_sink("customers", "txnlog", {"path": "x", "topic": "customers"})', "Unsupported destination type"),
    ],
)
def test_spark_refuses_a_topic_as_the_target_of_an_auto_cdc_flow(tmp_path: Path, target: str, refusal: str) -> None:
    (tmp_path / "changes.py").write_text(AUTO_CDC.replace("{target}", target))
    spec = tmp_path / "spark-pipeline.yaml"
    spec.write_text(f"name: c\nstorage: file://{tmp_path}/storage\nlibraries:\n  - glob:\n      include: changes.py\n")
    command = [os.path.join(SPARK_HOME, "bin", "spark-pipelines"), "--remote", "local[2]", "run", "--spec", str(spec)]
    settings = {"PYTHONPATH": PATHS, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = finished(command, {**os.environ, **settings}, 400)
    assert done.code != 0
    assert refusal in done.stdout + done.stderr
