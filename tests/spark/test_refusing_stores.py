"""Spark writes to a store that refuses: the error of the query has the store's own text, and later it goes on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparktxn import Store
from sparktxn.testing.faultproxy import FaultProxy, RequestFault
from tests.servers import S3Server
from tests.smalldisks import with_mounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
BUCKET = "refusing"
ROWS = 2_000


@pytest.fixture
def proxy(moto_server: S3Server) -> Iterator[FaultProxy]:
    moto_server.create_bucket(BUCKET)
    with FaultProxy(moto_server.endpoint_url) as made:
        yield made


@pytest.mark.moto
def test_a_bucket_that_denies_puts_is_named_by_batch_and_stream(
    spark: SparkSession, moto_server: S3Server, proxy: FaultProxy, tmp_path: Path
) -> None:
    address = f"s3://{BUCKET}/{tmp_path.name}"
    options = {**moto_server.options, "storage.endpoint_url": proxy.endpoint_url}
    with Store.open(address, options=options, create=True) as store:
        store.create_topic("t")
        rows = spark.range(ROWS).selectExpr("sha2(cast(id as string), 512) value")
        rows.write.parquet(str(tmp_path / "rows"))

        def batch() -> None:
            rows.write.format("txnlog").mode("append").options(**options).option("topic", "t").save(address)

        def stream() -> None:
            source = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
            writer = source.writeStream.format("txnlog").options(**options).option("topic", "t")
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.trigger(availableNow=True).start(address)
            try:
                query.awaitTermination()
            finally:
                query.stop()

        for work in (batch, stream):
            proxy.inject(RequestFault.DENIED_BEFORE, method="PUT", times=100_000)
            assert "AccessDenied" in error_of(work), work.__name__
            proxy.clear()
            assert records_of(store) == 0
        batch()
        assert records_of(store) == ROWS
        stream()
        assert records_of(store) == 2 * ROWS


def error_of(work: Callable[[], None]) -> str:
    with pytest.raises(Exception) as failed:  # noqa: PT011 - of Spark's own classes, whichever
        work()
    return str(failed.value)


def records_of(store: Store) -> int:
    return sum(one.record_count for one in store.files("t"))


def test_a_disk_that_is_read_only_or_full_is_named_by_batch_and_stream(tmp_path: Path) -> None:
    mounted, folder = tmp_path / "mounted", tmp_path / "folder"
    mounted.mkdir()
    folder.mkdir()
    paths = f"{ROOT}{os.pathsep}{ROOT / 'scala-free-python-datasource'}"
    environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "tests.spark.refusing_job", str(mounted), str(folder)]
    done = with_mounts(command, timeout_s=600, environment=environment, folder=ROOT)
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads((folder / "results.json").read_text())
    for work in ("batch", "stream"):
        assert "Read-only file system" in found["read-only"][work]
        assert "No space left on device" in found["full"][work]
        assert found["healthy"][work] == "", "and the work goes on"
    assert found["records"]["count"] == 2 * ROWS
