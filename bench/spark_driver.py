"""What `bench.spark` runs in a process of its own: Spark, the log and plain Parquet files with the same rows.

Prints one line of JSON: for each case the wall seconds and the CPU seconds of the process and its children, by round.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bench.spark_cases import (
    PARTITIONS,
    TURN,
    Case,
    Sink,
    cpu_seconds,
    measured,
    micro_batches,
    noop,
    records,
    session,
    total,
)
from pyspark_txnlog import foreach_batch, scan, write
from pyspark_txnlog.options.options import READ, ReadOptions
from pyspark_txnlog.options.spark_columns import arrow_of
from pyspark_txnlog.reading.batch_reader import make_reader, read_schema
from sparktxn import Producer, Store
from sparktxn._rows.scan.plan import ReadTask

ABORTED = 1_000
SEGMENT_ROWS = 50_000
OPEN_WRITERS = "spark.sql.maxConcurrentOutputFileWriters"
_BATCH_ROWS = 10_000
_AGEING_TURN = 500
_NARROW_TASKS = 18


class DroppingSource(DataSource):
    """A sink in Python that takes rows and drops them: what Spark's own part of a write costs."""

    @classmethod
    def name(cls) -> str:
        """What ``format()`` takes."""
        return "dropping"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of nothing."""
        return DroppingWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer of nothing."""
        return DroppingStreamWriter()


class DroppingWriter(DataSourceArrowWriter):
    """Takes rows and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Reads all rows of a task."""
        return _dropped(iterator)


class DroppingStreamWriter(DataSourceStreamArrowWriter):
    """Takes rows and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Reads all rows of a task."""
        return _dropped(iterator)


