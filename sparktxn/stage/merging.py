"""Segments of many stagers in one list: what they left to the entry is brought within what an entry carries.

Each task of a Spark job stages alone, and does not know what the others leave to the entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from sparktxn.errors import ConfigurationError, DamagedObject
from sparktxn.format.segment import InlineSegment, decode_inline, stored_schema
from sparktxn.stage.pendingsegment import PendingSegment, Uploads, stage_inline, upload_missing
from sparktxn.stage.stagedsegment import StagedSegment, StageTopic
from sparktxn.stage.uploading import INLINE_LIST_BYTES_MAX
from sparktxn.state.transactions.partitions import inline_problem

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["checked", "gathered"]

_STAGE_AGAIN: Final = "Expected segments as a stager returned them; nothing was written: stage the rows again"


def checked(staged: Sequence[StagedSegment]) -> list[StagedSegment]:
    """Return the segments of a caller in plain values, checked as the state checks an append.

    Later would be too late for what they carry: a merged segment has a checksum of its own.

    Raises:
        TypeError, ConfigurationError: a field of a segment is not what a log can hold, or its `data` is not what it
            says of itself.
    """
    found = [segment.checked() for segment in staged]
    for place, segment in enumerate(found):
        problem = inline_problem(segment, segment.data)
        if problem is not None:
            raise ConfigurationError(f"staged[{place}], segment {segment.segment!r}, has {problem}: {_STAGE_AGAIN}")
    return found


def gathered(log: Log, staged: Sequence[StagedSegment]) -> list[StagedSegment]:
    """Return segments with the records of `staged`, of which one list can carry those that are not uploaded.

    Neighbours of one partition whose records are not in the store become one segment. It is carried if it is small
    enough and the list has room for it; else it is uploaded. The order within each partition stays. Its name is new: a
    caller may commit the same segments again.

    Raises:
        ConfigurationError: the `data` of a segment that `checked` passed does not hold records of its topic.
        OutcomeUnknown, StoreUnavailable: a segment is not uploaded; call again.
    """
    if not any(segment.data for segment in staged):
        return list(staged)
    parts = list(_parts(log, staged))
    pending = [part for part in parts if isinstance(part, PendingSegment)]
    stage_inline(pending, INLINE_LIST_BYTES_MAX)
    upload_missing(pending)
    return [part.finish() if isinstance(part, PendingSegment) else part for part in parts]


def _parts(log: Log, staged: Sequence[StagedSegment]) -> Iterator[StagedSegment | PendingSegment]:
    """Yield what is named as it is, and the segments that are made of what is not in the store."""
    uploads = Uploads.of(log)
    # The sort is stable: the order within each partition stays.
    for (topic_name, topic_id, partition), segments in groupby(sorted(staged, key=_place), key=_place):
        topic = log.topic(topic_name)
        for is_carried, run in groupby(segments, key=lambda segment: bool(segment.data)):
            # The state refuses what names a topic that was deleted since.
            if not is_carried or topic is None or topic.topic_id != topic_id:
                yield from run
            else:
                yield _merged(uploads, StageTopic.of(topic), partition, list(run))


def _place(segment: StagedSegment) -> tuple[str, int, int]:
    return segment.topic, segment.topic_id, segment.partition


def _merged(uploads: Uploads, topic: StageTopic, partition: int, found: Sequence[StagedSegment]) -> PendingSegment:
    schema = stored_schema(topic.schema)
    carried = [InlineSegment(segment.segment, segment.data, segment.record_count) for segment in found]
    try:
        records = decode_inline(carried, schema=schema, columns=schema.names)
    except DamagedObject as error:
        # No object of the store has these bytes: the caller does.
        reason = (
            f"staged has data that cannot be read, of segment {error.object_name!r}: {error.reason}. {_STAGE_AGAIN}"
        )
        raise ConfigurationError(reason) from error
    return PendingSegment(uploads, topic, partition, records, sum(segment.payload_bytes for segment in found))
