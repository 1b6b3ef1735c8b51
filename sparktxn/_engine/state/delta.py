"""Deltas: what applying a command changes, layered over the state it reads.

Handlers read through a `Delta` and write into it; nothing else changes. What a refused command or list has changed is
undone, so that one delta serves a whole entry.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from msgspec import Struct

from sparktxn._foundation.values.structs import StateKey, StateRecord, StoreState

ReadState = Callable[[StateKey], Any]
"""Reads one record by key; None if there is none."""


class Context(Struct, frozen=True):
    """What a command is applied in: the entry's number and timestamp."""

    entry: int
    timestamp_ms: int


class Refusal(NamedTuple):
    """Why a command cannot be applied: Kafka's code, and the reason in words."""

    code: int
    reason: str


class _Unchanged(Enum):
    UNCHANGED = "the delta did not have the record"


class Delta:
    """Changed records by key, None for removed ones, over the state that `read` gives.

    `replaced` is what each change has replaced, the oldest first. Its length is the mark that `undo` goes back to.
    """

    __slots__ = ("_read", "changes", "replaced")

    def __init__(self, read: ReadState) -> None:
        self._read = read
        self.replaced: list[tuple[StateKey, StateRecord | _Unchanged | None]] = []
        self.changes: dict[StateKey, StateRecord | None] = {}

    def get(self, key: StateKey) -> Any:
        """Return the record of `key` as this delta leaves it."""
        changes = self.changes
        return changes[key] if key in changes else self._read(key)

    def put(self, record: StateRecord) -> None:
        """Set a record."""
        key = record.key
        self.replaced.append((key, self.changes.get(key, _Unchanged.UNCHANGED)))
        self.changes[key] = record

    def remove(self, key: StateKey) -> None:
        """Remove a record."""
        self.replaced.append((key, self.changes.get(key, _Unchanged.UNCHANGED)))
        self.changes[key] = None

    def undo(self, mark: int) -> None:
        """Take back what has changed since `replaced` had the length `mark`."""
        while len(self.replaced) > mark:
            key, record = self.replaced.pop()
            if record is _Unchanged.UNCHANGED:
                del self.changes[key]
            else:
                self.changes[key] = record

    def since(self, mark: int) -> dict[StateKey, StateRecord | None]:
        """Return the records that have changed since `replaced` had the length `mark`, as they are now."""
        return {key: self.changes[key] for key, _ in self.replaced[mark:]}

    def store(self) -> StoreState:
        """Return the store's own record."""
        return self.get(("store",)) or StoreState()
