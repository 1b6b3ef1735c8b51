"""A driver whose store is on S3, and which talks: it logs at level INFO, explains its plan and prints its errors."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pyspark_txnlog.options import READ, WRITE, ReadOptions, WriteOptions
from sparktxn import Store
from tests.spark.sessions import build_session

uri, wrong_uri, options_json, folder = sys.argv[1:]
options = json.loads(options_json)
logging.basicConfig(level=logging.INFO)
spark = build_session(f"{folder}/warehouse")
spark.sparkContext.setLogLevel("INFO")


def read(topic: str) -> DataFrame:
    return spark.read.format("txnlog").options(**options).option("subscribe", topic).load(uri)


def fails(name: str, act: Callable[[], object]) -> None:
    try:
        act()
    except PySparkException as error:
        print(f"{name} failed: {error}")


def stream(to_uri: str, checkpoint: str) -> None:
    rows = spark.readStream.format("txnlog").options(**options).option("subscribe", "in")
    frame = rows.option("startingOffsets", "earliest").load(uri).select("key", "value")
    writer = frame.writeStream.format("txnlog").options(**options).option("topic", "out")
    query = writer.option("checkpointLocation", f"{folder}/{checkpoint}").trigger(availableNow=True).start(to_uri)
    query.awaitTermination()
    print("progress", query.lastProgress)


with Store.open(uri, options=options, create=True) as store:
    store.create_topic("in", 3)
    store.create_topic("out", 2)
    print(store, store.stage_plan(["in"]))
numbers = spark.range(1000).selectExpr("cast(id as string) key", "cast(id as string) value")
numbers.write.format("txnlog").mode("append").options(**options).option("topic", "in").save(uri)
read("in").explain("extended")
stream(uri, "checkpoint")
print("copied", sorted(int(row.value) for row in read("out").collect()) == list(range(1000)))

print(ReadOptions.parse({**options, "path": uri, "subscribe": "in"}, READ))
print(WriteOptions.parse({**options, "path": uri, "topic": "in"}, WRITE))
wrong = numbers.write.format("txnlog").mode("append").options(**options).option("topic", "in")
fails("write", lambda: wrong.save(wrong_uri))
fails("read", lambda: spark.read.format("txnlog").options(**options).option("topic", "in").load(wrong_uri).count())
fails("stream", lambda: stream(wrong_uri, "wrong-checkpoint"))
fails("setting", lambda: wrong.option("storage.secrets", options["storage.secret"]).save(uri))
fails("JSON", lambda: wrong.option("storage.client_kwargs", f"{{{options['storage.secret']}").save(uri))
spark.stop()
