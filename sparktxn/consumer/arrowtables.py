"""Records that are read as one Arrow table."""

from __future__ import annotations

import pyarrow as pa

from sparktxn.consumer.fetcher import Chunk
from sparktxn.consumer.polling import Reading
from sparktxn.errors import StoreError

__all__ = ["table_of"]


def table_of(reading: Reading, chunk: Chunk | None, num_records: int) -> pa.Table:
    """Return `chunk` with what follows it in the view that is read: one schema, about `num_records` records."""
    batches: list[pa.RecordBatch] = []
    rows = 0
    while chunk is not None:
        if batches and chunk.batch.schema != batches[0].schema:
            chunk.source.give_back(chunk.batch.num_rows)
            break
        reading.handed_out(chunk)
        batches.append(chunk.batch)
        rows += chunk.batch.num_rows
        if rows >= num_records:
            break
        try:
            chunk = reading.more_in_view(num_records - rows)
        except StoreError:
            # What has been taken must not be lost; the error comes again.
            break
    return pa.Table.from_batches(batches)
