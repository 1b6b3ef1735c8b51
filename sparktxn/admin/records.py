"""Offsets and records of partitions: where they begin and end, which belongs to a time, and deleting the oldest."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparktxn.admin.topics import refusal
from sparktxn.errors import ErrorCode
from sparktxn.format.commands import DeleteRecords
from sparktxn.kafka.admin import DeletedRecords, ListOffsetsResultInfo, OffsetSpec
from sparktxn.kafka.message import TopicPartition
from sparktxn.log.log import Log
from sparktxn.log.views.readview import PartitionView, ReadView
from sparktxn.scan.offsets import offset_for_time
from sparktxn.scan.plan import Isolation, end_of, plan_ranges, segments_between
from sparktxn.scan.reader import read

__all__ = ["delete_records", "list_offset"]

_NONE = ListOffsetsResultInfo(-1, -1)


def _partition_view(view: ReadView, partition: TopicPartition) -> PartitionView:
    found = view.partitions.get((partition.topic, partition.partition))
    if found is None:
        count = view.topics[partition.topic].partition_count
        reason = f"topic {partition.topic!r} has partitions 0 to {count - 1}, not {partition.partition}"
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    return found


def list_offset(
    log: Log, uri: str, partition: TopicPartition, spec: OffsetSpec, isolation: Isolation
) -> ListOffsetsResultInfo:
    """Return one offset of a partition; -1 if there is none.

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``.
    """
    whole = log.view([partition.topic])
    view = _partition_view(whole, partition)
    if spec.earliest_:
        return ListOffsetsResultInfo(view.log_start_offset, -1)
    if spec.max_timestamp_:
        return _newest_by_time(log, uri, whole, view, isolation)
    if spec.timestamp_ms is None:
        return ListOffsetsResultInfo(end_of(view, isolation), -1)
    offset = offset_for_time(log.objects, view, spec.timestamp_ms, isolation)
    if offset is None:
        return _NONE
    times = _times(log, uri, whole, view, offset, offset + 1, isolation)
    return ListOffsetsResultInfo(offset, times.column("timestamp")[0].as_py())


def _times(
    log: Log, uri: str, whole: ReadView, view: PartitionView, start: int, end: int, isolation: Isolation
) -> pa.Table:
    """Return offsets and timestamps in milliseconds of a range's records."""
    prefix = "" if view.topic.schema is None else "_"
    columns = (prefix + "offset", prefix + "timestamp")
    ranges = {(view.topic.name, view.partition): (start, end)}
    tasks = plan_ranges(log.objects, uri, whole, ranges, isolation=isolation, columns=columns)
    batches = [batch for task in tasks for batch in read(log.objects, task)]
    schema = pa.schema([("offset", pa.int64()), ("timestamp", pa.int64())])
    arrays = [[batch.column(0), batch.column(1).cast(pa.int64())] for batch in batches]
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(pair, schema=schema) for pair in arrays], schema=schema)


def _newest_by_time(
    log: Log, uri: str, whole: ReadView, view: PartitionView, isolation: Isolation
) -> ListOffsetsResultInfo:
    """Read segments by their greatest timestamp, the newest first, until no other can hold a newer record."""
    start, end = view.log_start_offset, end_of(view, isolation)
    segments = segments_between(log.objects, view, start, end)
    segments.sort(key=lambda segment: (-segment.timestamp_max_ms, segment.base_offset))
    parts = [(segment.timestamp_max_ms, segment.base_offset, segment.end_offset) for segment in segments]
    best = _NONE
    # Rows that no segment holds are computed: all are, to find the newest.
    for timestamp_max_ms, first, last in parts or [(0, start, end)]:
        if best.offset >= 0 and timestamp_max_ms <= best.timestamp:
            break
        times = _times(log, uri, whole, view, max(start, first), min(end, last), isolation)
        if not times.num_rows:
            continue
        newest = pc.max(times.column("timestamp")).as_py()
        if newest > best.timestamp:
            row = pc.index(times.column("timestamp"), value=newest).as_py()
            best = ListOffsetsResultInfo(times.column("offset")[row].as_py(), newest)
    return best


def delete_records(log: Log, partition: TopicPartition) -> DeletedRecords:
    """Delete the records before `partition.offset`, or all of them if it is OFFSET_END.

    Raises:
        KafkaException: ``UNKNOWN_TOPIC_OR_PARTITION``; ``INVALID_TOPIC``: the topic is internal;
            ``OFFSET_OUT_OF_RANGE``: the offset is past the end, or below 0.
    """
    log.changeable_topic(partition.topic)
    view = _partition_view(log.view([partition.topic]), partition)
    command = DeleteRecords(log.ids.token(), view.topic.topic_id, partition.partition, partition.offset)
    (result,) = log.submit([command])
    return DeletedRecords(result.base_offset)
