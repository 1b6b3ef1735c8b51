"""A driver that has Spark itself read and write the Parquet files of a store on S3, by hadoop-aws."""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame, SparkSession

import pyspark_txnlog
from pyspark_txnlog import scan, scan_stream, write
from sparktxn import Producer, Store

uri, endpoint, jars, options_json, folder = sys.argv[1:]
options = json.loads(options_json)
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.jars", jars)
    .config("spark.hadoop.fs.s3a.endpoint", endpoint)
    .config("spark.hadoop.fs.s3a.endpoint.region", "us-east-1")
    .config("spark.hadoop.fs.s3a.path.style.access", "true")
    .config("spark.hadoop.fs.s3a.access.key", options["storage.key"])
    .config("spark.hadoop.fs.s3a.secret.key", options["storage.secret"])
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
pyspark_txnlog.register(spark)

with Store.open(uri, options=options, create=True) as store:
    store.create_topic("t", 2)
rows = spark.range(1000).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
write(rows, uri, "t", **options)
with Producer(
    {"bootstrap.servers": uri, **options, "transactional.id": "a", "store.append.inline.bytes": 0}
) as producer:
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("t", b"aborted", partition=0)
    producer.abort_transaction()
    with producer.transaction():
        producer.produce("t", b"1000", partition=0)

native = scan(spark, uri, "t", **options)
files = native.inputFiles()
print("files of Spark's reader", sorted({file.partition("://")[0] for file in files}))
python = spark.read.format("txnlog").options(**options).option("topic", "t").load(uri)
print("rows", native.count(), "the same", set(native.collect()) == set(python.collect()))


def keep(batch: DataFrame, batch_id: int) -> None:
    batch.selectExpr("cast(value AS string) AS value").write.mode("append").parquet(f"{folder}/out")


stream = scan_stream(spark, uri, "t", keep, startingOffsets="earliest", **options)
query = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
print("streamed", spark.read.parquet(f"{folder}/out").distinct().count())
