"""Writes to a keyed topic whose tasks fail once, after their last row: by the sink, and by `upsert`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from pyspark_txnlog import register, upsert

uri = sys.argv[1]
spark = SparkSession.builder.master("local[1,2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
marks = tempfile.mkdtemp()


def rows(number: int) -> DataFrame:
    """Return 30 rows by one task, the first attempt of which fails."""

    def once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and not context.attemptNumber():
            with open(os.path.join(marks, str(number)), "w"):
                raise RuntimeError("the first attempt fails")

    found = spark.range(0, 30, numPartitions=1).selectExpr("id", "concat('n', id) name", f"{number}D size")
    return found.mapInArrow(once, found.schema)


for number, options in ((1, {}), (2, {"lastBy": "size"})):
    rows(number).write.format("txnlog").mode("append").options(topic="keyed", **options).save(uri)
    upsert(rows(number + 2), uri, "keyed", options)
print("first attempts:", len(os.listdir(marks)))
spark.stop()
