"""Marking what a vacuum keeps: all that the horizon's checkpoint, a later one, or an entry from the horizon on names.

Marking begins after the horizon's marker is durable. A checkpoint that is published later, and stands on one below the
horizon, is not usable (`log/follow/confirm.py`).

A usable head that cannot be read stops the vacuum. A process may hold in memory what that head names, and the
checkpoints that it publishes later name it again. Skipping the head would delete what they need.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Struct, field

from sparktxn.errors import DamagedObject
from sparktxn.format import names
from sparktxn.format.checkpoint import HALVES_PREFIX, SEGMENTS_PREFIX, CheckpointHead, PartRef
from sparktxn.log.follow.confirm import usable_heads
from sparktxn.log.follow.heads import open_head, read_head, read_part
from sparktxn.log.keep.replay import Replay
from sparktxn.objectstore.contract import ObjectInfo, ObjectStore
from sparktxn.structs import HalfState, PartitionSegments, PartitionState, SegmentRef

__all__ = ["Head", "Marks", "heads_in", "mark", "open_heads", "read_heads"]

logger = logging.getLogger("sparktxn")

_Where = tuple[int, int]


class Head(Struct, frozen=True):
    """A checkpoint's head as a listing shows it."""

    entry: int
    checkpoint: str
    name: str
    modified_ms: int


class Marks(Struct):
    """Names to keep: parts and append objects whole, runs and segments by partition as (topic id, partition).

    `needed` are the objects without which a usable head cannot be read, each with the entry of such a head.
    """

    parts: set[str] = field(default_factory=set)
    appends: set[str] = field(default_factory=set)
    runs: dict[_Where, set[str]] = field(default_factory=dict)
    segments: dict[_Where, set[str]] = field(default_factory=dict)
    needed: dict[str, int] = field(default_factory=dict)
    entries: set[int] = field(default_factory=set)
    horizon: int = 1

    def keeps(self, where: _Where, segment: SegmentRef) -> bool:
        """Return True if a segment of partition `where` is kept for some view."""
        if names.is_inline(segment.name):
            carrier = names.carrier(segment.name, segment.entry)
            return carrier >= self.horizon or carrier in self.entries
        return segment.name in self.segments.get(where, ())


def heads_in(listing: Sequence[ObjectInfo]) -> list[Head]:
    """The heads of a listing of checkpoints, oldest first."""
    found = []
    for info in listing:
        parsed = names.parse_checkpoint_head(info.name)
        if parsed is not None:
            found.append(Head(*parsed, info.name, info.modified_ms))
    return sorted(found, key=lambda head: (head.entry, head.checkpoint))


def read_heads(objects: ObjectStore, listed: Sequence[Head]) -> list[CheckpointHead]:
    """Return the heads that decode: readers open no other."""
    read = (read_head(objects, head.entry, head.checkpoint) for head in listed)
    return [head for head in read if head is not None]


def open_heads(objects: ObjectStore, listed: Sequence[Head]) -> list[CheckpointHead]:
    """Return the listed heads that still exist.

    Raises:
        DamagedObject, FormatVersionError: one cannot be decoded, so what it names is not known.
    """
    opened = (open_head(objects, head.entry, head.checkpoint) for head in listed)
    return [head for head in opened if head is not None]


def mark(objects: ObjectStore, heads: Sequence[CheckpointHead], horizon: int, replay: Replay) -> Marks:
    """Return the names to keep.

    Args:
        objects: the store.
        heads: all heads from the horizon on.
        horizon: the vacuum's horizon.
        replay: a replica at the log's end.

    Raises:
        DamagedObject: a usable head cannot be read, or there is no usable head at the horizon.
    """
    marks = Marks(appends=replay.appends, horizon=horizon)
    for where, named in replay.segments.items():
        marks.segments[where] = {name for name, entry in named.items() if entry >= horizon}
    for where, named in replay.runs.items():
        marks.runs[where] = {folder for folder, entry in named.items() if entry >= horizon}
    marking = _Marking(objects, marks, horizon, replay)
    usable = usable_heads(objects, heads)
    for head in usable:
        marking.mark(head, marks.needed)
    if horizon > 1 and not any(head.entry == horizon for head in usable):
        raise DamagedObject(names.horizon(horizon), "no checkpoint of that entry is whole")
    for head in heads:
        if head not in usable:
            try:
                marking.mark(head, {})
            except DamagedObject as damaged:
                # Published after the marker, on a checkpoint below the horizon: what it names may be gone.
                logger.warning("checkpoint after entry %d, which is not usable: %s", head.entry, damaged)
    return marks


