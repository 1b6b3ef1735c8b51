"""Staging a segment: encoded once, and put under a unique name before an entry names it, or carried by that entry."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from sparktxn._engine.format import names
from sparktxn._engine.format.decodeguard import TooLarge
from sparktxn._engine.format.segment import (
    INLINE_BYTES_MAX,
    checksum,
    encode_inline,
    encode_segment,
    stored_schema,
    timestamp_range_ms,
)
from sparktxn._engine.objectstore.contract import OBJECT_SIZE_MAX, ObjectStore
from sparktxn._engine.objectstore.puts import put_until_stored
from sparktxn._foundation.process.clock import Clock, Ids
from sparktxn._foundation.values.quantities import counted
from sparktxn._rows.stage.recordsizes import payload_bytes
from sparktxn._rows.stage.stagedsegment import StagedSegment, StageTopic
from sparktxn.errors import CommandRefused, DamagedObject, ErrorCode

__all__ = [
    "NOT_COUNTED",
    "RECORD_BYTES_MAX",
    "StageTopic",
    "StagedSegment",
    "inline_segment",
    "upload_encoded",
    "upload_segment",
]

RECORD_BYTES_MAX: Final = OBJECT_SIZE_MAX - 1024 * 1024
"""The largest record: one that does not compress still fits into a segment that one put can carry."""

_TIMEOUT_S: Final = 60.0
"""How long an upload may take, all attempts together."""
NOT_COUNTED: Final = -1


def upload_segment(
    objects: ObjectStore,
    ids: Ids,
    born: int,
    topic: StageTopic,
    partition: int,
    table: pa.Table,
    *,
    timestamps_ms: tuple[int, int] | None = None,
    clock: Clock,
    count_payload: bool = True,
) -> StagedSegment:
    """Encode `table` and upload it as a segment that no entry names yet.

    Args:
        objects: the store.
        ids: for the segment's unique name.
        born: the newest entry that the writer knows; a vacuum's floor is compared with it.
        topic: the topic, with the settings ``segment.format`` and ``compression.type``.
        partition: one of the topic's partitions.
        table: the records in the topic's stored schema, at least one.
        timestamps_ms: the least and the greatest of their timestamps; None to look them up in `table`.
        clock: for the waits between attempts.
        count_payload: whether `payload_bytes` is needed: only a micro-batch's fingerprint asks for it.

    Raises:
        StoreUnavailable: the store did not say that the object is there. Nothing names it, so nothing is lost.
        CommandRefused: MESSAGE_TOO_LARGE, the encoded segment is more than one put can carry; INVALID_TIMESTAMP, a
            record is dated before 1970.
    """
    return upload_encoded(
        objects,
        ids,
        born,
        topic,
        partition,
        encode_segment(table, segment_format=topic.segment_format, compression=topic.compression),
        record_count=table.num_rows,
        timestamps_ms=timestamps_ms or timestamp_range_ms(table, stored_schema(topic.schema)),
        payload=payload_bytes(table) if count_payload else NOT_COUNTED,
        clock=clock,
    )


def upload_encoded(
    objects: ObjectStore,
    ids: Ids,
    born: int,
    topic: StageTopic,
    partition: int,
    data: bytes,
    *,
    record_count: int,
    timestamps_ms: tuple[int, int],
    payload: int,
    clock: Clock,
) -> StagedSegment:
    """Upload a segment that is encoded, of `record_count` records that hold `payload` bytes.

    The other arguments and the errors are those of `upload_segment`.
    """
    if len(data) > OBJECT_SIZE_MAX:
        raise CommandRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a segment of {counted(record_count, 'record')} for topic {topic.name!r} has {len(data)} "
            "bytes: expected at most "
            f"{OBJECT_SIZE_MAX}; send smaller records",
        )
    range_ms = _checked_times(topic, timestamps_ms)
    file_name = names.segment_file(born, ids.token(), topic.segment_format)
    name = names.segment(topic.name, topic.topic_id, partition, file_name)
    if put_until_stored(objects, name, data, clock, timeout_s=_TIMEOUT_S) != data:
        raise DamagedObject(name, "it holds other bytes than were put under this unique name")
    return _staged(topic, partition, file_name, record_count, data, range_ms, payload)


def inline_segment(
    ids: Ids,
    topic: StageTopic,
    partition: int,
    table: pa.Table,
    bytes_max: int,
    *,
    timestamps_ms: tuple[int, int] | None = None,
    count_payload: bool = False,
) -> StagedSegment | None:
    """Encode `table` for the entry that is to name it; None if it takes more than `bytes_max`, or than an append may.

    The other arguments are those of `upload_segment`.

    Raises:
        CommandRefused: INVALID_TIMESTAMP, a record is dated before 1970.
    """
    try:
        data = encode_inline(table, compression=topic.compression)
    except TooLarge:
        return None
    if len(data) > min(bytes_max, INLINE_BYTES_MAX):
        return None
    range_ms = _checked_times(topic, timestamps_ms or timestamp_range_ms(table, stored_schema(topic.schema)))
    name = names.inline_segment(ids.token())
    payload = payload_bytes(table) if count_payload else NOT_COUNTED
    return _staged(topic, partition, name, table.num_rows, data, range_ms, payload, is_inline=True)


def _staged(
    topic: StageTopic,
    partition: int,
    segment: str,
    record_count: int,
    data: bytes,
    timestamps_ms: tuple[int, int],
    payload: int,
    *,
    is_inline: bool = False,
) -> StagedSegment:
    return StagedSegment(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=partition,
        segment=segment,
        record_count=record_count,
        size_bytes=len(data),
        checksum=checksum(data),
        timestamp_min_ms=timestamps_ms[0],
        timestamp_max_ms=timestamps_ms[1],
        payload_bytes=payload,
        data=data if is_inline else b"",
        is_keyed=bool(topic.primary_key),
    )


def _checked_times(topic: StageTopic, timestamps_ms: tuple[int, int]) -> tuple[int, int]:
    """Return the least and the greatest timestamp of records.

    Raises:
        CommandRefused: INVALID_TIMESTAMP, a record is dated before 1970.
    """
    first_ms, last_ms = timestamps_ms
    if first_ms < 0:
        raise CommandRefused(
            ErrorCode.INVALID_TIMESTAMP,
            f"a record for topic {topic.name!r} has the timestamp {first_ms} ms: expected 0 or more, 1970 or later",
        )
    return first_ms, last_ms
