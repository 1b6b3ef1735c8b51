"""Spark with Iceberg's jars reads the tables of a store that has lived, and changes nothing (`make interop`)."""

from __future__ import annotations

from typing import Any

import pytest

from sparktxn.maintenance import verify
from tests.interop.engines import check_every_version, not_refused, version_reader
from tests.livedhistory import check_whole, lived
from tests.mergedhistory import TYPED

pytestmark = pytest.mark.interop

STATEMENTS = (
    "INSERT INTO {table} SELECT * FROM {table}",
    "INSERT OVERWRITE {table} SELECT * FROM {table}",
    "UPDATE {table} SET id = NULL",
    "DELETE FROM {table}",
    "DELETE FROM {table} WHERE kafka_partition = 0",
    "DELETE FROM {table} WHERE _offset = (SELECT max(_offset) FROM {table})",
    "MERGE INTO {table} a USING {table} b ON a._offset = b._offset WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE {table}",
    "ALTER TABLE {table} ADD COLUMN another INT",
    "ALTER TABLE {table} SET TBLPROPERTIES ('gc.enabled' = 'true')",
    "ALTER TABLE {table} CREATE BRANCH another",
    "CALL shop.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2100-01-01 00:00:00')",
    "CALL shop.system.remove_orphan_files(table => '{name}', older_than => TIMESTAMP '2020-01-01 00:00:00')",
    "CALL shop.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
    "CALL shop.system.rewrite_manifests('{name}')",
    "CALL shop.system.rollback_to_snapshot('{name}', 2)",
    "CALL shop.system.compute_table_stats('{name}')",
    "DROP TABLE {table} PURGE",
)
REASONS = ("cannot relocate metadata", "txnlog:a-topic-takes-no-files-of-other-writers", "GC is disabled")

CATALOG = """
for name, value in {{'': 'org.apache.iceberg.spark.SparkCatalog', '.type': 'hadoop', '.warehouse': '{store}',
                     '.cache-enabled': 'false'}}.items():
    spark.conf.set('spark.sql.catalog.shop' + name, value)
"""


def test_every_version_has_the_rows_of_its_entry(iceberg_spark, tmp_path):
    check_every_version(iceberg_spark, tmp_path, "iceberg")


def test_what_spark_would_change_is_refused(iceberg_spark, tmp_path):
    with lived(tmp_path / "store", 2) as history:
        before = history.objects()
        iceberg_spark.ask("java", code=CATALOG.format(store=history.store.uri))
        folder = f"topics.`{TYPED}-{history.topics[TYPED]}`"
        names = {"table": f"shop.{folder}", "name": folder}
        requests: dict[str, dict[str, Any]] = {
            statement: {"what": "sql", "sql": statement.format(**names)} for statement in STATEMENTS
        }
        for mode in ("append", "overwrite"):
            location = history.location(TYPED)
            requests[mode] = {"what": "append", "format": "iceberg", "location": location, "mode": mode}
        assert not_refused(iceberg_spark, requests, *REASONS) == {}
        assert history.objects().items() >= before.items()
        check_whole(history, version_reader(iceberg_spark, history, "iceberg"))


def test_a_hadoop_catalog_drops_the_topics_records(iceberg_spark, tmp_path):
    """docs/tables.md warns of it: no property of the table prevents it."""
    with lived(tmp_path / "store", 2) as history:
        iceberg_spark.ask("java", code=CATALOG.format(store=history.store.uri).replace("catalog.shop", "catalog.gone"))
        iceberg_spark.ask("sql", sql=f"DROP TABLE gone.topics.`{TYPED}-{history.topics[TYPED]}`")
        assert any("it does not exist" in each.problem for each in verify(history.store).problems)
