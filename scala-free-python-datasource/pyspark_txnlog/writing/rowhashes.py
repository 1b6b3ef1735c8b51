"""The content of rows as Spark hashes it in its plan, which is quicker than Python's way over the rows.

A micro-batch's fingerprint is made of it. Spark's function `xxhash64` leaves out nulls, and refuses maps. So numbers
that say which columns are null go before the values, and rows with nested columns are hashed in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ByteType, DataType, DecimalType, FloatType, IntegerType, ShortType

from pyspark_txnlog.options.spark_columns import is_scalar, quoted
from sparktxn.stage.columnconversion import RECORD_COLUMNS
from sparktxn.stage.rowdigest import digest_of_words, name_word
from sparktxn.stage.stagedsegment import with_digest
from sparktxn.store import output_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparktxn import StagedSegment, StagePlan
    from sparktxn.stage.stagedsegment import RowsDigest

__all__ = ["ROW_HASH", "HashedRows", "hashed_columns", "with_row_hashes"]

ROW_HASH: Final = "__row_hash"
"""The column of hashes; no topic has a column of this name."""

_KIND: Final = "spark2"

_BITS: Final = 63
"""The bits of a number but for its sign: of so many columns it says which are null."""

_STORED_AS: Final[dict[type[DataType], str]] = {
    ByteType: "bigint",
    FloatType: "double",
    IntegerType: "bigint",
    ShortType: "bigint",
}
"""As what types are hashed that are not hashed as they are: the same number has the same hash in each width."""


def with_row_hashes(rows: DataFrame, plan: StagePlan, topic: str | None) -> DataFrame:
    """Return `rows` with the columns of `hashed_columns`."""
    return rows.selectExpr(*hashed_columns(rows.schema, plan, topic))


def hashed_columns(schema: StructType, plan: StagePlan, topic: str | None) -> Sequence[str]:
    """Return expressions of the columns of `schema`, and a hash of each row that is not bound to its topic.

    There is no hash if Python must compute it.
    """
    names = sorted({*schema.names}.intersection(_content(plan, topic)))
    is_hashed = bool(names) and all(is_scalar(schema[name].dataType) for name in names)
    # Spark does not know which rows' timestamps the log leaves out.
    if not is_hashed or any(known.has_times_of_entries for known in plan.topics.values()):
        return ("*",)
    # One text for all columns: a micro-batch of few rows would pay for many calls into the JVM.
    hashed = [*_nulls(names)]
    declared = output_schema(None if topic is None else plan.topics[topic].schema)
    for name in names:
        column = quoted(name)
        stored_as = _stored_as(schema[name].dataType, declared.field(name).type)
        hashed.append(column if stored_as is None else f"cast({column} as {stored_as})")
    return ("*", f"xxhash64({', '.join(hashed)}) as {ROW_HASH}")


def _nulls(names: Sequence[str]) -> Iterator[str]:
    """Yield numbers whose bits say which columns are null: a hashed flag for each column costs more."""
    for start in range(0, len(names), _BITS):
        part = names[start : start + _BITS]
        yield " | ".join(f"if({quoted(name)} is null, {1 << bit}L, 0L)" for bit, name in enumerate(part))


def _stored_as(found: DataType, declared: pa.DataType) -> str | None:
    """Return the type that values of the type `found` are hashed as; None if it is that one.

    Spark hashes the digits of a decimal without its scale. So a decimal is hashed with the scale that the topic has.
    Text has the hash of its bytes, which a cast would copy. Text with a collation was refused before.
    """
    if isinstance(found, DecimalType) and pa.types.is_decimal(declared):
        return from_arrow_type(declared).simpleString()
    return _STORED_AS.get(type(found))


def _content(plan: StagePlan, topic: str | None) -> Sequence[str]:
    """Return the columns that are the user's: the log assigns the others of rows that were read anew."""
    if topic is None:
        return RECORD_COLUMNS
    schema = plan.topics[topic].schema
    if schema is None:
        return [name for name in RECORD_COLUMNS if name != "topic"]
    return [*(name for name, _, _ in schema), "_timestamp"]


class HashedRows:
    """Rows on their way into a stager, which takes them without their column of hashes.

    Each hash is bound to the topic here, not in each row by Spark. Rows that name their topics have no other one.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], topic: str | None) -> None:
        self._batches = batches
        self._word = np.uint64(0) if topic is None else name_word(topic)
        self._digest: RowsDigest | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield each batch without the hashes, and note these."""
        for batch in self._batches:
            if ROW_HASH not in batch.schema.names:
                yield batch
                continue
            hashes = batch.column(ROW_HASH).view(pa.uint64()).to_numpy()
            self._digest = digest_of_words(_KIND, hashes + self._word).plus(self._digest)
            yield batch.drop_columns([ROW_HASH])

    def digested(self, staged: Sequence[StagedSegment]) -> Sequence[StagedSegment]:
        """Return the segments of these rows with the digest of them, if they had hashes."""
        return staged if self._digest is None else with_digest(staged, self._digest)
