"""Marking what views from the horizon on may read: all that its checkpoint, a later one, or an entry from it on names.

A vacuum keeps it, verifying checks it, and a copy has it: all three take it from `mark`.

Marking begins after the horizon's marker is durable. A checkpoint that is published later, and stands on one below the
horizon, is not usable (`log/follow/confirm.py`).

A usable head that cannot be read stops the vacuum. A process may hold in memory what that head names, and the
checkpoints that it publishes later name it again. Skipping the head would delete what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import HALVES_PREFIX, PUBLISHED_PREFIX, SEGMENTS_PREFIX, CheckpointHead, PartRef
from sparktxn._engine.format.entry import LogEntry, decode_entry
from sparktxn._engine.log.follow.checkpointheads import open_head, read_head, read_part
from sparktxn._engine.log.follow.confirm import usable_heads
from sparktxn._engine.log.keep.replay import NamedFile, Replay
from sparktxn._engine.log.keep.sealedruns import rewritten_segments_of
from sparktxn._engine.objectstore.contract import ObjectInfo, ObjectStore
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import (
    HalfState,
    ManifestRef,
    PartitionSegments,
    PartitionState,
    PublishedPartition,
)
from sparktxn.errors import DamagedObject
from sparktxn.maintenance.copyobjects import (
    CRC32C,
    INDEX,
    INLINE,
    SHA256,
    SNAPSHOT,
    UNKNOWN_SIZE,
    ObjectToCopy,
    inline_proof,
)


class Head(Struct, frozen=True):
    """A checkpoint's head as a listing shows it."""

    entry: int
    checkpoint: str
    name: str
    modified_ms: int


class Run(NamedTuple):
    """A run that a checkpoint or an entry names; only a sealed one has sidecars."""

    ref: ManifestRef
    entry: int
    is_sealed: bool


class Marks(Struct):
    """What to keep: parts and append objects by name, runs and segments by partition and by name in its folder.

    `parts`, `appends` and `runs` come with an entry that names them. `entries` are those below the horizon that carry
    records: the checksums of these by segment. `needed` are the objects without which a usable head cannot be read,
    each with the entry of such a head.
    """

    parts: dict[str, tuple[PartRef, int]] = field(default_factory=dict)
    appends: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    runs: dict[TopicIdPartition, dict[str, Run]] = field(default_factory=dict)
    segments: dict[TopicIdPartition, dict[str, NamedFile]] = field(default_factory=dict)
    needed: dict[str, int] = field(default_factory=dict)
    entries: dict[int, dict[str, str]] = field(default_factory=dict)
    horizon: int = 1

    def add(self, others: Marks) -> None:
        """Add what a checkpoint names."""
        self.parts |= others.parts
        self.needed |= others.needed
        for where, runs in others.runs.items():
            self.runs.setdefault(where, {}).update(runs)
        for where, files in others.segments.items():
            self.segments[where] = files | self.segments.get(where, {})
        for entry, carried in others.entries.items():
            self.entries.setdefault(entry, {}).update(carried)

    def holds(self, where: TopicIdPartition, rest: str) -> bool:
        """Return whether a file, by its name in the folder of its partition, is one to keep."""
        run = names.parse_sealed_folder(rest)
        return rest in self.segments.get(where, ()) if run is None else run in self.runs.get(where, ())

    def holds_object(self, name: str) -> bool:
        """Return whether an object below ``topics/`` is one to keep, by its name."""
        parsed = names.parse_partition_object(name)
        return parsed is not None and self.holds(parsed[:2], parsed[2])

    def objects(self, topics: Mapping[int, str]) -> Iterator[ObjectToCopy]:
        """Yield what entries and checkpoints name, each once, and what shows that it is right.

        `topics` are names by id. Files of a rewrite have a checksum once `find_checksums` has read the manifests.
        """
        for where, files in self.segments.items():
            folder = names.partition_folder(topics[where[0]], *where) if files else ""
            for name, file in files.items():
                yield ObjectToCopy(folder + name, file.size_bytes, CRC32C, file.checksum, file.entry)
        for ref, entry in self.parts.values():
            yield ObjectToCopy(ref.name, ref.size_bytes, SHA256, ref.digest, entry)
        for name, (checksum, entry) in self.appends.items():
            yield ObjectToCopy(name, UNKNOWN_SIZE, CRC32C, checksum, entry)
        for where, runs in self.runs.items():
            folder = names.partition_folder(topics[where[0]], *where) if runs else ""
            for run in runs.values():
                yield from _objects_of(folder, run)
        for entry, carried in self.entries.items():
            yield ObjectToCopy(names.entry(entry), UNKNOWN_SIZE, INLINE, inline_proof(carried), entry)

    def count(self) -> int:
        """Return how many objects that is."""
        runs = [run for some in self.runs.values() for run in some.values()]
        files = sum(1 + run.is_sealed + (run.is_sealed and run.ref.aborted_count > 0) for run in runs)
        files += sum(len(some) for some in self.segments.values())
        return files + len(self.parts) + len(self.appends) + len(self.entries)

    def carried(self, segment: str, checksum: str, carrier: int) -> None:
        """Mark the entry that carries an inline segment; those from the horizon on are kept anyway."""
        if carrier < self.horizon:
            self.entries.setdefault(carrier, {})[segment] = checksum


