"""How many bytes of records all open transactions have in this gateway's memory."""

from __future__ import annotations

import threading

__all__ = ["TransactionMemory", "TransactionShare"]


class TransactionMemory:
    """Owns the total of all shares, which alone change it: asking for it costs the same for any number of them."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of all shares."""
        return self._held_bytes

    @property
    def is_above(self) -> bool:
        """Whether the shares have more than they may have together."""
        return self._held_bytes > self._bytes_max

    def share(self) -> TransactionShare:
        """Return a share of nothing."""
        return TransactionShare(self)

    def change(self, size_bytes: int) -> None:
        """Count bytes that a share has got, or has given back."""
        with self._lock:
            self._held_bytes += size_bytes


class TransactionShare:
    """What one transactional id has in memory. Safe for several threads."""

    def __init__(self, memory: TransactionMemory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._closed = False

    def add(self, size_bytes: int) -> None:
        """Count records, unless this is closed: a request that is under way may still bring some."""
        with self._lock:
            if not self._closed:
                self._held_bytes += size_bytes
                self._memory.change(size_bytes)

    def clear(self) -> None:
        """Count no records: they are uploaded, committed or dropped."""
        with self._lock:
            self._memory.change(-self._held_bytes)
            self._held_bytes = 0

    def close(self) -> None:
        """Count nothing from now on: nothing names these records any more."""
        with self._lock:
            self._closed = True
        self.clear()
