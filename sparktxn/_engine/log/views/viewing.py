"""Capturing read views, also of internal topics: at the end, an entry, or a time (PROTOCOL.md, "Read views")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparktxn._engine.log.follow.confirm import Passed, attempt, read_horizon
from sparktxn._engine.log.follow.follower import Follower, open_tail
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.log.views.entryhistory import find_entry, first_entry
from sparktxn._engine.log.views.knownstate import topics_of, unknown_topic
from sparktxn._engine.log.views.readview import PartitionView, ReadView, capture_view
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.internal import INTERNAL_TOPIC_IDS, INTERNAL_TOPICS, entry_of, first_offset, partition_at
from sparktxn._foundation.values.fieldtypes import TopicIdPartition
from sparktxn._foundation.values.structs import PartitionState, StateRecord, TopicState
from sparktxn.errors import CommandRefused, ErrorCode, ViewExpired

# Views of the internal topics: their history up to an entry, in one partition each.


class HistoryView(PartitionView, frozen=True, gc=False):
    """An internal topic at an entry. It has no segments: its rows are computed from the entries that offsets name."""

    def rows_at_most(self, start: int, end: int) -> int:
        """Return how many entries a range has."""
        return entry_of(end) - entry_of(start)

    def end_within(self, start: int, end: int, rows_max: int, all_rows: int) -> int:
        """Return where the beginning of a range ends that has `rows_max` entries, which are whole."""
        return min(end, first_offset(entry_of(start) + rows_max))

    def computed_ranges(self, start: int, end: int, entries_max: int | None) -> Iterator[tuple[int, int]]:
        """Yield the range in parts of at most `entries_max` whole entries (None: no limit)."""
        end = min(end, self.log_end_offset)
        while start < end:
            part_end = end if entries_max is None else self.end_within(start, end, entries_max, 0)
            yield start, part_end
            start = part_end

    def shared_rows(self, start: int, end: int) -> int:
        """Return 0: the range has a limit of its own."""
        return 0

    def unread_from(self, entry: int) -> int:
        """Return where the rows of the entries after `entry` begin."""
        return max(first_offset(entry + 1), self.log_start_offset)

    def entries_after(self, entry: int, start: int) -> range:
        """Return the entries after `entry` that have rows from offset `start` on."""
        return range(max(entry + 1, entry_of(max(start, self.log_start_offset))), self.entry + 1)


def with_history(view: ReadView, topics: Iterable[TopicState], first_entry: int) -> ReadView:
    """Return `view` with internal topics, whose history begins with `first_entry` and ends with the view's entry."""
    named, partitions = dict(view.topics), dict(view.partitions)
    end = first_offset(view.entry + 1)
    start = min(first_offset(first_entry), end)
    for topic in topics:
        named[topic.name] = topic
        partitions[topic.name, 0] = HistoryView(topic, 0, view.entry, start, end, end, (), (), ())
    return replace(view, topics=named, partitions=partitions)


# Records of the whole state at one entry, for what lists them.


class Snapshot(Struct, frozen=True):
    """The topics, their partitions by (topic id, partition), and the records that were asked for, at `entry`.

    Internal topics are among them.
    """

    entry: int
    timestamp_ms: int
    topics: dict[int, TopicState]
    partitions: dict[TopicIdPartition, PartitionState]
    records: tuple[StateRecord, ...]


def take_snapshot(tail: Tail, prefixes: Sequence[str]) -> Snapshot:
    """Return the state of a replica, with the records of the parts whose names start with one of `prefixes`."""
    parts = [part for prefix in prefixes for part in tail.parts.names(prefix)]
    tail.load(parts)
    records = [record for part in parts for record in tail.parts.part(part).values() if record is not None]
    by_id = {topic.topic_id: topic for topic in topics_of(tail)} | INTERNAL_TOPIC_IDS
    partitions = {
        (topic_id, number): state
        for topic_id, topic in by_id.items()
        for number in range(topic.partition_count)
        if (state := partition_at(tail.parts.get, tail.entry, topic_id, number)) is not None
    }
    return Snapshot(tail.entry, tail.timestamp_ms, by_id, partitions, tuple(records))


Captured = TypeVar("Captured")


