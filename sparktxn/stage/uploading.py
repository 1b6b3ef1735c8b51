"""Uploading a segment: encoded once, put under a unique name, and known to exist before an entry names it."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.clock import Clock, Ids, SystemClock
from sparktxn.config.topic import topic_setting
from sparktxn.errors import CommandRefused, DamagedObject, ErrorCode
from sparktxn.format import names
from sparktxn.format.segment import checksum, encode_segment, stored_schema
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.objectstore.putting import put_until_stored
from sparktxn.objectstore.uri import OBJECT_SIZE_MAX
from sparktxn.stage.recordsizes import payload_bytes
from sparktxn.stage.staged import StagedSegment, StageTopic

__all__ = ["RECORD_BYTES_MAX", "StageTopic", "StagedSegment", "upload_segment"]

TIME_OF_ENTRY: Final = -1
"""In an append's timestamps: the records get the time of the entry that names them."""

RECORD_BYTES_MAX: Final = OBJECT_SIZE_MAX - 1024 * 1024
"""The largest record: one that does not compress still fits into a segment that one put can carry."""

_TIMEOUT_S: Final = 60.0
NOT_COUNTED: Final = -1

# For a segment of a small commit a call of Arrow's kernels costs more than a loop.
_SMALL_ROWS: Final = 1_024


def upload_segment(
    objects: ObjectStore,
    ids: Ids,
    born: int,
    topic: StageTopic,
    partition: int,
    table: pa.Table,
    *,
    timestamps_ms: tuple[int, int] | None = None,
    clock: Clock | None = None,
    timeout_s: float = _TIMEOUT_S,
    count_payload: bool = True,
) -> StagedSegment:
    """Encodes `table` and uploads it as a segment that no entry names yet.

    Args:
        objects: the store.
        ids: for the segment's unique name.
        born: the newest entry that the writer knows; a vacuum's floor is compared with it.
        topic: the topic, with the settings ``segment.format`` and ``compression.type``.
        partition: one of the topic's partitions.
        table: the records in the topic's stored schema, at least one.
        timestamps_ms: the least and the greatest of their timestamps; None to look them up in `table`.
        clock: for the waits between attempts.
        timeout_s: how long the upload may take, all attempts together.
        count_payload: whether `payload_bytes` is needed: only a micro-batch's fingerprint asks for it.

    Raises:
        StoreUnavailable: the store did not say that the object is there. Nothing names it, so nothing is lost.
        CommandRefused: MESSAGE_TOO_LARGE, the encoded segment is more than one put can carry; INVALID_TIMESTAMP, a
            record is dated before 1970.
    """
    clock = clock or SystemClock()
    segment_format: str = topic_setting(topic.settings, "segment.format")
    data = encode_segment(
        table, segment_format=segment_format, compression=topic_setting(topic.settings, "compression.type")
    )
    if len(data) > OBJECT_SIZE_MAX:
        raise CommandRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a segment of {table.num_rows} records for topic {topic.name!r} has {len(data)} bytes: expected at most "
            f"{OBJECT_SIZE_MAX}; send smaller records",
        )
    first_ms, last_ms = timestamps_ms or _timestamp_range_ms(table, stored_schema(topic.schema).names[-1])
    if first_ms < 0:
        raise CommandRefused(
            ErrorCode.INVALID_TIMESTAMP,
            f"a record for topic {topic.name!r} has the timestamp {first_ms} ms: expected 0 or more, 1970 or later",
        )
    file_name = names.segment_file(born, ids.token(), segment_format)
    name = names.segment(topic.name, topic.topic_id, partition, file_name)
    if put_until_stored(objects, name, data, clock, timeout_s=timeout_s) != data:
        raise DamagedObject(name, "it holds other bytes than were put under this unique name")
    if topic_setting(topic.settings, "message.timestamp.type") == "LogAppendTime":
        first_ms = last_ms = TIME_OF_ENTRY
    return StagedSegment(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=partition,
        segment=file_name,
        record_count=table.num_rows,
        size_bytes=len(data),
        checksum=checksum(data),
        timestamp_min_ms=first_ms,
        timestamp_max_ms=last_ms,
        payload_bytes=payload_bytes(table) if count_payload else NOT_COUNTED,
    )


def _timestamp_range_ms(table: pa.Table, column: str) -> tuple[int, int]:
    timestamps = table.column(column)
    if len(timestamps) > _SMALL_ROWS:
        found = pc.min_max(timestamps)
        return found["min"].value, found["max"].value
    values = [value for chunk in timestamps.chunks for value in _int64_values(chunk)]
    return min(values), max(values)


def _int64_values(chunk: pa.Array) -> memoryview:
    return memoryview(chunk.buffers()[1]).cast("q")[chunk.offset : chunk.offset + len(chunk)]
