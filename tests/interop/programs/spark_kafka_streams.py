"""Two streams of Spark's connector for Kafka, until FOLDER/end exists: one to a topic, one to files.

spark_kafka_streams.py ADDRESSES JARS FOLDER

A line is printed for each batch: the stream and its number. The last line has what all files hold, each value once for
each time that a stream has given it to the files.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession


def main(addresses, jars, folder):
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    servers = {"kafka.bootstrap.servers": addresses}
    source = {**servers, "subscribe": "input", "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}

    def writing(name):
        stream = spark.readStream.format("kafka").options(**source).load()
        stream = stream.selectExpr("cast(value as string) value", "cast(partition as string) key")
        writer = stream.writeStream.option("checkpointLocation", f"{folder}/checkpoint-{name}")
        if name == "topic":
            return writer.format("kafka").options(**servers, topic="output").start()
        return writer.format("json").option("path", f"{folder}/files").start()

    queries = {name: writing(name) for name in ("topic", "files")}
    printed = {}
    while not Path(folder, "end").exists():
        for name, query in queries.items():
            if query.exception() is not None:
                print("again", name, str(query.exception())[:300].replace("\n", " "), file=sys.stderr, flush=True)
                queries[name] = writing(name)
                continue
            progress = query.lastProgress
            if progress is not None and printed.get(name, -1) < progress["batchId"]:
                printed[name] = progress["batchId"]
                print(json.dumps([name, printed[name]]), flush=True)
        time.sleep(0.1)
    for query in queries.values():
        query.processAllAvailable()
        query.stop()
    rows = spark.read.schema("value string").json(f"{folder}/files").collect()
    print(json.dumps(sorted(int(row[0]) for row in rows)))


main(*sys.argv[1:])
