"""Segments of many stagers in one list: what they left to the entry is brought within what an entry carries.

Each task of a Spark job stages alone, and does not know what the others leave to the entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sparktxn.clock import Deadline
from sparktxn.format import names
from sparktxn.format.segment import InlineSegment, decode_inline, stored_schema
from sparktxn.stage.segments import PendingSegment, Uploads, stage_inline
from sparktxn.stage.staged import StagedSegment, StageTopic
from sparktxn.stage.uploading import INLINE_LIST_BYTES_MAX

if TYPE_CHECKING:
    from sparktxn.log.log import Log

__all__ = ["gathered"]


def gathered(log: Log, staged: Sequence[StagedSegment], deadline: Deadline) -> list[StagedSegment]:
    """Return segments with the records of `staged`, of which one list can carry those that are not uploaded.

    Neighbours of one partition whose records are not in the store become one segment. It is carried if it is small
    enough and the list has room for it; else it is uploaded. The order within each partition stays.

    Raises:
        DamagedObject: the `data` of a segment is not a segment's.
        OutcomeUnknown, StoreUnavailable: a segment is not uploaded; call again.
    """
    parts = list(_parts(log, staged))
    pending = [part for part in parts if isinstance(part, PendingSegment)]
    carried_bytes = sum(len(part.data) for part in parts if isinstance(part, StagedSegment))
    stage_inline(pending, INLINE_LIST_BYTES_MAX - carried_bytes)
    missing = [segment for segment in pending if segment.staged is None]
    for segment in missing[1:]:
        segment.start()
    return [part.finish(deadline) if isinstance(part, PendingSegment) else part for part in parts]


def _parts(log: Log, staged: Sequence[StagedSegment]) -> Iterator[StagedSegment | PendingSegment]:
    """Yield what is named as it is, and the segments that are made of what is not in the store."""
    fits = sum(len(segment.data) for segment in staged) <= INLINE_LIST_BYTES_MAX
    # The sort is stable: the order within each partition stays.
    for (topic_name, topic_id, partition), segments in groupby(sorted(staged, key=_place), key=_place):
        topic = log.topic(topic_name)
        for is_carried, run in groupby(segments, key=lambda segment: bool(segment.data)):
            found = list(run)
            # The state refuses what names a topic that was deleted since.
            if not is_carried or topic is None or topic.topic_id != topic_id:
                yield from found
            elif fits and len(found) == 1:
                # A name of its own for each list: a caller may commit the same segments again.
                yield replace(found[0], segment=names.inline_segment(log.ids.token()))
            else:
                yield _merged(_uploads(log), StageTopic.of(topic), partition, found)


def _place(segment: StagedSegment) -> tuple[str, int, int]:
    return segment.topic, segment.topic_id, segment.partition


def _merged(uploads: Uploads, topic: StageTopic, partition: int, found: Sequence[StagedSegment]) -> PendingSegment:
    schema = stored_schema(topic.schema)
    inline = [InlineSegment(segment.segment, segment.data, segment.record_count) for segment in found]
    records = decode_inline(inline, schema=schema, columns=schema.names)
    return PendingSegment(uploads, topic, partition, records, sum(segment.payload_bytes for segment in found))


def _uploads(log: Log) -> Uploads:
    return Uploads(
        log.objects,
        log.ids,
        log.clock,
        log.background,
        log.born,
        log.settings.request_timeout_ms / 1000,
        log.settings.upload_threads,
        counts_payload=False,
        inline_bytes=log.settings.inline_bytes,
    )
