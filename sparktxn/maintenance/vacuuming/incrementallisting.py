"""Where a vacuum searches once an earlier one has listed everything: names that are new, and names that are passed.

An earlier vacuum to horizon H and floor F has left two kinds of objects below ``topics/``. Some were born at F or
later, or are runs: they are listed again. The others were all in use, named by the checkpoint at H or by entries from H
on. The log says which of them are in use no more, so none of them is listed.

What is found is judged by the vacuum's marks, as what a listing shows. A name too many is harmless, and one too few
is garbage that the next listing of everything finds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import HALVES_PREFIX, SEGMENTS_PREFIX, CheckpointHead
from sparktxn._engine.format.vacuumhint import VacuumHint, decode_vacuum_hint, encode_vacuum_hint
from sparktxn._engine.log.follow.checkpointheads import read_part, read_parts
from sparktxn._engine.log.keep.replay import Replay
from sparktxn._engine.log.write.storeclock import modified_ms
from sparktxn._engine.objectstore.contract import ObjectInfo, ObjectStore
from sparktxn._engine.objectstore.puts import replace_hint
from sparktxn._foundation.process.events import log_event
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import HalfState, PartitionSegments, PartitionState
from sparktxn.errors import DamagedObject

_SHOWN_EVERY_MS: Final = 86_400_000
_NAMES_PER_REQUEST: Final = 1_000
_PARTITIONS_PREFIX: Final = "partitions/"


class Placed(Struct):
    """Objects below ``topics/`` to judge. They are all that exist if `hint`, that of an earlier vacuum, is None.

    `known_folders` are those of the partitions that the next vacuum knows without a hint. `folders` are others that it
    must know, apart from those in which `objects` are kept.
    """

    objects: Iterable[ObjectInfo]
    hint: VacuumHint | None
    known_folders: frozenset[str]
    folders: frozenset[str] = frozenset()


def read_hint(objects: ObjectStore, horizon: int, now_ms: int, list_all_ms: int) -> VacuumHint | None:
    """Return the last vacuum's hint; None if it is not of the horizon in force, or as old as `list_all_ms`."""
    data = objects.get(names.LAST_VACUUM)
    hint = decode_vacuum_hint(data) if data is not None else None
    if hint is None or hint.horizon != horizon or not 0 <= now_ms - hint.listed_ms < list_all_ms:
        return None
    return hint


def list_placed(
    objects: ObjectStore,
    replay: Replay,
    hint: VacuumHint | None,
    base: CheckpointHead | None,
    new: CheckpointHead | None,
    kept: Mapping[TopicIdPartition, Collection[str]],
) -> Placed:
    """Return the objects that may be garbage, or all if there is no hint or listing all takes fewer requests.

    Of files that the log names, those in `kept` are left out.
    `base` is the checkpoint at the hint's horizon, from which `replay` has come to the log's end. `new` is that at the
    horizon of this vacuum. Both are None where the horizon is 1.

    Raises:
        DamagedObject: a part or a manifest of `base` or `new` is missing or damaged.
    """
    known = _folders(objects, replay, new) if new is not None else _folders_of(replay, replay.partitions)
    next_knows = frozenset(known.values())
    if hint is not None:
        try:
            folders = _folders(objects, replay, base) if base is not None else {}
            folders |= _folders_of(replay, replay.partitions)
            parsed = [(names.parse_partition_folder(folder), folder) for folder in hint.folders]
            folders |= {where: folder for where, folder in parsed if where is not None}
            if hint.objects > _NAMES_PER_REQUEST * len(folders):
                found = _New(objects, replay, hint, folders, base, new, kept).objects()
                # Files that are kept are not among the objects.
                unlisted = {folders[where] for where, some in kept.items() if some and where in folders}
                return Placed(found, hint, next_knows, frozenset(unlisted - next_knows))
        except DamagedObject as damaged:
            # Another vacuum to the same horizon deletes what the old checkpoint names.
            log_event("vacuum_lists_everything", reason=damaged)
    return Placed(objects.list(names.TOPICS), None, next_knows)


def list_aged(objects: ObjectStore, hint: VacuumHint | None, folders: frozenset[str]) -> Placed:
    """Return the objects that may have come of age since an earlier vacuum to the same horizon, which has left `hint`.

    `folders` are those of the partitions that exist. Without a hint all objects are returned.
    """
    if hint is None:
        return Placed(objects.list(names.TOPICS), None, folders)
    searched = sorted({*folders, *hint.folders})
    if hint.objects > _NAMES_PER_REQUEST * len(searched):
        floor = hint.segment_floor
        found = (info for folder in searched for info in objects.list(folder, names.segments_born_from(folder, floor)))
        return Placed(found, hint, folders)
    listed = objects.list(names.TOPICS)
    return Placed(
        (info for info in listed if _is_from(info.name, hint.segment_floor)),
        replace(hint, objects=len(listed)),
        folders,
    )


def _is_from(name: str, floor: int) -> bool:
    """Return whether an object is none of the segments that were born below `floor`."""
    parsed = names.parse_partition_object(name)
    born = None if parsed is None else names.parse_segment_born(parsed[2])
    return born is None or born >= floor