class Viewer:
    """Captures views for one process. `window` is how many entries are fetched together for a view of an older one."""

    def __init__(self, objects: ObjectStore, follower: Follower, *, window: int) -> None:
        self._objects = objects
        self._follower = follower
        self._window = window
        self._captured_last: tuple[tuple[object, ...], ReadView] | None = None

    def view(self, topics: Iterable[str] | None, entry: int | None, timestamp_ms: int | None) -> ReadView:
        """Return what `Log.view` returns, with its errors."""
        named = None if topics is None else list(topics)
        return self._captured(lambda tail: self._capture(tail, named), entry, timestamp_ms)

    def known_view(self, topics: Iterable[str] | None = None) -> ReadView:
        """Return what `Log.known_view` returns, with its errors."""
        named = None if topics is None else list(topics)
        with self._follower.locked("view"):
            tail = self._follower.tail
            if tail.confirmed_entry != tail.entry:
                self._follower.refresh()
            return self._follower.insist(lambda: self._capture(self._follower.tail, named))

    def snapshot(self, prefixes: Sequence[str], entry: int | None, timestamp_ms: int | None) -> Snapshot:
        """Return what `Log.snapshot` returns, with its errors."""
        return self._captured(lambda tail: take_snapshot(tail, prefixes), entry, timestamp_ms)

    def _captured(self, capture: Callable[[Tail], Captured], entry: int | None, timestamp_ms: int | None) -> Captured:
        with self._follower.locked("view"):
            # A vacuum may have deleted what was about to be read: what it has kept is elsewhere.
            while isinstance(captured := self._attempt(capture, entry, timestamp_ms), Passed):
                pass
        return captured

    def _attempt(
        self, capture: Callable[[Tail], Captured], entry: int | None, timestamp_ms: int | None
    ) -> Captured | Passed:
        self._follower.refresh()
        tail = self._follower.tail
        if timestamp_ms is not None:
            entry = self._entry_at(timestamp_ms, tail)
        if entry is not None and entry != tail.entry:
            tail = self._tail_at(entry, tail)
        return attempt(self._objects, lambda: tail.premise, lambda: capture(tail))

    def _capture(self, tail: Tail, topics: list[str] | None) -> ReadView:
        found = topics_of(tail) if topics is None else []
        internal = []
        for name in topics or ():
            if name in INTERNAL_TOPICS:
                internal.append(INTERNAL_TOPICS[name])
                continue
            topic: TopicState | None = tail.parts.get(("topic", name))
            if topic is None:
                raise unknown_topic(self._objects.uri, name, topics_of(tail))
            found.append(topic)
        view = self._view_of(tail, found)
        return with_history(view, internal, first_entry(self._objects)) if internal else view

    def _view_of(self, tail: Tail, topics: Sequence[TopicState]) -> ReadView:
        """Capture topics; a view that another client of this process has captured of the same state is shared."""
        names = tuple(topic.name for topic in topics)
        # Parts that stand on another checkpoint, or are other parts, stand otherwise.
        key = (tail.entry, tail.checksum, tail.parts.basis, names)
        if self._captured_last is not None and self._captured_last[0] == key:
            return self._captured_last[1]
        view = capture_view(tail.parts.get, topics, tail.entry, tail.timestamp_ms, tail.parts.base)
        self._captured_last = (key, view)
        return view

    def _tail_at(self, entry: int, newest: Tail) -> Tail:
        """Return a replica at an older entry: from the newest checkpoint not after it, and the entries between."""
        if not 0 <= entry <= newest.entry:
            raise CommandRefused(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no entry {entry}: the log's newest is {newest.entry}"
            )
        tail = open_tail(
            self._objects,
            lambda head, unusable: Tail(self._objects, head, unusable),
            lambda tail: tail.advance_to(entry, self._window),
            at_most=entry,
        )
        if isinstance(tail, Passed):
            raise ViewExpired(f"entry {entry} can no longer be viewed: vacuum has deleted entries below {tail.horizon}")
        return tail

    def _entry_at(self, timestamp_ms: int, newest: Tail) -> int:
        """Return the last entry whose timestamp is not after `timestamp_ms`; timestamps never fall."""
        if newest.timestamp_ms <= timestamp_ms:
            return newest.entry
        first = read_horizon(self._objects)
        while isinstance(found := find_entry(self._objects, timestamp_ms + 1, first, newest.entry), Passed):
            first = found.horizon
        return found - 1
