"""Where a partition's records are, as an older checkpoint has sealed them and newer entries have added to them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from sparktxn.state.transactions.endedranges import Ended
from sparktxn.values.structs import PartitionSegments

__all__ = ["in_places_of"]


def in_places_of(
    sealed: PartitionSegments, current: PartitionSegments, entry: int, log_start_offset: int
) -> PartitionSegments:
    """Return `current` with the sealed runs of `sealed`, the same partition's places after an older entry `entry`.

    What `current` has sealed was sealed before that entry. What has been dropped since lies below `log_start_offset`.
    """
    sealed_end = sealed.sealed[-1].end_offset if sealed.sealed else 0
    return replace(
        current,
        sealed=tuple(run for run in sealed.sealed if run.end_offset > log_start_offset),
        segments=(
            *(segment for segment in sealed.segments if segment.end_offset > log_start_offset),
            *(segment for segment in current.segments if segment.entry > entry),
        ),
        aborted=_ended_from(max(sealed_end, log_start_offset), (*sealed.aborted, *current.aborted)),
        committed=_ended_from(max(sealed_end, log_start_offset), (*sealed.committed, *current.committed)),
    )


def _ended_from(offset: int, ended: Iterable[Ended]) -> tuple[Ended, ...]:
    """Return the transactions whose control records are at `offset` or after it, each once, in their order."""
    by_offset = {transaction.last_offset: transaction for transaction in ended}
    return tuple(by_offset[last_offset] for last_offset in sorted(by_offset) if last_offset >= offset)
