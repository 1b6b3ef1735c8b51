"""Refusals of a batch that name the records which caused them (KIP-467). Found once a batch is refused as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.errors import CommandRefused, ErrorCode, KafkaException
from sparktxn.stage.recordsizes import row_bytes
from sparktxn.stage.stagedsegment import StageTopic
from sparktxn.values.arguments import TIMESTAMP_MS_MAX
from sparktxn.values.counted import counted

__all__ = ["NAMED_MAX", "RecordsRefused", "Refused", "with_records", "without_large_records"]

NAMED_MAX: Final = 1_000
"""How many records of a batch a refusal names."""

Refused = tuple[int, str]
"""A record's place in its batch, and why it is refused."""


class RecordsRefused(CommandRefused):
    """A batch is refused because of `records`, in their order; none of the batch is stored."""

    def __init__(self, code: int, records: Sequence[Refused]) -> None:
        more = f" ({counted(len(records), 'record')} of the batch)" if len(records) > 1 else ""
        super().__init__(code, f"{records[0][1]}{more}")
        self.records = tuple(records)

    def __reduce__(self) -> tuple[object, ...]:
        return (RecordsRefused, (self.error.code(), self.records))


def with_records(topic: StageTopic, records: pa.Table, error: KafkaException) -> KafkaException:
    """Return a refusal that names the records with a time that cannot be, or without a key that they need.

    Return the error itself if it is another one.
    """
    times = records.column("timestamp").cast(pa.int64())
    wrong = _places(pc.or_(pc.less(times, 0), pc.greater(times, TIMESTAMP_MS_MAX)))
    if wrong:
        reason = f"a timestamp is {{}} ms: expected 0 (1970) to {TIMESTAMP_MS_MAX}"
        return RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP, [(place, reason.format(times[place].as_py())) for place in wrong]
        )
    if topic.schema is None and topic.is_compacted and (wrong := _places(pc.is_null(records.column("key")))):
        reason = f"topic {topic.name!r} is compacted by key, and a record has none"
        return RecordsRefused(ErrorCode.INVALID_RECORD, [(place, reason) for place in wrong])
    return error


def without_large_records(rows: pa.Table, bytes_max: int) -> RecordsRefused:
    """Return the refusal of the rows that are larger than `bytes_max`, of which there is at least one."""
    sizes = row_bytes(rows.select(rows.column_names[:-1]))
    reason = f"a record of {{}} bytes is larger than {bytes_max}"
    wrong = _places(pc.greater(sizes, bytes_max))
    return RecordsRefused(
        ErrorCode.MESSAGE_TOO_LARGE, [(place, reason.format(sizes[place].as_py())) for place in wrong]
    )


def _places(is_wrong: pa.Array | pa.ChunkedArray) -> list[int]:
    places: list[int] = pc.indices_nonzero(is_wrong).to_pylist()
    return places[:NAMED_MAX]
