"""A micro-batch's rows on their way to the driver: Spark computes them once, and its executors hold them meanwhile.

The job that computes them brings the few to the driver. Many go on to tasks, from where they are held. docs/adr/0029
says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_txnlog.sparkinternals import ArrowQuery, HoldableRows

__all__ = ["HeldRows", "rows_query"]

_PARTITION_ROWS_MAX: Final = 10_000
"""How many rows of a partition come to the driver: those of one message. Spark's own messages have so many."""


def rows_query() -> ArrowQuery:
    """Return what plans the queries for the rows of frames with the same columns."""
    return ArrowQuery(_PARTITION_ROWS_MAX)


class HeldRows:
    """The rows of a frame as Arrow batches, in the memory and on the disks of Spark's executors until `close`.

    `columns` are expressions of SQL; `query` may be the one of other frames of the same session.
    """

    def __init__(self, rows: HoldableRows, columns: Sequence[str], query: ArrowQuery) -> None:
        self._held = query.hold(rows, columns)
        self._schema = to_arrow_schema(self._held.schema, timezone="UTC")
        self._query = query

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""
        return self._held.schema.names

    def within(self, bytes_max: int) -> list[pa.RecordBatch] | None:
        """Compute the rows, and return them in their order; None if they are more than may come to the driver.

        No partition has more than 10,000 of them then, and its share of `bytes_max` in Arrow. They come as one batch:
        to stage each partition's few rows apart costs as much again for each.
        """
        messages = self._query.first(self._held, bytes_max)
        if messages is None:
            return None
        rows = pa.Table.from_batches(_decoded(messages, self._schema), self._schema).combine_chunks()
        batches: list[pa.RecordBatch] = rows.to_batches()
        return batches

    def staged_by(self, stage: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]) -> list[Any]:
        """Return what `stage` yields of the rows in tasks of Python, which read them where they are held."""
        schema = self._schema
        return self._held.messages().mapPartitions(lambda messages: stage(_decoded(messages, schema))).collect()

    def close(self) -> None:
        """Let the rows go."""
        self._held.close()


def _decoded(messages: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (pa.ipc.read_record_batch(pa.py_buffer(message), schema) for message in messages)
