"""What `bench.peers` runs in an environment of its own: Spark's Kafka connector and Delta Lake, with the same rows.

Prints one line of JSON: for each case the wall and the CPU seconds by round, and the milliseconds of micro-batches.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from bench.spark_cases import PARTITIONS, Case, Sink, measured, micro_batches, noop, records, session, total

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.parquet.compression.codec": "zstd",
    # For a cluster there are 50; here they would be most of a micro-batch.
    "spark.databricks.delta.snapshotPartitions": "2",
}


def create_topics(spark: SparkSession, servers: str, *names: str) -> None:
    """Topics that the broker makes by itself, while one producer writes, make that producer's batches fail."""
    jvm = spark._jvm
    assert jvm is not None
    settings = jvm.java.util.Properties()
    settings.put("bootstrap.servers", servers)
    topics = jvm.java.util.ArrayList()
    for name in names:
        topics.add(jvm.org.apache.kafka.clients.admin.NewTopic(name, PARTITIONS, 1))
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    admin.createTopics(topics).all().get()
    admin.close()


def kafka_cases(spark: SparkSession, servers: str, rows: int) -> list[Case]:
    """A topic is written and read; each round reads the rows of one write."""
    frame = records(spark, rows)
    kafka = {"kafka.bootstrap.servers": servers}

    def write(topic: str) -> None:
        frame.write.format("kafka").options(**kafka).option("kafka.compression.type", "zstd").option(
            "topic", topic
        ).save()

    def read() -> DataFrame:
        return spark.read.format("kafka").options(**kafka).option("subscribe", "read").load()

    write("read")
    return [
        ("kafka write", lambda: write("written")),
        ("kafka all columns", lambda: noop(read())),
        ("kafka sum", lambda: total(read())),
    ]


def delta_cases(spark: SparkSession, folder: str, rows: int) -> list[Case]:
    """A table of the columns that our topic stores."""
    frame = records(spark, rows).withColumn("timestamp", lit("2024-05-01T12:00:00Z").cast("timestamp"))
    read, written = f"{folder}/read", f"{folder}/written"
    frame.write.format("delta").save(read)
    return [
        ("delta write", lambda: frame.write.format("delta").mode("append").save(written)),
        ("delta noop", lambda: noop(spark.read.format("delta").load(read))),
        ("delta sum", lambda: total(spark.read.format("delta").load(read))),
        ("delta count", lambda: spark.read.format("delta").load(read).count()),
    ]


def main(folder: str, jars: str, packages: str, servers: str, rows: int, rounds: int, batches: int) -> None:
    """Measures both peers; prints what was found."""
    spark = session(**{"spark.jars.packages": packages, "spark.jars.ivy": jars, **DELTA})
    found: dict[str, object] = {**measured(delta_cases(spark, folder, rows), rounds)} if rows else {}
    sinks: dict[str, Sink] = {
        "noop": lambda writer: writer.format("noop"),
        "delta": lambda writer: writer.format("delta").option("path", f"{folder}/streamed"),
    }
    if servers:
        create_topics(spark, servers, "read", "written", "streamed")
        found |= measured(kafka_cases(spark, servers, rows), rounds) if rows else {}
        kafka = {"kafka.bootstrap.servers": servers, "topic": "streamed"}
        sinks["kafka"] = lambda writer: writer.format("kafka").options(**kafka)
    print(json.dumps(found | micro_batches(spark, folder, sinks, batches)))


if __name__ == "__main__":
    main(*sys.argv[1:5], *map(int, sys.argv[5:]))
