"""A job for clusters: a batch write, then a stream that splits it over two topics, with one attempt that is slow.

It needs nothing of `tests`: a cluster's executors have only what the job is shipped with. Its arguments are the store,
the stream's checkpoint, and a folder where tasks note their attempts.
"""

from __future__ import annotations

import os
import sys
import time

from pyspark.sql import SparkSession

import pyspark_txnlog

store, checkpoint, notes = sys.argv[1:4]

ROWS = 400


def slow_once(batches):
    """Pass rows on; the first attempt of a first task holds them back, so that speculation starts another."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    attempt = context.attemptNumber()
    name = f"{context.stageId()}-{context.partitionId()}-{attempt}"
    with open(os.path.join(notes, name), "a") as note:
        note.write(f"{os.getpid()}\n")
    if context.partitionId() == 0 and attempt == 0:
        time.sleep(8)
    yield from batches


def run(spark):
    """Write a batch, then copy it exactly once."""
    # Functions over Arrow batches need pandas, which the data source does not.
    is_slow = "SLOW_TASKS" in os.environ
    rows = spark.range(0, ROWS, 1, 4).selectExpr("cast(id as string) value")
    if is_slow:
        rows = rows.mapInArrow(slow_once, "value string")
    rows.write.format("txnlog").mode("append").option("topic", "in").save(store)
    source = spark.readStream.format("txnlog").option("subscribe", "in").option("startingOffsets", "earliest")
    source = source.option("minPartitions", 4).load(store)
    split = source.selectExpr(
        "cast(value as string) value", "if(cast(cast(value as string) as int) % 2 = 0, 'even', 'odd') topic"
    )
    if is_slow:
        split = split.mapInArrow(slow_once, "value string, topic string")
    query = (
        split.writeStream.format("txnlog")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(store)
    )
    query.awaitTermination()
    print("package", pyspark_txnlog.__file__)
    for topic in ("even", "odd"):
        print(topic, spark.read.format("txnlog").option("subscribe", topic).load(store).count())


if __name__ == "__main__":
    builder = SparkSession.builder
    remote = os.environ.get("CONNECT_TO")
    session = builder.remote(remote).getOrCreate() if remote else builder.getOrCreate()
    if os.environ.get("REGISTER"):
        pyspark_txnlog.register(session)
    run(session)
    session.stop()
