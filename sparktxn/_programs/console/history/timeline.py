"""Transactions on a line of time: a bar for each one, and marks for new producers, from the facts of entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from sparktxn._foundation.values.structs import TransactionStatus
from sparktxn._programs.console.history.entryfacts import EntryFacts, TransactionChange

Outcome = Literal["open", "prepared", "committed", "aborted"]


class Bar(Struct, frozen=True):
    """One transaction. The end is None while it is open; `reason` says why another process has aborted it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction: int
    outcome: Outcome
    began_entry: int
    began_ms: int
    ended_entry: int | None = None
    ended_ms: int | None = None
    partition_count: int = 0
    timeout_ms: int = -1
    reason: str = ""

    @property
    def name(self) -> tuple[str, int, int]:
        """What no other transaction has in common."""
        return self.transactional_id, self.producer_id, self.transaction


class Mark(Struct, frozen=True):
    """A producer has got an epoch of a transactional id, and fenced the one before it; `reason` says why, if known."""

    entry: int
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    reason: str = ""


class Lane(Struct, frozen=True):
    """The transactions of one transactional id, in their order."""

    transactional_id: str
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]


def lanes_of(facts: Iterable[EntryFacts]) -> list[Lane]:
    """Return the lanes of the transactional ids that `facts` name, those with an open transaction first.

    Within these the one that changed last comes first. A transaction that began before the facts has its own beginning.
    """
    bars: dict[str, dict[tuple[str, int, int], Bar]] = {}
    marks: dict[str, list[Mark]] = {}
    last: dict[str, int] = {}
    for one in facts:
        for change in one.transactions:
            name = change.transactional_id
            last[name] = one.entry
            if change.status is TransactionStatus.EMPTY:
                mark = Mark(one.entry, one.timestamp_ms, change.producer_id, change.producer_epoch, change.reason)
                marks.setdefault(name, []).append(mark)
                continue
            bar = _bar(bars.get(name, {}), change, one)
            if bar is not None:
                bars.setdefault(name, {})[bar.name] = bar
    lanes = [Lane(name, tuple(bars.get(name, {}).values()), tuple(marks.get(name, ()))) for name in last]
    return sorted(lanes, key=lambda lane: (not _is_open(lane), -last[lane.transactional_id], lane.transactional_id))


def _is_open(lane: Lane) -> bool:
    return any(bar.ended_entry is None for bar in lane.bars)


def _bar(known: dict[tuple[str, int, int], Bar], change: TransactionChange, facts: EntryFacts) -> Bar | None:
    """Return a transaction as a change leaves it; None if the change is of none, or of one that had ended."""
    committed = change.committed
    if change.status is not TransactionStatus.ONGOING and committed is None:
        return None
    bar = Bar(
        change.transactional_id,
        change.producer_id,
        change.producer_epoch,
        change.transaction,
        "prepared" if change.is_prepared else "open",
        change.start_entry,
        change.start_timestamp_ms,
        partition_count=change.partition_count,
        timeout_ms=change.timeout_ms,
    )
    before = known.get(bar.name)
    if committed is None:
        return bar if before is None or before.ended_entry is None else None
    return replace(
        bar,
        producer_epoch=bar.producer_epoch if before is None else before.producer_epoch,
        outcome="committed" if committed else "aborted",
        ended_entry=facts.entry,
        ended_ms=facts.timestamp_ms,
        reason="" if committed else change.reason,
    )