def _objects_of(folder: str, run: Run) -> Iterator[ObjectToCopy]:
    ref = run.ref
    yield ObjectToCopy(names.manifest(folder, ref.folder), UNKNOWN_SIZE, CRC32C, ref.checksum, run.entry)
    if not run.is_sealed:
        return
    if ref.aborted_count:
        name = names.transaction_index(folder, ref.folder, ref.base_offset)
        yield ObjectToCopy(name, UNKNOWN_SIZE, INDEX, str(ref.aborted_count), run.entry)
    yield ObjectToCopy(names.snapshot(folder, ref.folder, ref.end_offset), UNKNOWN_SIZE, SNAPSHOT, "", run.entry)


def is_young(rest: str, horizon: int, floor: int) -> bool:
    """Return whether a file may be of an upload that no entry names yet, by its name in the folder of its partition.

    A run is made at an entry, and a segment is born at one. A name that says neither is none of a vacuum's.
    """
    run = names.parse_sealed_folder(rest)
    if run is None:
        born = names.parse_segment_born(rest)
        return born is None or born >= floor
    sealed_entry = names.parse_sealed_entry(run)
    return sealed_entry is None or sealed_entry >= horizon


def heads_in(listing: Sequence[ObjectInfo]) -> list[Head]:
    """Return the heads of a listing of checkpoints, oldest first."""
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
        DamagedObject: a usable head or the horizon's entry cannot be read, or no usable head is at the horizon.
    """
    marks = Marks(appends=replay.appends, horizon=horizon)
    for where, named in replay.segments.items():
        marks.segments[where] = {name: file for name, file in named.items() if file.entry >= horizon}
    for where, runs in replay.runs.items():
        marks.runs[where] = {
            folder: Run(ref, entry, False) for folder, (ref, entry) in runs.items() if entry >= horizon
        }
    marking = _Marking(objects, horizon, replay)
    usable = usable_heads(objects, heads)
    for head in usable:
        marks.add(marking.marked(head))
    if horizon > 1:
        base = next((head for head in usable if head.entry == horizon), None)
        if base is None:
            raise DamagedObject(names.horizon(horizon), "no checkpoint of that entry is whole")
        replay.note_appends(_entry_of(objects, base))
    for head in heads:
        if head not in usable:
            found = Marks(horizon=horizon)
            try:
                marking.mark(head, found)
            except DamagedObject as damaged:
                # Published after the marker, on a checkpoint below the horizon: what it names may be gone.
                log_event("checkpoint_not_kept", entry=head.entry, error=damaged)
            found.needed.clear()
            marks.add(found)
    return marks


def _entry_of(objects: ObjectStore, base: CheckpointHead) -> LogEntry:
    """Return the entry of the checkpoint at the horizon, which no replay from there reads; the errors are `mark`'s."""
    name = names.entry(base.entry)
    data = objects.get(name)
    if data is None:
        raise DamagedObject(name, "it is the horizon's entry and does not exist")
    entry = decode_entry(data, name, base.entry)
    if entry.checksum != base.entry_checksum:
        raise DamagedObject(name, f"its checksum is {entry.checksum}, and its checkpoint has {base.entry_checksum}")
    return entry


def find_checksums(marks: Marks, replay: Replay, note: Callable[[DamagedObject], None] | None = None) -> None:
    """Read from manifests how the files of rewrites are checked; damage goes to `note`, and its files stay without.

    Raises:
        DamagedObject: a manifest is missing or damaged, and there is no `note`.
    """
    for where, files in marks.segments.items():
        if all(file.checksum for file in files.values()):
            continue
        folder = names.partition_folder(replay.topics[where[0]], *where)
        for run in marks.runs[where].values():
            if run.is_sealed:
                continue
            try:
                segments = replay.manifest(folder, run.ref)
            except DamagedObject as damaged:
                if note is None:
                    raise
                note(damaged)
                continue
            for segment in segments:
                if segment.name in files:
                    file = NamedFile(files[segment.name].entry, segment.size_bytes, segment.checksum)
                    files[segment.name] = file


