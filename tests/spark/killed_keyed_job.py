"""An aggregate in output mode update, written to a keyed topic: a query that is killed, and started again."""

from __future__ import annotations

import sys

from pyspark_txnlog import session, write_stream

uri, folder = sys.argv[1:]
spark = session({"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}, master="local[2]")
rows = spark.readStream.schema("id long, value long").option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
sums = rows.groupBy("id").sum("value").withColumnRenamed("sum(value)", "total")
writer = write_stream(sums, uri, "totals", lastBy="unique", checkpointLocation=f"{folder}/checkpoint")
writer.outputMode("update").trigger(availableNow=True).start().awaitTermination()
spark.stop()
