"""Spark finds ``txnlog`` by itself, and `register` serves where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.functions import spark_partition_id

import pyspark_txnlog
from tests.spark.readers import commit

ROOT = Path(__file__).parents[2]


def test_importing_the_package_imports_neither_the_engine_nor_arrow() -> None:
    program = "import pyspark_txnlog, sys; print(*(name in sys.modules for name in ('sparktxn', 'pyarrow')))"
    paths = f"{ROOT}{os.pathsep}{ROOT / 'scala-free-python-datasource'}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.spark
def test_register_makes_the_source_known(spark, store, numbers) -> None:
    pyspark_txnlog.register(spark)
    store.create_topic("t")
    assert spark.read.format("txnlog").option("subscribe", "t").load(store.uri).count() == 0


@pytest.mark.spark
def test_registered_reads_have_as_many_tasks_as_the_session_runs_at_a_time(spark, store) -> None:
    """Planning processes of Spark do not know its executors, but for what register() has noted."""
    store.create_topic("t", settings={"segment.rows": "10000"})
    tasks = (os.cpu_count() or 1) + 3
    commit(store, range(60_000 * tasks))

    def tasks_of_a_read() -> int:
        rows = spark.read.format("txnlog").option("subscribe", "t").load(store.uri)
        return rows.select(spark_partition_id()).distinct().count()

    before = spark.conf.get("spark.sql.leafNodeDefaultParallelism", None)
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", tasks)
    try:
        pyspark_txnlog.register(spark)
        assert tasks_of_a_read() == tasks
    finally:
        if before is None:
            spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
        else:
            spark.conf.set("spark.sql.leafNodeDefaultParallelism", before)
    pyspark_txnlog.register(spark)
    assert tasks_of_a_read() < tasks
