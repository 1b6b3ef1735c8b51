"""Spark with Delta's jars reads the tables of a store that has lived, and changes nothing in them (`make interop`)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.engines import check_every_version, not_refused, version_reader
from tests.livedhistory import check_whole, lived
from tests.mergedhistory import TYPED

pytestmark = pytest.mark.interop

STATEMENTS = (
    "INSERT INTO {table} SELECT * FROM {table}",
    "INSERT OVERWRITE {table} SELECT * FROM {table}",
    "UPDATE {table} SET id = NULL",
    "DELETE FROM {table}",
    "DELETE FROM {table} WHERE _offset < 5",
    "MERGE INTO {table} a USING {table} b ON a._offset = b._offset WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE {table}",
    "OPTIMIZE {table}",
    "OPTIMIZE {table} ZORDER BY (_offset)",
    "VACUUM {table}",
    "VACUUM {table} RETAIN 0 HOURS",
    "VACUUM {table} LITE RETAIN 0 HOURS",
    "RESTORE TABLE {table} TO VERSION AS OF 1",
    "ALTER TABLE {table} ADD COLUMN (another INT)",
    "ALTER TABLE {table} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')",
    "ALTER TABLE {table} DROP FEATURE txnlogTopic",
    "CREATE OR REPLACE TABLE named USING delta LOCATION '{location}' AS SELECT 1 AS id",
)
HARMLESS = (
    "DROP TABLE {table}",
    "REORG TABLE {table} APPLY (PURGE)",
    "CONVERT TO DELTA {table}",
    "GENERATE symlink_format_manifest FOR TABLE {table}",
    "CREATE TABLE named USING delta LOCATION '{location}'",
    "DROP TABLE named",
    "CREATE TABLE cloned SHALLOW CLONE {table}",
    "INSERT INTO cloned SELECT * FROM cloned",
    "DELETE FROM cloned",
    "VACUUM cloned RETAIN 0 HOURS",
    "DROP TABLE cloned",
)
"""What Spark does without asking the table, and what it does to others that name it or have its files."""

CHECKPOINT = "jvm.org.apache.spark.sql.delta.DeltaLog.forTable(jspark, '{location}').checkpoint()"


def test_every_version_has_the_rows_of_its_entry(delta_spark, tmp_path):
    check_every_version(delta_spark, tmp_path, "delta")


def test_what_spark_would_change_is_refused_and_the_rest_does_no_harm(delta_spark, tmp_path):
    with lived(tmp_path / "store", 2) as history:
        location = history.location(TYPED)
        before = history.objects()
        names = {"table": f"delta.`{location}`", "location": location}
        requests: dict[str, dict[str, Any]] = {
            statement: {"what": "sql", "sql": statement.format(**names)} for statement in STATEMENTS
        }
        for mode in ("append", "overwrite"):
            requests[mode] = {"what": "append", "format": "delta", "location": location, "mode": mode}
        assert not_refused(delta_spark, requests, "txnlogTopic") == {}
        for statement in HARMLESS:
            delta_spark.ask("sql", sql=statement.format(**names))
        delta_spark.ask("java", code=CHECKPOINT.format(location=location))
        assert history.objects().items() >= before.items()
        history.versions = history.versions[-4:]  # each takes a second
        check_whole(history, version_reader(delta_spark, history, "delta"))
