"""A driver to be killed: copies the topic ``in`` to ``even`` and ``odd``, one transaction per micro-batch."""

from __future__ import annotations

import json
import sys

from examples.flights.killing_sink import KillingSource
from pyspark_txnlog import register
from tests.spark.sessions import build_session

store, options_json, checkpoint, kill_at, note = sys.argv[1:]
options = json.loads(options_json)
spark = build_session(f"{checkpoint}-warehouse")
register(spark)
spark.dataSource.register(KillingSource)
source = spark.readStream.format("txnlog").option("subscribe", "in").option("startingOffsets", "earliest")
rows = source.options(**options).option("maxOffsetsPerTrigger", 50).option("columns", "value").load(store)
writer = rows.selectExpr("value", "if(cast(cast(value as string) as int) % 2 = 0, 'even', 'odd') topic").writeStream
if int(kill_at):
    writer = writer.format("txnlog-killing").option("killAtCommit", kill_at).option("killNote", note)
else:
    writer = writer.format("txnlog")
writer = writer.options(**options).option("checkpointLocation", checkpoint)
query = writer.trigger(availableNow=True).start(store)
query.awaitTermination()
print("input rows", sum(progress.numInputRows for progress in query.recentProgress))
spark.stop()
