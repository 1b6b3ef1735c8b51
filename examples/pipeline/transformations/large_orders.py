"""Copies large orders from one topic to another: each micro-batch is one transaction.

The store is named by the environment variable ``TXNLOG_STORE``.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

STORE = os.environ["TXNLOG_STORE"]
spark = SparkSession.active()

dp.create_sink("large_orders", "txnlog", {"path": STORE, "topic": "large_orders"})


@dp.temporary_view
def orders() -> DataFrame:
    """Orders, from the first one on: the value is an amount."""
    stream = spark.readStream.format("txnlog").option("subscribe", "orders").option("startingOffsets", "earliest")
    return stream.load(STORE).withColumn("amount", F.col("value").cast("string").cast("int"))


@dp.append_flow(target="large_orders")
def choose_large_orders() -> DataFrame:
    """Orders of 100 and more."""
    return spark.readStream.table("orders").where("amount >= 100").select("key", "value")
