"""Entries that a replica has read and not applied yet.

An entry waits until a part that it touches is read. Then all that touch a part in common with it, or with each other,
are applied in their order. Nothing else reads or changes these parts before. The other entries have no part in common
with them, so the order does not matter. This gives the same records as applying every entry when it is followed.

Entries that touch a part which is being read are not worth deferring: they are applied at once for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from sparktxn.format.checkpoint import part_of
from sparktxn.format.commands import Command, EndTxn
from sparktxn.format.entry import LogEntry
from sparktxn.state.rules import is_confined, parts_touched_by, transaction_of
from sparktxn.state.touches import touched_by_end
from sparktxn.values.structs import StateKey, TransactionState

__all__ = ["DEFERRED_BYTES_MAX", "DEFERRED_ENTRIES_MAX", "Deferred", "DeferredEntries"]

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


class DeferredEntries:
    """The deferred entries of a replica, oldest first. `by_part` has those that touch each part."""

    def __init__(self, read_applied: Callable[[StateKey], Any]) -> None:
        """`read_applied` reads a record as the entries that were applied have left it."""
        self._read_applied = read_applied
        self.by_part: dict[str, list[Deferred]] = {}
        self._queue: dict[int, Deferred] = {}
        self._size_bytes = 0
        # For each part with transactional ids that entries name: what the end of their transactions would touch then.
        self._open: dict[str, dict[str, frozenset[str]]] = {}
        self._credits: dict[str, int] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    def is_full(self) -> bool:
        """Return True if no more should be deferred."""
        return len(self._queue) >= DEFERRED_ENTRIES_MAX or self._size_bytes >= DEFERRED_BYTES_MAX

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
        if not parts:
            return False
        deferred = Deferred(entry.entry, entry.timestamp_ms, entry.commands, parts, size_bytes)
        self._queue[entry.entry] = deferred
        for part in parts:
            self.by_part.setdefault(part, []).append(deferred)
        for transactional_id, held in opened.items():
            self._open.setdefault(part_of(_transaction(transactional_id)), {})[transactional_id] = held
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
                held = self._held(transactional_id)
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

    def _held(self, transactional_id: str) -> frozenset[str] | None:
        """Return the parts that ending the id's transaction would touch now; None if that is not known."""
        key = _transaction(transactional_id)
        known = self._open.get(part_of(key), {}).get(transactional_id)
        if known is not None:
            return known
        # No deferred entry names the id, so what is applied is its newest record.
        transaction: TransactionState | None = self._read_applied(key)
        if transaction is None:
            return _NOTHING
        if transaction.prepared is not None:
            # Its end may take a new producer id from the store's record.
            return None
        return touched_by_end(transaction)

    def oldest(self) -> Deferred | None:
        """Return the oldest entry, None if there is none."""
        return next(iter(self._queue.values()), None)

    def open_parts(self) -> list[str]:
        """Return the parts with ids whose transactions may be left open, holding a partition or an offset."""
        return [part for part, held in self._open.items() if any(held.values())]

    def group_of(self, parts: Iterable[str]) -> tuple[list[Deferred], set[str]]:
        """Return the entries that touch one of `parts`, or a part that another of them touches, and all their parts.

        They are in their order. No other entry touches one of these parts.
        """
        found: dict[int, Deferred] = {}
        left = list(parts)
        seen = set(left)
        while left:
            for deferred in self.by_part.get(left.pop(), ()):
                if deferred.entry not in found:
                    found[deferred.entry] = deferred
                    left += deferred.parts - seen
                    seen |= deferred.parts
        return [found[entry] for entry in sorted(found)], seen

    def remove(self, entries: Iterable[Deferred]) -> set[str]:
        """Forget entries, each of which was applied or is not to be; return the parts that they touch."""
        touched: set[str] = set()
        for deferred in entries:
            del self._queue[deferred.entry]
            self._size_bytes -= deferred.size_bytes
            touched |= deferred.parts
        for part in touched:
            left = [deferred for deferred in self.by_part.pop(part) if deferred.entry in self._queue]
            if left:
                self.by_part[part] = left
            opened = self._open.pop(part, None)
            if left and opened:
                named = {transaction_of(command) for deferred in left for command in deferred.commands}
                self._open[part] = {id_: held for id_, held in opened.items() if id_ in named}
        return touched

    def pass_over(self, entry: int) -> set[str]:
        """Forget the entries up to `entry`, which a checkpoint holds; return the parts that they touch."""
        return self.remove([deferred for deferred in self._queue.values() if deferred.entry <= entry])


def _transaction(transactional_id: str) -> StateKey:
    return ("transaction", transactional_id)
