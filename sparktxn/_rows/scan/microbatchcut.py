"""Where a micro-batch in commit order is cut: after whole transactions, within a limit of rows or bytes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from sparktxn._engine.log.views.readview import PartitionView, ReadView
from sparktxn._engine.objectstore.contract import ObjectStore
from sparktxn._foundation.values.fieldtypes import TopicPartitionKey
from sparktxn._foundation.values.structs import SegmentRef
from sparktxn._rows.scan.commitorder import CommitRange, pieces_between


class CommitCut(NamedTuple):
    """Where a read in commit order may end.

    `entry` is the last entry whose transactions it takes; `rows` and `size_bytes` are what they hold. Of an internal
    topic each entry counts as one row. What later reads may get of a partition lies from its offset in `unread` on.
    `transactions` counts those of which it takes a record; `oldest_ms` is the least timestamp of their segments.
    """

    entry: int
    rows: int
    size_bytes: int
    unread: dict[TopicPartitionKey, int]
    transactions: int = 0
    oldest_ms: int | None = None


class _Amount(NamedTuple):
    """What an entry has committed of one segment, or the rows of an internal topic that it has."""

    entry: int
    start: int
    rows: int
    size_bytes: int
    segment: SegmentRef | None = None


def commit_cut(
    objects: ObjectStore,
    view: ReadView,
    commits: CommitRange,
    *,
    rows_max: int | None = None,
    bytes_max: int | None = None,
) -> CommitCut:
    """Return where a read of a range of commits ends: at its last entry, or where a limit ends it before.

    A limit takes the transactions of whole entries, oldest first, while they stay within it: at least those of one.
    The answer for a limit does not change as the log grows, but for compactions. What one has compacted since the
    range begins counts as one transaction.

    Raises:
        DamagedObject: a manifest is missing or altered.
        ViewExpired: a manifest is missing because the vacuum has passed the view.
    """
    after_entry, to_entry, bounds = commits
    amounts = {
        key: _amounts(objects, view.partitions[key], after_entry, start, end) for key, (start, end) in bounds.items()
    }
    whole_to = max((compacted_entry(view.partitions[key], start) for key, (start, _) in bounds.items()), default=0)
    found = chain.from_iterable(amounts.values())
    entry, rows, size_bytes = _within(found, to_entry, whole_to, rows_max, bytes_max)
    unread = {
        key: max(start, _first_unread(view.partitions[key], amounts[key], entry)) for key, (start, _) in bounds.items()
    }
    taken = [
        amount.segment
        for amount in chain.from_iterable(amounts.values())
        if amount.segment is not None and amount.entry <= entry
    ]
    transactions = {(segment.producer_id, segment.transaction) for segment in taken if segment.transaction >= 0}
    oldest_ms = min((segment.timestamp_min_ms for segment in taken), default=None)
    return CommitCut(entry, rows, size_bytes, unread, len(transactions), oldest_ms)


def _amounts(objects: ObjectStore, view: PartitionView, after_entry: int, start: int, end: int | None) -> list[_Amount]:
    computed = view.entries_after(after_entry, start)
    amounts = [_Amount(entry, view.unread_from(entry - 1), 1, 0) for entry in computed]
    for piece in pieces_between(objects, view, after_entry, view.entry, start, end):
        rows = piece.segment.rows_between(piece.start, piece.end)
        size_bytes = max(1, piece.segment.size_bytes * rows // piece.segment.file_records)
        amounts.append(_Amount(piece.entry, piece.start, rows, size_bytes, piece.segment))
    return amounts


def compacted_entry(view: PartitionView, start: int) -> int:
    """Return up to which entry a reader from offset `start` on must take transactions together; 0 if it need not.

    A compaction leaves only some records of a transaction, and which of them depends on the later ones.
    """
    return view.compacted.committed_entry if view.compacted and start < view.compacted.end_offset else 0


def _within(
    amounts: Iterable[_Amount], last_entry: int, whole_to: int, rows_max: int | None, bytes_max: int | None
) -> tuple[int, int, int]:
    """Return the last entry within the limits, and the rows and bytes up to it; entries up to `whole_to` are one."""
    rows_by_entry: dict[int, int] = {}
    bytes_by_entry: dict[int, int] = {}
    for amount in amounts:
        if amount.entry > last_entry:
            continue
        entry = min(max(amount.entry, whole_to), last_entry)
        rows_by_entry[entry] = rows_by_entry.get(entry, 0) + amount.rows
        bytes_by_entry[entry] = bytes_by_entry.get(entry, 0) + amount.size_bytes
    rows = size_bytes = 0
    for entry in sorted(rows_by_entry):
        more_rows, more_bytes = rows + rows_by_entry[entry], size_bytes + bytes_by_entry[entry]
        too_many = rows_max is not None and more_rows > rows_max
        too_large = bytes_max is not None and more_bytes > bytes_max
        if rows and (too_many or too_large):
            return entry - 1, rows, size_bytes
        rows, size_bytes = more_rows, more_bytes
    return last_entry, rows, size_bytes


def _first_unread(view: PartitionView, amounts: Iterable[_Amount], entry: int) -> int:
    """Return the least offset that entries after `entry` have committed, or may commit yet."""
    return min([view.unread_from(entry), *(amount.start for amount in amounts if amount.entry > entry)])
