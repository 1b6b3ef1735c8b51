"""What one entry of the log did, in the few figures that plots, the timeline and the lag of groups are made of."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from sparktxn._engine.log.views.entryhistory import Followed, HistoryReplay, first_entry
from sparktxn._engine.log.views.entrysummary import summary_of
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.structs import (
    CommittedOffset,
    PartitionState,
    StateKey,
    TransactionState,
    TransactionStatus,
)
from sparktxn._programs.console.requestturns import held
from sparktxn.errors import ViewExpired
from sparktxn.store.options import TopicIdPartition

_ENDS: Final = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


class TransactionChange(NamedTuple):
    """What a transactional id became in an entry; `status` is None once it was forgotten."""

    transactional_id: str
    status: TransactionStatus | None
    producer_id: int = -1
    producer_epoch: int = -1
    transaction: int = -1
    start_timestamp_ms: int = -1
    start_entry: int = -1
    timeout_ms: int = -1
    partition_count: int = 0
    is_prepared: bool = False
    reason: str = ""
    replaces: bool = False
    """Whether the id was known before, so that a new producer has fenced another one."""

    @property
    def fences(self) -> bool:
        """Whether a new producer has got the id of another one."""
        return self.status is TransactionStatus.EMPTY and self.replaces

    @property
    def committed(self) -> bool | None:
        """Whether this change committed the transaction, or aborted it; None if it did neither."""
        return self.status is TransactionStatus.PREPARE_COMMIT if self.status in _ENDS else None


class Moved(NamedTuple):
    """An offset before and after an entry; None where there was none."""

    before: int | None
    after: int | None


class EntryFacts(Struct, frozen=True, gc=False):
    """What one entry did.

    `records` and `size_bytes` are what it appended, by topic; those of a transaction become visible only with its end.
    `ends` are the log end offsets that it moved, and `offsets` the committed offsets by (group, topic id, partition).
    """

    entry: int
    timestamp_ms: int
    operations: tuple[str, ...]
    records: dict[str, int]
    size_bytes: dict[str, int]
    transactions: tuple[TransactionChange, ...]
    ends: dict[TopicIdPartition, Moved]
    offsets: dict[tuple[str, int, int], Moved]

    @property
    def weight(self) -> int:
        """About how much memory it takes: how many items it has."""
        return 4 + len(self.records) + 2 * len(self.transactions) + len(self.ends) + len(self.offsets)


def facts_of(followed: Followed) -> EntryFacts:
    """Return what an entry did, which a replay has followed."""
    summary, names = summary_of(followed), followed.topic_names
    appended = {names.get(topic_id, f"topic {topic_id}"): one for topic_id, one in summary.appended.items()}
    ends: dict[TopicIdPartition, Moved] = {}
    offsets: dict[tuple[str, int, int], Moved] = {}
    for key, record in followed.changes.items():
        match key:
            case ("partition", int(topic_id), int(number)):
                ends[topic_id, number] = Moved(*(_end(one) for one in (followed.delta.before(key), record)))
            case ("offset", str(group_id), int(topic_id), int(number)):
                moved = Moved(*(_offset(one) for one in (followed.delta.before(key), record)))
                offsets[group_id, topic_id, number] = moved
    return EntryFacts(
        summary.entry,
        summary.timestamp_ms,
        summary.operations,
        {name: one.record_count for name, one in appended.items()},
        {name: one.size_bytes for name, one in appended.items()},
        tuple(_transaction_changes(followed)),
        ends,
        offsets,
    )


def _end(record: object) -> int | None:
    return record.log_end_offset if isinstance(record, PartitionState) else None


def _offset(record: object) -> int | None:
    return record.offset if isinstance(record, CommittedOffset) else None


def _transaction_changes(followed: Followed) -> Iterator[TransactionChange]:
    before: dict[StateKey, object] = {}
    for change in followed.delta.history("transaction"):
        known = before.get(change.key, followed.delta.before(change.key))
        yield _change(str(change.key[1]), change.record, known)
        before[change.key] = change.record


def _change(transactional_id: str, record: object, before: object) -> TransactionChange:
    if not isinstance(record, TransactionState):
        return TransactionChange(transactional_id, None)
    return TransactionChange(
        transactional_id,
        record.status,
        record.producer_id,
        record.producer_epoch,
        record.transaction,
        record.start_timestamp_ms,
        record.start_entry,
        record.timeout_ms,
        len(record.partitions),
        record.prepared is not None,
        record.fence_reason,
        isinstance(before, TransactionState),
    )


# The newest entries of the log, kept as facts: a page asks for a window, and only new entries are read.
#
# A store without a watcher has a history, too: it is computed from the entries that are left.

ENTRIES_KEPT: Final = 2_048
_WEIGHT_MAX: Final = 400_000


class Chronicle:
    """The facts of the newest entries, at most `entries_max` of them and of a bounded size, oldest first.

    Its methods raise:
        DamagedObject, StoreUnavailable, OutcomeUnknown: the log cannot be read.
        ViewExpired: vacuums pass what is read, again and again.
    """

    def __init__(self, objects: ObjectStore, *, entries_max: int = ENTRIES_KEPT, weight_max: int = _WEIGHT_MAX) -> None:
        self._objects = objects
        self._entries_max = entries_max
        self._weight_max = weight_max
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._replay = HistoryReplay(self._objects, facts_of)
        self._kept: deque[EntryFacts] = deque()
        self._weight = 0

    def up_to(self, last: int) -> Sequence[EntryFacts]:
        """Return the facts of the entries up to `last`, which the log has, as far back as they are kept."""
        with held(self._lock):
            try:
                self._follow(last)
            except ViewExpired:
                # What it had not read yet was vacuumed: what is left begins later.
                self._forget()
                self._follow(last)
            return [facts for facts in self._kept if facts.entry <= last]

    def window(self, last: int, count: int) -> Sequence[EntryFacts]:
        """Return the facts of `count` entries that end with `last`: those that are not kept are replayed.

        Raises:
            ViewExpired: a vacuum has passed all of them.
        """
        kept = self.up_to(last)
        if kept and kept[0].entry <= last - count + 1:
            return [facts for facts in kept if facts.entry > last - count]
        first = max(first_entry(self._objects), last - count + 1)
        if kept and kept[0].entry <= first:
            return kept
        return list(HistoryReplay(self._objects, facts_of).entries(first, last))

    def replaced(self, entries: Collection[int]) -> frozenset[str]:
        """Return the transactional ids of which some entries have fenced a producer; of old entries perhaps none."""
        if not entries:
            return frozenset()
        try:
            facts = self.window(max(entries), max(entries) - min(entries) + 1)
        except ViewExpired:
            return frozenset()
        changes = (change for one in facts if one.entry in entries for change in one.transactions)
        return frozenset(change.transactional_id for change in changes if change.fences)

    def _follow(self, last: int) -> None:
        newest = self._kept[-1].entry if self._kept else 0
        if last <= newest:
            return
        first = max(newest + 1, last - self._entries_max + 1)
        if first > newest + 1 or not newest:
            # A gap would be taken for silence.
            self._forget()
            first = max(first, first_entry(self._objects))
        if first > last:
            return
        for facts in self._replay.entries(first, last):
            self._kept.append(facts)
            self._weight += facts.weight
            while len(self._kept) > self._entries_max or (self._weight > self._weight_max and len(self._kept) > 1):
                self._weight -= self._kept.popleft().weight
