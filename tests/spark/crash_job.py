"""A driver for test_crash.py: copies the topic ``in`` to ``even`` and ``odd``, one transaction per micro-batch."""

from __future__ import annotations

import sys

from examples.flights.killing_sink import KillingSource
from pyspark_txnlog import register
from tests.spark.sessions import build_session

store, checkpoint, kill_at, note = sys.argv[1:]
spark = build_session(f"{store}-warehouse")
register(spark)
spark.dataSource.register(KillingSource)
source = spark.readStream.format("txnlog").option("subscribe", "in").option("startingOffsets", "earliest")
rows = source.option("maxOffsetsPerTrigger", 50).option("columns", "value").load(store)
writer = rows.selectExpr("value", "if(cast(cast(value as string) as int) % 2 = 0, 'even', 'odd') topic").writeStream
if int(kill_at):
    writer = writer.format("txnlog-killing").option("killAtCommit", kill_at).option("killNote", note)
else:
    writer = writer.format("txnlog")
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(store)
query.awaitTermination()
print("input rows", sum(progress.numInputRows for progress in query.recentProgress))
spark.stop()
