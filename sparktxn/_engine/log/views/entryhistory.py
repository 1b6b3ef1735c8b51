"""Replaying the log for its history: what the internal topics show, and what each entry did, entry by entry.

A history begins after the oldest checkpoint that the horizon has left, or with the first entry. As for every reader of
entries, what was read counts only if the horizon has not passed it (PROTOCOL.md, "Confirming").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from sparktxn._engine.format import names
from sparktxn._engine.format.checkpoint import CheckpointHead
from sparktxn._engine.format.entry import LogEntry, decode_entry
from sparktxn._engine.log.follow.checkpointheads import check_heads, read_head
from sparktxn._engine.log.follow.confirm import Passed, Premise, confirm, judge, usable_heads
from sparktxn._engine.log.follow.follower import open_tail
from sparktxn._engine.log.follow.tail import Tail
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._engine.state.delta import Delta
from sparktxn._engine.state.internal import HistoryChange, RecordingDelta, topic_names
from sparktxn._foundation.values.structs import StateKey, StateRecord, TopicState
from sparktxn.errors import DamagedObject, ViewExpired

_ENTRIES_AT_ONCE: Final = 64
"""Entries that are fetched together, and confirmed together."""


class EntryHistory(NamedTuple):
    """What one entry changed; `topic_names` names topics by their ids, as far as the log knows them."""

    entry: int
    timestamp_ms: int
    changes: list[HistoryChange]
    topic_names: Mapping[int, str]


class Followed(NamedTuple):
    """One entry with what it changed, as a replay has followed it; `topic_names` is as in `EntryHistory`."""

    entry: LogEntry
    changes: Mapping[StateKey, StateRecord | None]
    delta: RecordingDelta
    topic_names: Mapping[int, str]


Found = TypeVar("Found")


class _RecordingTail(Tail, Generic[Found]):
    """A replica that keeps what `summarise` returns of the entries from `since` on."""

    defers = False

    def __init__(
        self,
        objects: ObjectStore,
        head: CheckpointHead | None,
        unusable: frozenset[str],
        summarise: Callable[[Followed], Found | None],
    ) -> None:
        super().__init__(objects, head, unusable)
        self._summarise = summarise
        self._recording: RecordingDelta | None = None
        self.since = 0
        self.recorded: list[Found] = []
        self.topic_names: dict[int, str] = topic_names(())

    def name_topics(self) -> None:
        """Note the names of the topics that exist at the entry where the history begins."""
        for part in self.parts.names("topics/"):
            self._name_topics(self.parts.part(part))

    def _name_topics(self, records: Mapping[StateKey, StateRecord | None]) -> None:
        for record in records.values():
            if isinstance(record, TopicState):
                # Names of deleted topics stay: ids are not given twice.
                self.topic_names[record.topic_id] = record.name

    def _delta(self) -> Delta:
        self._recording = RecordingDelta(self.parts.get)
        return self._recording

    def take(self, entry: LogEntry, changes: Mapping[StateKey, StateRecord | None], size_bytes: int) -> None:
        self._name_topics(changes)
        # Asked before the changes are folded in: the history compares with the state before the entry.
        if self._recording is not None and entry.entry >= self.since:
            found = self._summarise(Followed(entry, changes, self._recording, self.topic_names))
            if found is not None:
                self.recorded.append(found)
        super().take(entry, changes, size_bytes)


class HistoryReplay(Generic[Found]):
    """What `summarise` makes of each entry, None to leave it out; remembers where it stands: going on is cheap."""

    def __init__(self, objects: ObjectStore, summarise: Callable[[Followed], Found | None]) -> None:
        self._objects = objects
        self._summarise = summarise
        self._tail: _RecordingTail[Found] | None = None

    def entries(self, first: int, last: int) -> Iterator[Found]:
        """Yield the entries from `first` to `last` (inclusive) that are not left out, in order, each confirmed.

        Raises:
            ViewExpired: the vacuum has passed `first`, or what is needed to compute it.
            DamagedObject: an entry or a part of a checkpoint is damaged.
        """
        tail = self._tail
        self._tail = None
        if tail is None or tail.entry >= first:
            tail = self._open(first)
        tail.since = first
        while tail.entry < last:
            self._advance(tail, last)
            recorded, tail.recorded = tail.recorded, []
            yield from recorded
        self._tail = tail

    def _open(self, first: int) -> _RecordingTail[Found]:
        tail = open_tail(
            self._objects,
            lambda head, unusable: _RecordingTail(self._objects, head, unusable, self._summarise),
            _RecordingTail.name_topics,
            at_most=first - 1,
        )
        if isinstance(tail, Passed):
            raise expired(first, tail)
        return tail

    def _advance(self, tail: _RecordingTail[Found], last: int) -> None:
        """Go some entries further, confirmed: a slot below the horizon may hold what was never the log's."""
        first = tail.entry + 1
        at_most = min(last, tail.entry + _ENTRIES_AT_ONCE)
        passed = confirm(self._objects, lambda: tail.slots, lambda: tail.advance_to(at_most, _ENTRIES_AT_ONCE))
        if passed is not None:
            raise expired(first, passed)
        tail.confirmed_entry = tail.entry


