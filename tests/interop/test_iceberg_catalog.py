"""pyiceberg and DuckDB read a topic by the catalog, travel in time, and are refused to write (`make interop`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparktxn import Producer, Store
from sparktxn.maintenance import publish_tables, verify
from tests.integration.test_catalog import served
from tests.interop.conftest import environment
from tests.interop.engines import not_refused
from tests.interop.peers import run

pytestmark = pytest.mark.interop

SPARK = """
for name, value in {{'': 'org.apache.iceberg.spark.SparkCatalog', '.type': 'rest', '.uri': '{address}',
                     '.cache-enabled': 'false'}}.items():
    spark.conf.set('spark.sql.catalog.served' + name, value)
"""
REASONS = ("Server does not support endpoint", "read-only", "txnlog:a-topic-takes-no-files-of-other-writers")
PROGRAM = Path(__file__).parent / "programs" / "iceberg_catalog.py"


def test_readers_find_topics_by_the_catalog_and_write_none(tmp_path: Path) -> None:
    python = environment("engines-test")
    with Store.open(tmp_path / "store", create=True) as store:
        for topic in ("eu.rides-2", "rides"):
            store.create_topic(topic, schema=pa.schema([("id", pa.int64())]), settings={"table.formats": "iceberg"})
        with Producer({"bootstrap.servers": store.uri}) as producer:
            for ids in ([1, 2], [3]):
                producer.produce_arrow("eu.rides-2", pa.table({"id": ids}))
                producer.flush()
                publish_tables(store)
        with served(store) as client:
            found = json.loads(run(python, [str(PROGRAM), client.address]).splitlines()[-1])
        assert found.pop("duckdb refused").count("this catalog is read-only") == 1
        refused = ["Unrecognized filesystem type in URI", "Server does not support endpoint"]
        assert [text.partition(":")[0] for text in found.pop("refused")] == refused
        assert found == {
            "tables": [["topics", "eu.rides-2"], ["topics", "rides"]],
            "exists": [True, False],
            "newest": [1, 2, 3],
            "older": [1, 2],
            "missing": True,
            "duckdb": [[1, 2, 3], [1, 2]],
        }
        assert not verify(store).problems


def test_spark_reads_by_the_catalog_and_writes_nothing(iceberg_spark: Any, tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", create=True) as store:
        store.create_topic("rides", schema=pa.schema([("id", pa.int64())]), settings={"table.formats": "iceberg"})
        with Producer({"bootstrap.servers": store.uri}) as producer:
            for ids in ([1, 2], [3]):
                producer.produce_arrow("rides", pa.table({"id": ids}))
                producer.flush()
                publish_tables(store)
        with served(store) as client:
            iceberg_spark.ask("java", code=SPARK.format(address=client.address))
            select = "SELECT id FROM served.topics.rides"
            newest = iceberg_spark.ask("sql", sql=f"{select} ORDER BY id")
            older = iceberg_spark.ask("sql", sql=f"{select} VERSION AS OF 1 ORDER BY id")
            tables = iceberg_spark.ask("sql", sql="SHOW TABLES IN served.topics")
            writes = (
                "INSERT INTO {0} SELECT * FROM {0}",
                "DELETE FROM {0}",
                "DROP TABLE {0}",
                "CREATE TABLE {0}2 (id INT)",
            )
            requests = {write: {"what": "sql", "sql": write.format("served.topics.rides")} for write in writes}
            assert not_refused(iceberg_spark, requests, *REASONS) == {}
        assert newest == [["1"], ["2"], ["3"]]
        assert older == [["1"], ["2"]]
        assert tables == [["topics", "rides", "False"]]
        assert not verify(store).problems
