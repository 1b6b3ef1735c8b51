"""Entries that a replica has read and not applied yet.

An entry waits until a part that it touches is read. Entries that touch a part in common belong to one group. Groups
have no part in common, so the order between two groups does not matter. A group is applied whole, in its order, and
before anything else reads or changes its parts. This gives the same records as applying every entry when it is
followed.

Entries that touch a part which is being read are not worth deferring: they are applied at once for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Final

from msgspec import Struct

from sparktxn.format.checkpoint import part_of
from sparktxn.format.commands import Command, EndTxn
from sparktxn.format.entry import LogEntry
from sparktxn.state.rules import is_confined, parts_touched_by, transaction_of
from sparktxn.state.touches import touched_by_end
from sparktxn.structs import StateKey, TransactionState

__all__ = ["DEFERRED_BYTES_MAX", "DEFERRED_ENTRIES_MAX", "Deferred", "DeferredEntries", "Group"]

DEFERRED_ENTRIES_MAX: Final = 4_096
DEFERRED_BYTES_MAX: Final = 4 << 20
"""What is deferred at most, so that a replica that is never read from keeps to so much memory."""

_READ_CREDIT: Final = 256
"""Entries that touch a part and are applied at once after a read of it had to apply deferred ones."""

_SETS_MAX: Final = 1_024
_NOTHING: Final[frozenset[str]] = frozenset()


class Deferred(Struct, frozen=True, gc=False):
    """An entry that is not applied yet; applying it reads and changes nothing but `parts`, and steady records."""

    entry: int
    timestamp_ms: int
    commands: Sequence[Command]
    parts: frozenset[str]
    size_bytes: int


class Group:
    """Deferred entries that touch parts in common, each after the older ones with which it has one in common.

    `open` has, for each transactional id that they name, the parts that the end of its transaction would touch after
    them.
    """

    __slots__ = ("entries", "open", "parts")

    def __init__(self) -> None:
        self.entries: list[Deferred] = []
        self.parts: set[str] = set()
        self.open: dict[str, frozenset[str]] = {}


class DeferredEntries:
    """The deferred entries of a replica. `groups` has the group of each part that one of them touches."""

    def __init__(self, read_applied: Callable[[StateKey], Any]) -> None:
        """`read_applied` reads a record as the entries that were applied have left it."""
        self._read_applied = read_applied
        self.groups: dict[str, Group] = {}
        self._entries = 0
        self._size_bytes = 0
        self._credits: dict[str, int] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    def is_full(self) -> bool:
        """Return True if no more should be deferred."""
        return self._entries >= DEFERRED_ENTRIES_MAX or self._size_bytes >= DEFERRED_BYTES_MAX

    def add(self, entry: LogEntry, size_bytes: int) -> bool:
        """Defer the next entry; False if it is to be applied now.

        Raises:
            StoreUnavailable, DamagedObject: a transaction that it ends could not be read; nothing has changed.
        """
        touched: list[tuple[str, ...]] = []
        for command in entry.commands:
            if not is_confined(command):
                return False
            parts_named = parts_touched_by(command, entry.entry)
            if self._credits and self._is_read(parts_named):
                return False
            touched.append(parts_named)
        found = self._with_ends(entry.commands, touched)
        if found is None:
            return False
        parts, opened = found
        group = self._joined(parts)
        group.entries.append(Deferred(entry.entry, entry.timestamp_ms, entry.commands, parts, size_bytes))
        group.open.update(opened)
        self._entries += 1
        self._size_bytes += size_bytes
        return True

    def note_read(self, part: str) -> None:
        """Note that a read of `part` had to wait for its deferred entries."""
        self._credits[part] = _READ_CREDIT

    def _is_read(self, parts: Sequence[str]) -> bool:
        """Return True if one of the parts is being read."""
        for part in parts:
            left = self._credits.get(part)
            if left is not None:
                if left > 1:
                    self._credits[part] = left - 1
                else:
                    del self._credits[part]
                return True
        return False

    def _with_ends(
        self, commands: Sequence[Command], touched: Sequence[tuple[str, ...]]
    ) -> tuple[frozenset[str], dict[str, frozenset[str]]] | None:
        """Return all parts that the commands touch, and what is open after them; None if they are not confined."""
        parts: set[str] = set()
        opened: dict[str, frozenset[str]] = {}
        for command, named in zip(commands, touched, strict=True):
            parts.update(named)
            transactional_id = transaction_of(command)
            if transactional_id is None:
                continue
            held = opened.get(transactional_id)
            if held is None:
                held = self._held(("transaction", transactional_id))
                if held is None:
                    return None
            if type(command) is EndTxn:
                parts.update(held)
                opened[transactional_id] = _NOTHING
            else:
                opened[transactional_id] = held.union(named)
        # Most entries touch what others touch: one set for all of them costs less memory, and garbage collection.
        if len(self._sets) >= _SETS_MAX:
            self._sets.clear()
        all_parts = frozenset(parts)
        return self._sets.setdefault(all_parts, all_parts), opened

    def _held(self, key: StateKey) -> frozenset[str] | None:
        """Return the parts that ending the transaction of `key` would touch now; None if that is not known."""
        group = self.groups.get(part_of(key))
        if group is not None and (known := group.open.get(str(key[1]))) is not None:
            return known
        # No deferred entry names the id, so what is applied is its newest record.
        transaction: TransactionState | None = self._read_applied(key)
        if transaction is None:
            return _NOTHING
        if transaction.prepared is not None:
            # Its end may take a new producer id from the store's record.
            return None
        return touched_by_end(transaction)

    def _joined(self, parts: frozenset[str]) -> Group:
        """Return the group of `parts`, made from all groups that one of them belongs to."""
        found = {id(group): group for part in parts if (group := self.groups.get(part)) is not None}
        if len(found) == 1:
            (joined,) = found.values()
        else:
            joined = reduce(self._merged, _in_order(found.values())) if found else Group()
        if not joined.parts.issuperset(parts):
            joined.parts |= parts
            self.groups.update(dict.fromkeys(parts, joined))
        return joined

    def _merged(self, one: Group, other: Group) -> Group:
        # Entries of two groups have no part in common, so each order of theirs gives the same records.
        larger, smaller = (one, other) if len(one.entries) >= len(other.entries) else (other, one)
        larger.entries += smaller.entries
        larger.parts |= smaller.parts
        larger.open.update(smaller.open)
        self.groups.update(dict.fromkeys(smaller.parts, larger))
        return larger

    def all_groups(self) -> list[Group]:
        """Return each group once."""
        return _in_order({id(group): group for group in self.groups.values()}.values())

    def open_groups(self) -> list[Group]:
        """Return the groups whose entries may leave a transaction open that holds a partition or an offset."""
        return [group for group in self.all_groups() if any(group.open.values())]

    def applied(self, group: Group, count: int) -> None:
        """Note that the first `count` entries of a group have been applied."""
        self._forget(group.entries[:count])
        del group.entries[:count]
        if not group.entries:
            self._drop(group)

    def pass_over(self, entry: int) -> set[str]:
        """Forget the entries up to `entry`, which a checkpoint holds; return the parts that they touch."""
        passed: set[str] = set()
        for group in self.all_groups():
            dropped = [deferred for deferred in group.entries if deferred.entry <= entry]
            if not dropped:
                continue
            passed.update(*(deferred.parts for deferred in dropped))
            self._forget(dropped)
            self._drop(group)
            group.entries = [deferred for deferred in group.entries if deferred.entry > entry]
            group.parts = set().union(*(deferred.parts for deferred in group.entries))
            # The checkpoint has the newest record of every other transactional id.
            named = {transaction_of(command) for deferred in group.entries for command in deferred.commands}
            group.open = {id_: held for id_, held in group.open.items() if id_ in named}
            self.groups.update(dict.fromkeys(group.parts, group))
        return passed

    def _forget(self, entries: Iterable[Deferred]) -> None:
        for deferred in entries:
            self._entries -= 1
            self._size_bytes -= deferred.size_bytes

    def _drop(self, group: Group) -> None:
        for part in group.parts:
            del self.groups[part]


def _in_order(groups: Iterable[Group]) -> list[Group]:
    """Return groups by their first entries: the order of a set's parts differs from process to process."""
    return sorted(groups, key=lambda group: group.entries[0].entry)
