"""Counts the demo's topics with a batch read of Spark: prints {topic: [records, different flights]} as JSON."""

from __future__ import annotations

import json
import sys

from flights.job import make_session


def count(store: str) -> dict[str, list[int]]:
    """Records and different flights per topic."""
    from pyspark.sql import functions as F

    spark = make_session()
    frame = spark.read.format("txnlog").option("subscribe", "flights,delays,late").option("columns", "topic,value")
    number = F.get_json_object(F.col("value").cast("string"), "$.n").cast("int")
    counts = frame.load(store).groupBy("topic").agg(F.count("*"), F.count_distinct(number)).collect()
    spark.stop()
    return {topic: [records, distinct] for topic, records, distinct in counts}


if __name__ == "__main__":
    print(json.dumps(count(sys.argv[1])))
