"""Why each file of a store that the newest entry does not need is still there: an older view, a table, or its age."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from sparktxn.errors import ViewExpired
from sparktxn.format import names
from sparktxn.format.checkpoint import HALVES_PREFIX, PUBLISHED_PREFIX, SEGMENTS_PREFIX, TABLES_PREFIX
from sparktxn.format.entry import LogEntry
from sparktxn.log.follow.confirm import read_horizon, usable_heads
from sparktxn.log.keep.replay import Replay
from sparktxn.log.keep.runs import rewritten_segments_of
from sparktxn.log.log import Log
from sparktxn.maintenance.keptobjects import Marks, heads_in, is_young, mark, open_heads
from sparktxn.maintenance.overtaken import check_not_overtaken, in_attempts
from sparktxn.maintenance.tableobjects import needed_entry
from sparktxn.objectstore.contract import ObjectInfo, ObjectStore
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import (
    HalfState,
    PartitionSegments,
    PartitionState,
    PublishedPartition,
    SegmentRef,
    StateKey,
    StateRecord,
    StoreState,
    TableState,
)

__all__ = ["FileKeepers", "Keeper", "Reason", "file_keepers"]

_WINDOW: Final = 64
_EXAMPLES: Final = 3

Reason = Literal["older views", "views that a table needs", "a table", "a half message", "young", "nothing"]
"""What keeps a file. `a table` is its newest version; a young one may be of an upload that has not been committed."""


class Keeper(Struct):
    """Files of a topic that one reason keeps.

    `last_entry` is the last entry whose view needs them; None if entries do not say it, or no view does. `table_entry`
    is the one that versions of tables need: the horizon does not pass it.
    """

    reason: Reason
    topic: str
    last_entry: int | None = None
    table_entry: int | None = None
    files: int = 0
    size_bytes: int = 0
    examples: tuple[str, ...] = ()


class FileKeepers(Struct, frozen=True):
    """What keeps the files of a store's topics: those that the newest entry needs are counted, the others are named."""

    entry: int
    horizon: int
    segment_floor: int
    current_files: int
    current_bytes: int
    keepers: tuple[Keeper, ...]


class _Offsets(NamedTuple):
    """What an entry has put into a file, or taken out of the newest view."""

    entry: int
    base_offset: int
    end_offset: int


class _Watching(Replay):
    """A replay that notes where files lie, and which entries have taken offsets out of the newest view."""

    def watch(self) -> None:
        """Note what the state has where the replay begins."""
        self.placed: dict[tuple[TopicIdPartition, str], list[_Offsets]] = {}
        self.taken: dict[TopicIdPartition, list[_Offsets]] = {}
        for where, segments in _current(self).items():
            self._place(where, segments, self.entry)

    def _place(self, where: TopicIdPartition, segments: Iterable[SegmentRef], entry: int) -> None:
        for one in segments:
            self.placed.setdefault((where, one.name), []).append(_Offsets(entry, one.base_offset, one.end_offset))

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        """Fold an entry in, and note what it has replaced."""
        number = entry.entry
        for key, record in changes.items():
            if key[0] not in ("segments", "partition"):
                continue
            where = (int(key[1]), int(key[2]))
            taken = self.taken.setdefault(where, [])
            if isinstance(record, PartitionSegments):
                self._place(where, (one for one in record.segments if one.entry == number), number)
                for each in record.rewritten:
                    if each.entry == number:
                        taken.append(_Offsets(number, each.base_offset, each.end_offset))
                        folder = names.partition_folder(self.topics[where[0]], *where)
                        self._place(where, rewritten_segments_of(self._objects, folder, [each]), number)
            elif isinstance(record, PartitionState) and record.log_start_offset:
                taken.append(_Offsets(number, 0, record.log_start_offset))
            elif record is None:
                taken.append(_Offsets(number, 0, 2**63))
        super().take(entry, changes, size_bytes)

    def last_entry(self, where: TopicIdPartition, name: str) -> int | None:
        """Return the last entry whose view needs a file; None if it is not known."""
        left: list[_Offsets] = []
        last = None
        # What an entry takes it takes before it puts something there.
        steps = [(one.entry, 1, one) for one in self.placed.get((where, name), ())]
        steps += [(one.entry, 0, one) for one in self.taken.get(where, ())]
        for entry, is_placed, one in sorted(steps):
            if is_placed:
                left.append(one)
                last = None
            elif left:
                left = [part for before in left for part in _without(before, one)]
                last = None if left else entry - 1
        return last


def _without(one: _Offsets, taken: _Offsets) -> Iterator[_Offsets]:
    """Yield what is left of offsets."""
    if taken.base_offset >= one.end_offset or taken.end_offset <= one.base_offset:
        yield one
        return
    if one.base_offset < taken.base_offset:
        yield one._replace(end_offset=taken.base_offset)
    if taken.end_offset < one.end_offset:
        yield one._replace(base_offset=taken.end_offset)


def _current(replay: Replay) -> dict[TopicIdPartition, list[SegmentRef]]:
    """Return the segments that a view at a replay's entry needs, by partition."""
    starts = {
        (record.topic_id, record.partition): record.log_start_offset
        for part in replay.parts.names("partitions/")
        for record in replay.parts.part(part).values()
        if isinstance(record, PartitionState)
    }
    found: dict[TopicIdPartition, list[SegmentRef]] = {}
    for part in replay.parts.names(SEGMENTS_PREFIX):
        for record in replay.parts.part(part).values():
            if isinstance(record, PartitionSegments) and (record.topic_id, record.partition) in starts:
                where = (record.topic_id, record.partition)
                folder = names.partition_folder(replay.topics[where[0]], *where)
                segments = replay.current_segments(folder, record)
                found[where] = [one for one in segments if one.end_offset > starts[where]]
    return found


