"""Spark in a minute: one transaction over two topics, read back as a batch, then copied by an exactly-once stream.

Run it with ``python examples/spark_quickstart.py``; it needs ``pip install '.[spark]'`` and Java 17 or newer.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from sparktxn import Store

# Spark looks for data sources with this Python; it must be set before the session is built.
os.environ["PYSPARK_PYTHON"] = sys.executable


def main() -> None:
    """Writes, reads and streams."""
    folder = Path(tempfile.mkdtemp(prefix="txnlog-"))
    path = str(folder / "store")
    store = Store.open(path, create=True)
    for topic in ("orders", "payments", "copy"):
        store.create_topic(topic, 2)

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")  # half the time for each micro-batch
        .getOrCreate()
    )

    # One write is one transaction, whatever topics its rows name.
    rows = spark.range(100).selectExpr(
        "cast(id as string) key", "concat('n', id) value", "if(id % 2 = 0, 'orders', 'payments') topic"
    )
    rows.write.format("txnlog").mode("append").save(path)

    spark.read.format("txnlog").option("subscribe", "orders,payments").load(path).groupBy("topic").count().show()

    # One micro-batch is one transaction, exactly once: kill this program anywhere, and run it again.
    stream = spark.readStream.format("txnlog").option("subscribe", "orders").option("startingOffsets", "earliest")
    query = (
        stream.load(path)
        .select("key", "value")
        .writeStream.format("txnlog")
        .option("topic", "copy")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(path)
    )
    query.awaitTermination()
    copied = spark.read.format("txnlog").option("subscribe", "copy").load(path).count()
    print(f"{copied} records copied; the store is in {path}")
    spark.stop()


if __name__ == "__main__":
    main()
