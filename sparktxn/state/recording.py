"""What the rows of the internal topics are made of: the records that an entry leaves, and those that it passes.

A transactional id gives one row for each of Kafka's states that an entry brings it through, PREPARE_COMMIT and
PREPARE_ABORT among them. The row has the record as it was when the state was left. A record that an entry changes
within one state gives one row. An offset gives one row for each time that it takes effect, a member one row for each
entry that changes it. A half transaction gives one row for each change, one when it is settled, and one when it is
discarded. Rows are in the order of their keys.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from sparktxn.state.delta import Delta, ReadState
from sparktxn.state.internal import INTERNAL_TOPIC_IDS
from sparktxn.values.structs import (
    CommittedOffset,
    HalfOutcomes,
    HalfState,
    MemberState,
    SettledHalf,
    StateKey,
    StateRecord,
    TransactionState,
    TransactionStatus,
)

__all__ = ["HistoryChange", "RecordingDelta"]

_TABLES: Final = ("transaction", "offset", "member", "half")
_HALF_SETTLED: Final = "half_settled"
_HALF_DISCARDED: Final = "half_discarded"


class HistoryChange(NamedTuple):
    """One change of a record that a topic shows: the record as it was left, None if removed.

    `ending` is the transaction whose commit made an offset take effect, None for an offset outside transactions.
    """

    key: StateKey
    record: TransactionState | CommittedOffset | MemberState | HalfState | SettledHalf | None
    ending: TransactionState | None = None


class RecordingDelta(Delta):
    """A delta that remembers what each record of the histories has passed."""

    __slots__ = ("_before", "_ending", "_passed")

    def __init__(self, read: ReadState) -> None:
        super().__init__(read)
        self._before = read
        self._passed: dict[StateKey, list[HistoryChange]] = {}
        self._ending: TransactionState | None = None

    def put(self, record: StateRecord) -> None:
        """Set a record."""
        if isinstance(record, HalfState):
            self._pass_discard(record.key, record)
        super().put(record)
        if isinstance(record, TransactionState):
            self._ending = record if record.status is TransactionStatus.PREPARE_COMMIT else None
            self._pass(HistoryChange(record.key, record))
        elif isinstance(record, CommittedOffset):
            self._pass(HistoryChange(record.key, record, self._ending))
        elif isinstance(record, HalfState):
            self._pass(HistoryChange(record.key, record))
        elif isinstance(record, HalfOutcomes):
            settled = record.settled[-1]
            self._pass(HistoryChange((_HALF_SETTLED, settled.group_id, settled.transaction_id), settled))
        elif isinstance(record, MemberState):
            self._pass(HistoryChange(record.key, record))

    def remove(self, key: StateKey) -> None:
        """Remove a record."""
        if key[0] == "half":
            self._pass_discard(key, None)
        super().remove(key)
        if key[0] in _TABLES:
            self._pass(HistoryChange(key, None))

    def _pass_discard(self, key: StateKey, record: HalfState | None) -> None:
        """Note that a half transaction is discarded, or is not any more."""
        before = _discarded(self.get(key))
        after = _discarded(record)
        if before != after:
            self._pass(HistoryChange((_HALF_DISCARDED, *key[1:]), after))

    def _state_before(self, key: StateKey) -> Any:
        if key[0] == _HALF_SETTLED:
            return None
        if key[0] == _HALF_DISCARDED:
            return _discarded(self._before(("half", *key[1:])))
        return self._before(key)

    def _pass(self, change: HistoryChange) -> None:
        passed = self._passed.setdefault(change.key, [])
        if passed and _same_state(passed[-1].record, change.record):
            passed[-1] = change
        else:
            passed.append(change)

    def before(self, key: StateKey) -> Any:
        """Return a record as it was before the entry; None if there was none."""
        return self._before(key)

    def history(self, table: str) -> list[HistoryChange]:
        """Return the changes of one table of `state.internal.HISTORY_TABLES`, in the order of their keys.

        A member has one, from before the entry to its end; that it gave a sign of life is not a change.
        """
        found = []
        for key in sorted(key for key in self._passed if key[0] == table):
            if table == "offset" and key[2] in INTERNAL_TOPIC_IDS:
                # A consumer that commits would otherwise read its own commits without end.
                continue
            current = self._state_before(key)
            if table == "member":
                if _without_sign(current) != _without_sign(self._passed[key][-1].record):
                    found.append(self._passed[key][-1])
                continue
            for change in self._passed[key]:
                if change.record != current:
                    found.append(change)
                current = change.record
        return found


def _discarded(half: HalfState | None) -> HalfState | None:
    return half if half is not None and half.discarded_entry else None


def _same_state(one: object, other: object) -> bool:
    """Return True for two records of one transactional id in one state of one transaction."""
    if not isinstance(one, TransactionState) or not isinstance(other, TransactionState):
        return False
    return (
        one.status is other.status
        and (one.producer_id, one.producer_epoch) == (other.producer_id, other.producer_epoch)
        and (one.transaction, one.prepared) == (other.transaction, other.prepared)
    )


def _without_sign(record: object) -> MemberState | None:
    """Return the record of a member, as if it had given no sign of life."""
    return replace(record, last_entry=0) if isinstance(record, MemberState) else None
