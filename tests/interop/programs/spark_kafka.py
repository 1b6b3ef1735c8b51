"""Spark's own connector for Kafka, both ways: a batch and a stream, each written and read.

spark_kafka.py ADDRESS JARS FOLDER
"""

import json
import sys

from pyspark.sql import SparkSession

ROWS = 100


def main(address, jars, folder):
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    servers = {"kafka.bootstrap.servers": address}

    def values(topic):
        options = {**servers, "subscribe": topic, "kafka.isolation.level": "read_committed"}
        found = spark.read.format("kafka").options(**options).load().selectExpr("cast(value as string)").collect()
        return sorted(int(row[0]) for row in found)

    rows = spark.range(ROWS).selectExpr("cast(id as string) key", "cast(id as string) value")
    rows.write.format("kafka").options(**servers, topic="written").save()
    source = {**servers, "subscribe": "written", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    stream = spark.readStream.format("kafka").options(**source).load().selectExpr("key", "value")
    sink = {**servers, "topic": "streamed", "checkpointLocation": f"{folder}/checkpoint"}
    query = stream.writeStream.format("kafka").options(**sink).trigger(availableNow=True).start()
    query.awaitTermination()
    print(json.dumps({"written": values("written"), "streamed": values("streamed")}))


main(*sys.argv[1:])
