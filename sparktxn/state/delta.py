"""Deltas: what applying a command changes, layered over the state it reads.

Handlers read through a `Delta` and write into it; nothing else changes. A refused command's delta is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct

from sparktxn.values.structs import StateKey, StateRecord, StoreState

__all__ = ["Context", "Delta", "ReadState", "Refusal"]

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


class Delta:
    """Changed records by key, None for removed ones, over the state that `read` gives."""

    __slots__ = ("_read", "changes")

    def __init__(self, read: ReadState) -> None:
        self._read = read
        self.changes: dict[StateKey, StateRecord | None] = {}

    def get(self, key: StateKey) -> Any:
        """Return the record of `key` as this delta leaves it."""
        changes = self.changes
        return changes[key] if key in changes else self._read(key)

    def put(self, record: StateRecord) -> None:
        """Set a record."""
        self.changes[record.key] = record

    def remove(self, key: StateKey) -> None:
        """Remove a record."""
        self.changes[key] = None

    def store(self) -> StoreState:
        """Return the store's own record."""
        return self.get(("store",)) or StoreState()
