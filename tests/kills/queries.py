"""The queries of runs under kills. Micro-batch b has the numbers from b × 10 to b × 10 + 9, whatever the source."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from sparktxn import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["OUTPUTS", "ROWS_PER_BATCH", "SINKS", "SOURCES", "Query", "fill"]

ROWS_PER_BATCH: Final = 10
SOURCES: Final = ("file", "rate", "txnlog")
SINKS: Final = ("sink", "foreach", "foreach-outputs")
OUTPUTS: Final = ("even", "odd")
_INPUT: Final = "in"
_KEYS: Final = 6


class Query(NamedTuple):
    """One query. Numbers become records of the topics `OUTPUTS`, keyed by number modulo 6.

    With `random` a micro-batch that runs again has other rows: values have a random part, and topics are chosen at
    random. The sink with one data frame for each topic has random values only.
    """

    uri: str
    options: Mapping[str, str]
    folder: str
    source: str
    sink: str
    shuffle: bool
    random: bool
    batches: int
    master: str

    def dump(self) -> str:
        """Return the query as JSON."""
        return json.dumps(self._asdict())

    @classmethod
    def parse(cls, text: str) -> Query:
        """Return the query that `dump` has written."""
        return cls(**json.loads(text))

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query, or continue it from its checkpoint."""
        writer = self._rows(spark).writeStream.option("checkpointLocation", f"{self.folder}/checkpoint")
        if self.sink == "sink":
            return writer.format("txnlog").options(**self.options).start(self.uri)
        from pyspark_txnlog import sparkinternals
        from pyspark_txnlog.writing import foreach

        # Each start takes the other way of two, so a micro-batch that is repeated goes both: driver, and tasks.
        way = sparkinternals.holdable_rows if self._starts() % 2 == 0 else _through_tasks
        foreach.holdable_rows = way  # type: ignore[attr-defined]
        outputs = _by_topic if self.sink == "foreach-outputs" else None
        return writer.foreachBatch(foreach.foreach_batch(self.uri, outputs, **self.options)).start()

    def _starts(self) -> int:
        """Return how often the query was started before."""
        path = Path(self.folder) / "starts"
        before = path.stat().st_size if path.exists() else 0
        path.write_bytes(b"." * (before + 1))
        return before

    def _rows(self, spark: SparkSession) -> DataFrame:
        at_random = self.random and self.sink != "foreach-outputs"
        even = "rand() < 0.5" if at_random else "n % 2 = 0"
        value = "concat(n, '|', rand())" if self.random else "cast(n as string)"
        rows = self._numbers(spark).selectExpr("n", f"cast(n % {_KEYS} as string) key")
        if self.shuffle:
            # Streams cannot be sorted. All rows of a key come from one task, which keeps their order.
            rows = rows.repartition(2, "key")
        return rows.selectExpr("key", f"{value} value", f"if({even}, '{OUTPUTS[0]}', '{OUTPUTS[1]}') topic")

    def _numbers(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream
        if self.source == "rate":
            rate = reader.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
            return rate.option("numPartitions", 2).load().selectExpr("value n")
        if self.source == "file":
            text = reader.option("maxFilesPerTrigger", 1).text(f"{self.folder}/files")
            return text.selectExpr("cast(value as long) n")
        log = reader.format("txnlog").options(**self.options).option("subscribe", _INPUT)
        # A limit takes at least one transaction, and each has the numbers of one micro-batch.
        log = log.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1)
        return log.option("columns", "value").load(self.uri).selectExpr("cast(cast(value as string) as long) n")


def _through_tasks(frame: DataFrame) -> None:
    """Say of every frame that its rows cannot come to the driver."""


def _by_topic(rows: DataFrame, batch_id: int) -> dict[str, DataFrame]:
    return {topic: rows.where(f"topic = '{topic}'").drop("topic") for topic in OUTPUTS}


def fill(query: Query) -> None:
    """Create the store, its topics, and what the source reads."""
    Path(query.folder).mkdir(parents=True, exist_ok=True)
    numbers = [range(first, first + ROWS_PER_BATCH) for first in range(0, query.batches * ROWS_PER_BATCH, 10)]
    options: dict[str, Any] = dict(query.options)
    with Store.open(query.uri, options=options, create=True) as store:
        # Rows of the one are uploaded by the tasks; those of the other the driver's entry carries.
        for topic, inline_bytes in zip(OUTPUTS, ("0", "16384"), strict=True):
            store.create_topic(topic, 2, settings={"append.inline.bytes": inline_bytes})
        if query.source == "txnlog":
            _fill_topic(store, numbers)
    if query.source == "file":
        _fill_files(Path(query.folder) / "files", numbers)


def _fill_topic(store: Store, numbers: list[range]) -> None:
    store.create_topic(_INPUT, 2)
    for some in numbers:
        stager = store.stage_plan([_INPUT]).open(seed=0, default_topic=_INPUT)
        keys = [str(number % _KEYS) for number in some]
        stager.write(pa.table({"key": keys, "value": [str(number) for number in some]}))
        store.commit(stager.finish(), transactional_id="input")


def _fill_files(folder: Path, numbers: list[range]) -> None:
    folder.mkdir()
    for place, some in enumerate(numbers):
        path = folder / f"{place:05d}.txt"
        path.write_text("".join(f"{number}\n" for number in some))
        # Spark takes the oldest first.
        os.utime(path, (1_700_000_000 + place,) * 2)
