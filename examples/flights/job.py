"""The driver of the demo: two streaming queries, run as a process of its own so that it can be killed with its JVM.

`flights` takes files into the topic ``flights``. `split` makes of each flight a record in ``delays`` and, if it left
more than an hour late, one in ``late``. That is several topics in one write, so in one transaction per micro-batch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["LATE_MINUTES", "make_session", "run"]

LATE_MINUTES = 60
ROWS_PER_TRIGGER = 15_000
FLIGHT = "n INT, month INT, day INT, hour INT, carrier STRING, flight INT, origin STRING, dest STRING, dep_delay DOUBLE"


def make_session() -> SparkSession:
    """A session for a small machine."""
    # Spark looks for data sources, and runs its workers, with this Python.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def start_flights(spark: SparkSession, folder: Path) -> StreamingQuery:
    """Files → the topic ``flights``, keyed by the plane's route, one file per micro-batch."""
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
        .start(str(folder / "store"))
    )


def start_split(spark: SparkSession, folder: Path, kill_at_commit: int) -> StreamingQuery:
    """``flights`` → ``delays`` and ``late``; with `kill_at_commit` above 0, into the sink that kills its driver."""
    flights = (
        spark.readStream.format("txnlog")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_TRIGGER)
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
    return writer.option("checkpointLocation", str(folder / "checkpoints" / "split")).start(str(folder / "store"))


def split(flights: DataFrame) -> DataFrame:
    """One record per flight for ``delays``, and one for ``late`` if it left more than LATE_MINUTES late."""
    from pyspark.sql import functions as F

    flight = flights.select("key", F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight"))
    delay = F.to_json(F.struct("flight.n", "flight.month", "flight.hour", "flight.carrier", "flight.dep_delay"))
    topics = F.when(F.col("flight.dep_delay") > LATE_MINUTES, F.array(F.lit("delays"), F.lit("late")))
    return flight.select(
        "key", delay.alias("value"), F.explode(topics.otherwise(F.array(F.lit("delays")))).alias("topic")
    )


def run(folder: Path, kill_at_commit: int) -> None:
    """Runs both queries until everything there is has been written."""
    spark = make_session()
    flights = start_flights(spark, folder)
    split_query = start_split(spark, folder, kill_at_commit)
    flights.processAllAvailable()
    split_query.processAllAvailable()
    for query in (flights, split_query):
        query.stop()
    spark.stop()


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
