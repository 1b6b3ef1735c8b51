"""Where a partition's records are, as an older checkpoint has sealed them and newer entries have added to them."""

from __future__ import annotations

from msgspec.structs import replace

from sparktxn.structs import PartitionSegments

__all__ = ["in_places_of"]


def in_places_of(
    sealed: PartitionSegments, current: PartitionSegments, entry: int, log_start_offset: int
) -> PartitionSegments:
    """Return `current` with the sealed runs of `sealed`, the same partition's places after an older entry `entry`.

    What `current` has sealed was sealed before that entry. What has been dropped since lies below `log_start_offset`.
    """
    sealed_end = sealed.sealed[-1].end_offset if sealed.sealed else 0
    aborted = {found.last_offset: found for found in (*sealed.aborted, *current.aborted)}
    return replace(
        current,
        sealed=tuple(run for run in sealed.sealed if run.end_offset > log_start_offset),
        segments=(
            *(segment for segment in sealed.segments if segment.end_offset > log_start_offset),
            *(segment for segment in current.segments if segment.entry > entry),
        ),
        aborted=tuple(
            aborted[last_offset] for last_offset in sorted(aborted) if last_offset >= max(sealed_end, log_start_offset)
        ),
    )
