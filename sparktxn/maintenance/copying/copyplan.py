"""Planning a copy of a store: which objects the views from the horizon to one entry read, and how each is checked.

The log is replayed from the horizon, as a vacuum does it. What a vacuum at that horizon keeps is what a copy needs:
entries, append objects, usable checkpoints with their parts and runs, and segments. Intents and signs of life are left
out. They are of processes that work on the source.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct, field

from sparktxn.errors import DamagedObject
from sparktxn.format import names
from sparktxn.format.checkpoint import SEGMENTS_PREFIX, CheckpointHead
from sparktxn.format.entry import LogEntry
from sparktxn.log.follow.confirm import usable_heads
from sparktxn.log.follow.heads import read_part
from sparktxn.log.keep.replay import Replay
from sparktxn.log.keep.runs import aborted_of, check_manifest
from sparktxn.maintenance.copyobjects import MARKER, SEALED, UNKNOWN_SIZE, ObjectToCopy
from sparktxn.maintenance.keptobjects import Marks, find_checksums, heads_in, mark, read_heads
from sparktxn.objectstore.contract import ObjectStore
from sparktxn.process.events import log_event
from sparktxn.values.structs import PartitionSegments, StateKey, StateRecord

__all__ = ["CopyPlan", "plan_copy"]

_WINDOW: Final = 64


class CopyPlan(Struct):
    """All that the views from `horizon` to `entry` read. `entry_checksum` is that of entry `entry`.

    `marks` are what entries and checkpoints name, `heads` the usable checkpoints. `checksums` are the entries' CRC-32C
    from `first_entry` on, which is the horizon of the source. A copy that is brought forward keeps its own horizon.
    """

    horizon: int
    entry: int
    entry_checksum: str
    first_entry: int
    checksums: array[int]
    topics: Mapping[int, str]
    marks: Marks
    heads: list[ObjectToCopy] = field(default_factory=list)
    newest_head: CheckpointHead | None = None
    marker: ObjectToCopy | None = None

    def named_objects(self) -> Iterator[ObjectToCopy]:
        """Return what entries and checkpoints name: all of it must exist before one of those does."""
        return self.marks.objects(self.topics)

    def entries(self, after: int = 0) -> Iterator[ObjectToCopy]:
        """Yield the entries from `first_entry` to `entry`, in their order, without those up to `after`."""
        for number in range(max(self.first_entry, after + 1), self.entry + 1):
            checksum = f"{self.checksums[number - self.first_entry]:08x}"
            yield ObjectToCopy(names.entry(number), UNKNOWN_SIZE, SEALED, checksum, number)

    def count(self) -> int:
        """Return how many objects that is."""
        return self.marks.count() + len(self.checksums) + len(self.heads) + (self.marker is not None)


class _CopyReplay(Replay):
    """A replay that notes the checksum of each entry."""

    def __init__(self, objects: ObjectStore, head: CheckpointHead | None) -> None:
        super().__init__(objects, head)
        self.checksums = array("I") if head is None else array("I", [int(head.entry_checksum, 16)])

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        super().take(entry, changes, size_bytes)
        self.checksums.append(int(entry.checksum, 16))


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
    replay.advance_to(entry, _WINDOW)
    reading = _Reading(objects, replay)
    heads = [head for head in heads if head is base or reading.is_whole(head)]
    marks = mark(objects, heads, horizon, replay)
    find_checksums(marks, replay)
    plan = CopyPlan(horizon, entry, replay.checksum, horizon, replay.checksums, replay.topics, marks)
    for head in heads:
        name = names.checkpoint_head(head.entry, head.checkpoint)
        plan.heads.append(ObjectToCopy(name, UNKNOWN_SIZE, SEALED, head.checksum, head.entry))
        plan.newest_head = head
    if base is not None:
        plan.marker = ObjectToCopy(names.horizon(horizon), UNKNOWN_SIZE, MARKER, "", horizon)
    return plan


class _Reading:
    """Reads checkpoint after checkpoint; what several name is read once."""

    def __init__(self, objects: ObjectStore, replay: Replay) -> None:
        self._objects = objects
        self._replay = replay
        self._read: set[str] = set()

    def is_whole(self, head: CheckpointHead) -> bool:
        """Return whether a head, its parts and the runs that they name can be read; readers skip one that cannot."""
        read: set[str] = set()
        try:
            for part, ref in head.parts.items():
                if ref.name in self._read:
                    continue
                for record in read_part(self._objects, ref):
                    if part.startswith(SEGMENTS_PREFIX) and isinstance(record, PartitionSegments):
                        self._read_runs(record)
                read.add(ref.name)
        except DamagedObject as damaged:
            log_event("checkpoint_not_copied", entry=head.entry, error=damaged)
            return False
        self._read |= read
        return True

    def _read_runs(self, located: PartitionSegments) -> None:
        topic = self._replay.topics[located.topic_id]
        folder = names.partition_folder(topic, located.topic_id, located.partition)
        for run in (*located.sealed, *(each.run for each in located.rewritten)):
            name = names.manifest(folder, run.folder)
            if name not in self._read:
                # By its checksum: what has it was encoded from checked segments, and decoding takes most of a plan.
                check_manifest(self._objects, folder, run)
                aborted_of(self._objects, folder, [run])
                self._read.add(name)
