"""One Spark session with Delta's jars, or with Iceberg's, that reads and writes as is asked for: `FORMAT JAR...`."""

from __future__ import annotations

import os
import pickle
import sys
from base64 import b64decode
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.interop.programs.requests_loop import serve
from tests.tableways import differences, spark_way

CONFIGURATION = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.hadoop": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.hadoop.type": "hadoop",
        "spark.sql.catalog.hadoop.warehouse": "warehouse",
        # Each statement reads the table anew.
        "spark.sql.catalog.hadoop.cache-enabled": "false",
    },
}


def started(name: str, jars: list[str]) -> SparkSession:
    builder = SparkSession.builder.master("local[1]")
    fixed = {
        "spark.jars": ",".join(jars),
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": os.path.abspath("warehouse"),
        "spark.ui.enabled": "false",
    }
    for key, value in (fixed | CONFIGURATION[name]).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def by_delta(spark: SparkSession, request: dict) -> pa.Table:
    version = {} if request["version"] is None else {"versionAsOf": request["version"]}
    return spark.read.format("delta").options(**version).load(request["location"]).toArrow()


def by_iceberg(spark: SparkSession, request: dict) -> pa.Table:
    snapshot = {} if request["version"] is None else {"versionAsOf": request["version"] + 1}
    return spark.read.format("iceberg").options(**snapshot).load(request["location"]).toArrow()


def statement(spark: SparkSession, request: dict) -> list[list[str]]:
    return [[str(value) for value in row] for row in spark.sql(request["sql"]).collect()]


def append(spark: SparkSession, request: dict) -> None:
    """Append, or overwrite, what the table has."""
    rows = spark.read.format(request["format"]).load(request["location"])
    written = spark.createDataFrame(rows.collect(), rows.schema).write
    written.format(request["format"]).mode(request["mode"]).save(request["location"])


def java(spark: SparkSession, request: dict) -> None:
    """Run Python with `jvm` and the session: calls that SQL does not have."""
    exec(request["code"], {"spark": spark, "jvm": spark._jvm, "jspark": spark._jsparkSession})


def conditions(spark: SparkSession, request: dict) -> list:
    """Read a random topic's table by each of its conditions; the answer has what differs, and how many were asked."""
    ways = {f"spark {request['format']}": partial(spark_way, spark, request["format"])}
    return list(differences(pickle.loads(b64decode(request["table"])), ways))


def answers() -> dict:
    spark = started(sys.argv[1], sys.argv[2:])
    found = {
        "conditions": conditions,
        "delta": by_delta,
        "iceberg": by_iceberg,
        "sql": statement,
        "append": append,
        "java": java,
    }
    return {name: partial(answer, spark) for name, answer in found.items()}


if __name__ == "__main__":
    serve(answers)