class History(HistoryReplay[EntryHistory]):
    """The entries that change the tables of one topic of `state.internal.HISTORY_TABLES`."""

    def __init__(self, objects: ObjectStore, *tables: str) -> None:
        super().__init__(objects, lambda followed: _changes_of(followed, tables))


def _changes_of(followed: Followed, tables: Sequence[str]) -> EntryHistory | None:
    found = [change for table in tables for change in followed.delta.history(table)]
    entry = followed.entry
    return EntryHistory(entry.entry, entry.timestamp_ms, found, followed.topic_names) if found else None


def expired(entry: int, passed: Passed) -> ViewExpired:
    """Return the error for an entry whose changes can no longer be computed."""
    return ViewExpired(
        f"the history of entry {entry} can no longer be computed: entries below {passed.horizon} may be deleted"
    )


def first_entry(objects: ObjectStore) -> int:
    """Return the oldest entry whose changes can still be computed: 1 if no entry was deleted.

    Raises:
        DamagedObject: the checkpoint that says it is damaged or missing.
    """
    passed, before = judge(objects, Premise(1)), None
    while passed is not None:
        entry = _oldest_usable(objects, passed.horizon)
        if entry is not None and entry <= passed.horizon:
            return entry + 1
        if passed == before:
            check_heads(objects, passed.horizon, passed.horizon)
        # The horizon may have moved meanwhile.
        passed, before = judge(objects, Premise(1)), passed
    return 1


def _oldest_usable(objects: ObjectStore, horizon: int) -> int | None:
    parsed = [names.parse_checkpoint_head(name) for name in objects.list_names(names.CHECKPOINTS)]
    for entry, checkpoint in sorted(found for found in parsed if found is not None and found[0] >= horizon - 1):
        head = read_head(objects, entry, checkpoint)
        if head is not None and usable_heads(objects, [head]):
            return entry
    return None


def entry_not_before(objects: ObjectStore, timestamp_ms: int, first: int, last: int) -> int:
    """Return the first of the entries `first` to `last` dated `timestamp_ms` or later; `last` + 1 if none is.

    Raises:
        ViewExpired: the vacuum has passed one of them.
        DamagedObject: an entry is missing or damaged.
    """
    found = find_entry(objects, timestamp_ms, first, last)
    if isinstance(found, Passed):
        raise expired(first, found)
    return found


def find_entry(objects: ObjectStore, timestamp_ms: int, first: int, last: int) -> int | Passed:
    """Return what `entry_not_before` returns, by bisection; how a vacuum has passed `first` if it has.

    Raises:
        DamagedObject: an entry is missing or damaged.
    """
    return confirm(objects, lambda: Premise(first), lambda: _bisected(objects, timestamp_ms, first, last))


def _bisected(objects: ObjectStore, timestamp_ms: int, first: int, last: int) -> int:
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        name = names.entry(middle)
        data = objects.get(name)
        if data is None:
            raise DamagedObject(name, f"it is missing, and the log has had entry {last}")
        if decode_entry(data, name, middle).timestamp_ms < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low
