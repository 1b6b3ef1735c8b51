"""The command that puts new files in the place of a range's segments: that of rewrites, and of compactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sparktxn.errors import CommandRefused, OutcomeUnknown, StoreUnavailable
from sparktxn.format import names
from sparktxn.format.commands import Rewrite
from sparktxn.format.manifest import encode_manifest
from sparktxn.format.segment import checksum
from sparktxn.log.log import Log
from sparktxn.objectstore.putting import put_until_stored
from sparktxn.process.clock import is_time_up
from sparktxn.values.structs import Compaction, ManifestRef, SegmentRef

__all__ = ["Place", "put_into_effect", "replacement"]


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    topic_id: int
    partition: int


def replacement(
    log: Log,
    place: Place,
    offsets: tuple[int, int],
    segments: Sequence[SegmentRef],
    planned_entry: int,
    compaction: Compaction | None = None,
) -> Rewrite:
    """Write the manifest of a range, and return the command that names it.

    Args:
        log: the store.
        place: the partition.
        offsets: where the range begins, and the offset after its last one.
        segments: what the range has from then on, at least one, in offset order.
        planned_entry: the view that they were made from.
        compaction: what was compacted, if that is what was done.

    Raises:
        StoreUnavailable: the store did not take the manifest.
    """
    # A folder's name bears a known entry, not the newest: the log's lock is not held for a request.
    entry = log.born()
    run = names.sealed_folder(segments[0].base_offset, entry, log.ids.token())
    data = encode_manifest(segments)
    put_until_stored(log.objects, names.manifest(names.partition_folder(*place), run), data, log.clock)
    return Rewrite(
        request_id=log.ids.token(),
        topic_id=place.topic_id,
        partition=place.partition,
        base_offset=offsets[0],
        end_offset=offsets[1],
        planned_entry=planned_entry,
        segments=tuple(dict.fromkeys(segment.name for segment in segments)),
        run=ManifestRef(
            folder=run,
            base_offset=segments[0].base_offset,
            end_offset=segments[-1].end_offset,
            segment_count=len(segments),
            level=0,
            entry_min=min(segment.entry for segment in segments),
            entry_max=max(segment.entry for segment in segments),
            timestamp_min_ms=min(segment.timestamp_min_ms for segment in segments),
            timestamp_max_ms=max(segment.timestamp_max_ms for segment in segments),
            size_bytes=sum(segment.file_share_bytes for segment in segments),
            checksum=checksum(data),
            committed_entry_max=max(segment.committed_entry for segment in segments),
        ),
        compaction=compaction,
    )


def put_into_effect(log: Log, make: Callable[[], Sequence[Rewrite]]) -> bool | CommandRefused:
    """Make commands and submit them as one list.

    Returns:
        True; False if the outcome is not known at the deadline; or why the state refuses them.

    Raises:
        StoreUnavailable: the store did not take them, or a manifest, before the deadline.
    """
    try:
        log.submit(make())
    except CommandRefused as refused:
        return refused
    except OutcomeUnknown:
        return False
    except StoreUnavailable:
        if not is_time_up():
            raise
        return False
    return True
