"""The driver of the demo: two streaming queries, run as a process of its own so that it can be killed with its JVM.

It prepares all that comes before the start of the queries, and waits for a line on its standard input. So the next
driver is ready when one dies.

`flights` takes files into the topic ``flights``. `split` makes of each flight a record in ``delays`` and, if it left
more than an hour late, one in ``late``. That is several topics in one write, so in one transaction per micro-batch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark_txnlog
from flights.dataset import FILE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

__all__ = ["COUNTS", "LATE_MINUTES", "run"]

COUNTS = "counts.json"
"""The file with what Spark counts at the end: {topic: [records, different flights]}."""
LATE_MINUTES = 60
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    # A JVM that lives for a minute gains nothing from the second compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
FLIGHT = "n INT, month INT, day INT, hour INT, carrier STRING, flight INT, origin STRING, dest STRING, dep_delay DOUBLE"


def prepare_flights(spark: SparkSession, folder: Path) -> DataStreamWriter:
    """Prepare files → the topic ``flights``, keyed by the plane's route, one file per micro-batch."""
    from pyspark.sql import functions as F

    files = spark.readStream.schema(FLIGHT).option("maxFilesPerTrigger", 1).parquet(str(folder / "input"))
    records = files.select(
        F.concat_ws("-", "carrier", "flight", "origin").alias("key"), F.to_json(F.struct("*")).alias("value")
    )
    return (
        records.writeStream.format("txnlog")
        .queryName("flights")
        .option("topic", "flights")
        .option("checkpointLocation", str(folder / "checkpoints" / "flights"))
    )


def prepare_split(spark: SparkSession, folder: Path, kill_at_commit: int) -> DataStreamWriter:
    """Prepare ``flights`` → ``delays`` and ``late``.

    With `kill_at_commit` above 0 they are written by the sink that kills its driver.
    """
    flights = (
        spark.readStream.format("txnlog")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", FILE_ROWS)
        .option("columns", "key,value")
        .load(str(folder / "store"))
    )
    writer = split(flights).writeStream.queryName("split")
    if kill_at_commit:
        from flights.killing_sink import KillingSource

        spark.dataSource.register(KillingSource)
        note = str(folder / "killed-in-commit")
        writer = writer.format("txnlog-killing").option("killAtCommit", kill_at_commit).option("killNote", note)
    else:
        writer = writer.format("txnlog")
    return writer.option("checkpointLocation", str(folder / "checkpoints" / "split"))


def split(flights: DataFrame) -> DataFrame:
    """Return one record per flight for ``delays``, and one for ``late`` if it left more than LATE_MINUTES late."""
    from pyspark.sql import functions as F

    flight = flights.select("key", F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight"))
    delay = F.to_json(F.struct("flight.n", "flight.month", "flight.hour", "flight.carrier", "flight.dep_delay"))
    topics = F.when(F.col("flight.dep_delay") > LATE_MINUTES, F.array(F.lit("delays"), F.lit("late")))
    return flight.select(
        "key", delay.alias("value"), F.explode(topics.otherwise(F.array(F.lit("delays")))).alias("topic")
    )


def count(spark: SparkSession, store: str) -> dict[str, list[int]]:
    """Return the records and the different flights of each topic, by a batch read."""
    from pyspark.sql import functions as F

    frame = spark.read.format("txnlog").option("subscribe", "flights,delays,late").option("columns", "topic,value")
    number = F.get_json_object(F.col("value").cast("string"), "$.n").cast("int")
    counts = frame.load(store).groupBy("topic").agg(F.count("*"), F.count_distinct(number)).collect()
    return {topic: [records, distinct] for topic, records, distinct in counts}


def run(folder: Path, kill_at_commit: int) -> None:
    """Run both queries until everything is written, once a line has come on standard input; then count."""
    store = str(folder / "store")
    spark = pyspark_txnlog.session(SETTINGS, master="local[2]", app_name="flights")
    writers = [prepare_flights(spark, folder), prepare_split(spark, folder, kill_at_commit)]
    if not sys.stdin.readline():
        return  # the demo has ended
    queries = [writer.start(store) for writer in writers]
    for query in queries:
        query.processAllAvailable()
    for query in queries:
        query.stop()
    (folder / COUNTS).write_text(json.dumps(count(spark, store)))


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