class _Marking:
    """Marks head after head; a part that several heads name is read once."""

    def __init__(self, objects: ObjectStore, marks: Marks, horizon: int, replay: Replay) -> None:
        self._objects = objects
        self._marks = marks
        self._horizon = horizon
        self._replay = replay
        self._read: set[str] = set()

    def mark(self, head: CheckpointHead, needed: dict[str, int]) -> None:
        """Mark what a head names, and note in `needed` the objects without which it cannot be read.

        Raises:
            DamagedObject: a part, or at the horizon a manifest, is missing or damaged.
        """
        self._marks.parts.update(ref.name for ref in head.parts.values())
        needed.update((ref.name, head.entry) for ref in head.parts.values())
        at_horizon = head.entry == self._horizon
        for part, ref in head.parts.items():
            if part.startswith(SEGMENTS_PREFIX) and (at_horizon or ref.name not in self._read):
                log_starts = self._log_starts(head, part) if at_horizon else None
                for record in read_part(self._objects, ref):
                    if isinstance(record, PartitionSegments):
                        self._mark_places(record, self._folder(record, ref), head.entry, needed, log_starts)
                self._read.add(ref.name)
            elif part.startswith(HALVES_PREFIX) and at_horizon:
                self._mark_halves(ref)

    def _mark_places(
        self,
        record: PartitionSegments,
        folder: str,
        entry: int,
        needed: dict[str, int],
        log_starts: dict[_Where, int] | None,
    ) -> None:
        """Mark a partition's runs; with `log_starts`, its segments from there on too."""
        where = (record.topic_id, record.partition)
        rewritten = [each.run for each in record.rewritten]
        self._marks.runs.setdefault(where, set()).update(run.folder for run in (*record.sealed, *rewritten))
        needed.update((names.manifest(folder, run.folder), entry) for run in rewritten)
        for run in record.sealed:
            needed[names.manifest(folder, run.folder)] = entry
            if run.aborted_count:
                needed[names.transaction_index(folder, run.folder, run.base_offset)] = entry
        if log_starts is None:
            return
        start = log_starts[where]
        marked = self._marks.segments.setdefault(where, set())
        for segment in self._replay.current_segments(folder, record):
            # A sum, and not `end_offset`, which takes longer: a store may have a million segments.
            if segment.base_offset + segment.record_count <= start:
                continue
            if names.is_inline(segment.name):
                self._marks.entries.add(names.carrier(segment.name, segment.entry))
            else:
                marked.add(segment.name)

    def _mark_halves(self, ref: PartRef) -> None:
        """Mark the segments of half transactions that are not settled, discarded ones too: each may be committed."""
        for record in read_part(self._objects, ref):
            if isinstance(record, HalfState):
                for segment in record.segments:
                    carrier = names.parse_carrier(segment.segment)
                    if carrier is not None:
                        self._marks.entries.add(carrier)
                        continue
                    where = (segment.topic_id, segment.partition)
                    self._marks.segments.setdefault(where, set()).add(segment.segment)

    def _folder(self, record: PartitionSegments, ref: PartRef) -> str:
        topic = self._replay.topics.get(record.topic_id)
        if topic is None:
            raise DamagedObject(ref.name, f"it names topic id {record.topic_id}, which the log does not")
        return names.partition_folder(topic, record.topic_id, record.partition)

    def _log_starts(self, head: CheckpointHead, segments_part: str) -> dict[_Where, int]:
        """Return the log starts of the partitions whose segments `segments_part` holds."""
        part = "partitions/" + segments_part.removeprefix(SEGMENTS_PREFIX)
        return {
            (record.topic_id, record.partition): record.log_start_offset
            for record in read_part(self._objects, head.parts[part])
            if isinstance(record, PartitionState)
        }
