"""A micro-batch's rows on their way to the driver: Spark computes them once, and its executors hold them meanwhile.

Their size is known before the first of them reaches the driver. Rows that are too many go on to tasks, from where they
are held. docs/adr/0029 says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType

from pyspark_txnlog.connecting.internals import ArrowRows
from pyspark_txnlog.options.spark_columns import is_scalar, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

__all__ = ["HeldRows"]

_LARGE_TYPES: Final = "spark.sql.execution.arrow.useLargeVarTypes"
_SIZE: Final = "__txnlog_size"

_FIXED_BYTES: Final = 24
"""The most that a value takes in Arrow, the bytes of text apart: 16 for a decimal, an offset, and a bit."""

_NESTED_FACTOR: Final = 8
"""How many times the length of its text a nested value takes at most: a number of one digit and a comma take 16."""


class HeldRows:
    """The rows of a frame as Arrow batches, in the memory and on the disks of Spark's executors until `close`."""

    def __init__(self, frame: DataFrame) -> None:
        self._schema = to_arrow_schema(
            frame.schema, timezone="UTC", prefers_large_types=str(frame.sparkSession.conf.get(_LARGE_TYPES)) == "true"
        )
        lengths = " + ".join(["0L", *(length for field in frame.schema for length in _length(field))])
        fixed = f"count(*) * {_FIXED_BYTES * len(frame.columns)}"
        self._held = ArrowRows(frame.observe(_SIZE, F.expr(f"{fixed} + coalesce(sum({lengths}), 0) bytes")))

    def size_bytes(self) -> int | None:
        """Compute the rows; return how many bytes they are at most, or None if Spark has not measured them."""
        return 0 if self._held.count() == 0 else self._held.observed(_SIZE)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return all rows, in their order, in the memory of this process."""
        return _decoded(self._held.messages().collect(), self._schema)

    def staged_by(self, stage: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]) -> list[Any]:
        """Return what `stage` yields of the rows in tasks of Python, which read them where they are held."""
        schema = self._schema
        return self._held.messages().mapPartitions(lambda messages: stage(_decoded(messages, schema))).collect()

    def close(self) -> None:
        """Let the rows go."""
        self._held.close()


def _length(field: StructField) -> list[str]:
    """Return the expression of the bytes of a column that `_FIXED_BYTES` does not count."""
    name = quoted(field.name)
    if isinstance(field.dataType, StringType | BinaryType):
        return [f"coalesce(octet_length({name}), 0)"]
    if is_scalar(field.dataType):
        return []
    return [f"coalesce(octet_length(cast({name} as string)), 0) * {_NESTED_FACTOR}"]


def _decoded(messages: Iterable[bytes], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (pa.ipc.read_record_batch(pa.py_buffer(message), schema) for message in messages)