def write_hint(
    objects: ObjectStore,
    placed: Placed,
    horizon: int,
    segment_floor: int,
    now_ms: int,
    kept: int,
    folders: set[str],
    known: VacuumHint | None,
) -> None:
    """Write the hint of a vacuum that has deleted all garbage in `placed`; `kept` of it are left, in `folders`.

    `known` is the hint that it has read. If it says the same, it stays, with the date of an earlier listing. Once a day
    it is written again all the same: its time is what shows that a vacuum works where there is nothing to delete.
    """
    before = placed.hint
    earlier = () if before is None else before.folders
    hint = VacuumHint(
        horizon=horizon,
        segment_floor=segment_floor,
        listed_ms=now_ms if before is None else before.listed_ms,
        objects=kept if before is None else before.objects,
        folders=tuple(sorted({*(folders - placed.known_folders), *placed.folders, *earlier})),
    )
    is_same = known is not None and replace(hint, listed_ms=known.listed_ms) == known
    if not is_same or now_ms - (modified_ms(objects, names.LAST_VACUUM) or 0) >= _SHOWN_EVERY_MS:
        replace_hint(objects, names.LAST_VACUUM, encode_vacuum_hint(hint))


class _New:
    """Finds what is new, or passed, since the vacuum that has left `hint`."""

    def __init__(
        self,
        objects: ObjectStore,
        replay: Replay,
        hint: VacuumHint,
        folders: dict[TopicIdPartition, str],
        base: CheckpointHead | None,
        new: CheckpointHead | None,
        kept: Mapping[TopicIdPartition, Collection[str]],
    ) -> None:
        self._objects = objects
        self._replay = replay
        self._hint = hint
        self._folders = folders
        self._base = base
        self._new = new
        self._kept = kept

    def objects(self) -> Iterator[ObjectInfo]:
        """Return the objects, each once; the sizes of some are not known, and 0.

        Raises:
            DamagedObject: what the old checkpoint names is missing or damaged.
        """
        floor = self._hint.segment_floor
        passed: dict[str, int] = {}
        for where, file_name, size_bytes in self._passed():
            # First what takes least: most of a rewritten partition's files are kept.
            if file_name in self._kept.get(where, ()) or where not in self._folders:
                continue
            born = names.parse_segment_born(file_name)
            if born is not None and born < floor:
                passed.setdefault(self._folders[where] + file_name, size_bytes)
        return self._listed(passed)

    def _listed(self, passed: dict[str, int]) -> Iterator[ObjectInfo]:
        for folder in self._folders.values():
            for info in self._objects.list(folder, names.segments_born_from(folder, self._hint.segment_floor)):
                passed.pop(info.name, None)
                yield info
        yield from (ObjectInfo(name, size_bytes, 0) for name, size_bytes in passed.items())

    def _passed(self) -> Iterator[tuple[TopicIdPartition, str, int]]:
        """Yield files that were in use at the earlier horizon, or were named since: partition, name and size.

        Those whose partition's places are what they were are left out.
        """
        base, new = self._base, self._new
        if new is None or new.entry == self._hint.horizon:
            return
        for where, named in self._replay.segments.items():
            yield from ((where, name, 0) for name, file in named.items() if file.entry < new.entry)
        yield from ((where, name, 0) for where, name in self._replay.files_of(self._hint.horizon))
        if base is None:
            return
        for part, ref in base.parts.items():
            if part.startswith(SEGMENTS_PREFIX):
                yield from self._replaced(base, new, part)
            elif part.startswith(HALVES_PREFIX) and ref != new.parts.get(part):
                for record in read_part(self._objects, ref):
                    if isinstance(record, HalfState):
                        yield from (((each.topic_id, each.partition), each.segment, 0) for each in record.segments)

    def _replaced(
        self, base: CheckpointHead, new: CheckpointHead, part: str
    ) -> Iterator[tuple[TopicIdPartition, str, int]]:
        """Yield the files of `base` in partitions that are gone, or whose log start or rewritten ranges differ."""
        of_partitions = _PARTITIONS_PREFIX + part.removeprefix(SEGMENTS_PREFIX)
        if all(base.parts.get(each) == new.parts.get(each) for each in (part, of_partitions)):
            return
        after = self._places(new, part, of_partitions)
        for where, (located, start) in self._places(base, part, of_partitions).items():
            now = after.get(where)
            end = inf
            if now is not None and now[0].rewritten == located.rewritten:
                # The files are the same: those below the log start are in use no more.
                end = now[1]
                if end == start:
                    continue
            for segment in self._replay.current_segments(self._folders[where], located, before=end):
                if start < segment.end_offset <= end:
                    yield where, segment.name, segment.size_bytes

    def _places(
        self, head: CheckpointHead, part: str, of_partitions: str
    ) -> dict[TopicIdPartition, tuple[PartitionSegments, int]]:
        """Return where the records of each partition of a part are, and its log start."""
        refs = [head.parts[each] for each in (part, of_partitions) if each in head.parts]
        records = [record for read in read_parts(self._objects, refs) for record in read]
        starts = {
            (record.topic_id, record.partition): record.log_start_offset
            for record in records
            if isinstance(record, PartitionState)
        }
        return {
            (record.topic_id, record.partition): (record, starts[record.topic_id, record.partition])
            for record in records
            if isinstance(record, PartitionSegments)
        }


def _folders(objects: ObjectStore, replay: Replay, head: CheckpointHead) -> dict[TopicIdPartition, str]:
    """Return the folders of the partitions that a checkpoint has."""
    refs = [ref for part, ref in head.parts.items() if part.startswith(_PARTITIONS_PREFIX)]
    found = [
        (record.topic_id, record.partition)
        for records in read_parts(objects, refs)
        for record in records
        if isinstance(record, PartitionState)
    ]
    return _folders_of(replay, found)


def _folders_of(replay: Replay, partitions: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, str]:
    return {where: names.partition_folder(replay.topics[where[0]], *where) for where in partitions}