def file_keepers(log: Log) -> FileKeepers:
    """Return what keeps the files of all topics, from a listing of them and a replay from the horizon. Writes nothing.

    Raises:
        ViewExpired: vacuums have passed what is read, again and again.
        DamagedObject: the log, or a checkpoint from the horizon on, cannot be read.
        OutcomeUnknown, StoreUnavailable: the store does not answer.
    """
    found = in_attempts(lambda: _Search(log).run())
    if found is None:
        raise ViewExpired("vacuums were faster than what lists the files that they leave: try again")
    return found


class _Search:
    """One attempt."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._objects = log.objects

    def run(self) -> FileKeepers:
        """List all files of topics and judge each.

        Raises:
            Overtaken: a vacuum has passed what was read.
        """
        horizon = read_horizon(self._objects)
        listed = [head for head in heads_in(self._objects.list(names.CHECKPOINTS)) if head.entry >= horizon]
        heads = open_heads(self._objects, listed)
        base = next((head for head in usable_heads(self._objects, heads) if head.entry == horizon), None)
        replay = _Watching(self._objects, base)
        replay.watch()
        replay.advance(window=_WINDOW)
        marks = mark(self._objects, heads, horizon, replay)
        judging = _Judging(self._objects, replay, marks, self._tables_need(replay))
        for info in self._objects.list(names.TOPICS):
            judging.judge(info)
        check_not_overtaken(self._objects, replay.slots)
        return FileKeepers(
            replay.entry,
            horizon,
            judging.floor,
            judging.current_files,
            judging.current_bytes,
            tuple(sorted(judging.keepers.values(), key=lambda one: (-one.size_bytes, one.topic, one.reason))),
        )

    def _tables_need(self, replay: Replay) -> int | None:
        tables = [
            record
            for part in replay.parts.names(TABLES_PREFIX)
            for record in replay.parts.part(part).values()
            if isinstance(record, TableState)
        ]
        return needed_entry(self._objects, tables)


class _Judging:
    """Judges object after object."""

    def __init__(self, objects: ObjectStore, replay: _Watching, marks: Marks, tables_need: int | None) -> None:
        self._objects = objects
        self._replay = replay
        self._marks = marks
        self._tables_need = tables_need
        self.floor = (replay.parts.get(("store",)) or StoreState()).segment_floor
        self.current_files = self.current_bytes = 0
        self.keepers: dict[tuple[str, str, int | None], Keeper] = {}
        current = _current(replay)
        self._current = {where: {one.name for one in segments} for where, segments in current.items()}
        self._runs: dict[TopicIdPartition, set[str]] = {}
        self._published: dict[TopicIdPartition, set[str]] = {}
        self._halves: dict[TopicIdPartition, set[str]] = {}
        self._note_state()

    def _note_state(self) -> None:
        parts = self._replay.parts
        for prefix in (SEGMENTS_PREFIX, PUBLISHED_PREFIX, HALVES_PREFIX):
            for part in parts.names(prefix):
                for record in parts.part(part).values():
                    self._note(record)

    def _note(self, record: StateRecord | None) -> None:
        if isinstance(record, PartitionSegments):
            where = (record.topic_id, record.partition)
            self._runs[where] = {run.folder for run in record.sealed} | {each.run.folder for each in record.rewritten}
        elif isinstance(record, PublishedPartition):
            where = (record.topic_id, record.partition)
            ranges = (*record.before.ranges, *record.current.ranges)
            self._runs.setdefault(where, set()).update(each.run.folder for each in ranges)
            folder = names.partition_folder(self._replay.topics[where[0]], *where)
            found = rewritten_segments_of(self._objects, folder, record.current.ranges)
            self._published[where] = {one.name for one in found}
        elif isinstance(record, HalfState):
            for segment in record.segments:
                self._halves.setdefault((segment.topic_id, segment.partition), set()).add(segment.segment)

    def judge(self, info: ObjectInfo) -> None:
        """Count an object, by what keeps it. One whose name is none of the store's is left out."""
        parsed = names.parse_partition_object(info.name)
        if parsed is None:
            return
        where, rest = parsed[:2], parsed[2]
        run = names.parse_sealed_folder(rest)
        is_segment = run is None and names.parse_segment_born(rest) is not None
        if run is None and not is_segment:
            return
        if rest in self._current.get(where, ()) or run in self._runs.get(where, ()):
            self.current_files += 1
            self.current_bytes += info.size_bytes
            return
        self._add(info, where, *self._reason(where, rest, run))

    def _reason(self, where: TopicIdPartition, rest: str, run: str | None) -> tuple[Reason, int | None]:
        if rest in self._published.get(where, ()):
            return "a table", None
        if rest in self._halves.get(where, ()):
            return "a half message", None
        if self._marks.holds(where, rest):
            last = self._replay.last_entry(where, rest) if run is None else None
            needed = self._tables_need
            is_pinned = needed is not None and (last is None or needed <= last)
            return "views that a table needs" if is_pinned else "older views", last
        return "young" if is_young(rest, self._marks.horizon, self.floor) else "nothing", None

    def _add(self, info: ObjectInfo, where: TopicIdPartition, reason: Reason, last: int | None) -> None:
        topic = self._replay.topics.get(where[0], f"topic {where[0]}")
        keeper = self.keepers.get((reason, topic, last))
        if keeper is None:
            needed = self._tables_need if reason == "views that a table needs" else None
            keeper = self.keepers[reason, topic, last] = Keeper(reason, topic, last, needed)
        keeper.files += 1
        keeper.size_bytes += info.size_bytes
        if len(keeper.examples) < _EXAMPLES:
            keeper.examples = (*keeper.examples, info.name)
