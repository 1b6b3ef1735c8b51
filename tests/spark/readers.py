"""The source as Spark calls it, with no session: readers on the driver, tasks read in the same process."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_txnlog.options.options import READ, READ_STREAM, ReadOptions
from pyspark_txnlog.reading.batch_reader import FilteringTxnLogReader, TxnLogReader, make_reader, read_schema
from pyspark_txnlog.reading.stream_reader import TxnLogStreamReader
from pyspark_txnlog.reading.streams import stream_reader_of
from sparktxn import Store
from sparktxn._foundation.process.clock import Clock

VALUE = StructType([StructField("value", BinaryType())])


def commit(
    store: Store, numbers: range, topic: str = "t", partition: int | None = None, timestamp_ms: int | None = None
) -> None:
    """Write one transaction with the numbers as records, the first at `timestamp_ms`, each a millisecond later."""
    columns: dict[str, Any] = {"value": [str(number) for number in numbers], "topic": [topic] * len(numbers)}
    if partition is not None:
        columns["partition"] = pa.array([partition] * len(numbers), pa.int32())
    if timestamp_ms is not None:
        times = [timestamp_ms + place for place in range(len(numbers))]
        columns["timestamp"] = pa.array(times, pa.timestamp("ms", "UTC"))
    stager = store.stage_plan([topic]).open(seed=0)
    stager.write(pa.table(columns))
    store.commit(stager.finish(), transactional_id="tests")


def batch_reader(store: Store, /, **options: str) -> TxnLogReader:
    """Make the reader of a batch; `subscribe` is ``t`` unless the options say what to read."""
    parsed = ReadOptions.parse(_given(store, options), READ)
    schema, pinned = read_schema(parsed)
    return make_reader(parsed, schema, pinned)


def filtering_reader(store: Store, /, **options: str) -> FilteringTxnLogReader:
    """Make the reader of a batch whose conditions Spark pushes down."""
    parsed = ReadOptions.parse(_given(store, options), READ)
    return FilteringTxnLogReader(parsed, *read_schema(parsed))


def read_schema_of(store: Store, /, **options: str) -> StructType:
    """Return the columns that Spark is given for a batch."""
    return read_schema(ReadOptions.parse(_given(store, options), READ))[0]


def stream_reader(store: Store, clock: Clock | None = None, /, **options: str) -> TxnLogStreamReader:
    """Make the reader of a stream of the column `value`."""
    return stream_reader_of(ReadOptions.parse(_given(store, options), READ_STREAM), VALUE, clock)


def _given(store: Store, options: dict[str, str]) -> dict[str, str]:
    named = {"subscribe", "subscribepattern", "assign", "topic"} & {name.lower() for name in options}
    given = {name.lower().replace("__", "."): value for name, value in options.items()}
    return {"path": store.uri, **({} if named else {"subscribe": "t"}), **given}


def numbers_of(reader: TxnLogReader) -> list[int]:
    """Read a batch; return its numbers, sorted."""
    return _numbers(reader, reader.partitions())


def numbers_between(reader: TxnLogStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Read a micro-batch; return its numbers, sorted."""
    return _numbers(reader, reader.partitions(start, end))


class Query:
    """Micro-batches of one reader, each from where the one before it ended, or from a checkpoint's `offset`."""

    def __init__(self, reader: TxnLogStreamReader, offset: dict[str, Any] | None = None) -> None:
        self.reader = reader
        self.offset: dict[str, Any] = reader.initialOffset() if offset is None else offset

    def run(self, limit: ReadLimit | None = None) -> list[int]:
        """Read the next micro-batch; return its numbers, sorted."""
        start, limit = self.offset, limit or self.reader.getDefaultReadLimit()
        # As Spark does it: through the checkpoint's JSON.
        self.offset = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        return numbers_between(self.reader, start, self.offset)

    def is_idle(self) -> bool:
        """True if the next micro-batch would begin and end at the same offset."""
        found = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        return json.dumps(found) == json.dumps(self.offset)


def _numbers(reader: Any, parts: Any) -> list[int]:
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted(int(value) for batch in batches for value in batch.column("value").to_pylist())
