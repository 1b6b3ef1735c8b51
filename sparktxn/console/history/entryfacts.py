"""What one entry of the log did, in the few figures that plots, the timeline and the lag of groups are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from sparktxn.log.views.entryhistory import Followed
from sparktxn.log.views.entrysummary import summary_of
from sparktxn.values.fieldtypes import TopicIdPartition
from sparktxn.values.structs import (
    CommittedOffset,
    PartitionState,
    StateKey,
    TransactionState,
    TransactionStatus,
)

__all__ = ["EntryFacts", "Moved", "TransactionChange", "facts_of"]


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
