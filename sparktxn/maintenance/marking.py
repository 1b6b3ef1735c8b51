"""What a vacuum must keep: all that the horizon's checkpoint, a later one, or an entry from the horizon on names.

Marking begins after the horizon's marker is durable: a checkpoint that is published later, and stands on one below the
horizon, counts for nobody (`log/horizon.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Struct, field

from sparktxn.errors import DamagedObject
from sparktxn.format import names
from sparktxn.format.checkpoint import SEGMENTS_PREFIX, CheckpointHead
from sparktxn.log.checkpoints import read_head, read_part
from sparktxn.log.verification import Replay
from sparktxn.objectstore.contract import ObjectInfo, ObjectStore
from sparktxn.structs import PartitionSegments, PartitionState, StateRecord

__all__ = ["Head", "Marks", "heads_in", "mark", "read_heads"]

logger = logging.getLogger("sparktxn")

_Where = tuple[int, int]


class Head(Struct, frozen=True):
    """A checkpoint's head as a listing shows it."""

    entry: int
    checkpoint: str
    name: str
    modified_ms: int


class Marks(Struct):
    """Names to keep: parts and append objects whole, runs and segments by partition as (topic id, partition)."""

    parts: set[str] = field(default_factory=set)
    appends: set[str] = field(default_factory=set)
    runs: dict[_Where, set[str]] = field(default_factory=dict)
    segments: dict[_Where, set[str]] = field(default_factory=dict)


def heads_in(listing: Sequence[ObjectInfo]) -> list[Head]:
    """The heads of a listing of checkpoints, oldest first."""
    found = []
    for info in listing:
        parsed = names.parse_checkpoint_head(info.name)
        if parsed is not None:
            found.append(Head(*parsed, info.name, info.modified_ms))
    return sorted(found, key=lambda head: (head.entry, head.checkpoint))


def read_heads(objects: ObjectStore, listed: Sequence[Head]) -> list[CheckpointHead]:
    """Those that are whole: nobody opens another."""
    read = (read_head(objects, head.entry, head.checkpoint) for head in listed)
    return [head for head in read if head is not None]


def mark(objects: ObjectStore, heads: Sequence[CheckpointHead], horizon: int, replay: Replay) -> Marks:
    """The names to keep. `heads` are all whole ones from the horizon on; `replay` stands at the log's end.

    Raises:
        DamagedObject: no checkpoint at the horizon is whole.
    """
    marks = Marks(appends=replay.appends)
    for where, named in replay.segments.items():
        marks.segments[where] = {name for name, entry in named.items() if entry >= horizon}
    looked_at: set[str] = set()
    whole = horizon <= 1
    for head in heads:
        at_horizon = head.entry == horizon
        marks.parts.update(ref.name for ref in head.parts.values())
        try:
            for part, ref in head.parts.items():
                if part.startswith(SEGMENTS_PREFIX) and (at_horizon or ref.name not in looked_at):
                    looked_at.add(ref.name)
                    _mark_part(objects, head, part, marks, with_segments=at_horizon, replay=replay)
        except DamagedObject as damaged:
            # Nobody can read from it either: others stand in for it.
            logger.error("checkpoint after entry %d: %s", head.entry, damaged)
        else:
            whole = whole or at_horizon
    if not whole:
        raise DamagedObject(names.horizon(horizon), "no checkpoint of that entry is whole")
    return marks


def _mark_part(
    objects: ObjectStore, head: CheckpointHead, part: str, marks: Marks, *, with_segments: bool, replay: Replay
) -> None:
    log_starts = _log_starts(read_part(objects, head.parts[_partitions_of(part)])) if with_segments else {}
    for record in read_part(objects, head.parts[part]):
        if not isinstance(record, PartitionSegments):
            continue
        where = (record.topic_id, record.partition)
        marks.runs.setdefault(where, set()).update(run.folder for run in record.sealed)
        if not with_segments:
            continue
        topic = replay.topics.get(record.topic_id)
        if topic is None:
            raise DamagedObject(head.parts[part].name, f"it names topic id {record.topic_id}, which the log does not")
        folder = names.partition_folder(topic, *where)
        kept = list(record.segments)
        for run in record.sealed:
            kept += replay.manifest(folder, run)
        start = log_starts[where]
        marks.segments.setdefault(where, set()).update(segment.name for segment in kept if segment.end_offset > start)


def _partitions_of(segments_part: str) -> str:
    """The part with the log starts of the partitions whose segments `segments_part` holds."""
    return "partitions/" + segments_part.removeprefix(SEGMENTS_PREFIX)


def _log_starts(records: Sequence[StateRecord]) -> dict[_Where, int]:
    return {
        (record.topic_id, record.partition): record.log_start_offset
        for record in records
        if isinstance(record, PartitionState)
    }
