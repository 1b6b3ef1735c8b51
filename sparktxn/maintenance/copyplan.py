"""Planning a copy of a store: which objects the views from the horizon to one entry read, and how each is checked.

The log is replayed from the horizon, as a vacuum does it. What a vacuum at that horizon keeps is what a copy needs:
entries, append objects, usable checkpoints with their parts and runs, and segments. Intents and signs of life are left
out. They are of processes that work on the source.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from sparktxn.errors import DamagedObject
from sparktxn.format import names
from sparktxn.format.checkpoint import HALVES_PREFIX, SEGMENTS_PREFIX, CheckpointHead, PartRef
from sparktxn.format.commands import Append, Appends, Command, PrepareHalf, Rewrite
from sparktxn.format.entry import LogEntry, decode_entry
from sparktxn.log.follow.confirm import usable_heads
from sparktxn.log.follow.heads import read_part
from sparktxn.log.keep.replay import Replay
from sparktxn.log.keep.runs import aborted_of
from sparktxn.maintenance.copyobjects import (
    CRC32C,
    INDEX,
    INLINE,
    MARKER,
    SEALED,
    SHA256,
    SNAPSHOT,
    ObjectToCopy,
    inline_proof,
)
from sparktxn.maintenance.marking import Head, heads_in, read_heads
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.structs import HalfState, ManifestRef, PartitionSegments, PartitionState, StateKey, StateRecord

__all__ = ["CopyPlan", "plan_copy"]

logger = logging.getLogger("sparktxn")

_WINDOW: Final = 64
_UNKNOWN_SIZE: Final = -1

_Where = tuple[int, int]


class _File(Struct, frozen=True):
    """A file with segments, as the log names it."""

    size_bytes: int
    checksum: str
    entry: int


class CopyPlan(Struct):
    """All that the views from `horizon` to `entry` read. `entry_checksum` is that of entry `entry`.

    `files` are those of segments by partition, `others` parts, append objects and files of runs, `heads` the usable
    checkpoints. `inline` are checksums of the inline records that entries before `first_entry` carry, by entry and
    segment. `checksums` are the entries' CRC-32C from `first_entry` on.
    """

    horizon: int
    entry: int
    entry_checksum: str
    first_entry: int
    checksums: array[int]
    topics: Mapping[int, str]
    files: dict[_Where, dict[str, _File]] = field(default_factory=dict)
    others: dict[str, ObjectToCopy] = field(default_factory=dict)
    inline: dict[int, dict[str, str]] = field(default_factory=dict)
    heads: list[ObjectToCopy] = field(default_factory=list)
    newest_head: CheckpointHead | None = None
    marker: ObjectToCopy | None = None

    def named_objects(self) -> Iterator[ObjectToCopy]:
        """Yield what entries and checkpoints name: all of it must exist before one of those does."""
        for (topic_id, partition), files in self.files.items():
            folder = names.partition_folder(self.topics[topic_id], topic_id, partition)
            for name, file in files.items():
                yield ObjectToCopy(folder + name, file.size_bytes, CRC32C, file.checksum, file.entry)
        yield from self.others.values()
        for entry, carried in self.inline.items():
            yield ObjectToCopy(names.entry(entry), _UNKNOWN_SIZE, INLINE, inline_proof(carried), entry)

    def entries(self, after: int = 0) -> Iterator[ObjectToCopy]:
        """Yield the entries from `first_entry` to `entry`, in their order, without those up to `after`."""
        for number in range(max(self.first_entry, after + 1), self.entry + 1):
            checksum = f"{self.checksums[number - self.first_entry]:08x}"
            yield ObjectToCopy(names.entry(number), _UNKNOWN_SIZE, SEALED, checksum, number)

    def count(self) -> int:
        """Return how many objects that is."""
        files = sum(len(some) for some in self.files.values())
        return (
            files
            + len(self.others)
            + len(self.inline)
            + len(self.checksums)
            + len(self.heads)
            + (self.marker is not None)
        )


class _CopyReplay(Replay):
    """A replay that notes how each file of segments is checked, and the checksum of each entry."""

    def __init__(self, objects: ObjectStore, head: CheckpointHead | None) -> None:
        super().__init__(objects, head)
        self.files: dict[_Where, dict[str, _File]] = {}
        self.append_objects: dict[str, ObjectToCopy] = {}
        self.rewrites: list[tuple[_Where, Rewrite, int]] = []
        self.checksums = array("I")

    def _commands(self, entry: LogEntry) -> Sequence[Command]:
        commands = super()._commands(entry)
        note_append_objects(self.append_objects, entry)
        for command in commands:
            if isinstance(command, Append) and not command.data:
                where, name = (command.topic_id, command.partition), command.segment
                self.files.setdefault(where, {})[name] = _File(command.size_bytes, command.checksum, entry.entry)
            elif isinstance(command, PrepareHalf):
                for segment in command.segments:
                    if names.is_inline(segment.segment):
                        continue
                    where, name = (segment.topic_id, segment.partition), segment.segment
                    self.files.setdefault(where, {})[name] = _File(segment.size_bytes, segment.checksum, entry.entry)
            elif isinstance(command, Rewrite):
                self.rewrites.append(((command.topic_id, command.partition), command, entry.entry))
        return commands

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        super().take(entry, changes, size_bytes)
        self.checksums.append(int(entry.checksum, 16))


def note_append_objects(found: dict[str, ObjectToCopy], entry: LogEntry) -> None:
    """Add the objects with append commands that an entry names."""
    for command in entry.commands:
        if isinstance(command, Appends):
            found[command.object] = ObjectToCopy(command.object, _UNKNOWN_SIZE, CRC32C, command.checksum, entry.entry)


def plan_copy(objects: ObjectStore, horizon: int, entry: int) -> CopyPlan:
    """Return what views from `horizon` to `entry` read. It is not confirmed: a vacuum may have passed the horizon.

    Args:
        objects: the source.
        horizon: the horizon, read before.
        entry: an entry from a confirmed state.

    Raises:
        DamagedObject: the log, or the checkpoint at the horizon, cannot be read.
        FormatVersionError: a newer version has written what is to be read.
    """
    listed = [head for head in heads_in(objects.list(names.CHECKPOINTS)) if horizon <= head.entry <= entry]
    heads = usable_heads(objects, read_heads(objects, listed))
    base = next((head for head in heads if head.entry == horizon), None) if horizon > 1 else None
    if horizon > 1 and base is None:
        raise DamagedObject(names.horizon(horizon), "there is no checkpoint of that entry that is whole")
    replay = _CopyReplay(objects, base)
    first = _first_entry(objects, replay, base)
    replay.advance_to(entry, _WINDOW)
    plan = CopyPlan(horizon, entry, replay.checksum, first, replay.checksums, replay.topics, replay.files)
    plan.others.update(replay.append_objects)
    planning = _Planning(objects, plan, replay)
    planning.add_rewrites()
    by_name = {head.name: head for head in listed}
    for head in heads:
        planning.add_head(head, by_name[names.checkpoint_head(head.entry, head.checkpoint)], is_base=head is base)
    if base is not None:
        plan.marker = ObjectToCopy(names.horizon(horizon), _UNKNOWN_SIZE, MARKER, "", horizon)
    return plan


def _first_entry(objects: ObjectStore, replay: _CopyReplay, base: CheckpointHead | None) -> int:
    """Note the entry of the checkpoint at the horizon, which exists too; return the first entry to copy."""
    if base is None:
        return 1
    name = names.entry(base.entry)
    data = objects.get(name)
    if data is None:
        raise DamagedObject(name, "it is the horizon's entry and does not exist")
    entry = decode_entry(data, name, base.entry)
    if entry.checksum != base.entry_checksum:
        raise DamagedObject(name, f"its checksum is {entry.checksum}, and its checkpoint has {base.entry_checksum}")
    note_append_objects(replay.append_objects, entry)
    replay.checksums.append(int(entry.checksum, 16))
    return base.entry


class _Planning:
    """Adds checkpoint after checkpoint; a part that several name is read once."""

    def __init__(self, objects: ObjectStore, plan: CopyPlan, replay: _CopyReplay) -> None:
        self._objects = objects
        self._plan = plan
        self._replay = replay
        self._read: set[str] = set()

    def add_rewrites(self) -> None:
        """Add the runs that entries name, and the files that are new in them.

        Files that were named before are in the checkpoint at the horizon or in an entry since, or no view reads them.

        Raises:
            DamagedObject: a manifest is missing or damaged.
        """
        for where, command, entry in self._replay.rewrites:
            folder = self._folder(where)
            self._add_run(self._plan.others, folder, command.run, entry, is_sealed=False)
            files, new = self._plan.files.setdefault(where, {}), set(command.segments)
            for segment in self._replay.manifest(folder, command.run):
                if segment.name in new:
                    files[segment.name] = _File(segment.size_bytes, segment.checksum, entry)

    def add_head(self, head: CheckpointHead, listed: Head, *, is_base: bool) -> None:
        """Add a checkpoint with all that it names; one that cannot be read is left out, as readers skip it.

        Raises:
            DamagedObject: it is the base, and an object that it names is missing or damaged.
        """
        found: dict[str, ObjectToCopy] = {}
        read: set[str] = set()
        try:
            for part, ref in head.parts.items():
                found[ref.name] = ObjectToCopy(ref.name, ref.size_bytes, SHA256, ref.digest, head.entry)
                if ref.name not in self._read:
                    self._add_part(found, head, part, ref, is_base=is_base)
                    read.add(ref.name)
        except DamagedObject as damaged:
            if is_base:
                raise
            logger.warning("the checkpoint after entry %d is not copied: %s", head.entry, damaged)
            return
        self._read |= read
        for name, each in found.items():
            self._plan.others.setdefault(name, each)
        self._plan.heads.append(ObjectToCopy(listed.name, _UNKNOWN_SIZE, SEALED, head.checksum, head.entry))
        self._plan.newest_head = head

    def _add_part(
        self, found: dict[str, ObjectToCopy], head: CheckpointHead, part: str, ref: PartRef, *, is_base: bool
    ) -> None:
        records = read_part(self._objects, ref)
        if part.startswith(SEGMENTS_PREFIX):
            starts = _log_starts(self._objects, head, part) if is_base else {}
            for record in records:
                if isinstance(record, PartitionSegments):
                    self._add_places(found, head, record, starts if is_base else None)
        elif part.startswith(HALVES_PREFIX) and is_base:
            for record in records:
                if isinstance(record, HalfState):
                    self._add_half(record, head.entry)

    def _add_half(self, half: HalfState, entry: int) -> None:
        """Add the segments of a half transaction that may be committed yet."""
        for segment in half.segments:
            if names.is_inline(segment.segment):
                self._add_inline(segment.segment, segment.checksum, entry)
            else:
                files = self._plan.files.setdefault((segment.topic_id, segment.partition), {})
                files[segment.segment] = _File(segment.size_bytes, segment.checksum, entry)

    def _add_inline(self, segment: str, checksum: str, entry: int) -> None:
        """Add the entry that carries a segment, which `entry` has placed, if it is not copied as a part of the log."""
        carrier = names.carrier(segment, entry)
        if carrier < self._plan.first_entry:
            self._plan.inline.setdefault(carrier, {})[segment] = checksum

    def _add_places(
        self,
        found: dict[str, ObjectToCopy],
        head: CheckpointHead,
        located: PartitionSegments,
        log_starts: Mapping[_Where, int] | None,
    ) -> None:
        """Add a partition's runs; with `log_starts`, its segments from there on too."""
        where = (located.topic_id, located.partition)
        folder = self._folder(where)
        for run in located.sealed:
            self._add_run(found, folder, run, head.entry, is_sealed=True)
            if names.manifest(folder, run.folder) not in self._plan.others:
                self._replay.manifest(folder, run)
                aborted_of(self._objects, folder, [run])
        for each in located.rewritten:
            self._add_run(found, folder, each.run, head.entry, is_sealed=False)
            self._replay.manifest(folder, each.run)
        if log_starts is not None:
            files = self._plan.files.setdefault(where, {})
            for segment in self._replay.current_segments(folder, located):
                if segment.end_offset <= log_starts[where]:
                    continue
                if not names.is_inline(segment.name):
                    files[segment.name] = _File(segment.size_bytes, segment.checksum, head.entry)
                else:
                    self._add_inline(segment.name, segment.checksum, segment.entry)

    def _add_run(
        self, found: dict[str, ObjectToCopy], folder: str, run: ManifestRef, entry: int, *, is_sealed: bool
    ) -> None:
        name = names.manifest(folder, run.folder)
        found[name] = ObjectToCopy(name, _UNKNOWN_SIZE, CRC32C, run.checksum, entry)
        if not is_sealed:
            return
        if run.aborted_count:
            name = names.transaction_index(folder, run.folder, run.base_offset)
            found[name] = ObjectToCopy(name, _UNKNOWN_SIZE, INDEX, str(run.aborted_count), entry)
        name = names.snapshot(folder, run.folder, run.end_offset)
        found[name] = ObjectToCopy(name, _UNKNOWN_SIZE, SNAPSHOT, "", entry)

    def _folder(self, where: _Where) -> str:
        return names.partition_folder(self._replay.topics[where[0]], *where)


def _log_starts(objects: ObjectStore, head: CheckpointHead, segments_part: str) -> dict[_Where, int]:
    """Return the log starts of the partitions whose segments `segments_part` holds."""
    part = "partitions/" + segments_part.removeprefix(SEGMENTS_PREFIX)
    return {
        (record.topic_id, record.partition): record.log_start_offset
        for record in read_part(objects, head.parts[part])
        if isinstance(record, PartitionState)
    }