def _dropped(iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in iterator:
        pass
    return WriterCommitMessage()


class ReadySource(DataSource):
    """Hands out one batch again and again: what Spark's own part of a read through Python costs."""

    @classmethod
    def name(cls) -> str:
        """What ``format()`` takes."""
        return "ready"

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of as many rows as the option `rows` says."""
        return ReadyReader(arrow_of(schema), int(self.options["rows"]))


class ReadyReader(DataSourceReader):
    """Reads no file, and decodes nothing."""

    def __init__(self, schema: pa.Schema, rows: int) -> None:
        self._schema = schema
        self._batches = rows // PARTITIONS // _BATCH_ROWS

    def partitions(self) -> list[InputPartition]:
        """As many as the topic's."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one part."""
        numbers = range(_BATCH_ROWS)
        rows = {
            "key": [b"%d" % (number % 1_000) for number in numbers],
            "value": [(b'{"flight":%d,"note":"' % number).ljust(100, b"x") for number in numbers],
            "topic": ["t"] * _BATCH_ROWS,
            "offset": numbers,
        }
        arrays = [pa.array(rows.get(field.name, [0] * _BATCH_ROWS), field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        for _ in range(self._batches):
            yield batch


def files_of(folder: str) -> list[str]:
    """The segments of the topic."""
    with Store.open(folder) as store:
        tasks: list[ReadTask] = store.plan_commits(store.view(["t"]), 0)
    return [f"file://{folder}/{task.segment_name(segment)}" for task in tasks for segment in task.segments]


def abort_transactions(folder: str, count: int) -> None:
    """Leaves segments of aborted transactions behind."""
    with Producer({"bootstrap.servers": folder, "transactional.id": "aborts", "store.fsync": False}) as producer:
        producer.init_transactions()
        for number in range(count):
            producer.begin_transaction()
            producer.produce("t", b"x" * 100, partition=number % PARTITIONS)
            producer.flush()
            producer.abort_transaction()


def write_cases(spark: SparkSession, folder: str, rows: int) -> list[Case]:
    """Plain Parquet first; each case appends to what was there."""
    log = f"{folder}/written"
    with Store.open(log, create=True) as store:
        store.create_topic("t", PARTITIONS)
    frame = records(spark, rows)
    spark.dataSource.register(DroppingSource)
    return [
        ("parquet", lambda: frame.write.mode("append").option("compression", "zstd").parquet(f"{folder}/parquet")),
        ("write()", lambda: write(frame, log, "t")),
        ("format", lambda: frame.write.format("txnlog").mode("append").option("topic", "t").save(log)),
        ("dropping", lambda: frame.write.format("dropping").mode("append").save()),
        ("parquet by partition", lambda: write_by_partition(spark, frame, f"{folder}/by-partition")),
    ]


def write_by_partition(spark: SparkSession, frame: DataFrame, folder: str) -> None:
    """Has Spark's own writer make files as segments are: of one partition each, with as many rows, at zstd's level 1.

    With as many writers open as there are partitions, Spark does not sort the rows.
    """
    chosen = frame.withColumn("partition", (F.crc32("key") % PARTITIONS).cast("int"))
    writer = chosen.write.mode("append").partitionBy("partition").option("maxRecordsPerFile", SEGMENT_ROWS)
    writer = writer.options(**{"compression": "zstd", "parquet.compression.codec.zstd.level": "1"})
    spark.conf.set(OPEN_WRITERS, str(PARTITIONS))
    try:
        writer.option("parquet.enable.dictionary#value", "false").parquet(folder)
    finally:
        spark.conf.unset(OPEN_WRITERS)


def narrow_cases(spark: SparkSession, folder: str, rows: int) -> list[Case]:
    """Four narrow columns from many tasks: files of the log end by their size, and nothing has merged them."""
    frame = spark.range(0, rows, 1, _NARROW_TASKS).selectExpr(
        *("id", "timestamp_micros(1700000000000000 + id * 1000) ts"),
        *("cast(id % 1000 as double) * 1.5 amount", "concat('city', cast(id % 100 as string)) city"),
    )
    log, plain = f"{folder}/narrow-log", f"{folder}/narrow-parquet"
    with Store.open(log, create=True):
        pass

    def write_log(topic: str) -> None:
        frame.write.format("txnlog").mode("append").options(topic=topic, createTopic=True).save(log)

    def write_plain(mode: str, to: str) -> None:
        frame.write.mode(mode).option("compression", "zstd").parquet(f"{plain}/{to}")

    write_log("read")
    write_plain("overwrite", "read")
    frames = {"parquet": spark.read.parquet(f"{plain}/read"), "scan()": scan(spark, log, "read")}
    least, end = rows * 37 // 100, rows * 38 // 100
    cases: list[Case] = [
        ("narrow, written by parquet", lambda: write_plain("append", "written")),
        ("narrow, written by format", lambda: write_log("written")),
    ]
    for name, found in frames.items():
        part = found.where(f"id >= {least} and id < {end}")
        cases += [
            (f"narrow, count by {name}", found.count),
            (f"narrow, sum by {name}", found.select(F.sum("id"), F.sum("amount")).collect),
            (f"narrow, 1 % by {name}", part.select(F.sum("amount")).collect),
        ]
    return cases


def read_cases(spark: SparkSession, log: str, rows: int) -> list[Case]:
    """Each peer is read from the same files as ours."""
    paths = files_of(log)
    plain = spark.read.schema("key binary, value binary, timestamp timestamp").parquet(*paths)
    whole = plain.select(
        *("key", "value", F.lit("t").alias("topic"), F.lit(0).alias("partition")),
        *(F.col("_metadata.row_index").alias("offset"), "timestamp", F.lit(0).alias("timestampType")),
    )
    ours = scan(spark, log, "t")
    abort_transactions(log, ABORTED)
    aborted = scan(spark, log, "t")
    stored = ("key", "value", "timestamp")

    def python(columns: str | None = None) -> DataFrame:
        reader = spark.read.format("txnlog").option("topic", "t")
        return (reader if columns is None else reader.option("columns", columns)).load(log)

    everything, values = python(), python("value")
    spark.dataSource.register(ReadySource)

    def ready(frame: DataFrame) -> DataFrame:
        return spark.read.format("ready").schema(frame.schema).option("rows", rows).load()

    ready_everything, ready_values = ready(everything), ready(values)
    return [
        ("count, parquet", lambda: plain.count()),
        ("count, scan()", lambda: ours.count()),
        ("noop, parquet", lambda: noop(plain.select(*stored))),
        ("noop, scan()", lambda: noop(ours.select(*stored))),
        ("noop, scan() of a store with aborted", lambda: noop(aborted.select(*stored))),
        ("sum, parquet", lambda: total(plain)),
        ("sum, scan()", lambda: total(ours)),
        ("sum, format with columns", lambda: total(values)),
        ("sum, ready batches", lambda: total(ready_values)),
        ("all columns, anchor", lambda: noop(whole)),
        ("all columns, scan()", lambda: noop(ours)),
        ("all columns, format", lambda: noop(everything)),
        ("all columns, ready batches", lambda: noop(ready_everything)),
    ]


def streamed(spark: SparkSession, folder: str, batches: int, names: Sequence[str], turn: int) -> dict[str, list[float]]:
    """Micro-batches into the sinks of `names`, or all: a topic, and sinks that drop: Spark's own, one in Python."""
    spark.dataSource.register(DroppingSource)
    for name in ("streamed", "unsynced", "called"):
        with Store.open(f"{folder}/{name}", create=True) as store:
            store.create_topic("t", PARTITIONS)
    synced = {"topic": "t", "path": f"{folder}/streamed"}
    unsynced = {"topic": "t", "path": f"{folder}/unsynced", "store.fsync": "false"}
    sinks: dict[str, Sink] = {
        "noop": lambda writer: writer.format("noop"),
        "write_stream": lambda writer: writer.foreachBatch(foreach_batch(f"{folder}/called", topic="t")),
        "dropping": lambda writer: writer.format("dropping"),
        "txnlog": lambda writer: writer.format("txnlog").options(**synced),
        "unsynced": lambda writer: writer.format("txnlog").options(**unsynced),
    }
    return micro_batches(spark, folder, {name: sinks[name] for name in names or sinks}, batches, turn)


def plan_format(folder: str) -> dict[str, float]:
    """What the Python source plans, from the newest entry to its tasks."""
    options = ReadOptions.parse({"path": f"{folder}/many", "topic": "t"}, READ)
    cpu_s, started = cpu_seconds(), time.perf_counter()
    schema, pinned = read_schema(options)
    parts = make_reader(options, schema, pinned).partitions()
    wall_s = time.perf_counter() - started
    return {"wall": wall_s, "cpu": cpu_seconds() - cpu_s, "tasks": len(parts)}


def plan_scan(folder: str) -> dict[str, float]:
    """The same until Spark knows the tasks of `scan()`."""
    spark = session()
    spark.range(1).count()
    cpu_s, started = cpu_seconds(), time.perf_counter()
    plan = scan(spark, f"{folder}/many", "t")._jdf.queryExecution().toRdd()
    wall_s = time.perf_counter() - started
    return {"wall": wall_s, "cpu": cpu_seconds() - cpu_s, "tasks": plan.getNumPartitions()}


def main(folder: str, use: str, rows: int, rounds: int, batches: int) -> None:
    """Measures one use; prints what was found."""
    if use == "plan-format":
        found: object = plan_format(folder)
    elif use == "plan-scan":
        found = plan_scan(folder)
    elif use == "stream":
        found = streamed(session(), folder, batches, (), TURN)
    elif use == "ageing":
        found = streamed(session(), folder, batches, ("write_stream", "txnlog"), _AGEING_TURN)
    elif use == "narrow":
        found = measured(narrow_cases(session(), folder, rows), rounds)
    elif use == "write":
        found = measured(write_cases(session(), folder, rows), rounds)
    else:
        spark, log = session(), f"{folder}/store"
        with Store.open(log, create=True) as store:
            store.create_topic("t", PARTITIONS)
        write(records(spark, rows), log, "t")
        found = measured(read_cases(spark, log, rows), rounds)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