class _Marking:
    """Marks head after head; a part that several heads name is read once."""

    def __init__(self, objects: ObjectStore, horizon: int, replay: Replay) -> None:
        self._objects = objects
        self._horizon = horizon
        self._replay = replay
        self._read: set[str] = set()

    def marked(self, head: CheckpointHead) -> Marks:
        """Return what a head names; the errors are those of `mark`."""
        found = Marks(horizon=self._horizon)
        self.mark(head, found)
        return found

    def mark(self, head: CheckpointHead, found: Marks) -> None:
        """Mark what a head names in `found`.

        Raises:
            DamagedObject: a part, or at the horizon a manifest, is missing or damaged.
        """
        found.parts.update((ref.name, (ref, head.entry)) for ref in head.parts.values())
        found.needed.update((ref.name, head.entry) for ref in head.parts.values())
        at_horizon = head.entry == self._horizon
        for part, ref in head.parts.items():
            if part.startswith(SEGMENTS_PREFIX) and (at_horizon or ref.name not in self._read):
                log_starts = self._log_starts(head, part) if at_horizon else None
                for record in read_part(self._objects, ref):
                    if isinstance(record, PartitionSegments):
                        self._mark_places(found, record, self._folder(record, ref), head.entry, log_starts)
                self._read.add(ref.name)
            elif part.startswith(HALVES_PREFIX) and at_horizon:
                self._mark_halves(found, ref, head.entry)
            elif part.startswith(PUBLISHED_PREFIX) and at_horizon:
                self._mark_published(found, ref, head.entry)

    def _mark_places(
        self,
        found: Marks,
        record: PartitionSegments,
        folder: str,
        entry: int,
        log_starts: dict[TopicIdPartition, int] | None,
    ) -> None:
        """Mark a partition's runs; with `log_starts`, its segments from there on too."""
        where = (record.topic_id, record.partition)
        runs = found.runs.setdefault(where, {})
        for each in record.rewritten:
            runs[each.run.folder] = Run(each.run, entry, False)
            found.needed[names.manifest(folder, each.run.folder)] = entry
        for run in record.sealed:
            runs[run.folder] = Run(run, entry, True)
            found.needed[names.manifest(folder, run.folder)] = entry
            if run.aborted_count:
                found.needed[names.transaction_index(folder, run.folder, run.base_offset)] = entry
        if log_starts is None:
            return
        start = log_starts[where]
        marked = found.segments.setdefault(where, {})
        for segment in self._replay.current_segments(folder, record):
            # A sum, and not `end_offset`, which takes longer: a store may have a million segments.
            if segment.base_offset + segment.record_count <= start:
                continue
            if (carrier := names.carrier(segment.name, segment.entry)) is not None:
                found.carried(segment.name, segment.checksum, carrier)
            else:
                marked[segment.name] = NamedFile(entry, segment.size_bytes, segment.checksum)

    def _mark_halves(self, found: Marks, ref: PartRef, entry: int) -> None:
        """Mark the segments of half transactions that are not settled, discarded ones too: each may be committed."""
        for record in read_part(self._objects, ref):
            if isinstance(record, HalfState):
                for segment in record.segments:
                    carrier = names.parse_carrier(segment.segment)
                    if carrier is not None:
                        found.carried(segment.segment, segment.checksum, carrier)
                        continue
                    files = found.segments.setdefault((segment.topic_id, segment.partition), {})
                    files[segment.segment] = NamedFile(entry, segment.size_bytes, segment.checksum)

    def _mark_published(self, found: Marks, ref: PartRef, entry: int) -> None:
        """Mark the files of the tables' newest versions, and the runs that say what these have added and removed."""
        for record in read_part(self._objects, ref):
            if not isinstance(record, PublishedPartition):
                continue
            where, folder = (record.topic_id, record.partition), self._folder(record, ref)
            runs, files = found.runs.setdefault(where, {}), found.segments.setdefault(where, {})
            for each in (*record.before.ranges, *record.current.ranges):
                runs[each.run.folder] = Run(each.run, entry, False)
            for segment in rewritten_segments_of(self._objects, folder, record.current.ranges):
                if segment.end_offset > record.current.log_start_offset:
                    files[segment.name] = NamedFile(entry, segment.size_bytes, segment.checksum)

    def _folder(self, record: PartitionSegments | PublishedPartition, ref: PartRef) -> str:
        topic = self._replay.topics.get(record.topic_id)
        if topic is None:
            raise DamagedObject(ref.name, f"it names topic id {record.topic_id}, which the log does not")
        return names.partition_folder(topic, record.topic_id, record.partition)

    def _log_starts(self, head: CheckpointHead, segments_part: str) -> dict[TopicIdPartition, int]:
        """Return the log starts of the partitions whose segments `segments_part` holds."""
        part = "partitions/" + segments_part.removeprefix(SEGMENTS_PREFIX)
        return {
            (record.topic_id, record.partition): record.log_start_offset
            for record in read_part(self._objects, head.parts[part])
            if isinstance(record, PartitionState)
        }
