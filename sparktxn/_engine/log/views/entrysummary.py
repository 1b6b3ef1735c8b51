"""What each entry of the log did: the transactions that it ended, the records that it named, the offsets.

A transaction is named by its transactional id, its producer id and its number, in text. Producer ids are not given
twice, so a transactional id that was forgotten and is used again gives other names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from sparktxn._engine.format import names
from sparktxn._engine.format.commands import Appends, EndTxn, SinkBatchCommit
from sparktxn._engine.format.entry import LogEntry, decode_entry
from sparktxn._engine.log.follow.confirm import Passed, Premise, confirm
from sparktxn._engine.log.views.entryhistory import Followed, HistoryReplay, expired
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.structs import (
    PartitionSegments,
    SinkState,
    StateKey,
    StateRecord,
    TransactionState,
    TransactionStatus,
)
from sparktxn.errors import DamagedObject

_ENTRIES_AT_ONCE: Final = 64
_PREPARING: Final = (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)


def transaction_name(transactional_id: str, producer_id: int, transaction: int) -> str:
    """Return the name of a transaction, as ``orders-1:7:42``."""
    return f"{transactional_id}:{producer_id}:{transaction}"


class EndedTransaction(NamedTuple):
    """A transaction that an entry ended: the record as it was just before, and the sink's batch that it committed.

    `sink` is None if no sink had a part in it; else its last batch is the one that was committed.
    """

    record: TransactionState
    committed: bool
    sink: SinkState | None

    @property
    def name(self) -> str:
        """The transaction's name."""
        record = self.record
        return transaction_name(record.transactional_id, record.producer_id, record.transaction)


class AppendedRecords(NamedTuple):
    """Records that an entry appended to a topic."""

    record_count: int
    size_bytes: int


class EntrySummary(NamedTuple):
    """What one entry did.

    `operations` are the types of its commands, each once, in their order. `appended` is what records it named, by
    topic id: those of a transaction that it committed may be in earlier entries. `groups` are those whose offsets it
    made take effect, or removed. `topic_names` names topics by their ids, as far as the log knows them.
    """

    entry: int
    timestamp_ms: int
    operations: tuple[str, ...]
    appended: dict[int, AppendedRecords]
    transactions: tuple[EndedTransaction, ...]
    groups: tuple[str, ...]
    topic_names: Mapping[int, str]


def summaries(objects: ObjectStore) -> HistoryReplay[EntrySummary]:
    """Return what computes the summaries of a store's entries."""
    return HistoryReplay(objects, summary_of)


def summary_of(followed: Followed) -> EntrySummary:
    """Return what an entry did, which a replay has followed."""
    entry = followed.entry
    transactions = []
    for change in followed.delta.history("transaction"):
        record = change.record
        if isinstance(record, TransactionState) and record.status in _PREPARING:
            committed = record.status is TransactionStatus.PREPARE_COMMIT
            transactions.append(EndedTransaction(record, committed, record.pending_sink if committed else None))
    return EntrySummary(
        entry.entry,
        entry.timestamp_ms,
        tuple(dict.fromkeys(_operation(command) for command in entry.commands)),
        _appended(entry.entry, followed.changes),
        tuple(transactions),
        tuple(sorted({str(key[1]) for key in followed.changes if key[0] == "offset"})),
        followed.topic_names,
    )


def _operation(command: object) -> str:
    # An entry that would be too large names an object that holds its appends.
    return "append" if isinstance(command, Appends) else str(type(command).__struct_config__.tag)  # type: ignore[attr-defined]


def _appended(entry: int, changes: Mapping[StateKey, StateRecord | None]) -> dict[int, AppendedRecords]:
    appended: dict[int, AppendedRecords] = {}
    for record in changes.values():
        if isinstance(record, PartitionSegments):
            for segment in reversed(record.segments):
                if segment.entry != entry:
                    break
                count, size_bytes = appended.get(record.topic_id, (0, 0))
                appended[record.topic_id] = AppendedRecords(
                    count + segment.record_count, size_bytes + segment.size_bytes
                )
    return appended


class Ending(NamedTuple):
    """The entry that ended a transaction, and whether it committed it."""

    entry: int
    committed: bool


def find_ending(
    objects: ObjectStore, first: int, last: int, is_wanted: Callable[[EndTxn, SinkBatchCommit | None], bool]
) -> Ending | None:
    """Return how the newest wanted transaction ended, of those that entries `first` to `last` ended; None if none is.

    `is_wanted` gets the command that ended a transaction, and the batch of a sink in it if the same entry has it. A
    writer of this library sends both in one list. Entries are read newest first, with no state.

    Raises:
        ViewExpired: the vacuum has passed `first`.
        DamagedObject: an entry is missing or damaged.
    """
    high = last
    while high >= first:
        low = max(first, high - _ENTRIES_AT_ONCE + 1)
        for entry in reversed(read_entries(objects, low, high)):
            batches = {
                (command.transactional_id, command.producer_id, command.transaction): command
                for command in entry.commands
                if isinstance(command, SinkBatchCommit)
            }
            for command in entry.commands:
                if isinstance(command, EndTxn):
                    key = (command.transactional_id, command.producer_id, command.transaction)
                    if is_wanted(command, batches.get(key)):
                        return Ending(entry.entry, command.committed)
        high = low - 1
    return None


def read_entries(objects: ObjectStore, first: int, last: int) -> list[LogEntry]:
    """Return the entries `first` to `last` (inclusive) as they are stored, confirmed, and fetched together.

    Raises:
        ViewExpired: the vacuum has passed `first`.
        DamagedObject: an entry is missing or damaged.
    """
    entries = confirm(objects, partial(Premise, first), partial(_read, objects, first, last))
    if isinstance(entries, Passed):
        raise expired(first, entries)
    return entries


def _read(objects: ObjectStore, first: int, last: int) -> list[LogEntry]:
    entries = []
    for number, data in enumerate(objects.get_many([names.entry(n) for n in range(first, last + 1)]), first):
        if data is None:
            raise DamagedObject(names.entry(number), f"it is missing, and the log has had entry {last}")
        entries.append(decode_entry(data, names.entry(number), number))
    return entries
