"""The last stable offset: up to where a read_committed reader reads (kafka: K71 to K74)."""

from __future__ import annotations

from collections.abc import Iterable

from sparktxn.values.structs import OpenTransaction, PartitionState

__all__ = ["last_stable_offset", "stable_end"]


def last_stable_offset(partition: PartitionState) -> int:
    """Return the first offset of an open transaction, not below the log start; the log end if none is open."""
    return max(partition.log_start_offset, stable_end(partition.open_transactions, partition.log_end_offset))


def stable_end(open_transactions: Iterable[OpenTransaction], end_offset: int) -> int:
    """Return the first offset of an open transaction; `end_offset` if none is open."""
    return min((open_.first_offset for open_ in open_transactions), default=end_offset)
