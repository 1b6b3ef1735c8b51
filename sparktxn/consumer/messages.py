"""Arrow batches → messages."""

from __future__ import annotations

from itertools import repeat

import pyarrow as pa

from sparktxn.kafka.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Headers, Message, ReadMessage
from sparktxn.scan.internalrows import internal_messages
from sparktxn.scan.plan import LOG_APPEND_TIME
from sparktxn.state.internal import INTERNAL_TOPICS

__all__ = ["messages_of"]


def messages_of(batch: pa.RecordBatch, topic: str, partition: int) -> list[Message] | None:
    """Return the batch's rows, all of one partition, as messages; None if the topic is typed, so that it has none.

    They are made column by column, which makes it fast.
    """
    if topic in INTERNAL_TOPICS:
        return internal_messages(batch, topic)
    if "_offset" in batch.schema.names:
        return None
    if not batch.num_rows:
        return []
    log_append = batch.column("timestampType")[0].as_py() == LOG_APPEND_TIME
    return list(
        map(
            ReadMessage,
            repeat(topic),
            repeat(partition),
            batch.column("offset").to_pylist(),
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            _headers(batch.column("headers")),
            repeat(TIMESTAMP_LOG_APPEND_TIME if log_append else TIMESTAMP_CREATE_TIME),
            batch.column("timestamp").cast(pa.int64()).to_pylist(),
        )
    )


def _headers(column: pa.ListArray) -> list[Headers | None]:
    """Return each row's headers; None for a record without any."""
    if column.null_count == len(column):
        return [None] * len(column)
    # A slice's `values` are those of the whole column: only the slice's own part is converted.
    ends = column.offsets.to_pylist()
    first, last = ends[0], ends[-1]
    items = column.values.slice(first, last - first)
    pairs = list(zip(items.field("key").to_pylist(), items.field("value").to_pylist(), strict=True))
    # A null row's extent is empty by no rule of Arrow's, so its validity is asked too.
    valid = column.is_valid().to_pylist()
    return [
        pairs[start - first : end - first] or None if present else None
        for start, end, present in zip(ends[:-1], ends[1:], valid, strict=True)
    ]
