"""Offsets and records of partitions: where they begin and end, which belongs to a time, and deleting the oldest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from sparktxn._engine.format.commands import DeleteRecords
from sparktxn._engine.log.log import Log
from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._kafka.admin import DeletedRecords, ListOffsetsResultInfo, OffsetSpec
from sparktxn._kafka.message import TopicPartition
from sparktxn._rows.scan.offsets import offset_for_time, view_of_existing
from sparktxn._rows.scan.plan import Isolation, end_of, plan_ranges, segments_between
from sparktxn._rows.scan.reader import read
from sparktxn.admin.topics import existing_topic, refusal
from sparktxn.errors import ErrorCode, KafkaException

_Listed = TypeVar("_Listed")
_Place = tuple[str, int, int]
"""A topic, a partition and an offset."""

_NONE = ListOffsetsResultInfo(-1, -1)


def list_offsets(
    log: Log, uri: str, asked: Sequence[tuple[TopicPartition, OffsetSpec]], isolation: Isolation
) -> list[ListOffsetsResultInfo | KafkaException]:
    """Return an offset of each partition, -1 if there is none, or why there is none to return; all by one view.

    The error is ``UNKNOWN_TOPIC_OR_PARTITION``, or that of a store in which a partition's records cannot be read.

    Raises:
        StoreError: the log cannot be read.
    """
    whole = view_of_existing(log, (partition.topic for partition, _ in asked))
    answers = [_outcome(partial(_listed, log, uri, whole, *each, isolation)) for each in asked]
    by_time = [place for place, (_, spec) in enumerate(asked) if spec.timestamp_ms is not None]
    found = {
        (asked[place][0].topic, asked[place][0].partition, answer.offset): place
        for place in by_time
        if isinstance(answer := answers[place], ListOffsetsResultInfo) and answer.offset >= 0
    }
    if not found:
        return answers
    times = _outcome(partial(_times_at, log, uri, whole, list(found), isolation))
    for place in by_time:
        answer, partition = answers[place], asked[place][0]
        if isinstance(answer, ListOffsetsResultInfo) and answer.offset >= 0:
            where = (partition.topic, partition.partition, answer.offset)
            answers[place] = (
                times if isinstance(times, KafkaException) else replace(answer, timestamp=times.get(where, -1))
            )
    return answers


def _outcome(call: Callable[[], _Listed]) -> _Listed | KafkaException:
    try:
        return call()
    except KafkaException as error:
        return error.with_traceback(None)  # its frames hold the answers, this one among them: a cycle


def _listed(
    log: Log, uri: str, whole: ReadView, partition: TopicPartition, spec: OffsetSpec, isolation: Isolation
) -> ListOffsetsResultInfo:
    """Return the offset of a partition, without the time of its record where a time was asked for."""
    view = _partition_view(log, whole, partition)
    if spec.earliest_:
        return ListOffsetsResultInfo(view.log_start_offset, -1)
    if spec.max_timestamp_:
        return _newest_by_time(log, uri, whole, view, isolation)
    if spec.timestamp_ms is None:
        return ListOffsetsResultInfo(end_of(view, isolation), -1)
    offset = offset_for_time(log.objects, view, spec.timestamp_ms, isolation)
    return _NONE if offset is None else ListOffsetsResultInfo(offset, -1)


def _partition_view(log: Log, whole: ReadView, partition: TopicPartition) -> PartitionView:
    found = whole.partitions.get((partition.topic, partition.partition))
    if found is None:
        topic = whole.topics.get(partition.topic) or existing_topic(log, partition.topic)
        reason = f"topic {partition.topic!r} has partitions 0 to {topic.partition_count - 1}, not {partition.partition}"
        raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    return found


def _times_at(log: Log, uri: str, whole: ReadView, places: Sequence[_Place], isolation: Isolation) -> dict[_Place, int]:
    """Return the timestamps of single records in milliseconds, by one plan for each layout of topics."""
    found = {}
    for is_typed in (False, True):
        ranges = {
            (topic, partition): (offset, offset + 1)
            for topic, partition, offset in places
            if (whole.topics[topic].schema is not None) == is_typed
        }
        columns = ("_timestamp",) if is_typed else ("timestamp",)
        tasks = plan_ranges(log.objects, uri, whole, ranges, isolation=isolation, columns=columns) if ranges else []
        for task in tasks:
            for batch in read(log.objects, task):
                for timestamp_ms in batch.column(0).cast(pa.int64()).to_pylist():
                    found[task.topic, task.partition, task.start_offset] = timestamp_ms
    return found


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
    view = _partition_view(log, log.view([partition.topic]), partition)
    command = DeleteRecords(log.ids.token(), view.topic.topic_id, partition.partition, partition.offset)
    (result,) = log.submit([command])
    return DeletedRecords(result.base_offset)
